/// A subscription of what several share; they hear of events in the order of their numbers.
protocol NumberedSubscription: Subscription {
  var serial: UInt64 { get }
}

/// A named signal while it runs: one subscription above, many below.
///
/// The first subscriber starts it, the last to leave stops it, and a subscriber that comes after its
/// end starts it again, as Rx's `share` does. Late subscribers get what comes after them.
final class SharedSignal: Downstream {
  private unowned let execution: Execution
  private let index: Int
  private var subscribers: [Subscriber] = [] {
    didSet { chooseOnly() }
  }
  /// Who gets events, if there is just one: they reach it without counting references.
  @exclusivity(unchecked) private var only: Unmanaged<Downstream>?
  private var connection: (any Subscription)?
  /// Somebody who is told everything and counts for nothing; for tests.
  unowned(unsafe) var watcher: Downstream? {
    didSet { chooseOnly() }
  }

  init(_ execution: Execution, _ index: Int) {
    self.execution = execution
    self.index = index
  }

  private func chooseOnly() {
    only = subscribers.count == 1 && watcher == nil ? subscribers[0].downstream : nil
  }

  var isConnected: Bool { connection != nil }

  /// Writes the records of what runs for the subscribers.
  func record(_ state: inout StateWriter) {
    if let connection { execution.record(connection, of: execution.plan.named[index].body, &state) }
  }

  private final class Subscriber: NumberedSubscription {
    let downstream: Unmanaged<Downstream>
    let shared: SharedSignal
    let serial: UInt64
    var isClosed = false

    init(_ downstream: Downstream, _ shared: SharedSignal, _ serial: UInt64) {
      self.downstream = .passUnretained(downstream)
      self.shared = shared
      self.serial = serial
    }

    func cancel() {
      guard !isClosed else { return }
      isClosed = true
      shared.remove(self)
    }
  }

  /// `serial`: the number of the subscription in a saved state; nil: it is the newest.
  func subscribe(_ downstream: Downstream, serial: UInt64? = nil) -> any Subscription {
    let subscriber = Subscriber(downstream, self, serial ?? execution.nextSubscription())
    let place = serial == nil ? nil : subscribers.firstIndex { $0.serial > subscriber.serial }
    subscribers.insert(subscriber, at: place ?? subscribers.count)
    if subscribers.count == 1, connection == nil {
      // Events may come before `subscribe` returns; `connecting` keeps a second subscriber that such
      // an event makes from connecting again.
      connection = NoSubscription.make()
      let made = execution.subscribe(execution.plan.named[index].body, execution.topScope, to: self)
      if connection == nil { made.cancel() } else { connection = made }
    }
    return subscriber
  }

  private func remove(_ subscriber: Subscriber) {
    if let at = subscribers.firstIndex(where: { $0 === subscriber }) { subscribers.remove(at: at) }
    execution.executor.bury(subscriber)
    if subscribers.isEmpty, let connection {
      self.connection = nil
      connection.cancel()
    }
  }

  override func receive(_ event: Event) {
    if let only {
      only._withUnsafeGuaranteedRef { $0.receive(event) }
      return
    }
    if let watcher { watcher.receive(event) }
    for subscriber in subscribers where !subscriber.isClosed {
      subscriber.downstream._withUnsafeGuaranteedRef { $0.receive(event) }
    }
  }

  override func complete() {
    watcher?.complete()
    for subscriber in end() { subscriber._withUnsafeGuaranteedRef { $0.complete() } }
    execution.namedEnded(index)
  }

  override func fail(_ failure: SignalFailure) {
    watcher?.fail(failure)
    for subscriber in end() { subscriber._withUnsafeGuaranteedRef { $0.fail(failure) } }
    execution.namedEnded(index)
  }

  /// Teardown before the handlers: whoever hears of the end may subscribe again.
  private func end() -> [Unmanaged<Downstream>] {
    let told = subscribers
    subscribers = []
    let above = connection
    connection = nil
    above?.cancel()
    for subscriber in told {
      execution.executor.bury(subscriber)
    }
    return told.filter { !$0.isClosed }.map {
      $0.isClosed = true
      return $0.downstream
    }
  }
}

/// The errors output of a named source or signal.
final class ErrorsSignal {
  private unowned let execution: Execution
  private var subscribers: [Subscriber] = []

  private final class Subscriber: NumberedSubscription {
    let downstream: Unmanaged<Downstream>
    let signal: ErrorsSignal
    let serial: UInt64
    var isClosed = false
    init(_ downstream: Downstream, _ signal: ErrorsSignal, _ serial: UInt64) {
      self.downstream = .passUnretained(downstream)
      self.signal = signal
      self.serial = serial
    }
    func cancel() {
      guard !isClosed else { return }
      isClosed = true
      signal.execution.executor.bury(self)
      signal.subscribers.removeAll { $0 === self }
    }
  }

  init(_ execution: Execution) { self.execution = execution }

  var isClaimed: Bool { !subscribers.isEmpty }

  func subscribe(_ downstream: Downstream, serial: UInt64? = nil) -> any Subscription {
    let subscriber = Subscriber(downstream, self, serial ?? execution.nextSubscription())
    let place = serial == nil ? nil : subscribers.firstIndex { $0.serial > subscriber.serial }
    subscribers.insert(subscriber, at: place ?? subscribers.count)
    return subscriber
  }

  func send(_ event: Event) {
    for subscriber in subscribers where !subscriber.isClosed {
      subscriber.downstream._withUnsafeGuaranteedRef { $0.receive(event) }
    }
  }

  func complete() {
    let told = subscribers
    subscribers = []
    for subscriber in told where !subscriber.isClosed {
      subscriber.isClosed = true
      execution.executor.bury(subscriber)
      subscriber.downstream._withUnsafeGuaranteedRef { $0.complete() }
    }
  }
}
