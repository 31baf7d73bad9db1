import PipelineCore

/// Decides how to continue after an instance has ended unexpectedly.
struct InstanceRecovery {
  /// Wakes for the next attempt.
  var wake = Wake.none
  /// The first inputs of the next instance were already given to an instance that has ended.
  private(set) var isRepeating = false
  /// The suspected input, and how many instances in a row it may have ended.
  private var suspect: (number: Int?, ends: Int) = (nil, 0)

  private static let ends = 3

  /// Records that the instance has ended. Returns whether the same input has ended three instances in a row, so that no other instance may get it.
  mutating func ended(_ end: PluginEnd) -> Bool {
    isRepeating = end.hadInputs
    guard let number = end.suspect else {
      suspect = (nil, 0)
      return false
    }
    suspect = suspect.number == number ? (number, suspect.ends + 1) : (number, 1)
    guard suspect.ends >= Self.ends else { return false }
    suspect = (nil, 0)
    return true
  }

  /// Records the first answer to an input.
  mutating func answered() { suspect = (nil, 0) }
}
