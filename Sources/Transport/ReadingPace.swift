/// Decides when files that grow are looked at: as soon as the kernel has news, but while lines keep coming, every so often
/// instead, so that several of them cost one wake-up.
struct ReadingPace {
  let interval: Int64
  /// Lines keep coming: the next look is at `nextLook`.
  private(set) var isBusy = false
  /// On the monotonic clock.
  private(set) var nextLook = Int64.min

  init(nanoseconds interval: Int64) { self.interval = max(0, interval) }

  /// A look at that time has found something. Two within one interval begin it, a look without a find ends it.
  mutating func found(at time: Int64) {
    isBusy = isBusy || time < nextLook
    nextLook = time.addingReportingOverflow(interval).partialValue
  }

  /// There was nothing at a look: the next line is read at once.
  mutating func foundNothing() { isBusy = false }
}
