/// Decides when growing files are read: at each kernel event, but during fast growth at intervals instead, so that many
/// lines cost one wake-up.
///
/// Waking by a timer costs up to ten times as much as waking by the writer (a virtual machine must ask its host for a
/// timer), so it must save several wake-ups to pay.
struct ReadingPace {
  let interval: Int64
  /// Whether lines arrive fast, so that the next poll is at `nextPoll`.
  private(set) var isBusy = false
  /// When the next poll is due, on the monotonic clock.
  private(set) var nextPoll = Int64.min
  /// When counting started.
  private var start = Int64.min
  /// Reads with data since `start`; during fast growth, polls since then.
  private var count = 0

  /// Growth is fast if `finds` reads find data within `intervals` intervals. A few lines that arrive together do not
  /// suffice: their writer may have been delayed.
  static let finds = 16
  static let intervals: Int64 = 4
  /// The number of polls before events are awaited again, to measure the current rate.
  static let pollsByClock = 64

  init(nanoseconds interval: Int64) { self.interval = min(max(0, interval), 1 << 60) }

  /// Notes that a read at that time found data. Sixteen such reads within four intervals start polling; a poll without
  /// data ends it.
  mutating func found(at time: Int64) {
    nextPoll = time.addingReportingOverflow(interval).partialValue
    if isBusy {
      count += 1
      if count == Self.pollsByClock { foundNothing() }
      return
    }
    if count == 0 || time &- start >= Self.intervals &* interval {
      start = time
      count = 0
    }
    count += 1
    guard count == Self.finds else { return }
    isBusy = true
    count = 0
  }

  /// Notes that a poll found no data: events are awaited again, so the next line is read at once.
  mutating func foundNothing() {
    isBusy = false
    count = 0
  }
}
