import PipelineCore

/// What to do when an instance has ended without being asked to.
struct InstanceRecovery {
  /// Wakes for the next attempt.
  var wake = Wake.none
  /// What the next instance is given first was given to one that has ended.
  private(set) var isRepeating = false
  /// The input that may be at fault, and at how many ends in a row.
  private var suspect: (number: Int?, ends: Int) = (nil, 0)

  private static let ends = 3

  /// The instance has ended. Returns whether an input has ended three in a row: it must not be given to another one.
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

  /// An input has been answered that was not before.
  mutating func answered() { suspect = (nil, 0) }
}
