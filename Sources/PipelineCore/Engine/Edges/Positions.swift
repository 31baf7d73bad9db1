import Synchronization

/// Numbers items that are acknowledged in any order, and counts the unbroken sequence of acknowledged ones.
struct AckOrder {
  private var first = 0
  private var acknowledged: [Bool] = []
  private var head = 0

  /// The number of items that are not acknowledged, or follow one that is not.
  var count: Int { acknowledged.count - head }

  /// Begins an item; returns its number.
  mutating func begin() -> Int {
    acknowledged.append(false)
    return first + acknowledged.count - head - 1
  }

  /// Acknowledges an item; returns by how many the unbroken sequence has grown.
  mutating func acknowledge(_ number: Int) -> Int {
    let index = head + number - first
    precondition(index >= head && index < acknowledged.count && !acknowledged[index], "acknowledged twice")
    acknowledged[index] = true
    let start = head
    while head < acknowledged.count, acknowledged[head] { head += 1 }
    let more = head - start
    first += more
    if head > 64, head * 2 > acknowledged.count {
      acknowledged.removeFirst(head)
      head = 0
    }
    return more
  }
}

/// The positions of a source, or of one of its inputs: up to where turns have taken the input, and up to where it is
/// acknowledged.
///
/// A *piece* is the input that one turn takes. It ends at the last row that the turn has sent, not where the input was
/// read or decoded to. The acknowledged position is the end of the last piece of an unbroken sequence of acknowledged
/// pieces. Earlier input is no longer needed, because steps have kept events in their state. After a failed piece the
/// position does not advance.
public final class PositionLedger<Position: Sendable>: Sendable {
  fileprivate struct State {
    var acknowledged: Position
    var taken: Position
    var order = AckOrder()
    /// The ends of the pieces that `order` still tracks.
    var ends: [Position] = []
    var head = 0
    /// The turn of the last piece.
    var turn: UInt64?
    /// Pieces of an earlier generation, before the input changed, are ignored.
    var generation = 0
    /// Whether a piece has failed; later pieces are not tracked.
    var hasFailed = false
    /// Called once the acknowledged position cannot advance any more without a new piece.
    var settled: [@Sendable () -> Void] = []

    var isSettled: Bool { hasFailed || order.count == 0 }

    /// The callbacks that are due.
    mutating func takeSettled() -> [@Sendable () -> Void] {
      guard isSettled, !settled.isEmpty else { return [] }
      defer { settled = [] }
      return settled
    }
  }
  private let state: Mutex<State>

  /// - Parameter start: The position at which the source begins.
  public init(_ start: Position) { state = Mutex(State(acknowledged: start, taken: start)) }

  /// The position up to which turns have taken the input.
  package var taken: Position { state.withLock(\.taken) }
  /// The position up to which all events are acknowledged.
  public var acknowledged: Position { state.withLock(\.acknowledged) }
  /// The number of pieces that are not acknowledged, or follow one that is not.
  package var outstanding: Int { state.withLock { $0.hasFailed ? 1 : $0.order.count } }

  /// Calls `body` once every piece is acknowledged or one has failed: the acknowledged position then stays as it is
  /// until another piece begins. Called on the thread that acknowledges last, or at once.
  package func whenSettled(_ body: @escaping @Sendable () -> Void) {
    let isSettled = state.withLock { state in
      if !state.isSettled { state.settled.append(body) }
      return state.isSettled
    }
    if isSettled { body() }
  }

  /// Continues at another position: the input was truncated, or is read from a saved position.
  public func reset(to position: Position) {
    let settled = state.withLock { state in
      defer { state = State(acknowledged: position, taken: position, generation: state.generation + 1) }
      return state.settled
    }
    for body in settled { body() }
  }

  /// Whether `turn` has no piece yet; marks it as having one.
  func isNew(turn: UInt64) -> Bool {
    state.withLock { state in
      defer { state.turn = turn }
      return state.turn != turn
    }
  }

  /// Begins a piece; nil: it is not tracked.
  func begin() -> Ack? {
    state.withLock { state in
      if state.hasFailed { return nil }
      let number = state.order.begin()
      let generation = state.generation
      state.ends.append(state.taken)
      return Ack(.piece) { [self] outcome in acknowledge(number, generation, outcome) }
    }
  }

  /// Ends the piece of this turn at `position`.
  func end(at position: Position) {
    state.withLock { state in
      state.taken = position
      if state.head < state.ends.count { state.ends[state.ends.count - 1] = position }
    }
  }

  private func acknowledge(_ number: Int, _ generation: Int, _ outcome: Ack.Outcome) {
    let settled = state.withLock { state in
      state.acknowledge(number, generation, outcome)
      return state.takeSettled()
    }
    for body in settled { body() }
  }
}

extension PositionLedger.State {
  fileprivate mutating func acknowledge(_ number: Int, _ generation: Int, _ outcome: Ack.Outcome) {
    guard generation == self.generation, !hasFailed else { return }
    guard outcome == .acknowledged else {
      // Earlier pieces may still be acknowledged; a position before them loses nothing.
      hasFailed = true
      order = AckOrder()
      ends = []
      head = 0
      return
    }
    let more = order.acknowledge(number)
    guard more > 0 else { return }
    head += more
    acknowledged = ends[head - 1]
    if head == ends.count {
      ends.removeAll(keepingCapacity: true)
      head = 0
    } else if head > 64, head * 2 > ends.count {
      ends.removeFirst(head)
      head = 0
    }
  }
}

/// Checkpoints in order: each waits for those before it.
final class CheckpointSequence: Sendable {
  private struct State {
    var order = AckOrder()
    /// The callback of each checkpoint that `order` still tracks.
    var waiting: [(@Sendable (Ack.Outcome) -> Void)?] = []
    /// The first failure, after which no checkpoint can be acknowledged.
    var failure: String?
  }
  private let state = Mutex(State())

  /// Begins the acknowledgement of all later events that no other acknowledgement tracks.
  func begin() -> Ack {
    let number = state.withLock { state in
      state.waiting.append(nil)
      return state.order.begin()
    }
    return Ack(.checkpoint) { [self] outcome in acknowledge(number, outcome) }
  }

  /// Calls `done` once everything up to the newest checkpoint is acknowledged or has failed.
  func whenAcknowledged(_ done: @escaping @Sendable (Ack.Outcome) -> Void) {
    let failure = state.withLock { state in
      if state.failure == nil { state.waiting[state.waiting.count - 1] = done }
      return state.failure
    }
    if let failure { done(.failed(failure)) }
  }

  private func acknowledge(_ number: Int, _ outcome: Ack.Outcome) {
    let (ended, outcome) = state.withLock { state -> ([(@Sendable (Ack.Outcome) -> Void)?], Ack.Outcome) in
      if case .failed(let reason) = outcome { state.failure = state.failure ?? reason }
      let more = state.order.acknowledge(number)
      if let failure = state.failure {
        // Checkpoints that wait after it cannot be acknowledged either.
        let all = state.waiting
        state.waiting.removeFirst(more)
        for index in state.waiting.indices { state.waiting[index] = nil }
        return (all, .failed(failure))
      }
      let ended = Array(state.waiting.prefix(more))
      state.waiting.removeFirst(more)
      return (ended, .acknowledged)
    }
    for done in ended { done?(outcome) }
  }
}
