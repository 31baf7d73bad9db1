import PipelineCore

/// What to do when an instance has ended without being asked to.
struct InstanceRecovery {
  enum Decision {
    /// Open another one after the pause.
    case again(after: TimeSpan)
    /// The first unanswered input has ended three in a row: reject it, and open another one.
    case poisoned
  }

  /// Wakes for the next attempt.
  var wake = Wake.none
  private var pause = TimeSpan.milliseconds(100)
  /// The first unanswered input at the last end, and at how many in a row.
  private var suspect: (number: Int?, ends: Int) = (nil, 0)
  /// Inputs are handed over one by one, so that the first unanswered one is the one at fault.
  var isCautious: Bool { suspects > 0 }
  /// How many inputs may be at fault.
  private var suspects = 0

  private static let longestPause = TimeSpan.seconds(30)
  private static let ends = 3

  /// - Parameters:
  ///   - number: Of the first unanswered input; nil: there was none.
  ///   - count: How many were unanswered.
  mutating func died(of number: Int?, among count: Int = 1) -> Decision {
    suspects = number == nil ? 0 : max(suspects, count)
    suspect = suspect.number == number && number != nil ? (number, suspect.ends + 1) : (number, 1)
    if number != nil, suspect.ends >= Self.ends {
      suspect = (nil, 0)
      suspects -= 1
      return .poisoned
    }
    defer { pause = min(TimeSpan(nanoseconds: pause.nanoseconds * 2), Self.longestPause) }
    return .again(after: pause)
  }

  /// An input has been answered that was not before.
  mutating func answered() {
    if suspects > 0 { suspects -= 1 }
    suspect = (nil, 0)
    pause = .milliseconds(100)
  }
}
