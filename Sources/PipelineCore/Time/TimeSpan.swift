/// A length of time in nanoseconds; at most about 292 years.
public struct TimeSpan: Sendable, Hashable, Comparable {
  /// Nanoseconds; may be negative.
  public var nanoseconds: Int64
  /// A span of `nanoseconds`.
  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// No time.
  public static let zero = TimeSpan(nanoseconds: 0)
  /// A span of `count` seconds. Saturates at the ends of the range.
  public static func seconds(_ count: Int64) -> TimeSpan { multiple(count, of: 1_000_000_000) }
  /// A span of `count` milliseconds. Saturates at the ends of the range.
  public static func milliseconds(_ count: Int64) -> TimeSpan { multiple(count, of: 1_000_000) }

  private static func multiple(_ count: Int64, of unit: Int64) -> TimeSpan {
    let (product, overflow) = count.multipliedReportingOverflow(by: unit)
    return TimeSpan(nanoseconds: overflow ? (count < 0 ? .min : .max) : product)
  }

  public static func < (a: TimeSpan, b: TimeSpan) -> Bool { a.nanoseconds < b.nanoseconds }

  /// Saturates at the ends of the range.
  public static func + (a: TimeSpan, b: TimeSpan) -> TimeSpan {
    let (sum, overflow) = a.nanoseconds.addingReportingOverflow(b.nanoseconds)
    return TimeSpan(nanoseconds: overflow ? (a.nanoseconds < 0 ? .min : .max) : sum)
  }

  /// Saturates at the ends of the range.
  public static func - (a: TimeSpan, b: TimeSpan) -> TimeSpan {
    let (difference, overflow) = a.nanoseconds.subtractingReportingOverflow(b.nanoseconds)
    return TimeSpan(nanoseconds: overflow ? (a.nanoseconds < 0 ? .min : .max) : difference)
  }

  /// The pause after a number of failures in a row: it doubles with each failure after the first, up to `most`.
  package func doubled(after failures: Int, most: TimeSpan) -> TimeSpan {
    var pause = self
    for _ in 1..<max(1, min(failures, 64)) where pause < most { pause = pause.scaled(by: 2) }
    return min(pause, most)
  }

  /// Shortened by a random part of up to half, so that waiting clients do not continue together.
  package func shortened(by random: UInt64) -> TimeSpan {
    scaled(by: 0.5 + Double(random >> 11) / Double(1 << 54))
  }

  /// Scales, rounding towards zero, saturating at the ends of the range; `factor` must not be NaN.
  package func scaled(by factor: Double) -> TimeSpan {
    let product = Double(nanoseconds) * factor
    return TimeSpan(nanoseconds: Int64(exactly: product.rounded(.towardZero)) ?? (product < 0 ? .min : .max))
  }
}

extension TimeSpan: CustomStringConvertible {
  /// The form that pipeline files use: `1h30m`, `250ms`, `0s`.
  public var description: String {
    if nanoseconds == 0 { return "0s" }
    var rest = nanoseconds.magnitude
    var text = nanoseconds < 0 ? "-" : ""
    for (unit, size) in Self.units where rest >= size {
      text += "\(rest / size)\(unit)"
      rest %= size
    }
    return text
  }

  private static let units: [(String, UInt64)] = [
    ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000),
    ("us", 1_000), ("ns", 1),
  ]
}

/// A point on a scheduler's monotonic clock, in nanoseconds since an origin that the scheduler chooses.
public struct Instant: Sendable, Hashable, Comparable {
  /// Nanoseconds since the clock's origin; only differences have a meaning.
  public var nanoseconds: Int64
  /// A reading of the pipeline's clock.
  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  /// Later than any timer.
  public static let distantFuture = Instant(nanoseconds: .max)
  public static func < (a: Instant, b: Instant) -> Bool { a.nanoseconds < b.nanoseconds }
  /// Saturates.
  public static func + (a: Instant, b: TimeSpan) -> Instant {
    Instant(nanoseconds: (TimeSpan(nanoseconds: a.nanoseconds) + b).nanoseconds)
  }
  /// The time from `b` to `a`.
  public static func - (a: Instant, b: Instant) -> TimeSpan {
    TimeSpan(nanoseconds: a.nanoseconds &- b.nanoseconds)
  }
}
