import CRxdPlugin
import Glibc

/// A running source. It has its own thread: `begin` may block, provided that it checks ``isClosed`` or the result of ``deliver()``.
open class RunningSource: OperatorNode {
  fileprivate var raw: OpaquePointer?
  /// The timers with their due times, on the monotonic clock.
  private var due: [(wake: Wake, at: Int64)] = []
  private var isWaiting = false
  /// The number of unsettled events with a token.
  private var outstanding = 0
  /// The events added since the last ``deliver()``.
  private var added = 0
  /// rxd accepts no more events.
  private var isRefused = false
  fileprivate var keepsPosition = false
  fileprivate var version = 0

  /// The number of events after which a position is recorded.
  private static let most = 512

  // MARK: To override

  /// Starts. Called once; may emit before it returns, and may block.
  open func begin() {}
  /// Continues after `restore`, in place of `begin`.
  open func resume() { begin() }
  /// The source must stop: drops waiting events. The default completes.
  open func drain() { finish() }
  /// The outcome of events with tokens: all of their results are delivered, or one has failed.
  open func settled(_ tokens: [(token: UInt64, hasFailed: Bool)]) {}
  /// A timer is due. Called by ``wait(for:)``, and when `begin` has returned.
  open override func woke(_ token: Int) {}

  // MARK: Output

  /// Sends an event. `token`: above 0, chosen by the source; ``settled(_:)`` reports its outcome. `name`: for a source
  /// with ``SourceComponent/namesEvents``, a text that identifies the event: the same each time it is sent, and unique.
  public final func produce(_ value: Value, position: Int64 = -1, token: UInt64 = 0, name: String = "") {
    guard !isClosed, !isRefused else { return }
    if token > 0 { outstanding += 1 }
    added += 1
    if withUnsafePointer(to: value.raw, { host.add(raw, $0, token) }) != 0 { isRefused = true }
    if !name.isEmpty { name.withText { host.name(raw, $0) } }
    // Each delivery frees the memory of the values, so it must follow the event.
    if isRefused || added >= Self.most { deliver() }
  }

  /// Sends input that is not an event to the errors output.
  public final func reject(input: String, _ message: String, token: UInt64 = 0) {
    guard !isClosed, !isRefused else { return }
    if token > 0 { outstanding += 1 }
    added += 1
    input.withText { input in message.withText { host.reject_input(raw, input, $0, token) } }
  }

  /// Sends the added events, with the position after them; waits while the pipeline accepts none. False: the source must stop.
  @discardableResult
  public final func deliver() -> Bool {
    if keepsPosition {
      var state = StateWriter()
      state.write(UInt64(version))
      save(&state)
      state.bytes.withText { host.position(raw, $0) }
    }
    added = 0
    if host.flush(raw) != 0 { isRefused = true }
    if isStopping { stopped() }
    return !isClosed
  }

  /// Whether rxd has asked the source to stop.
  public final var isStopping: Bool { isRefused || host.is_stopping(raw) != 0 }
  /// Readable while outcomes wait, or when the source must stop; for a `begin` that waits for a socket with `poll`.
  public final var wakeDescriptor: Int32 { host.wake_descriptor(raw) }

  /// Marks the start of a turn whose events have no position yet. A turn ends where ``deliver()`` is called.
  public final func beginPiece<Position: Sendable>(
    of ledger: PositionLedger<Position>, endingAt position: @escaping () -> Position
  ) {
    ledger.end = position
  }

  // MARK: Waiting

  /// Waits for timers, settled tokens or the stop, at most for this time; nil: without a limit.
  public final func wait(for span: TimeSpan?) {
    guard !isClosed else { return }
    if added > 0 { deliver() }
    var most = span?.nanoseconds
    if let first = due.map(\.at).min() {
      let left = max(0, first - execution.times.monotonic)
      most = min(most ?? .max, left)
    }
    var acks = [rxd_ack](repeating: rxd_ack(), count: 256)
    let count = host.acks(raw, &acks, acks.count, most.map { max(0, $0) } ?? -1)
    readClocks()
    if count > 0 {
      outstanding -= count
      settled(acks.prefix(count).map { ($0.token, $0.is_failed != 0) })
    }
    for one in due.filter({ $0.at <= execution.times.monotonic }).sorted(by: { $0.at < $1.at }) {
      due.removeAll { $0.wake == one.wake }
      if timers.remove(one.wake), !isClosed { woke(one.wake.token) }
    }
    if isStopping { stopped() }
  }

  override final func tell(_ wake: Wake, _ after: Int64) {
    due.removeAll { $0.wake == wake }
    guard after >= 0 else { return }
    readClocks()
    due.append((wake, (Instant(nanoseconds: execution.times.monotonic) + TimeSpan(nanoseconds: after)).nanoseconds))
  }

  private func stopped() {
    if !isClosed { drain() }
    close()
  }

  private func readClocks() {
    func read(_ clock: clockid_t) -> Int64 {
      var time = timespec()
      clock_gettime(clock, &time)
      return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
    execution.times = (read(CLOCK_REALTIME), read(CLOCK_BOOTTIME))
  }

  // MARK: The thread

  func run(_ source: OpaquePointer?, isRestored: Bool) {
    raw = source
    readClocks()
    tellUntold()
    if isRestored { resume() } else { begin() }
    if !isRefused, added > 0 { deliver() }
    while !isClosed { wait(for: nil) }
    // Senders that wait for an answer receive one before the source ends.
    while outstanding > 0, host.is_stopping(raw) != 2 {
      var acks = [rxd_ack](repeating: rxd_ack(), count: 256)
      let count = host.acks(raw, &acks, acks.count, -1)
      if count == 0, host.is_stopping(raw) == 0 { break }
      outstanding -= count
      if count > 0 { settled(acks.prefix(count).map { ($0.token, $0.is_failed != 0) }) }
    }
  }

  /// Reads the position after which the source continues.
  func restore(position: [UInt8]) throws(StateFault) {
    var head = StateReader(position, version: 0, nil)
    let version = try head.read(UInt64.self)
    guard version <= UInt64(self.version) else { throw StateFault("a later version of the plugin has written it") }
    var state = StateReader(position, version: Int(version), nil)
    _ = try state.read(UInt64.self)
    try restore(&state)
    guard state.isAtEnd else { throw StateFault("the state has more data than the source reads") }
  }

  func keepPositions(version: Int) {
    keepsPosition = true
    self.version = version
  }
}

/// The ends of a source's turns. rxd tracks their acknowledgement.
public final class PositionLedger<Position: Sendable> {
  private var start: Position
  var end: (() -> Position)?
  public init(_ start: Position) { self.start = start }
  /// The position after the events sent so far.
  public var taken: Position { end?() ?? start }
  /// Equal to ``taken``: rxd itself holds a position back until everything before it is acknowledged.
  public var acknowledged: Position { taken }
  public func reset(to position: Position) {
    start = position
    end = nil
  }
}
