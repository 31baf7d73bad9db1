import PipelineCore
import Transport

/// Limits the inputs given to an instance at a time, so that it answers the last of them within a tenth of its time
/// limit. A plugin that handles its inputs as one batch, and answers at its end, then stays far from the limit, however
/// long each event takes.
///
/// Starts with one input, doubles while answers are early, and halves when they are late.
struct AnswerPace {
  /// The maximum number of unanswered inputs.
  private(set) var window = 1
  private let most: Int
  private let limit: TimeSpan
  /// The input whose answer is being timed: when it was given, on the monotonic clock, and how many were unanswered. The limit is real time, even in
  /// tests, where the pipeline's time is virtual.
  private var timed: (number: Int, at: Int64, unanswered: Int)?

  /// - Parameters:
  ///   - most: The credit of the component.
  ///   - limit: The longest time without an answer.
  init(most: Int, limit: TimeSpan) {
    self.most = max(1, most)
    self.limit = limit
  }

  /// Notes that the instance was given inputs up to this one.
  mutating func gave(_ number: Int, unanswered: Int) {
    if timed == nil { timed = (number, monotonicNow(), unanswered) }
  }

  /// The instance has answered the inputs up to this one.
  mutating func answered(_ number: Int) {
    guard let timed, number >= timed.number else { return }
    self.timed = nil
    let took = monotonicNow() &- timed.at
    if took > limit.nanoseconds / 5 {
      window = max(1, window / 2)
    } else if took <= limit.nanoseconds / 10, timed.unanswered > window / 2 {
      window = window > most / 2 ? most : window * 2
    }
  }

  /// Inputs are given again under new numbers, to the same instance.
  mutating func interrupted() { timed = nil }

  /// The instance has been replaced.
  mutating func restarted() { self = AnswerPace(most: most, limit: limit) }
}

extension AnswerPace {
  init(of plugin: BoundPlugin) {
    self.init(
      most: plugin.offered.credit, limit: plugin.maker?.file.settings.timeout ?? ProcessSettings().timeout)
  }
}
