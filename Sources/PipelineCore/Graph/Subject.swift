/// A signal that its owner feeds by hand: the input of a chain parameter. One subscriber; what is sent
/// before it subscribes is lost.
final class Subject: Downstream {
  private var downstream: Unmanaged<Downstream>?

  private final class Subscriber: Subscription {
    let subject: Subject
    init(_ subject: Subject) { self.subject = subject }
    func cancel() { subject.downstream = nil }
  }

  func subscribe(_ downstream: Downstream) -> any Subscription {
    precondition(self.downstream == nil, "a chain's input has one subscriber")
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
