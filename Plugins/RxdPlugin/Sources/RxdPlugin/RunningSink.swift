import CRxdPlugin

/// A running sink, on its own thread.
///
/// It acknowledges every received event exactly once: immediately with ``delivered(_:)`` or ``reject(_:_:on:)``, or by ``turnEnded()``, on a receipt.
open class RunningSink: Downstream {
  public let nodeContext: NodeContext
  private(set) var failure: SignalFailure?
  /// The verdicts on the events of the batch being written.
  private enum Fate { case open, delivered, refused }
  private var fates: [Fate] = []
  /// The index of the first event without a verdict.
  private var next = 0
  private var verdicts: OpaquePointer?
  private var again: String?
  let frame = EventFrame()

  public init(_ nodeContext: NodeContext) { self.nodeContext = nodeContext }

  public final var execution: Execution { nodeContext.execution }
  public final var executor: Executor { Executor(execution: nodeContext.execution) }
  public final var arena: Arena { Arena.current }
  /// The frame with the expression results for the event that is being received.
  public final func makeFrame() -> EventFrame { frame }

  // MARK: To override

  /// Receives one event.
  open override func receive(_ event: Event) {}
  /// Opens the target. Called once; call `fail(because:)` if it cannot be opened.
  open func open() {}
  /// All events of a turn have been received: writes held events and acknowledges them.
  open func turnEnded() {}
  /// No more events follow: closes the target.
  open func finish() {}

  // MARK: What becomes of events

  /// A receipt for the next unacknowledged events.
  public final func take(_ events: Int) -> Receipt { Receipt(self, events) }

  /// Reports the next unacknowledged events as delivered.
  public final func delivered(_ count: Int = 1) { settle(count, .delivered) }

  /// Sends the event that is being received to the errors output; it is not retried.
  public final func reject(_ event: Event, _ message: String, on receipt: Receipt? = nil) {
    refuse(fates.count - 1, message)
  }

  /// The sink cannot continue. Called in `open`, it refuses the sink; the path names the parameter. Later: no event can ever be
  /// delivered.
  public final func fail(because failure: SignalFailure) { if self.failure == nil { self.failure = failure } }

  /// Events without a verdict are passed again after a pause.
  final func retry(_ message: String) { if again == nil { again = message } }
  /// Whether events are to be passed again.
  final var asksAgain: Bool { again != nil }

  /// Sends one event of the batch to the errors output.
  final func refuse(_ index: Int, _ message: String) {
    guard fates.indices.contains(index), fates[index] == .open else { return }
    fates[index] = .refused
    message.withText { host.refuse(verdicts, index, $0) }
  }

  /// Reports one event of the batch as delivered, before or after others.
  final func deliver(at index: Int) {
    guard fates.indices.contains(index), fates[index] == .open else { return }
    fates[index] = .delivered
    host.delivered_at(verdicts, index)
  }

  private func settle(_ count: Int, _ fate: Fate) {
    var left = count
    while left > 0, next < fates.count {
      if fates[next] == .open {
        fates[next] = fate
        left -= 1
      }
      next += 1
    }
    precondition(left == 0, "a sink acknowledged an event twice")
  }

  // MARK: The thread

  func write(_ batch: UnsafePointer<rxd_batch>, _ verdicts: OpaquePointer?, _ scope: OpaquePointer?) -> WriteResult {
    self.verdicts = verdicts
    fates.removeAll(keepingCapacity: true)
    next = 0
    again = nil
    frame.scope = scope
    for index in 0..<Int(batch.pointee.count) {
      let input = batch.input(index)
      guard input.kind == 0 else { continue }
      frame.arguments = input.arguments
      fates.append(.open)
      receive(Event(Value(input.event, scope)))
      if failure != nil { break }
    }
    frame.arguments = nil
    if failure == nil { turnEnded() }
    if let failure { return .failed(failure) }
    let settled = fates.firstIndex(of: .open) ?? fates.count
    if let again {
      host.delivered(verdicts, settled)
      return .again(again)
    }
    guard settled == fates.count else {
      let left = fates.count { $0 == .open }
      return .failed(SignalFailure(.sink, "the sink has not acknowledged \(left) of \(fates.count) events"))
    }
    return .written
  }

  enum WriteResult {
    case written
    case again(String)
    case failed(SignalFailure)
  }
}

/// Events that a sink has accepted and acknowledges later in the same turn.
public final class Receipt {
  /// The outcome of the events.
  public enum Outcome: Sendable, Equatable {
    case acknowledged
    /// The events are delivered again after a pause.
    case failed(String)
  }
  private let sink: RunningSink
  public private(set) var left: Int

  fileprivate init(_ sink: RunningSink, _ events: Int) {
    self.sink = sink
    left = events
  }

  public func acknowledge(_ events: Int, _ outcome: Outcome = .acknowledged) {
    precondition(events <= left, "a sink acknowledged an event twice")
    left -= events
    switch outcome {
    case .acknowledged: sink.delivered(events)
    case .failed(let reason): sink.retry(reason)
    }
  }

  public func acknowledgeAll(_ outcome: Outcome = .acknowledged) { acknowledge(left, outcome) }
}
