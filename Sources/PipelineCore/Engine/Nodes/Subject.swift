/// A signal that its owner feeds: the input of a chain parameter. It has one subscriber at a time; a second one
/// receives nothing. Events without a subscriber are lost. An ended subject stays ended.
final class Subject: Downstream {
  private var subscriber: Subscriber? {
    didSet { target = subscriber?.edge }
  }
  /// The receiver, unmanaged to avoid retain and release.
  @exclusivity(unchecked) private var target: Edge?
  /// Whether a subscriber receives the events.
  var isRead: Bool { target != nil }
  /// Whether no event can arrive any more, for any subscriber.
  private(set) var hasEnded: Bool

  init(hasEnded: Bool = false) {
    self.hasEnded = hasEnded
    super.init()
  }

  private final class Subscriber: Subscription {
    let edge: Edge
    /// The subject; nil: the subscription was cancelled, or the end was delivered.
    unowned(unsafe) var subject: Subject?

    init(_ edge: Edge, _ subject: Subject) {
      self.edge = edge
      self.subject = subject
    }

    var isClosed: Bool { subject == nil }

    func cancel() {
      if subject != nil { edge.counters.cancelled() }
      close()
    }

    func close() {
      subject?.subscriber = nil
      subject = nil
    }
  }

  deinit { subscriber?.subject = nil }

  func subscribe(_ edge: Edge) -> any Subscription {
    if hasEnded {
      edge.complete()
      return NoSubscription.make()
    }
    guard self.subscriber == nil else {
      edge.counters.cancelled()
      return NoSubscription.make()
    }
    let subscriber = Subscriber(edge, self)
    self.subscriber = subscriber
    return subscriber
  }

  override func receive(_ event: Event) {
    target?.pass(event)
  }

  override func complete() { end()?.complete() }

  override func fail(_ failure: SignalFailure) { end()?.fail(failure) }

  private func end() -> Edge? {
    hasEnded = true
    let told = subscriber
    told?.close()
    return told?.edge
  }
}

extension OperatorNode {
  /// Whether another subscription to the input can bring events; false if the input is an ended group, whose events
  /// come once.
  final var canRunAgain: Bool {
    guard let subject = nodeContext.scope.subject, subject.hasEnded else { return true }
    return !(nodeContext.inputs.first?.isFed ?? false)
  }
}
