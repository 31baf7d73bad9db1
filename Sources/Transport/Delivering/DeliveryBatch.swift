internal import DequeModule
import PipelineCore

/// The memory of a waiting event in addition to its bytes.
let deliveryItemBytes = 320

/// A waiting event: its encoded form, and the event in case it is rejected. Or a block of messages of a stream (``StreamConnector``).
public struct DeliveryItem {
  /// The result of ``DeliveryConnector/encode(_:)``.
  public var piece: DeliveryForm
  /// The event.
  public var event: OwnedEvent
  /// The receipt on which the sink took it.
  var receipt: Receipt
  /// The event's identity in every delivery, also after a restart; nil: it has none.
  var id: DeliveryID?
  /// The event's bytes, as counted by the connector.
  public var bytes: Int { block?.bytesLeft ?? size }
  var size: Int
  /// The time when the sink accepted the event.
  public var since: Instant
  /// The time of day then, in nanoseconds since 1970.
  public var takenAt: Int64
  /// The event's number among all events of the queue.
  var number = 0
  /// Replaces the piece and the event.
  var block: DeliveryBlock?

  /// The number of events to be delivered.
  var events: Int { block?.left ?? 1 }
}

extension Collection where Element == DeliveryItem {
  var events: Int { reduce(0) { $0 + $1.events } }
}

/// Knows the frames of messages in a block.
package protocol BlockFraming: AnyObject {
  /// A message without its frame.
  func message(in framed: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer
  /// Whether a message is the event as JSON.
  var messagesAreJSON: Bool { get }
}

extension BlockFraming {
  /// The event of a message without its frame, for the errors output: the event itself if the message is JSON, otherwise its text. Valid until the
  /// end of the turn.
  func event(of message: UnsafeRawBufferPointer, in arena: Arena) -> Event {
    let bytes = arena.copy(message)
    if messagesAreJSON {
      let value = JSONParser().parse(bytes, into: arena)
      if !value.isError { return Event(value) }
    }
    return Event(UTF8Text.isValid(bytes) ? .string(bytes) : .bytes(bytes))
  }
}

/// Framed messages of one turn, one for each event.
final class DeliveryBlock {
  let bytes: [UInt8]
  /// The end of each message, frame included.
  let ends: [Int]
  /// The number of messages at the start with an outcome: they are confirmed in order.
  var first = 0
  /// Builds the frames of the messages.
  let framer: any BlockFraming

  init(_ bytes: [UInt8], _ ends: [Int], framer: any BlockFraming) {
    self.bytes = bytes
    self.ends = ends
    self.framer = framer
  }

  var left: Int { ends.count - first }
  func start(_ message: Int) -> Int { message == 0 ? 0 : ends[message - 1] }
  var bytesLeft: Int { bytes.count - start(first) }
  /// The memory of the block in the queue, in addition to its bytes.
  var memory: Int { bytes.count + ends.count * MemoryLayout<Int>.stride + deliveryItemBytes }

  /// Calls `body` with each message that has not been answered for, without its frame.
  func forEachMessage(_ body: (UnsafeRawBufferPointer) -> Void) {
    bytes.withUnsafeBytes { bytes in
      for message in first..<ends.count {
        body(framer.message(in: UnsafeRawBufferPointer(rebasing: bytes[start(message)..<ends[message]])))
      }
    }
  }
}

/// Events that are delivered together, from when they leave the queue until the destination has answered for them.
public final class DeliveryBatch {
  /// The events, in the order in which the sink took them; outcomes name them by their index here.
  public let items: [DeliveryItem]
  /// Which events have an outcome; empty: none has.
  var decided: [Bool] = []
  /// 32 hexadecimal digits, the same in each attempt. Where its events have names, the same whenever the same events are delivered
  /// in one batch. Empty unless ``DeliveryTraits/namesBatches``.
  public let key: String
  let lane: DeliveryLane
  /// The number of failed attempts that count for ``DeliveryTraits/mostAttempts``, and of all failed attempts.
  public internal(set) var attempts = 0
  var tries: Attempts
  /// Why the last attempt failed; nil: none has failed.
  public internal(set) var failure: String?
  /// Counted from 1 in the order in which batches are first tried; 0: it has not been tried.
  public internal(set) var number = 0
  /// The time of day of its first attempt, in nanoseconds since 1970.
  public internal(set) var time: Int64 = 0
  /// The connector's data that is kept from one attempt to the next.
  public var memo: AnyObject?
  /// The source of the outcome; nil: the batch is not under way.
  var answer: DeliveryAnswer?
  /// Whether the batch waits for ``DeliveryConnector/prepare(_:_:)``, and is not delivered yet.
  var isPreparing = false
  /// For a stream: the number of items at the start whose messages are all confirmed.
  var passed = 0
  var deadline = Wake.none

  init(_ items: [DeliveryItem], _ lane: DeliveryLane, key: String, _ retry: Attempts) {
    self.items = items
    self.lane = lane
    self.key = key
    tries = retry
  }

  /// The target of its events; nil: the common target.
  public var target: DeliveryTarget? { lane.target }
  /// The number of its first event: no two batches share an event.
  var id: Int { items.first?.number ?? 0 }
  var bytes: Int { rest.reduce(0) { $0 + $1.bytes } }
  /// Whether there is such an event without an outcome.
  func isOpen(_ index: Int) -> Bool { items.indices.contains(index) && (decided.isEmpty || !decided[index]) }
  /// The events without an outcome.
  var rest: [DeliveryItem] {
    if passed > 0 { return Array(items[passed...]) }
    return decided.isEmpty ? items : zip(items, decided).filter { !$1 }.map(\.0)
  }
  /// For a stream: the blocks that are to be sent.
  var blocks: [SentBlock] {
    items[passed...].compactMap { item in
      item.block.map { SentBlock(bytes: $0.bytes, ends: $0.ends, first: $0.first) }
    }
  }
}

/// The events of one target, in order.
final class DeliveryLane {
  let target: DeliveryTarget?
  /// The events that are in no batch.
  var events = Deque<DeliveryItem>()
  var bytes = 0
  /// Batches to be delivered again, and halves of refused ones, in order: before all `events`.
  var again = Deque<DeliveryBatch>()
  /// Batches under way, in the order in which they began.
  var underWay: [DeliveryBatch] = []
  /// The attempts of the events at the start, which are delivered again.
  var carried: (attempts: Int, tries: Attempts)?
  /// No batch of the lane begins before this time; nil: there is no pause.
  var resumesAt: Instant?
  /// Whether its last batch failed although its destination is not known to be down.
  var isFailing = false
  /// The lane's rank among those from which a batch may begin; nil: no batch may begin.
  var rank: Rank?

  /// The priority of a lane: first lanes with a batch to repeat, then those with enough events, then those with the
  /// oldest event.
  struct Rank: Comparable {
    var kind: UInt8
    /// The number of the first event.
    var number: Int
    static func < (a: Rank, b: Rank) -> Bool { (a.kind, a.number) < (b.kind, b.number) }
  }

  init(_ target: DeliveryTarget?) { self.target = target }

  var isEmpty: Bool { events.isEmpty && again.isEmpty && underWay.isEmpty }
}
