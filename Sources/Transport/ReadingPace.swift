/// Decides when files that grow are looked at: as soon as the kernel has news, but while lines come fast, every so often
/// instead, so that many of them cost one wake-up.
///
/// Being woken by a clock costs up to ten times as much as being woken by the writer (a virtual machine must ask its host
/// for a timer), so it must spare several wake-ups to pay.
struct ReadingPace {
  let interval: Int64
  /// Lines come fast: the next look is at `nextPoll`.
  private(set) var isBusy = false
  /// On the monotonic clock.
  private(set) var nextPoll = Int64.min
  /// When counting began.
  private var start = Int64.min
  /// Finds since `start`; while lines come fast, looks since then.
  private var count = 0

  /// So many finds within so many intervals are fast. A few lines at once are not: their writer was held up.
  static let finds = 16
  static let intervals: Int64 = 4
  /// How many looks are made by the clock before news are waited for again, which shows how fast they come by then.
  static let pollsByClock = 64

  init(nanoseconds interval: Int64) { self.interval = min(max(0, interval), 1 << 60) }

  /// A look at that time has found something. Sixteen within four intervals begin it, a look without a find ends it.
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

  /// There was nothing at a look: the next line is read at once.
  mutating func foundNothing() {
    isBusy = false
    count = 0
  }
}
