/// A shared signal or an errors output that is read in a group or in an inner signal. It gives its events, which come
/// from outside, the key of the events inside.
final class KeyedInput: Downstream, Subscription {
  private let key: OwnedValue
  private let downstream: Unmanaged<Downstream>
  private unowned let executor: Executor
  /// The subscription of the signal.
  var upstream: any Subscription = NoSubscription.make()

  init(_ key: OwnedValue, _ downstream: Unmanaged<Downstream>, _ executor: Executor) {
    self.key = key
    self.downstream = downstream
    self.executor = executor
  }

  var isClosed: Bool { upstream.isClosed }

  func cancel() {
    executor.releaseLater(self)
    upstream.cancel()
  }

  override func receive(_ event: Event) {
    var event = event
    event.key = key.value
    downstream._withUnsafeGuaranteedRef { $0.receive(event) }
  }

  override func receiveWatched(_ event: Event) {
    var event = event
    event.key = key.value
    downstream._withUnsafeGuaranteedRef { $0.receiveWatched(event) }
  }

  override func advance(to time: Int64) { downstream._withUnsafeGuaranteedRef { $0.advance(to: time) } }
  override func note(_ change: InputPart.Change, of part: InputPart) {
    downstream._withUnsafeGuaranteedRef { $0.note(change, of: part) }
  }

  override func complete() {
    executor.releaseLater(self)
    downstream._withUnsafeGuaranteedRef { $0.complete() }
  }

  override func fail(_ failure: SignalFailure) {
    executor.releaseLater(self)
    downstream._withUnsafeGuaranteedRef { $0.fail(failure) }
  }
}
