import PipelineCore

/// What is particular to a destination that takes events in batches: how events are encoded and delivered. ``DeliverySink`` has the rest, once for all
/// of them: the queue, lanes, retries, pauses, the errors output, the end and the counts.
///
/// Every call comes in a turn, and none may wait: what takes time happens elsewhere and ends with ``DeliveryAnswer/put(_:)``.
package protocol DeliveryConnector: AnyObject {
  /// Read once, when the sink is made.
  var traits: DeliveryTraits { get }

  /// Opens the destination. The answer also hears of the end of the connection (``DeliveryOutcome/lost(after:)``). True: batches may be delivered at once. Otherwise they wait for the answer, and after
  /// ``DeliveryOutcome/down(_:after:usesAttempt:hasOther:)`` it is called again.
  func open(_ answer: DeliveryAnswer) -> Bool
  /// Why `open` could not succeed, as far as that shows without anything that others notice; nil: nothing is known.
  func dryRun() -> SignalFailure?
  /// Reads the events that an earlier version of the sink has saved in a form of its own (``StateReader/version``); nil: it has saved them as
  /// ``DeliverySink`` does.
  func formerEvents(_ state: inout StateReader) throws(StateFault) -> [OwnedEvent]?
  /// What is delivered for an event: the same whenever it is called for the same event. Throws why the event cannot be delivered.
  func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece
  /// Does what takes long before a batch is delivered, such as compression. True: it is done; otherwise the sink waits for an answer, ``DeliveryOutcome/answered(again:refused:reason:after:)``.
  func prepare(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) -> Bool
  /// Delivers a batch; `answer` gets the outcome. The batch comes again with another answer, and nothing that the first one gets counts then.
  func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer)
  /// How many more events it takes now.
  var room: Int { get }
  /// No further batch begins for now.
  func flush()
  /// What a reply (``DeliveryOutcome/replied(_:)``) means for the batch; nil: it is none of this connector. In a reload it may be the reply to a batch that an
  /// earlier version has delivered.
  func outcome(of reply: any Sendable, to batch: DeliveryBatch) -> DeliveryOutcome?
  /// Nobody waits for the answer to this batch any more: give it up, if that is possible.
  func withdraw(_ batch: DeliveryBatch)
  /// The input is complete and nothing is left to deliver. True: the sink may end at once; otherwise it waits for the answer.
  func finish(_ answer: DeliveryAnswer) -> Bool
  /// Releases everything. Nothing is delivered any more.
  ///
  /// - Parameter handsOver: Batches under way go on, for the next version of the pipeline (``DeliveryTraits/handsOver``).
  func close(handsOver: Bool)
  /// Its connections, for statistics; nil: it has none.
  var connections: PipelineStatistics.Connections? { get }
}

extension DeliveryConnector {
  package func open(_ answer: DeliveryAnswer) -> Bool { true }
  package func dryRun() -> SignalFailure? { nil }
  package func formerEvents(_ state: inout StateReader) throws(StateFault) -> [OwnedEvent]? { nil }
  package func prepare(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) -> Bool { true }
  package var room: Int { .max }
  package func flush() {}
  package func outcome(of reply: any Sendable, to batch: DeliveryBatch) -> DeliveryOutcome? { nil }
  package func withdraw(_ batch: DeliveryBatch) {}
  package func finish(_ answer: DeliveryAnswer) -> Bool { true }
  package var connections: PipelineStatistics.Connections? { nil }
}

/// What a connector can do, and what the pipeline file asks of it.
package struct DeliveryTraits: Sendable {
  /// The order in which batches of one lane are delivered.
  package enum Order: Sendable {
    /// One is under way at a time; a batch that must be repeated holds back what came later.
    case lane
    /// Further ones begin while some are under way, and are answered in order. When one must come again, so must all behind it, as new batches.
    case stream
    /// As many are under way as ``DeliveryTraits/concurrency`` allows, in no order.
    case none
  }

  /// The most events and bytes of a batch; one event may have more bytes.
  package var count = 1
  package var bytes = Int.max
  /// How long an event waits for others of its batch.
  package var age = TimeSpan.zero
  /// How many incomplete batches there may be; with more, the oldest is delivered as it is.
  package var openBatches = Int.max
  /// How many events may wait for a batch before the input pauses.
  package var queue = Int.max
  /// How many batches may be under way.
  package var concurrency = 1
  package var order = Order.lane
  /// The pauses before a batch is delivered again.
  package var retry = Attempts(.milliseconds(100), most: .seconds(10))
  /// Whether a pause is shortened by a random part of up to half.
  package var shortensPauses = true
  /// How often a batch is tried; nil: until it is delivered.
  package var mostAttempts: Int?
  /// How long a batch may be under way before it is withdrawn and tried again; nil: the connector watches that itself.
  package var timeout: TimeSpan?
  /// Whether batches have ``DeliveryBatch/key``, by which the destination can tell a batch that it has had.
  package var namesBatches = false
  /// Whether batches under way stay under way in a reload, and are answered to the next version of the pipeline.
  package var handsOver = false
  /// Whether ``DeliveryPiece/bytes`` are those of the encoded form, and count as delivered.
  package var countsBytes = true
  package var words: DeliveryWords

  package init(_ words: DeliveryWords) { self.words = words }
}

/// How messages name a destination.
package struct DeliveryWords: Sendable {
  /// Such as `the server`.
  package var destination: String
  /// Such as `the server responds again`.
  package var recovered: String
  /// Such as `failed request`.
  package var failure: String
  /// Such as `the server had not acknowledged`; the number of events follows.
  package var left: String

  package init(_ destination: String, recovered: String, failure: String, left: String) {
    self.destination = destination
    self.recovered = recovered
    self.failure = failure
    self.left = left
  }
}

/// Why an event cannot be delivered.
package struct DeliveryRefusal: Error {
  package var message: String
  package init(_ message: String) { self.message = message }
}

/// What is delivered for one event. A type of the connector's own would make the queue generic, and generic code of another module takes several times as long.
package enum DeliveryForm {
  case bytes([UInt8])
  case values([OwnedValue])
  /// What only the connector reads.
  case object(AnyObject)

  /// Empty if it has another form.
  package var bytes: [UInt8] { if case .bytes(let bytes) = self { bytes } else { [] } }
  /// Empty if it has another form.
  package var values: [OwnedValue] { if case .values(let values) = self { values } else { [] } }
}

/// What the events of one batch have in common, such as a URL or a partition. Events of one target are a lane.
open class DeliveryTarget: Hashable {
  /// A target that is the same as no other.
  public init() {}
  /// Whether events of both may be in one batch.
  open func isSame(as other: DeliveryTarget) -> Bool { self === other }
  /// Adds what the same targets have in common.
  open func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
  /// Whether events of both may be in one batch.
  public static func == (a: DeliveryTarget, b: DeliveryTarget) -> Bool { a === b || a.isSame(as: b) }
}

/// The encoded form of an event, and where it goes.
package struct DeliveryPiece {
  package var piece: DeliveryForm
  /// Nil: the common target.
  package var target: DeliveryTarget?
  /// The bytes that count for batches and for the counters.
  package var bytes: Int
  /// The memory of the piece.
  package var memory: Int
  /// What names the event in its deliveries beside its origin: only equal bytes have the same name. Nil: it has no name.
  package var naming: [UInt8]?

  package init(
    _ piece: DeliveryForm, bytes: Int, memory: Int? = nil, target: DeliveryTarget? = nil, naming: [UInt8]? = nil
  ) {
    self.piece = piece
    self.target = target
    self.bytes = bytes
    self.memory = memory ?? bytes
    self.naming = naming
  }
}

/// What has become of a batch.
package enum DeliveryOutcome: Sendable {
  package struct Refused: Sendable {
    package var index: Int
    package var reason: String
    package init(_ index: Int, _ reason: String) {
      self.index = index
      self.reason = reason
    }
  }

  /// The destination has answered for each event. Those that are not named, by their index in the batch, are delivered.
  ///
  /// - Parameters:
  ///   - again: To be delivered again, after a time.
  ///   - refused: For the errors output.
  ///   - reason: Why some are delivered again.
  ///   - after: How long the destination asks to wait; nil: it does not say.
  case answered(again: [Int] = [], refused: [Refused] = [], reason: String = "", after: TimeSpan? = nil)
  /// The destination has answered for these events, by their index; the others are still under way.
  case partly(done: [Int] = [], refused: [Refused] = [])
  /// Nothing was delivered, and the batch is tried again. Only its lane waits.
  case again(String, after: TimeSpan? = nil)
  /// The destination takes nothing, whatever the batch: no batch begins for a while, then one alone. `usesAttempt`: it counts for
  /// ``DeliveryTraits/mostAttempts``, so that the events of a destination that stays down are given up. `hasOther`: the
  /// destination has another server, which may take the batch at once.
  case down(String, after: TimeSpan? = nil, usesAttempt: Bool = false, hasOther: Bool = false)
  /// The destination refuses the batch as a whole, and one of its events may be the cause: each half is delivered alone, down to the event. `isTooLarge`:
  /// later batches are smaller, too.
  case refused(String, isTooLarge: Bool = false)
  /// As `refused`, but the destination was not asked.
  case unsendable(String)
  /// The destination will refuse any event, as it is set up: what is in the batch goes to the errors output, or, if nothing reads that, the pipeline ends.
  case broken(SignalFailure)
  /// The pipeline ends.
  case impossible(SignalFailure)
  /// The connection has ended: what is under way comes again, in order, when it is open again. Nothing is known to be wrong.
  case lost(after: TimeSpan)
  /// What the destination has answered, for ``DeliveryConnector/outcome(of:to:)``.
  case replied(any Sendable)
}
