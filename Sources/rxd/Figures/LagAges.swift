import PipelineCore

/// Estimates how long the oldest unread byte of a source has been there, from earlier readings of the amount of unread
/// input.
struct LagAges {
  private struct Reading {
    var instant: Instant
    /// The bytes read so far, plus the unread bytes.
    var end: Int64
  }
  private var readings: [BusyShares.Name: [Reading]] = [:]
  private static let most = 64

  /// - Parameters:
  ///   - taken: Bytes that the source has read since the process started.
  ///   - lag: The number of unread bytes.
  /// - Returns: Zero if nothing is unread. If the byte was there at the oldest reading, the time since that reading.
  mutating func note(_ name: BusyShares.Name, taken: Int64, lag: Int64, at now: Instant) -> TimeSpan {
    var known = readings[name] ?? []
    let end = taken &+ lag
    // The source reads another file, or a shorter one.
    if let last = known.last, last.end > end { known = [] }
    // Readings before the next byte are no longer needed.
    while known.count > 1, known[1].end <= taken { known.removeFirst() }
    known.append(Reading(instant: now, end: end))
    if known.count > Self.most {
      known = known.enumerated().filter { $0.offset == 0 || $0.offset % 2 == 1 || $0.offset == known.count - 1 }.map(
        \.element)
    }
    readings[name] = known
    guard lag > 0, let first = known.first else { return .zero }
    guard first.end <= taken, known.count > 1 else { return now - first.instant }
    // The byte arrived between two readings, between which a constant rate is assumed.
    let (before, after) = (known[0], known[1])
    let share = after.end > before.end ? Double(taken &- before.end) / Double(after.end &- before.end) : 0
    let came = Double((after.instant - before.instant).nanoseconds) * min(1, max(0, share))
    return now - (before.instant + TimeSpan(nanoseconds: Int64(came)))
  }

  /// Forgets sources that no longer exist.
  mutating func keep(_ names: Set<BusyShares.Name>) { readings = readings.filter { names.contains($0.key) } }
}
