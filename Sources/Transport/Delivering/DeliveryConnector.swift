import PipelineCore

/// The part of a sink that is specific to a destination that takes events in batches: how it is opened, how an event is
/// encoded, how a batch is delivered. The kit has the rest, once for all sinks: the queue, lanes, retries, pauses, the
/// errors output, the end, reloads, state and the counts (docs/connectors.md).
///
/// Every call comes in a turn of the pipeline, one at a time, and none may block: work that takes time runs on a worker
/// (``PipelineCore/NodeContext/worker(_:)``) and ends with ``DeliveryAnswer/put(_:)``. A connector implements
/// ``traits``, ``encode(_:)``, ``deliver(_:_:)`` and ``close(handsOver:)``, most also ``open(_:)``; the others have
/// defaults.
public protocol DeliveryConnector: AnyObject {
  /// The abilities of the connector, and the requests of the pipeline file; read once, when the sink is made.
  var traits: DeliveryTraits { get }

  /// Opens the destination. Returns whether batches may be delivered at once; otherwise they wait for the answer, an
  /// empty ``DeliveryOutcome/answered(again:refused:reason:after:)``. After
  /// ``DeliveryOutcome/down(_:after:usesAttempt:hasOther:)`` it is called again. The end of the connection is reported
  /// to the same answer (``DeliveryOutcome/lost(after:)``). Default: there is nothing to open.
  func open(_ answer: DeliveryAnswer) -> Bool
  /// Encodes an event for delivery. The result must be the same in each call for the same event, because it is called
  /// again after a restart and a reload. Throws the reason if the event cannot be delivered; that event alone goes to
  /// the errors output.
  func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece
  /// Begins to deliver a batch; `answer` gets the outcome. A batch that must be repeated is delivered again with
  /// another answer, and later outcomes of the first one are ignored.
  func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer)
  /// Releases all resources. No more batches are delivered.
  ///
  /// - Parameter handsOver: Whether batches under way continue, for the next version of the pipeline (``DeliveryTraits/handsOver``).
  func close(handsOver: Bool)

  /// Why `open` could not succeed, as far as can be determined without effects that others notice, for `rxd run
  /// --dry-run`. Default: nil, nothing is known.
  func dryRun() -> SignalFailure?
  /// The answer to this batch is no longer awaited: cancel it, if that is possible. Default: it continues, and its answer is ignored.
  func withdraw(_ batch: DeliveryBatch)
  /// The input is complete and all events are delivered. Returns whether the sink may end at once; otherwise it waits
  /// for the answer. Default: at once.
  func finish(_ answer: DeliveryAnswer) -> Bool
  /// Does slow work before a batch is delivered, such as compression. Returns whether it is done; otherwise the sink
  /// waits for an answer, an empty ``DeliveryOutcome/answered(again:refused:reason:after:)``. Default: there is none.
  func prepare(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) -> Bool
  /// The number of further events that it accepts now. Default: any number.
  var room: Int { get }
  /// No further batch begins for now. Default: there is nothing to flush.
  func flush()
  /// The outcome of a reply (``DeliveryOutcome/replied(_:)``) for the batch, where it must be read in a turn; nil: the
  /// reply is not from this connector. In a reload it may be the reply to a batch that an earlier version has
  /// delivered. Default: nil.
  func outcome(of reply: any Sendable, to batch: DeliveryBatch) -> DeliveryOutcome?
  /// Reads the events that an earlier version of the sink has saved in a format of its own
  /// (``PipelineCore/StateReader/version``). Default: nil, the format is the kit's.
  func formerEvents(_ state: inout StateReader) throws(StateFault) -> [OwnedEvent]?
  /// The connector's connections, for statistics. Default: nil, it counts none.
  var connections: PipelineStatistics.Connections? { get }
}

extension DeliveryConnector {
  public func open(_ answer: DeliveryAnswer) -> Bool { true }
  public func dryRun() -> SignalFailure? { nil }
  public func withdraw(_ batch: DeliveryBatch) {}
  public func finish(_ answer: DeliveryAnswer) -> Bool { true }
  public func prepare(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) -> Bool { true }
  public var room: Int { .max }
  public func flush() {}
  public func outcome(of reply: any Sendable, to batch: DeliveryBatch) -> DeliveryOutcome? { nil }
  public func formerEvents(_ state: inout StateReader) throws(StateFault) -> [OwnedEvent]? { nil }
  public var connections: PipelineStatistics.Connections? { nil }
}

/// The abilities of a connector, and what the pipeline file requires of it.
public struct DeliveryTraits: Sendable {
  /// The order in which batches of one lane are delivered.
  public enum Order: Sendable {
    /// One batch is under way at a time; a batch that must be repeated holds back later ones.
    case lane
    /// Further batches begin while some are under way, and are answered in order. If one must be repeated, so must all
    /// after it, as new batches.
    case stream
    /// Up to ``DeliveryTraits/concurrency`` batches are under way, in no order.
    case none
  }

  /// The maximum number of events in a batch. Default: 1.
  public var count = 1
  /// The maximum bytes of a batch (``DeliveryPiece/bytes``); a single event may have more.
  public var bytes = Int.max
  /// How long an event waits for others of its batch. Default: not at all.
  public var age = TimeSpan.zero
  /// The maximum number of incomplete batches; with more, the oldest is delivered as it is.
  public var openBatches = Int.max
  /// The number of events that may wait for a batch before the input pauses. The sink's share of `--queue-memory`
  /// bounds the memory of waiting events, too.
  public var queue = Int.max
  /// The maximum number of batches under way. Default: 1.
  public var concurrency = 1
  /// The order of batches. Default: of one lane, one after another.
  public var order = Order.lane
  /// The pauses before a batch is delivered again, and before the destination is opened again.
  public var retry = Attempts(.milliseconds(100), most: .seconds(10))
  /// Whether a pause is shortened by a random part of up to half.
  public var shortensPauses = true
  /// The maximum number of attempts for a batch; nil: until it is delivered.
  public var mostAttempts: Int?
  /// How long a batch may be under way before it is withdrawn and tried again; nil: the connector limits that itself.
  public var timeout: TimeSpan?
  /// Whether batches have a ``DeliveryBatch/key``, by which the destination recognizes a batch that it has already received.
  public var namesBatches = false
  /// Whether batches under way stay under way in a reload, and are answered to the next version of the pipeline. Default: they are withdrawn when they are
  /// not answered within 2 s, and delivered again.
  public var handsOver = false
  /// Whether ``DeliveryPiece/bytes`` are those of the encoded form, and count as delivered.
  public var countsBytes = true
  /// The number of waiting bytes above which the input pauses; nil: 16 MiB.
  var queueBytes: Int?
  /// Whether the destination is opened for the first event, and not before.
  var opensLate = false
  /// Whether a connection works if it lasts as long as the longest pause, and not when the first message has passed.
  var provesByLasting = false
  /// How messages name the destination.
  public var words: DeliveryWords

  /// One event at a time, in order, repeated until it is delivered.
  public init(_ words: DeliveryWords) { self.words = words }

  /// Messages in order over one connection (``StreamConnector``): several blocks are under way, and a slow destination gets larger pieces.
  ///
  /// - Parameters:
  ///   - queueBytes: How many bytes may wait before the input pauses.
  ///   - startsAtOnce: The destination is opened at the start, and works if it lasts. Otherwise it is opened for the first event, and works when that
  ///     has passed.
  package init(streamTo words: DeliveryWords, queueBytes: Int, _ retry: Attempts, startsAtOnce: Bool) {
    self.words = words
    self.queueBytes = queueBytes
    self.retry = retry
    count = 1024
    bytes = 256 << 10
    // A receiver confirms every few milliseconds; batches must not wait for the confirmation of earlier ones.
    concurrency = 256
    order = .stream
    handsOver = true
    opensLate = !startsAtOnce
    provesByLasting = startsAtOnce
  }

  /// Batches in order, as the parameters of a pipeline file say, repeated until they are delivered.
  public init(_ words: DeliveryWords, _ batch: DeliveryBatchParameter, queue: Int, _ retry: ReconnectParameter) {
    self.words = words
    self.queue = queue
    self.retry = retry.attempts
    count = batch.count
    bytes = batch.bytes.bytes
    age = batch.every
  }
}

/// How messages name a destination.
public struct DeliveryWords: Sendable {
  var destination: String
  var recovered: String
  var failure: String
  var left: String
  /// The text that follows the reason of a failure.
  var again: String

  /// - Parameters:
  ///   - destination: Such as `the server`.
  ///   - recovered: Such as `the server responds again`; nil: derived from `destination`.
  ///   - failure: Such as `failed request`.
  ///   - left: Such as `the server had not acknowledged`; the number of events follows. Nil: derived from `destination`.
  public init(
    _ destination: String, recovered: String? = nil, failure: String = "failed attempt", left: String? = nil
  ) {
    self.init(destination, recovered: recovered, failure: failure, left: left, again: "trying again")
  }

  /// - Parameter again: The text that follows the reason of a failure.
  package init(
    _ destination: String, recovered: String? = nil, failure: String = "failed attempt", left: String? = nil,
    again: String
  ) {
    self.again = again
    self.destination = destination
    self.recovered = recovered ?? "\(destination) accepts events again"
    self.failure = failure
    self.left = left ?? "\(destination) had not taken"
  }
}

/// The reason why an event cannot be delivered.
public struct DeliveryRefusal: Error {
  /// One sentence without a full stop, subject first.
  public var message: String
  /// - Parameter message: One sentence without a full stop, subject first.
  public init(_ message: String) { self.message = message }
}

/// The encoded form of one event. A type parameter for it would make the queue generic, and generic code of another
/// module takes several times as long.
public enum DeliveryForm {
  /// Bytes, such as a line or a command.
  case bytes([UInt8])
  /// Values, such as those of parameters.
  case values([OwnedValue])
  /// An object that only the connector reads.
  case object(AnyObject)

  /// The bytes; empty if it has another form.
  public var bytes: [UInt8] { if case .bytes(let bytes) = self { bytes } else { [] } }
  /// The values; empty if it has another form.
  public var values: [OwnedValue] { if case .values(let values) = self { values } else { [] } }
}

/// The common target of the events of one batch, such as a URL or a partition. Events of one target form a lane.
open class DeliveryTarget: Hashable {
  /// A target that is the same as no other.
  public init() {}
  /// Whether events of both targets may be in one batch.
  open func isSame(as other: DeliveryTarget) -> Bool { self === other }
  /// Hashes the properties that `==` compares.
  open func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
  /// Whether events of both targets may be in one batch.
  public static func == (a: DeliveryTarget, b: DeliveryTarget) -> Bool { a === b || a.isSame(as: b) }
}

/// A target that is a text: a topic, a table, the key of a stream.
public final class NamedTarget: DeliveryTarget {
  /// The text.
  public let name: String
  /// Targets of one name are the same.
  public init(_ name: String) { self.name = name }
  public override func isSame(as other: DeliveryTarget) -> Bool { (other as? NamedTarget)?.name == name }
  public override func hash(into hasher: inout Hasher) { hasher.combine(name) }
}

/// The encoded form of an event, and where it goes.
public struct DeliveryPiece {
  var piece: DeliveryForm
  var target: DeliveryTarget?
  var bytes: Int
  var memory: Int
  var naming: [UInt8]?

  /// - Parameters:
  ///   - piece: The encoded event.
  ///   - bytes: The bytes that count for batches and for the counters.
  ///   - memory: The memory of the piece; nil: `bytes`.
  ///   - target: The target, which all events of a batch share; nil: the common target.
  ///   - naming: Identifies the event in its deliveries, with its origin: only equal bytes have the same name. Nil: it has no name.
  public init(
    _ piece: DeliveryForm, bytes: Int, memory: Int? = nil, target: DeliveryTarget? = nil, naming: [UInt8]? = nil
  ) {
    self.piece = piece
    self.target = target
    self.bytes = bytes
    self.memory = memory ?? bytes
    self.naming = naming
  }
}

/// The outcome of a batch.
public enum DeliveryOutcome: Sendable {
  /// An event that the destination will never take.
  public struct Refused: Sendable {
    var index: Int
    var reason: String
    /// - Parameters:
    ///   - index: The index in the batch.
    ///   - reason: One sentence without a full stop, for the errors output.
    public init(_ index: Int, _ reason: String) {
      self.index = index
      self.reason = reason
    }
  }

  /// The destination has answered for each event. Events that are not listed, by their index in the batch, are delivered.
  ///
  /// - Parameters:
  ///   - again: To be delivered again, after a time.
  ///   - refused: For the errors output.
  ///   - reason: Why some are delivered again.
  ///   - after: The pause that the destination asks for; nil: none.
  case answered(again: [Int] = [], refused: [Refused] = [], reason: String = "", after: TimeSpan? = nil)
  /// The destination has answered for these events, by their index; the others are still under way.
  case partly(done: [Int] = [], refused: [Refused] = [])
  /// Nothing was delivered, and the batch is tried again. Only its lane waits.
  case again(String, after: TimeSpan? = nil)
  /// The destination accepts nothing, whatever the batch: no batch begins for a while, then one alone. `usesAttempt`:
  /// it counts for ``DeliveryTraits/mostAttempts``, so that the events of a destination that stays down are given up.
  /// `hasOther`: the destination has another server, which may accept the batch at once.
  case down(String, after: TimeSpan? = nil, usesAttempt: Bool = false, hasOther: Bool = false)
  /// The destination refuses the batch as a whole, and one of its events may be the cause: each half is delivered alone, down to the event. `isTooLarge`:
  /// later batches are smaller, too.
  case refused(String, isTooLarge: Bool = false)
  /// Like `refused`, but nothing was sent to the destination.
  case unsendable(String)
  /// With these settings the destination will refuse any event: the events of the batch go to the errors output or, if
  /// nothing reads that, the pipeline ends.
  case broken(SignalFailure)
  /// The pipeline ends.
  case impossible(SignalFailure)
  /// The connection has ended: batches under way are sent again, in order, when it is open again. No fault is known.
  case lost(after: TimeSpan)
  /// The destination's reply, for ``DeliveryConnector/outcome(of:to:)``.
  case replied(any Sendable)
  /// For a stream of messages, to the answer of its opening: this number of further messages, in order, is delivered.
  case passed(Int)
  /// The same stream: the next message will never be accepted, and why.
  case refusedNext(String)
}
