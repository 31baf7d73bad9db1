import PipelineCore

/// How long the oldest byte that a source has left to read has been there: known from earlier looks at how much there was to read.
struct LagAges {
  private struct Look {
    var instant: Instant
    /// Bytes that had been read, and that were there to be read.
    var end: Int64
  }
  private var looks: [BusyShares.Name: [Look]] = [:]
  private static let most = 64

  /// - Parameters:
  ///   - taken: Bytes that the source has read since the process started.
  ///   - lag: Bytes that are left.
  /// - Returns: Zero if nothing is left. Where even the oldest look had seen the byte, the time since then.
  mutating func note(_ name: BusyShares.Name, taken: Int64, lag: Int64, at now: Instant) -> TimeSpan {
    var known = looks[name] ?? []
    let end = taken &+ lag
    // Another file, or a shorter one.
    if let last = known.last, last.end > end { known = [] }
    // What is behind the byte that comes next tells nothing any more.
    while known.count > 1, known[1].end <= taken { known.removeFirst() }
    known.append(Look(instant: now, end: end))
    if known.count > Self.most {
      known = known.enumerated().filter { $0.offset == 0 || $0.offset % 2 == 1 || $0.offset == known.count - 1 }.map(
        \.element)
    }
    looks[name] = known
    guard lag > 0, let first = known.first else { return .zero }
    guard first.end <= taken, known.count > 1 else { return now - first.instant }
    // The byte came between two looks: as if all came evenly.
    let (before, after) = (known[0], known[1])
    let share = after.end > before.end ? Double(taken &- before.end) / Double(after.end &- before.end) : 0
    let came = Double((after.instant - before.instant).nanoseconds) * min(1, max(0, share))
    return now - (before.instant + TimeSpan(nanoseconds: Int64(came)))
  }

  /// Forgets sources that are there no more.
  mutating func keep(_ names: Set<BusyShares.Name>) { looks = looks.filter { names.contains($0.key) } }
}
