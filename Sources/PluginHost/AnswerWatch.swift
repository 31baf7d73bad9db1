import PipelineCore

/// Notices that an instance does not answer. A program is killed for that by its own rules; a native plugin can only be named.
struct AnswerWatch {
  /// Wakes to look again; set while something is unanswered.
  var wake = Wake.none
  /// The first unanswered input at the last look.
  private var seen = -1
  private var minutes = 0

  static let interval = TimeSpan.seconds(60)

  /// Looks once more; the text for the log if the same input was the first unanswered one before.
  mutating func look(_ first: Int) -> String? {
    guard first == seen else {
      seen = first
      minutes = 0
      return nil
    }
    minutes += 1
    return "the plugin has not answered for more than \(Printable.count(minutes, "minute"))"
  }
}
