import Synchronization

/// An event that did not pass a step, with the data that explains why.
package struct StoppedEvent: Sendable {
  /// The version of the pipeline that received it.
  package let plan: Plan
  package let step: StepID
  package let verdict: Verdict
  /// The wall-clock time of its turn, in nanoseconds since 1970, and the time on the monotonic clock.
  package let time: Int64
  package let instant: Instant
  /// The event as the step received it; nil: it was too large to be kept.
  let event: OwnedEvent?
  /// The first bytes of an event that was too large, as JSON without secrets, and the size of the event in bytes.
  package let cut: (text: String, bytes: Int)?
  /// The values that the expressions of its step read, if the event was too large.
  let seen: [SeenExpression]
  /// The event for which the innermost enclosing inner signal was made.
  let outer: OwnedValue?
  let origin: Origin
  package let position: Int64
  /// The name of the event; nil: it has none, or the pipeline does not use names.
  package let id: String?
  /// The reason, if the step reported one.
  package let problem: Problem?
  /// The number of events with this verdict at this step so far, this one included.
  package let number: UInt64

  /// The reason that a step reported.
  package struct Problem: Sendable {
    /// A code of the RX5xx range.
    package var code: String
    package var message: String
    package var location: SourceLocation?
  }

  package var source: String { origin.source }
  package var path: String? { origin.path }

  /// Approximate size in memory.
  var bytes: Int {
    256 + (event?.byteCount ?? 0) + (outer?.byteCount ?? 0) + (cut?.text.utf8.count ?? 0) + (id?.utf8.count ?? 0)
      + (problem?.message.utf8.count ?? 0)
  }
}

/// Events of one pipeline that did not pass: the newest ones, and a sample of older ones.
///
/// A step offers at most ``StoppedCredit/most`` events of each verdict in a period, so a million dropped events a
/// second cost as little as a hundred. Above the memory limit, one event is removed at a time: of the step and verdict
/// that take the most bytes, a random event that is not among the ``newest``. So frequent drops never displace rare
/// ones, and of a step's older events later periods keep a larger share. The object outlives the runs of its pipeline,
/// and may be read on any thread.
package final class StoppedEvents: Sendable {
  /// The memory for the stopped events of a pipeline, in bytes.
  package static let limit = 512 << 10
  /// The default memory for the stopped events of all pipelines of a process, in bytes.
  package static let limitOfAll = 8 << 20
  /// The newest events of each step and verdict, which are forgotten last.
  package static let newest = 8
  /// The size in bytes above which only a part of an event is stored.
  static let mostEvent = 16 << 10
  static let shownOfCut = 2 << 10
  /// How many versions of the pipeline are kept, because their events refer to them.
  private static let mostPlans = 4

  private struct Kind: Hashable {
    var step: String
    var verdict: Verdict
  }
  private struct Kept {
    let kind: Kind
    var events: [StoppedEvent] = []
    var bytes = 0
  }
  private struct State {
    var kept: [Kept] = []
    /// The index in ``kept`` of each kind.
    var slots: [Kind: Int] = [:]
    var bytes = 0
    var limit: Int
    var random = SplitMixer(0x9E37)
    /// The newest last.
    var plans: [Plan] = []
  }
  private let state: Mutex<State>

  package init(limit: Int = StoppedEvents.limit) { state = Mutex(State(limit: limit)) }

  /// Changes the memory limit, and removes events beyond it now. 0: no event is kept.
  package func setLimit(_ bytes: Int) {
    state.withLock { state in
      state.limit = bytes
      while state.bytes > bytes, Self.forget(&state) {}
    }
  }

  /// All kept events, in chronological order.
  package var all: [StoppedEvent] {
    state.withLock { $0.kept.flatMap(\.events) }.sorted { ($0.time, $0.number) < ($1.time, $1.number) }
  }

  /// Approximate size of all kept events in memory.
  package var bytes: Int { state.withLock { $0.bytes } }

  func add(_ event: StoppedEvent) {
    state.withLock { state in
      if state.plans.last !== event.plan { Self.note(event.plan, &state) }
      let kind = Kind(step: event.plan.id(of: event.step), verdict: event.verdict)
      let slot = Self.slot(of: kind, &state)
      let bytes = event.bytes
      state.kept[slot].events.append(event)
      state.kept[slot].bytes += bytes
      state.bytes += bytes
      while state.bytes > state.limit, Self.forget(&state) {}
    }
  }

  private static func note(_ plan: Plan, _ state: inout State) {
    state.plans.append(plan)
    guard state.plans.count > mostPlans else { return }
    let old = state.plans.removeFirst()
    let before = state.kept
    (state.kept, state.slots, state.bytes) = ([], [:], 0)
    for kept in before {
      let left = kept.events.filter { $0.plan !== old }
      if left.isEmpty { continue }
      let bytes = left.reduce(0) { $0 + $1.bytes }
      state.slots[kept.kind] = state.kept.count
      state.kept.append(Kept(kind: kept.kind, events: left, bytes: bytes))
      state.bytes += bytes
    }
  }

  private static func slot(of kind: Kind, _ state: inout State) -> Int {
    if let slot = state.slots[kind] { return slot }
    state.slots[kind] = state.kept.count
    state.kept.append(Kept(kind: kind))
    return state.kept.count - 1
  }

  /// Removes one event; false: there is none.
  private static func forget(_ state: inout State) -> Bool {
    // Takes the largest kind that has more than its newest events, else the largest kind. The lists are changed in
    // place: copying one would cost as much as a thousand events.
    var heaviest: Int?
    var hasOld = false
    for (slot, kept) in state.kept.enumerated() where !kept.events.isEmpty {
      let isOld = kept.events.count > newest
      if hasOld && !isOld { continue }
      if let other = heaviest, hasOld == isOld {
        let most = state.kept[other]
        if (kept.bytes, most.kind.step) <= (most.bytes, kept.kind.step) { continue }
      }
      heaviest = slot
      hasOld = isOld
    }
    guard let heaviest else { return false }
    let index = hasOld ? Int(state.random.next() % UInt64(state.kept[heaviest].events.count - newest)) : 0
    let bytes = state.kept[heaviest].events.remove(at: index).bytes
    state.kept[heaviest].bytes -= bytes
    state.bytes -= bytes
    return true
  }
}

/// A fixed pseudorandom sequence; the choice of kept events need not be unpredictable.
private struct SplitMixer {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}

/// Selects the events with one verdict at one step that are offered: the 1st, 2nd, 4th, 8th ... of each period, so that
/// nearly all of them cost one comparison.
struct StoppedCredit {
  static let most = 8
  /// The count at which the next event is offered.
  private(set) var next: UInt64 = 1
  private var taken = 0
  private var stride: UInt64 = 1

  /// A new period begins.
  mutating func renew(_ count: UInt64) {
    next = count &+ 1
    taken = 0
    stride = 1
  }

  /// No further event of this period is offered.
  mutating func exhaust() { next = .max }

  /// An event is offered.
  mutating func take(_ count: UInt64) {
    taken += 1
    next = taken == Self.most ? .max : count &+ stride
    stride &*= 2
  }
}

extension StoppedEvent {
  init(
    _ event: Event, _ verdict: Verdict, at step: StepID, of plan: Plan, time: Int64, instant: Instant,
    outer: Value, _ problem: Problem?, number: UInt64
  ) {
    let origin = event.origin.takeUnretainedValue().withoutReply
    let event = event.with(origin)
    let raw = event.value.is(.jsonMap) || event.value.is(.jsonList) ? Int(event.value.length) : 0
    var kept = raw > StoppedEvents.mostEvent ? nil : OwnedEvent(event)
    var cut: (text: String, bytes: Int)?
    var seen: [SeenExpression] = []
    if kept.map({ $0.byteCount > StoppedEvents.mostEvent }) ?? true {
      kept = nil
      cut = Self.cut(event.value, raw)
      seen = SeenExpression.of(plan, step, problem?.location, event, outer: outer.isAbsent ? nil : outer, time: time)
    }
    self.plan = plan
    self.step = step
    self.verdict = verdict
    self.time = time
    self.instant = instant
    self.event = kept
    self.cut = cut
    self.seen = seen
    self.outer = Self.kept(outer)
    self.origin = origin
    position = event.position
    id = event.id
    self.problem = problem
    self.number = number
  }

  /// The outer event, unless there is none or it is large.
  private static func kept(_ outer: Value) -> OwnedValue? {
    let isText = outer.is(.jsonMap) || outer.is(.jsonList)
    if outer.isAbsent || isText && Int(outer.length) > StoppedEvents.mostEvent { return nil }
    let kept = OwnedValue(outer)
    return kept.byteCount > StoppedEvents.mostEvent ? nil : kept
  }

  /// The beginning of a large event, and its size. `raw`: the size of JSON text, which is not copied as a whole.
  private static func cut(_ value: Value, _ raw: Int) -> (text: String, bytes: Int) {
    var bytes = Array(value.rawBytes.prefix(raw > 0 ? maskedOfCut : 0))
    var size = raw
    if raw == 0 {
      let output = OutputBuffer()
      _ = JSONWriter.appendUnchecked(value, to: output)
      bytes = Array(output.bytes.prefix(maskedOfCut))
      size = output.count
    }
    let text = SecretMask.process.masked(String(decoding: bytes, as: UTF8.self))
    return (String(decoding: text.utf8.prefix(StoppedEvents.shownOfCut), as: UTF8.self), size)
  }

  /// Secrets are masked in a longer text than is shown, so that no secret is cut in two.
  private static let maskedOfCut = 64 << 10

  /// The step's expressions with the values that they read; only the expressions that decided, if these are known.
  package var expressions: [SeenExpression] {
    guard let event else { return seen }
    return SeenExpression.of(plan, step, problem?.location, event.event, outer: outer?.value, time: time)
  }

  /// The event as JSON without secrets, cut to the limit of bytes, and its size if it was cut.
  package func text(limit: Int) -> (text: String, bytes: Int?) {
    guard let event else { return (Self.prefix(cut?.text ?? "", limit), cut?.bytes) }
    let output = OutputBuffer()
    JSONWriter.appendShown(event.event.value, to: output)
    let whole = Array(output.bytes)
    let masked = SecretMask.process.masked(json: whole)
    if masked.count <= limit { return (String(decoding: masked, as: UTF8.self), nil) }
    return (Self.prefix(String(decoding: masked, as: UTF8.self), limit), whole.count)
  }

  private static func prefix(_ text: String, _ limit: Int) -> String {
    String(decoding: text.utf8.prefix(limit), as: UTF8.self)
  }

  /// The key of the event's group as JSON; nil: it has none.
  package var key: String? {
    guard let key = event?.event.key, !key.isAbsent else { return nil }
    let output = OutputBuffer()
    JSONWriter.appendShown(key, to: output)
    return SecretMask.process.masked(String(decoding: output.bytes, as: UTF8.self))
  }

  /// Calls `body` with the event; nil: it was too large to be kept.
  package func withEvent<Result>(_ body: (Event) -> Result) -> Result? { event.map { body($0.event) } }

  /// The steps on the path from the source to the step that stopped the event. The path of an event that a step has
  /// made begins at that step.
  package var way: [StepID] { plan.way(to: step, from: source) }
}

extension Plan {
  /// The steps on the path from a source to a step; where several paths meet and no source has that name, the first
  /// path.
  func way(to step: StepID, from source: String) -> [StepID] {
    var seen: Set<EdgePlan.End> = []
    func ways(to end: EdgePlan.End) -> [StepID]? {
      guard seen.insert(end).inserted else { return nil }
      var found: [StepID]?
      for edge in edges.dropFirst() where edge.to == end {
        let before: [StepID]?
        switch edge.from {
        case .step(let from):
          if isSource(from) {
            let isIt = steps[from.number].owner == source || source.isEmpty
            if isIt { return [from] }
            before = nil
          } else {
            before = ways(to: edge.from).map { $0 + [from] }
          }
        case .feed(let feeder): before = ways(to: .step(feeder)).map { $0 + [feeder] }
        case .errors(let owner):
          let name = name(of: owner).text
          let last = steps.indices.last { steps[$0].owner == name }.map { StepID($0) }
          before = last.flatMap { last in ways(to: .step(last)).map { $0 + [last] } }
        case .named: before = ways(to: edge.from)
        case .nothing: before = nil
        }
        if let before {
          if before.first.map({ isSource($0) && steps[$0.number].owner == source }) == true { return before }
          found = found ?? before
        }
      }
      return found
    }
    return ((ways(to: .step(step)) ?? []) + [step]).filter { isInFile($0) }
  }
}
