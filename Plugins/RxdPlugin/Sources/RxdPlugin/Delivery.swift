import Glibc

/// The part of a sink that is specific to a destination: how it is opened, how an event is encoded, how a batch is
/// delivered. The kit does the rest: it rejects single events, retries others in order, finds the event that makes the
/// destination refuse a batch, and waits. A component makes its sink with `DeliverySink(connector, nodeContext)`.
///
/// All calls come from one thread, one at a time, and may block; one that blocks for long checks ``Services/isClosing``.
public protocol DeliveryConnector: AnyObject {
  /// The encoded form of an event.
  associatedtype Piece = [UInt8]
  /// The limits of a batch; read once. Default: none.
  var traits: DeliveryTraits { get }
  /// Opens the destination, before the first batch. A ``SignalFailure`` refuses the sink; its location names the parameter. Default: there is
  /// nothing to open.
  func open() throws
  /// Encodes an event; `frame` evaluates the parameters for it. Must give the same result for the same event, because
  /// it is called again if the event is repeated. Throws the reason if the event can never be delivered; only this
  /// event goes to the errors output.
  func encode(_ event: Event, _ frame: EventFrame) throws(DeliveryRefusal) -> Piece
  /// The bytes that count for ``DeliveryTraits/bytes``. Default: the size of a `[UInt8]` piece, otherwise 0.
  func bytes(of piece: Piece) -> Int
  /// Delivers a batch and returns the outcome of each event. A ``SignalFailure`` that it throws ends the pipeline;
  /// after any other error, all events are repeated.
  func deliver(_ batch: DeliveryBatch<Piece>) throws -> DeliveryOutcome
  /// Releases all resources, after the last batch.
  func close()
}

extension DeliveryConnector {
  public var traits: DeliveryTraits { DeliveryTraits() }
  public func open() throws {}
  public func bytes(of piece: Piece) -> Int { (piece as? [UInt8])?.count ?? 0 }
  public func close() {}
}

/// The limits of a batch.
public struct DeliveryTraits: Sendable {
  /// The maximum number of events in a batch.
  public var count: Int
  /// The maximum number of bytes in a batch; a single event may have more.
  public var bytes: Int
  public init(count: Int = .max, bytes: Int = .max) { (self.count, self.bytes) = (max(1, count), bytes) }
}

/// The reason why an event can never be delivered: one sentence without a full stop, subject first.
public struct DeliveryRefusal: Error {
  public var message: String
  public init(_ message: String) { self.message = message }
}

/// Events to be delivered together, in order. Their values are valid until ``DeliveryConnector/deliver(_:)`` returns.
public struct DeliveryBatch<Piece> {
  /// An event with its encoded form.
  public struct Item {
    public let event: Event
    public let piece: Piece
    /// The event's index among those that rxd has passed.
    let index: Int
  }
  public let items: [Item]
}

/// The outcome of a batch. Events are identified by their indexes in the batch.
public enum DeliveryOutcome: Sendable {
  /// An event that will never be delivered, with the reason.
  public struct Refused: Sendable {
    public var index: Int
    public var reason: String
    public init(_ index: Int, _ reason: String) { (self.index, self.reason) = (index, reason) }
  }

  /// The destination has answered. Events that are not listed are delivered; `again` are repeated, before all later ones, after `after` at the
  /// earliest; `refused` go to the errors output.
  case answered(again: [Int] = [], refused: [Refused] = [], reason: String = "", after: TimeSpan? = nil)
  /// No event was delivered, because the destination is down or busy: all are retried, after `after` at the earliest.
  case again(String, after: TimeSpan? = nil)
  /// The batch was refused as a whole, perhaps because of one event: it is bisected until that event is found, which
  /// goes to the errors output.
  case refused(String)
  /// With the current configuration, no event can ever be delivered: the pipeline ends.
  case broken(SignalFailure)
}

/// A running sink that delivers through a connector.
public final class DeliverySink<Connector: DeliveryConnector>: RunningSink {
  private typealias Item = DeliveryBatch<Connector.Piece>.Item
  private let connector: Connector
  private let traits: DeliveryTraits
  private var items: [Item] = []
  /// The number of events that rxd has passed in this call.
  private var count = 0
  /// No batch is delivered before this time of the monotonic clock.
  private var resumesAt: Int64 = 0
  private var isOpen = false

  public init(_ connector: Connector, _ nodeContext: NodeContext) {
    self.connector = connector
    traits = connector.traits
    super.init(nodeContext)
  }

  public override func open() {
    do {
      try connector.open()
      isOpen = true
    } catch { fail(because: Self.failure(error) ?? SignalFailure(.sink, "\(error)")) }
  }

  public override func receive(_ event: Event) {
    let index = count
    count += 1
    do throws(DeliveryRefusal) {
      items.append(Item(event: event, piece: try connector.encode(event, makeFrame()), index: index))
    } catch { refuse(index, error.message) }
  }

  public override func turnEnded() {
    defer { (items, count) = ([], 0) }
    guard waitUntilDue() else { return retry("the sink is closing") }
    var rest = items[...]
    while !rest.isEmpty, !asksAgain, failure == nil {
      let batch = rest.prefix(fitting(rest))
      rest = rest.dropFirst(batch.count)
      deliver(Array(batch))
    }
  }

  public override func finish() {
    if isOpen { connector.close() }
    isOpen = false
  }

  /// The number of leading items that fit into one batch.
  private func fitting(_ items: ArraySlice<Item>) -> Int {
    var (count, bytes) = (0, 0)
    for item in items {
      bytes += traits.bytes == .max ? 0 : connector.bytes(of: item.piece)
      if count > 0, count == traits.count || bytes > traits.bytes { break }
      count += 1
    }
    return count
  }

  private func deliver(_ items: [Item]) {
    let outcome: DeliveryOutcome
    do { outcome = try connector.deliver(DeliveryBatch(items: items)) } catch {
      if let failure = Self.failure(error) { return fail(because: failure) }
      return repeatLater("\(error)", nil)
    }
    switch outcome {
    case .answered(let again, let refused, let reason, let after):
      let named = again + refused.map(\.index)
      let known = Set(named)
      guard known.count == named.count, named.allSatisfy(items.indices.contains) else {
        let fault = "the outcome of a delivery names an event twice, or one that is not in the batch of \(items.count)"
        nodeContext.log(.error, fault)
        return repeatLater(fault, nil)
      }
      for one in refused { refuse(items[one.index].index, one.reason) }
      for (index, item) in items.enumerated() where !known.contains(index) { deliver(at: item.index) }
      if !again.isEmpty { repeatLater(reason.isEmpty ? "the destination wants events again" : reason, after) }
    case .again(let reason, let after): repeatLater(reason, after)
    case .refused(let reason):
      guard items.count > 1 else { return refuse(items[0].index, reason) }
      deliver(Array(items[..<(items.count / 2)]))
      if !asksAgain, failure == nil { deliver(Array(items[(items.count / 2)...])) }
    case .broken(let failure): fail(because: failure)
    }
  }

  private static func failure(_ error: any Error) -> SignalFailure? { error as? SignalFailure }

  // MARK: Pauses

  /// rxd passes the events again after a pause of its own, which may be shorter.
  private func repeatLater(_ reason: String, _ after: TimeSpan?) {
    if let after, !execution.services.isImmediate { resumesAt = Self.now + after.nanoseconds }
    retry(reason)
  }

  /// Returns false if the sink is closing.
  private func waitUntilDue() -> Bool {
    while true {
      let left = resumesAt - Self.now
      guard left > 0 else { return true }
      if execution.services.isClosing { return false }
      var span = timespec(tv_sec: 0, tv_nsec: Int(min(left, 20_000_000)))
      nanosleep(&span, nil)
    }
  }

  private static var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }
}
