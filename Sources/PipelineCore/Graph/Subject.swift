/// A signal that its owner feeds by hand: the input of a chain parameter. One subscriber at a time, and a
/// second one gets nothing; what is sent before it subscribes is lost.
final class Subject: Downstream {
  private var downstream: Unmanaged<Downstream>?

  private final class Subscriber: Subscription {
    let subject: Subject
    init(_ subject: Subject) { self.subject = subject }
    /// A subject's end is told to whoever subscribes, who knows of it.
    var isClosed: Bool { subject.downstream == nil }
    func cancel() { subject.downstream = nil }
  }

  func subscribe(_ downstream: Downstream) -> any Subscription {
    guard self.downstream == nil else { return NoSubscription.make() }
    self.downstream = .passUnretained(downstream)
    return Subscriber(self)
  }

  override func receive(_ event: Event) {
    downstream?._withUnsafeGuaranteedRef { $0.receive(event) }
  }

  override func complete() {
    let told = downstream
    downstream = nil
    told?._withUnsafeGuaranteedRef { $0.complete() }
  }

  override func fail(_ failure: SignalFailure) {
    let told = downstream
    downstream = nil
    told?._withUnsafeGuaranteedRef { $0.fail(failure) }
  }
}
