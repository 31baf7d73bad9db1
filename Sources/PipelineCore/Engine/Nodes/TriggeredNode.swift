/// A node with a trigger: a second signal in addition to its input. The trigger is subscribed first, so the events that
/// it sends at once come before the first event of the input.
class TriggeredNode: MultiInletNode {
  private let trigger: SignalPlan?

  init(trigger: SignalPlan?, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.trigger = trigger
    super.init(nodeContext, downstream: downstream)
  }

  override func start() {
    if let trigger { open(trigger) }
    if !isClosed { subscribe(nodeContext.inputs[0]) }
  }
}

/// A node with a trigger that combines each event with the newest event of the trigger.
///
/// If one event of a source may reach both, an event of the input waits until everything that the source's event
/// changes has changed. So the result does not depend on the order in which the two paths, or other readers of the
/// source, were subscribed.
class SettlingNode: TriggeredNode {
  /// Whether one event may reach the input and the trigger.
  private let meets: Bool
  private let precedence: Int
  /// The waiting events, in order: the first in reused memory, then the rest.
  private var first: OwnedEvent?
  private var hasFirst = false
  private var rest: [OwnedEvent] = []
  /// The event times of the waiting events, if they have one.
  private var times: [Int64] = []
  /// The last watermark received while events waited.
  private var mark: Int64?
  /// How many events wait for the trigger to settle.
  final var settlingCount: Int { hasFirst ? 1 + rest.count : 0 }

  override init(trigger: SignalPlan?, _ nodeContext: NodeContext, _ downstream: Downstream) {
    (meets, precedence) = nodeContext.meeting(trigger)
    super.init(trigger: trigger, nodeContext, downstream)
  }

  /// Processes an event of the input, after the trigger has settled.
  func take(_ event: Event) {}

  final override func receive(_ event: Event) {
    if meets { wait(event) } else { take(event) }
  }

  final override func move(_ time: Int64?) {
    if hasFirst { mark = time ?? mark } else { super.move(time) }
  }

  private func wait(_ event: Event) {
    if executor.eventTime != EventTime.unknown { times.append(executor.eventTime) }
    guard hasFirst else {
      hasFirst = true
      if first == nil { first = OwnedEvent(event) } else { first?.assign(event, retiring: arena) }
      execution.priorities.add(precedence)
      return later()
    }
    rest.append(OwnedEvent(event))
  }

  override func resumed(_ token: Int) {
    guard hasFirst else { return }
    // A node upstream may change the trigger again.
    if execution.priorities.has(before: precedence) { waitLonger() } else { settle() }
  }

  /// Processes the waiting events.
  final func settle() {
    guard hasFirst, let first else { return }
    let others = rest
    let times = times
    leave()
    take(first, times.first)
    for (number, event) in others.enumerated() where !isClosed {
      take(event, times.indices.contains(number + 1) ? times[number + 1] : nil)
    }
    let held = mark
    mark = nil
    move(held)
  }

  private func take(_ event: OwnedEvent, _ time: Int64?) {
    event.keep(in: arena)
    if let time { executor.withEventTime(time) { take(event.event) } } else { take(event.event) }
  }

  override var hasFurtherTimes: Bool { !times.isEmpty }
  override func saveTimes(_ state: inout StateWriter) { state.write(times) }
  override func restoreTimes(_ state: inout StateReader) throws(StateFault) { times = try state.read() }

  private func leave() {
    guard hasFirst else { return }
    hasFirst = false
    if !rest.isEmpty { rest = [] }
    if !times.isEmpty { times = [] }
    execution.priorities.remove(precedence)
  }

  /// An override must call `super.stop()`.
  override func stop() {
    leave()
    super.stop()
  }

  final func saveSettling(_ state: inout StateWriter) {
    state.write(each: hasFirst ? [first].compactMap { $0 } + rest : [])
  }

  final func restoreSettling(_ state: inout StateReader) throws(StateFault) {
    let events = try state.read([OwnedEvent].self)
    guard let next = events.first else { return }
    first = next
    hasFirst = true
    rest = Array(events.dropFirst())
    execution.priorities.add(precedence)
  }
}

extension NodeContext {
  /// Whether one event of a source may reach the step both over its input and over `trigger`, and the precedence of a
  /// node that waits for both.
  func meeting(_ trigger: SignalPlan?) -> (meets: Bool, precedence: Int) {
    if let known = execution.shared.meetings[step] { return known }
    let signals = inputs + [trigger].compactMap { $0 }
    let precedence = PriorityQueue.settling(upstream: signals.map(\.settling).max() ?? 0)
    let found = (meets: execution.plan.meet(signals), precedence: precedence)
    execution.shared.meetings[step] = found
    return found
  }
}
