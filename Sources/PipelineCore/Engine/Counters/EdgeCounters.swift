/// Counts the events that pass one edge of the plan, over all of its subscriptions.
///
/// Only the thread that runs the turns uses it. Passing an event costs one subtraction: `credit` is the number of events
/// that may pass before the edge is examined, and the count follows from it.
struct EdgeCounters {
  /// How many more events may pass until the edge is examined: one while it is observed or timed.
  var credit = Self.unseen
  /// The value of `credit` at the last `renew()`.
  private var granted = Self.unseen
  /// The events that had passed at the last `renew()`.
  private var before: UInt64 = 0
  fileprivate(set) var subscriptions: UInt64 = 0
  /// The number of subscriptions that have not ended.
  fileprivate(set) var open = 0
  fileprivate(set) var failures: UInt64 = 0
  /// The number of observers of this edge, and of the edges between the fused steps downstream of it.
  fileprivate(set) var watchers = 0
  fileprivate var observers: Unmanaged<EdgeObservers>?
  unowned(unsafe) let meters: Meters
  /// The number of the step downstream; -1: none.
  let consumer: Int

  private static let unseen = Int.max >> 1

  init(_ meters: Meters, to consumer: Int) {
    self.meters = meters
    self.consumer = consumer
  }

  /// How many events have passed.
  var passed: UInt64 { before &+ UInt64(granted &- credit) }

  mutating func renew() {
    before = passed
    granted = watchers > 0 || meters.isTiming ? 1 : Self.unseen
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
    counters.watch(event) { downstream._withUnsafeGuaranteedRef { $0.receiveWatched(event) } }
  }

  /// Whether downstream takes these events all at once; false while an observer of the edge wants to see each of them.
  func accepts(_ batch: Batch) -> Bool {
    (counters.pointee.watchers == 0 || counters.pointee.meters.isSated(counters))
      && downstream._withUnsafeGuaranteedRef { $0.accepts(batch) }
  }

  func pass(_ batch: Batch) {
    counters.pointee.pass(batch.events)
    if counters.pointee.watchers > 0 { counters.missed(batch.events) }
    downstream._withUnsafeGuaranteedRef { $0.receive(batch) }
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
    pointee.open &-= 1
    pointee.observers?.takeUnretainedValue().notify { $0.complete() }
  }

  func failed(_ failure: SignalFailure) {
    pointee.open &-= 1
    pointee.failures &+= 1
    pointee.observers?.takeUnretainedValue().notify { $0.fail(failure) }
  }

  func cancelled() {
    pointee.open &-= 1
    pointee.observers?.takeUnretainedValue().notify { $0.cancelled() }
  }

  /// Runs `body`, in which the step downstream processes `event`: shows the event and its verdict to the observers, and
  /// takes the step's time.
  func watch(_ event: Event, _ body: () -> Void) {
    pointee.renew()
    let meters = pointee.meters
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

  /// The same for an edge between fused steps.
  func show(_ event: Event) { pointee.observers?.takeUnretainedValue().notify { $0.receive(event) } }
  func show(_ verdict: Verdict) { pointee.observers?.takeUnretainedValue().notify { $0.decided(verdict) } }

  /// Whether all observers of this edge let events pass unseen.
  var isSated: Bool { pointee.observers?.takeUnretainedValue().list.allSatisfy { $0.isSated } ?? true }

  /// So many events have passed unseen.
  func missed(_ events: Int) {
    if events > 0 { pointee.observers?.takeUnretainedValue().notify { $0.missed(events) } }
  }

  func add(_ observer: EdgeObserver) {
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
    observers.list.remove(at: index)
    watchedBy(-1)
    return true
  }

  func watchedBy(_ more: Int) {
    pointee.watchers &+= more
    pointee.renew()
  }

  func free() {
    pointee.observers?.release()
    deinitialize(count: 1)
  }
}

/// The observers of one edge, in the order in which they were attached.
final class EdgeObservers {
  var list: [EdgeObserver] = []

  /// Calls `body` for each observer. `body` may attach and detach observers; a detached one is not called any more.
  func notify(_ body: (EdgeObserver) -> Void) {
    for observer in list where list.contains(where: { $0 === observer }) { body(observer) }
  }
}
