/// Counts the events that pass one edge of the plan, over all of its subscriptions.
///
/// Only the thread that runs the turns uses it. Passing an event costs one subtraction: `credit` is the number of
/// events that may pass before the edge is examined, and the count follows from it.
struct EdgeCounters {
  /// The number of events that may pass until the edge is next examined: one while it is timed, or while an observer
  /// wants to see each event.
  var credit = Self.unseen
  /// The value of `credit` at the last `renew()`.
  private var granted = Self.unseen
  /// The events that had passed at the last `renew()`.
  private var before: UInt64 = 0
  fileprivate(set) var subscriptions: UInt64 = 0
  /// The number of subscriptions that have not ended.
  fileprivate(set) var open = 0
  fileprivate(set) var failures: UInt64 = 0
  /// The size of the events as JSON text.
  var bytes = SampledTotal()
  /// The number of observers of this edge, and of the edges between the fused steps downstream of it.
  fileprivate(set) var watchers = 0
  /// The observers are sated: events pass unseen until the next `renew()`.
  fileprivate(set) var isUnobserved = false
  fileprivate var observers: Unmanaged<EdgeObservers>?
  unowned(unsafe) let meters: Meters
  /// The number of the step downstream; -1: none.
  let consumer: Int

  private static let unseen = Int.max >> 1

  init(_ meters: Meters, to consumer: Int) {
    self.meters = meters
    self.consumer = consumer
  }

  /// Each event is shown to the observers.
  var isWatched: Bool { watchers > 0 && !isUnobserved }

  /// How many events have passed.
  var passed: UInt64 { before &+ UInt64(granted &- credit) }

  fileprivate mutating func renew() {
    before = passed
    isUnobserved = false
    granted = watchers > 0 || meters.isTiming ? 1 : Self.unseen
    credit = granted
  }

  /// Pauses the observation until the next `renew()`: events pass unseen.
  fileprivate mutating func pauseObservation() {
    renew()
    isUnobserved = true
    granted = Self.unseen
    credit = granted
  }

  mutating func pass(_ events: Int) { before &+= UInt64(events) }
}

/// The output of a running signal. All events, and batches of them, pass from step to step here.
struct Edge {
  let downstream: Unmanaged<Downstream>
  let counters: UnsafeMutablePointer<EdgeCounters>

  init(_ counters: UnsafeMutablePointer<EdgeCounters>, to downstream: Downstream) {
    self.counters = counters
    self.downstream = .passUnretained(downstream)
  }

  @inline(__always)
  func pass(_ event: Event) {
    counters.pointee.credit &-= 1
    if counters.pointee.credit == 0 {
      passWatched(event)
    } else {
      downstream._withUnsafeGuaranteedRef { $0.receive(event) }
    }
  }

  @inline(never)
  private func passWatched(_ event: Event) {
    if counters.pausesObservation() || counters.ignores(event) {
      return downstream._withUnsafeGuaranteedRef { $0.receive(event) }
    }
    counters.watch(event) { downstream._withUnsafeGuaranteedRef { $0.receiveWatched(event) } }
  }

  /// Whether downstream takes these events all at once; false while an observer of the edge wants to see each of them.
  func accepts(_ batch: Batch) -> Bool {
    downstream._withUnsafeGuaranteedRef { $0.accepts(batch) }
      && (counters.pointee.watchers == 0 || counters.pointee.meters.passesUnseen(batch, counters))
  }

  func pass(_ batch: Batch) {
    counters.pointee.pass(batch.events)
    if counters.pointee.watchers > 0 { counters.missed(batch.events) }
    counters.measure(batch)
    downstream._withUnsafeGuaranteedRef { $0.receive(batch) }
  }

  func advance(to time: Int64) { downstream._withUnsafeGuaranteedRef { $0.advance(to: time) } }

  func note(_ change: InputPart.Change, of part: InputPart) {
    downstream._withUnsafeGuaranteedRef { $0.note(change, of: part) }
  }

  func complete() {
    counters.completed()
    downstream._withUnsafeGuaranteedRef { $0.complete() }
  }

  func fail(_ failure: SignalFailure) {
    counters.failed(failure)
    downstream._withUnsafeGuaranteedRef { $0.fail(failure) }
  }
}

extension UnsafeMutablePointer<EdgeCounters> {
  func began() {
    pointee.subscriptions &+= 1
    pointee.open &+= 1
    pointee.observers?.takeUnretainedValue().notify { $0.began() }
  }

  func completed() {
    if pointee.isUnobserved { renew() }
    pointee.open &-= 1
    pointee.observers?.takeUnretainedValue().notify { $0.complete() }
  }

  func failed(_ failure: SignalFailure) {
    if pointee.isUnobserved { renew() }
    pointee.open &-= 1
    pointee.failures &+= 1
    pointee.observers?.takeUnretainedValue().notify { $0.fail(failure) }
  }

  func cancelled() {
    pointee.open &-= 1
    pointee.observers?.takeUnretainedValue().notify { $0.cancelled() }
  }

  /// Runs `body`, in which the step downstream processes `event`: shows the event and its verdict to the observers, and
  /// measures the step's time.
  func watch(_ event: Event, _ body: () -> Void) {
    renew(shown: 1)
    let meters = pointee.meters
    if meters.isTiming { meters.measure(event, at: self) }
    guard let observers = pointee.observers?.takeUnretainedValue() else {
      meters.timed(pointee.consumer, body)
      return
    }
    observers.notify { $0.receive(event) }
    let before = meters.account(of: pointee.consumer)
    meters.timed(pointee.consumer, body)
    let verdict = meters.account(of: pointee.consumer).verdict(since: before)
    observers.notify { $0.decided(verdict) }
  }

  /// Samples the sizes of events of a batch.
  func measure(_ batch: Batch) {
    if let sizes = batch.sizes {
      pointee.bytes.add(sizes.bytes, of: sizes.events)
    } else if pointee.meters.isTiming, let sizes = batch.sizesOfLines(pointee.meters.sizes) {
      pointee.meters.hasSampled()
      pointee.bytes.add(sizes.bytes, of: sizes.events)
    }
  }

  /// Shows an event that passes an edge between fused steps, like ``watch(_:_:)``.
  func show(_ event: Event) {
    if pointee.meters.isTiming { pointee.meters.measure(event, at: self) }
    pointee.observers?.takeUnretainedValue().notify { $0.receive(event) }
  }
  func show(_ verdict: Verdict) { pointee.observers?.takeUnretainedValue().notify { $0.decided(verdict) } }

  /// Whether all observers of this edge have seen enough for the moment.
  var isSated: Bool { pointee.observers?.takeUnretainedValue().list.allSatisfy { $0.isSated } ?? true }

  /// Begins a new grant, and reports the events that passed unseen in the last one to the observers.
  /// - Parameter shown: How many events have been counted here that will be shown.
  func renew(shown: UInt64 = 0) {
    let wasUnobserved = pointee.isUnobserved
    pointee.renew()
    if wasUnobserved { pointee.meters.observed(from: self) { $0.endUnseen(at: $1 &- shown) } }
  }

  /// Pauses the observation, beginning with this event, if all observers of the edge and of the edges between the fused
  /// steps downstream of it are sated. The event has already been counted. The next `renew()` ends the pause.
  func pausesObservation() -> Bool {
    let meters = pointee.meters
    guard pointee.watchers > 0, !meters.isTiming, meters.isSated(self) else { return false }
    pointee.pauseObservation()
    meters.observed(from: self) { $0.beginUnseen(at: $1 &- 1) }
    return true
  }

  /// Whether the only observer of this edge, and of those between the fused steps downstream of it, does not need to
  /// see this event, which has been counted.
  func ignores(_ event: Event) -> Bool {
    guard pointee.watchers == 1, !pointee.meters.isTiming, let observers = pointee.observers else { return false }
    return observers._withUnsafeGuaranteedRef { observers in
      guard observers.list.count == 1, observers.list[0].ignores(event) else { return false }
      renew(shown: 1)
      return true
    }
  }

  /// Calls `body` with the observers, if there are any.
  func withObservers(_ body: (EdgeObservers) -> Void) {
    if let observers = pointee.observers?.takeUnretainedValue() { body(observers) }
  }

  /// Reports the events of a block that passed unseen.
  func missed(_ events: Int) {
    guard events > 0, let observers = pointee.observers?.takeUnretainedValue(), !observers.isUnseen else { return }
    observers.notify { $0.missed(events) }
  }

  func add(_ observer: EdgeObserver) {
    renew()
    if pointee.observers == nil { pointee.observers = .passRetained(EdgeObservers()) }
    pointee.observers?.takeUnretainedValue().list.append(observer)
    watchedBy(1)
    if pointee.open > 0 { observer.began() }
  }

  /// Returns false if `observer` does not observe this edge.
  func remove(_ observer: EdgeObserver) -> Bool {
    guard let observers = pointee.observers?.takeUnretainedValue(),
      let index = observers.list.firstIndex(where: { $0 === observer })
    else { return false }
    renew()
    observers.list.remove(at: index)
    watchedBy(-1)
    return true
  }

  func watchedBy(_ more: Int) {
    renew()
    pointee.watchers &+= more
    renew()
  }

  func free() {
    pointee.observers?.release()
    deinitialize(count: 1)
  }
}

/// The observers of one edge, in the order in which they were attached.
final class EdgeObservers {
  var list: [EdgeObserver] = []
  /// The edge's count at which events began to pass unseen; nil: events are shown.
  private var unseenFrom: UInt64?

  /// Whether events pass unseen; their number is reported later.
  var isUnseen: Bool { unseenFrom != nil }

  func beginUnseen(at count: UInt64) { unseenFrom = count }

  func endUnseen(at count: UInt64) {
    guard let from = unseenFrom else { return }
    unseenFrom = nil
    if count > from { notify { $0.missed(Int(clamping: count &- from)) } }
  }

  /// Calls `body` for each observer. `body` may attach and detach observers; a detached one is no longer called.
  func notify(_ body: (EdgeObserver) -> Void) {
    for observer in list where list.contains(where: { $0 === observer }) { body(observer) }
  }
}
