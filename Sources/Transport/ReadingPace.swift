/// Decides when files that grow are looked at: as soon as the kernel has news, but while lines come fast, every so often
/// instead, so that many of them cost one wake-up.
///
/// Being woken by a clock costs up to ten times as much as being woken by who writes (a virtual machine must ask its host
/// for a timer), so it must spare several wake-ups to pay.
struct ReadingPace {
  let interval: Int64
  /// Lines come fast: the next look is at `nextLook`.
  private(set) var isBusy = false
  /// On the monotonic clock.
  private(set) var nextLook = Int64.min
  /// When the finds before the last one were, the latest last.
  private var earlier = (Int64.min, Int64.min, Int64.min)
  /// Looks since lines have come fast.
  private var looks = 0

  /// How many looks are made by the clock before news are waited for again, which shows how fast they come by then.
  static let looksByClock = 16

  init(nanoseconds interval: Int64) { self.interval = max(0, interval) }

  /// A look at that time has found something. Four within one interval begin it, a look without a find ends it.
  mutating func found(at time: Int64) {
    if isBusy {
      looks += 1
      if looks == Self.looksByClock { foundNothing() }
    } else if earlier.0 != .min, time &- earlier.0 < interval {
      isBusy = true
      looks = 0
    }
    earlier = (earlier.1, earlier.2, time)
    nextLook = time.addingReportingOverflow(interval).partialValue
  }

  /// There was nothing at a look: the next line is read at once.
  mutating func foundNothing() {
    isBusy = false
    earlier = (.min, .min, .min)
  }
}
