/// What an execution leaves to the next one in this process.
package struct LeftState: Sendable {
  /// The saved state.
  package var bytes: [UInt8]
  /// Whether it is only a part, whose pages the store has: the next execution must be given what the store says after the last commit.
  package let isInStore: Bool
  /// What sinks leave as it is, by the keys of their steps, in place of a part of `bytes`: events that wait for a destination would be written, read and
  /// encoded for nothing. The version that starts takes them over; one that does not start has taken nothing.
  package fileprivate(set) var estates: [String: any SinkEstate] = [:]

  package init(_ bytes: [UInt8], _ estates: [String: any SinkEstate] = [:], isInStore: Bool = false) {
    self.bytes = bytes
    self.isInStore = isInStore
    self.estates = estates
  }

  /// How many events no sender sends again and only `estates` have.
  package var unsaved: Int { estates.values.reduce(0) { $0 + $1.unsaved } }

  /// No execution continues from it.
  package func discard() { for estate in estates.values { estate.discard() } }
}

/// What a sink leaves to its next version in this process, in place of saving it.
package protocol SinkEstate: AnyObject, Sendable {
  /// How many of its events no sender sends again.
  var unsaved: Int { get }
  /// No version takes it over: senders are notified, and what is under way is given up. After it was taken, nothing happens.
  func discard()
}

/// Identifies the settings of a step within one process: two steps with the same identity have the same parameters, inserted values and plugins.
package struct StepSettingsID: Sendable, Equatable {
  private let fingerprint: UInt64
  private let values: Int

  init(_ fingerprint: UInt64, _ values: Int) { (self.fingerprint, self.values) = (fingerprint, values) }
}
