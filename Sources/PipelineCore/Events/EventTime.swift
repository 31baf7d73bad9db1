/// Points in the event time of a stream, in nanoseconds since 1970.
package enum EventTime {
  /// No time is known: an event has none, or a stream has received no event yet.
  package static let unknown = Int64.min
  /// Everything so far is complete, because no event is expected for now.
  package static let idle = Int64.max - 1
  /// Everything is complete: no more events arrive.
  package static let end = Int64.max
  /// Times outside this range are rejected, so that sums of times and spans cannot overflow.
  package static let range = -(Int64(1) << 62)...(Int64(1) << 62)

  /// A timestamp in nanoseconds; nil: the value is not a timestamp, or is out of range.
  package static func nanoseconds(_ value: Value) -> Int64? {
    guard value.is(.timestamp) else { return nil }
    let (scaled, overflow) = value.asInt.multipliedReportingOverflow(by: 1_000_000_000)
    guard !overflow, range.contains(scaled) else { return nil }
    return scaled &+ Int64(value.length)
  }
}
