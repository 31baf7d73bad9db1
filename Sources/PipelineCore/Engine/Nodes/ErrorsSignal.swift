/// The errors output of a named source or signal, or of a sink.
final class ErrorsSignal {
  private unowned let execution: Execution
  private var subscribers: [Subscriber] = []

  private final class Subscriber: NumberedSubscription {
    let edge: Edge
    let signal: ErrorsSignal
    let serial: UInt64
    var isClosed = false
    init(_ edge: Edge, _ signal: ErrorsSignal, _ serial: UInt64) {
      self.edge = edge
      self.signal = signal
      self.serial = serial
    }
    func cancel() {
      guard !isClosed else { return }
      isClosed = true
      edge.counters.cancelled()
      signal.execution.executor.releaseLater(self)
      signal.subscribers.removeAll { $0 === self }
    }
  }

  init(_ execution: Execution) { self.execution = execution }

  /// Whether no more events can arrive: the signal can never run again, or the sink has ended.
  private var isOver = false
  /// Whether the output was completed because nothing could happen any more, although its signal may run again.
  private(set) var wasWaitedFor = false

  var isClaimed: Bool { !subscribers.isEmpty }

  func subscribe(_ edge: Edge, serial: UInt64? = nil) -> any Subscription {
    if isOver {
      edge.complete()
      return NoSubscription.make()
    }
    let subscriber = Subscriber(edge, self, serial ?? execution.nextSubscription())
    let next = serial == nil ? nil : subscribers.firstIndex { $0.serial > subscriber.serial }
    subscribers.insert(subscriber, at: next ?? subscribers.count)
    return subscriber
  }

  func send(_ event: Event) {
    for subscriber in subscribers where !subscriber.isClosed {
      subscriber.edge.pass(event)
    }
  }

  /// Completes an output whose readers would wait forever. The output stays completed.
  func completeWaitedFor() {
    if !isOver { wasWaitedFor = true }
    complete()
  }

  /// Restores an output that was completed by ``completeWaitedFor()``.
  func restoreCompleted() {
    isOver = true
    wasWaitedFor = true
  }

  func complete() {
    isOver = true
    let reported = subscribers
    subscribers = []
    for subscriber in reported where !subscriber.isClosed {
      subscriber.isClosed = true
      execution.executor.releaseLater(subscriber)
      subscriber.edge.complete()
    }
  }
}
