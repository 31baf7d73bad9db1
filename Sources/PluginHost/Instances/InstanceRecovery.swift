import PipelineCore

/// Decides how to continue after an instance has ended without being asked to.
struct InstanceRecovery {
  /// Wakes for the next attempt.
  var wake = Wake.none
  /// The first inputs of the next instance were also given to one that has ended.
  private(set) var isRepeating = false
  /// The input that may be at fault, and the number of ends in a row that it may have caused.
  private var suspect: (number: Int?, ends: Int) = (nil, 0)

  private static let ends = 3

  /// Records that the instance has ended. Returns whether the same input has ended three instances in a row: it must not be given to another one.
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
