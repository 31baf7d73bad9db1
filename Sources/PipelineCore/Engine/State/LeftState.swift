/// The state and the events that an execution leaves to the next one in this process.
package struct LeftState: Sendable {
  /// The saved state.
  package var bytes: [UInt8]
  /// Whether this is only a part, whose pages the store has: the next execution must be given the state of the store
  /// after the last commit.
  package let isInStore: Bool
  /// The objects that sinks hand over, by the keys of their steps, in place of a part of `bytes`: undelivered events
  /// need not be serialized and encoded again. The version that starts takes the estates over; a version that does not
  /// start leaves them untouched.
  package fileprivate(set) var estates: [String: any SinkEstate] = [:]

  package init(_ bytes: [UInt8], _ estates: [String: any SinkEstate] = [:], isInStore: Bool = false) {
    self.bytes = bytes
    self.isInStore = isInStore
    self.estates = estates
  }

  /// The number of events that only `estates` have and that no sender sends again.
  package var unsaved: Int { estates.values.reduce(0) { $0 + $1.unsaved } }

  /// Discards the estates, because no execution continues from this state.
  package func discard() { for estate in estates.values { estate.discard() } }
}

/// The events of a sink that its next version in this process takes over, in place of saving them.
package protocol SinkEstate: AnyObject, Sendable {
  /// The number of its events that no sender sends again.
  var unsaved: Int { get }
  /// Called when no version takes the estate over: notifies senders, and gives up work under way. Does nothing after
  /// the estate was taken.
  func discard()
}

/// Identifies the settings of a step within one process: two steps with the same identity have the same parameters,
/// inserted values and plugins.
package struct StepSettingsID: Sendable, Equatable {
  private let fingerprint: UInt64
  private let values: Int

  init(_ fingerprint: UInt64, _ values: Int) { (self.fingerprint, self.values) = (fingerprint, values) }
}
