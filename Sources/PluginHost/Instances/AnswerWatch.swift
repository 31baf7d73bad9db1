import PipelineCore

/// Detects that an instance does not answer. A program is killed at its timeout; a hung native plugin can only be logged.
struct AnswerWatch {
  /// Wakes for the next check; set while an input is unanswered.
  var wake = Wake.none
  /// The first unanswered input at the last check.
  private var seen = -1
  private var minutes = 0

  static let interval = TimeSpan.seconds(60)

  /// Checks again; returns the text for the log if the first unanswered input is the same as at the last check.
  mutating func check(_ first: Int) -> String? {
    guard first == seen else {
      seen = first
      minutes = 0
      return nil
    }
    minutes += 1
    return "the plugin has not answered for more than \(Printable.count(minutes, "minute"))"
  }
}
