/// Days of a time zone as spans of event time, in nanoseconds since 1970.
///
/// A day begins with the first instant of its date, so it has 23 or 25 hours where the zone's clocks are set. Spans follow each other without a
/// gap, whatever the zone does at midnight: a repeated hour of the date before belongs to the day that has begun.
final class ZonedDays {
  private let zone: String
  private let count: Int64
  /// The span that was found last.
  @exclusivity(unchecked) private var found: (start: Int64, end: Int64) = (0, 0)
  private static let day: Int64 = 86_400

  /// - Parameters:
  ///   - count: How many days a span has, counted from 1970-01-01.
  ///   - zone: A zone that exists.
  init(count: Int64, in zone: String) { (self.count, self.zone) = (count, zone) }

  /// The span that contains this time.
  func span(of time: Int64) -> (start: Int64, end: Int64) {
    if found.start <= time, time < found.end { return found }
    guard EventTime.range.contains(time) else { return (time, .max) }
    let seconds = Calendar.floor(time, 1_000_000_000).quotient
    let date = Calendar.floor(seconds + offset(at: seconds), Self.day).quotient
    var number = Calendar.floor(date, count).quotient + 1
    var span = (start: begin(of: (number - 1) * count), end: begin(of: number * count))
    while span.end <= time {
      number += 1
      span = (span.end, begin(of: number * count))
    }
    found = span
    return span
  }

  private func offset(at seconds: Int64) -> Int64 { TimeZones.offset(of: zone, at: seconds) ?? 0 }

  /// The first instant whose local time is at or after the midnight that begins a date, which is counted from 1970.
  private func begin(of date: Int64) -> Int64 {
    let midnight = date * Self.day
    // No zone is a day away from UTC, so the change, if there is one near, lies between these.
    var (low, high) = (midnight - Self.day, midnight + Self.day)
    let (before, after) = (offset(at: low), offset(at: high))
    var found = midnight - before
    if before != after {
      while high - low > 1 {
        let middle = (low + high) / 2
        if offset(at: middle) == before { low = middle } else { high = middle }
      }
      if found >= high { found = max(high, midnight - after) }
    }
    return found * 1_000_000_000
  }
}
