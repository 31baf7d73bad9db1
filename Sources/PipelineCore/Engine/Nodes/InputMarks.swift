/// The watermarks of a node's inputs, and the times of the events for which its inner signals run or that wait for one.
/// The node's own watermark is the smallest of all of them.
final class InputMarks {
  /// The watermarks by input. The watermark of an input that does not count is always at the end.
  private var marks: [Int64]
  /// The times that hold the watermark back.
  private var holds = TimerQueue()
  private let target = Hold()
  /// The watermark that was sent last.
  private var sent = EventTime.unknown

  /// - Parameter counting: The number of inputs, from the first on, that count.
  init(inputs: Int, counting: Int) {
    marks = (0..<inputs).map { $0 < counting ? EventTime.unknown : EventTime.end }
  }

  /// The timer target of all holds, none of which becomes due.
  private final class Hold: TimerTarget {
    func woke(_ token: Int) {}
  }

  /// Holds the watermark at `time`.
  func hold(at time: Int64) -> Wake { holds.schedule(at: Instant(nanoseconds: time), target, 0) }

  /// Ends a hold; the caller passes the watermark on when the effects of the held event have been sent.
  func release(_ hold: inout Wake) {
    holds.cancel(hold)
    hold = .none
  }

  /// Sets the watermark of an input. Returns the node's watermark if it must be sent.
  func set(_ time: Int64, of input: Int) -> Int64? {
    if marks.indices.contains(input) { marks[input] = time }
    return next()
  }

  /// Closes an input after a restart: it had ended before, or has not begun yet.
  func close(_ input: Int) { if marks.indices.contains(input) { marks[input] = EventTime.end } }

  /// The watermark to send, if it has moved since it was last sent.
  func next() -> Int64? {
    let lowest = min(marks.min() ?? EventTime.end, holds.next?.nanoseconds ?? EventTime.end)
    // After being idle, an input continues at its previous watermark.
    guard lowest != sent, lowest > sent || sent == EventTime.idle else { return nil }
    sent = lowest
    return lowest
  }
}
