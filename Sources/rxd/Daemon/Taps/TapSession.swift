import PipelineCore
import Synchronization
import Transport

/// One reader of events that pass edges of running pipelines. Lines of JSON are written to the stream of the answer;
/// events that the reader does not read in time are counted and dropped.
///
/// Observers call the session in turns of their pipelines, which may run at the same time.
final class TapSession: Sendable {
  /// The request of a reader.
  struct Request: Sendable {
    /// The name of the pipeline; `*` matches any text.
    var pipeline = "*"
    var edges: [EdgePattern] = []
    /// The condition that events must fulfil.
    var condition: CheckedExpression?
    /// One of this many events is shown.
    var sample = 1
    /// The number of shown events after which the tap ends; nil: it does not end.
    var limit: Int?
    /// The maximum number of bytes of an event that are shown.
    var eventBytes = 2048

    func means(_ plan: Plan) -> Bool { Wildcard.matches(pipeline, plan.name) }

    /// The matching edges of a plan, in the order of the file.
    func edges(of plan: Plan) -> [EdgeID] {
      let found = Set(edges.flatMap { $0.edges(of: plan) })
      return found.sorted { $0.number < $1.number }
    }
  }

  /// The maximum number of edges of a tap in one pipeline, and the maximum number of events that it shows at once and,
  /// if there are more, each second. Each edge has its share of these, so that a busy one does not hide the others.
  static let mostEdges = 64
  static let mostEvents = 1000

  /// The number of events of one edge that may be shown: at first, and after a while with few events, `share` of them;
  /// then `share` a second, distributed over slots of a second, so that the picture of a steady stream is steady, too.
  private struct Allowance {
    private static let slots: Int64 = 20
    private var slot: Int64
    /// The available amount, in parts of an event: each slot adds `share` parts.
    private var parts: Int64

    init(_ share: Int, at now: Instant) {
      slot = Self.slot(of: now)
      parts = Int64(share) &* Self.slots
    }

    private static func slot(of now: Instant) -> Int64 { now.nanoseconds / (1_000_000_000 / slots) }

    /// Whether one more event may be shown now.
    mutating func isOpen(_ share: Int, at now: Instant) -> Bool {
      let current = Self.slot(of: now)
      if current > slot {
        let most = Int64(share) &* Self.slots
        parts = min(most, parts &+ min(current &- slot, Self.slots) &* Int64(share))
        slot = current
      }
      return parts >= Self.slots
    }

    mutating func take() { parts &-= Self.slots }
  }

  private struct State {
    var stream: ResponseStream?
    /// Events that were shown, and events dropped because of the reader or ``mostEvents``.
    var shown: UInt64 = 0
    var missed: UInt64 = 0
    /// The part of `missed` that was reported to the reader.
    var reported: UInt64 = 0
    var sampled = 0
    /// The allowances, by the number of the edge in the session.
    var allowances: [Int: Allowance] = [:]
    var isOver = false

    /// Whether one more event of the edge may be shown.
    mutating func isOpen(_ edgeIndex: Int, _ share: Int, at now: Instant) -> Bool {
      allowances[edgeIndex, default: Allowance(share, at: now)].isOpen(share, at: now)
    }
  }
  /// Events that passed, and events for which the condition failed. Most events of a tap with a condition are counted
  /// only here.
  private let seen = Atomic<UInt64>(0)
  private let undecided = Atomic<UInt64>(0)
  private let state: Mutex<State>
  let request: Request
  private let observers = Mutex<[ObjectIdentifier: [TapObserver]]>([:])

  init(_ request: Request) {
    self.request = request
    state = Mutex(State())
  }

  /// Begins to send lines.
  func open(_ stream: ResponseStream) { state.withLock { $0.stream = stream } }

  // MARK: Pipelines. Between two turns, in a turn, or before the launch.

  func attach(to execution: Execution) {
    let plan = execution.plan
    guard request.means(plan) else { return }
    let edges = request.edges(of: plan).prefix(Self.mostEdges)
    guard !edges.isEmpty, state.withLock({ !$0.isOver }) else { return }
    send(Self.line([("pipeline", .string(plan.name)), ("edges", .array(edges.map { plan.description(of: $0) }))]))
    let share = max(1, Self.mostEvents / edges.count)
    let new = edges.enumerated().map { TapObserver(self, execution, $1, edgeIndex: $0, share: share) }
    for observer in new { execution.attach(observer, to: observer.edge) }
    observers.withLock { $0[ObjectIdentifier(execution)] = new }
  }

  func detach(from execution: Execution) {
    for observer in observers.withLock({ $0.removeValue(forKey: ObjectIdentifier(execution)) }) ?? [] {
      execution.detach(observer, from: observer.edge)
    }
  }

  // MARK: Events. In turns.

  /// Whether the line of an event that passes an edge is wanted. `edgeIndex`: the index of the edge in the session;
  /// `share`: the number of its events shown per second.
  func admits(at now: Instant, _ verdict: ConditionVerdict, edgeIndex: Int, share: Int) -> Bool {
    seen.wrappingAdd(1, ordering: .relaxed)
    switch verdict {
    case .fulfilled: break
    case .failed:
      undecided.wrappingAdd(1, ordering: .relaxed)
      return false
    case .notFulfilled: return false
    }
    return state.withLock { state in
      guard !state.isOver else { return false }
      state.sampled += 1
      guard state.sampled >= request.sample else { return false }
      state.sampled = 0
      guard state.isOpen(edgeIndex, share, at: now) else {
        state.missed &+= 1
        return false
      }
      state.allowances[edgeIndex]?.take()
      return true
    }
  }

  /// Whether the second line of a shown event, whose verdict is now known, is wanted.
  func admitsChange(at now: Instant, edgeIndex: Int, share: Int) -> Bool {
    state.withLock { state in
      guard !state.isOver, state.isOpen(edgeIndex, share, at: now) else { return false }
      state.allowances[edgeIndex]?.take()
      return true
    }
  }

  /// Whether no further event is shown for the moment.
  func isSated(at now: Instant, edgeIndex: Int, share: Int) -> Bool {
    state.withLock { $0.isOver || !$0.isOpen(edgeIndex, share, at: now) }
  }

  /// Counts events that have passed unseen.
  func missed(_ events: Int) {
    state.withLock { state in
      guard !state.isOver else { return }
      seen.wrappingAdd(UInt64(clamping: events), ordering: .relaxed)
      state.sampled += events
      state.missed &+= UInt64(state.sampled / request.sample)
      state.sampled %= request.sample
    }
  }

  /// Counts events that have passed and do not fulfil the condition.
  func looked(at events: Int) { seen.wrappingAdd(UInt64(clamping: events), ordering: .relaxed) }

  enum ConditionVerdict { case fulfilled, notFulfilled, failed }

  /// Sends the line of an admitted event; counts it as missed if the reader does not keep up.
  func show(_ line: [UInt8]) {
    let isLast = state.withLock { state in
      guard !state.isOver, let stream = state.stream else { return false }
      var bytes: [UInt8] = []
      if state.missed > state.reported { bytes = Self.line([("missed", .count(state.missed &- state.reported))]) }
      guard stream.send(bytes + line) else {
        state.missed &+= 1
        return false
      }
      state.reported = state.missed
      state.shown &+= 1
      return request.limit.map { state.shown >= UInt64($0) } ?? false
    }
    if isLast { finish() }
  }

  /// Sends a line that is not an event.
  func send(_ line: [UInt8]) { state.withLock { _ = $0.stream?.send(line) } }

  /// Ends the answer with the counts.
  ///
  /// - Parameter isEnding: Whether the process ends, so that the reader did not get everything that it asked for.
  func finish(isEnding: Bool = false) {
    state.withLock { state in
      guard !state.isOver else { return }
      state.isOver = true
      state.stream?.send(
        Self.line([
          (
            "done",
            .object([
              ("seen", .count(seen.load(ordering: .relaxed))), ("shown", .count(state.shown)),
              ("missed", .count(state.missed)), ("undecided", .count(undecided.load(ordering: .relaxed))),
              ("ending", .bool(isEnding)),
            ])
          )
        ]))
      state.stream?.end()
      state.stream = nil
    }
  }

  /// Notes that the reader has left.
  func readerLeft() {
    state.withLock { state in
      state.isOver = true
      state.stream = nil
    }
  }

  private static func line(_ members: [(String, JSONText)]) -> [UInt8] {
    Array((JSONText.object(members).line + "\n").utf8)
  }
}

extension Plan {
  /// An edge for readers of taps.
  fileprivate func description(of edge: EdgeID) -> JSONText {
    let edge = edges[edge.number]
    let location: SourceLocation? =
      switch (edge.to, edge.from) {
      case (.step(let step), _): steps[step.number].location
      case (.named(let index), _): named[index].location
      case (_, .step(let step)): steps[step.number].location
      default: nil
      }
    return .object([
      ("from", .string(id(of: edge.from))), ("to", .string(id(of: edge.to))),
      ("at", location.map { .string("\($0)") } ?? .null),
    ])
  }
}
