/// A duration in nanoseconds.
public struct TimeSpan: Sendable, Hashable, Comparable {
  public var nanoseconds: Int64
  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  public static let zero = TimeSpan(nanoseconds: 0)
  public static func seconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: saturated(count, 1_000_000_000)) }
  public static func milliseconds(_ count: Int64) -> TimeSpan { TimeSpan(nanoseconds: saturated(count, 1_000_000)) }

  private static func saturated(_ count: Int64, _ unit: Int64) -> Int64 {
    let (product, overflow) = count.multipliedReportingOverflow(by: unit)
    return overflow ? (count < 0 ? .min : .max) : product
  }

  public static func < (a: TimeSpan, b: TimeSpan) -> Bool { a.nanoseconds < b.nanoseconds }

  /// Saturates at the ends of the range.
  public static func + (a: TimeSpan, b: TimeSpan) -> TimeSpan {
    let (sum, overflow) = a.nanoseconds.addingReportingOverflow(b.nanoseconds)
    return TimeSpan(nanoseconds: overflow ? (a.nanoseconds < 0 ? .min : .max) : sum)
  }

  private static let units: [(name: String, length: Int64)] = [
    ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1),
  ]
}

extension TimeSpan: CustomStringConvertible {
  /// The duration as pipeline files write it: `1h30m`, `250ms`, `0s`.
  public var description: String {
    if nanoseconds == 0 { return "0s" }
    var rest = nanoseconds.magnitude
    var text = nanoseconds < 0 ? "-" : ""
    for (name, length) in Self.units {
      let count = rest / length.magnitude
      if count > 0 { text += "\(count)\(name)" }
      rest %= length.magnitude
    }
    return text
  }
}

/// A point on the pipeline's monotonic clock; virtual in tests.
public struct Instant: Sendable, Hashable, Comparable {
  public var nanoseconds: Int64
  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  public static func < (a: Instant, b: Instant) -> Bool { a.nanoseconds < b.nanoseconds }
  /// Saturates.
  public static func + (a: Instant, b: TimeSpan) -> Instant {
    Instant(nanoseconds: (TimeSpan(nanoseconds: a.nanoseconds) + b).nanoseconds)
  }
  /// Saturates.
  public static func - (a: Instant, b: Instant) -> TimeSpan {
    let (difference, overflow) = a.nanoseconds.subtractingReportingOverflow(b.nanoseconds)
    return TimeSpan(nanoseconds: overflow ? (a.nanoseconds < 0 ? .min : .max) : difference)
  }
}

/// How late a restored timer is.
public struct Lateness: Sendable {
  /// When it was due; before `restored`.
  public var due: Instant
  /// When the pipeline started again.
  public var restored: Instant
}

/// The handle of a timer.
public struct Wake: Equatable, Sendable {
  let number: UInt64
  let token: Int
  /// No timer.
  public static let none = Wake(number: 0, token: 0)
  public var isSet: Bool { number > 0 }

  /// The timer's name in rxd.
  var name: String { "\(number):\(token)" }

  init(number: UInt64, token: Int) {
    self.number = number
    self.token = token
  }

  /// Nil: the text is not the name of a timer.
  init?(name: String) {
    let parts = name.split(separator: ":")
    guard parts.count == 2, let number = UInt64(parts[0]), number > 0, let token = Int(parts[1]) else { return nil }
    self.init(number: number, token: token)
  }
}

/// The timers of a node.
final class Timers {
  /// The number of the newest timer.
  var last: UInt64 = 0
  private(set) var pending: Set<UInt64> = []
  /// Timers set in `start` or `restore`, before rxd could be called.
  var untold: [(wake: Wake, after: Int64)] = []

  func make(_ token: Int) -> Wake {
    last &+= 1
    pending.insert(last)
    return Wake(number: last, token: token)
  }

  /// Returns false if the timer is no longer pending.
  func remove(_ wake: Wake) -> Bool { pending.remove(wake.number) != nil }

  /// Takes over a timer of a saved state, which rxd still runs.
  func adopt(_ wake: Wake) -> Bool {
    guard wake.number <= last else { return false }
    pending.insert(wake.number)
    return true
  }
}
