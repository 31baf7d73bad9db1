/// Numbers with a unit, as pipeline files write them: `300ms`, `1h30m`, `64KiB`.
package enum Units {
  /// The longest duration: 100 years. The sum of one and a time of any clock cannot overflow.
  package static let longestDuration = TimeSpan.seconds(36_500 * 86_400)
  /// The largest size: 1 PiB. Small multiples of one fit `Int`.
  package static let largestSize = 1 << 50

  /// A duration. Units are ns, us, ms, s, m, h and d, from large to small, each at most once; a number may have a
  /// fraction (`1.5s`). Never negative, at most ``longestDuration``.
  package static func duration(_ text: LocatedText) -> Result<TimeSpan, Diagnostic> {
    switch sum(text, time) {
    case .success(let nanoseconds):
      return .success(TimeSpan(nanoseconds: nanoseconds))
    case .failure(let problem):
      return .failure(problem)
    }
  }

  /// A number of bytes. Units are B, kB, MB, GB (powers of 1000) and KiB, MiB, GiB (powers of 1024). At most ``largestSize``.
  package static func size(_ text: LocatedText) -> Result<Int, Diagnostic> {
    switch sum(text, bytes) {
    case .success(let count):
      return .success(Int(count))
    case .failure(let problem):
      return .failure(problem)
    }
  }

  /// The time unit for a word: `m` for `minutes`; nil for other words.
  static func unitOfTime(_ word: String) -> String? {
    time.units.contains { $0.name == word } ? word : time.aliases[word]
  }

  private struct Dimension: Sendable {
    var code: Diagnostic.Code
    var noun: String
    /// The units, largest first.
    var units: [(name: String, factor: Int64)]
    /// Other common spellings of units, with the unit that each means.
    var aliases: [String: String]
    /// The two units that a number without one may mean.
    var likely: (String, String)
    /// Whether `1h30m` is allowed.
    var compound: Bool
    var examples: String
    var most: Int64
    /// The largest value as text.
    var largest: String
  }

  private static let time = Dimension(
    code: .duration, noun: "duration",
    units: [
      ("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000),
      ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1),
    ],
    aliases: [
      "sec": "s", "secs": "s", "second": "s", "seconds": "s", "S": "s", "min": "m", "mins": "m",
      "minute": "m", "minutes": "m", "M": "m", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
      "H": "h", "day": "d", "days": "d", "D": "d", "msec": "ms", "millis": "ms",
      "milliseconds": "ms", "MS": "ms", "Ms": "ms", "µs": "us", "μs": "us", "usec": "us",
      "micros": "us", "nanos": "ns",
    ],
    likely: ("ms", "s"), compound: true, examples: "300ms, 5s or 1h30m",
    most: longestDuration.nanoseconds, largest: "36500d")

  private static let bytes = Dimension(
    code: .size, noun: "size",
    units: [
      ("TiB", 1 << 40), ("TB", 1_000_000_000_000), ("GiB", 1 << 30), ("GB", 1_000_000_000), ("MiB", 1 << 20),
      ("MB", 1_000_000),
      ("KiB", 1 << 10), ("kB", 1_000), ("B", 1),
    ],
    aliases: [
      "K": "KiB", "k": "kB", "M": "MiB", "m": "MB", "G": "GiB", "g": "GB", "KB": "kB", "kb": "kB",
      "Kb": "kB", "mb": "MB", "Mb": "MB", "gb": "GB", "Gb": "GB", "kib": "KiB", "kiB": "KiB",
      "KIB": "KiB", "mib": "MiB", "miB": "MiB", "MIB": "MiB", "gib": "GiB", "giB": "GiB",
      "GIB": "GiB", "T": "TiB", "t": "TB", "tb": "TB", "Tb": "TB", "tib": "TiB", "tiB": "TiB", "TIB": "TiB", "b": "B",
      "bytes": "B", "byte": "B",
    ],
    likely: ("KiB", "MiB"), compound: false, examples: "512B, 64KiB or 10MB",
    most: Int64(largestSize), largest: "1024TiB")

  private static func sum(
    _ text: LocatedText, _ dimension: Dimension
  ) -> Result<Int64, Diagnostic> {
    var parser = Parser(text: text, dimension: dimension)
    return parser.run()
  }

  private struct Parser {
    let text: LocatedText
    let dimension: Dimension
    var index = 0

    private var bytes: [UInt8] { text.text }
    private var written: String { Printable.cut(bytes, limit: 40) }

    mutating func run() -> Result<Int64, Diagnostic> {
      if bytes.isEmpty { return failure("the \(dimension.noun) is empty") }
      if bytes[0] == UInt8(ascii: "-") {
        return failure("a \(dimension.noun) cannot be negative")
      }
      var total: Int64 = 0
      var lastUnit = -1
      while index < bytes.count {
        let start = index
        guard let (whole, fraction, decimals) = number() else {
          return failure("'\(written)' is not a \(dimension.noun)")
        }
        let numberEnd = index
        while index < bytes.count, bytes[index] == 0x20 { index += 1 }
        let unitStart = index
        while index < bytes.count, !isNumber(bytes[index]), bytes[index] != 0x20 { index += 1 }
        let unit = String(decoding: bytes[unitStart..<index], as: UTF8.self)
        if unit.isEmpty { return bare(start, numberEnd) }
        guard let order = dimension.units.firstIndex(where: { $0.name == unit }) else {
          return unknownUnit(unit, unitStart, behind: numberEnd)
        }
        if numberEnd != unitStart {
          return failure(
            "the unit follows the number without a space",
            replacement: String(decoding: bytes.filter { $0 != 0x20 }, as: UTF8.self))
        }
        if lastUnit >= 0, !dimension.compound {
          return failure("a \(dimension.noun) is one number with one unit")
        }
        if order <= lastUnit {
          return failure("the units go from large to small, each once, as in 1h30m")
        }
        lastUnit = order
        guard let part = value(whole, fraction, decimals, dimension.units[order].factor) else {
          return tooLarge()
        }
        guard let exact = part else {
          return failure(
            "\(written) is not a whole number of \(dimension.compound ? "nanoseconds" : "bytes")")
        }
        let (sum, overflow) = total.addingReportingOverflow(exact)
        if overflow || sum > dimension.most { return tooLarge() }
        total = sum
      }
      return .success(total)
    }

    private func isNumber(_ byte: UInt8) -> Bool {
      byte >= 0x30 && byte <= 0x39 || byte == UInt8(ascii: ".")
    }

    /// Reads digits with an optional fraction of at most 9 digits; nil if there are none or too many.
    private mutating func number() -> (whole: Int64, fraction: Int64, decimals: Int)? {
      var whole: Int64 = 0
      var digits = 0
      while index < bytes.count, bytes[index] >= 0x30, bytes[index] <= 0x39 {
        let (scaled, overflow) = whole.multipliedReportingOverflow(by: 10)
        let (next, overflow2) = scaled.addingReportingOverflow(Int64(bytes[index] - 0x30))
        if overflow || overflow2 { return nil }
        whole = next
        digits += 1
        index += 1
      }
      var fraction: Int64 = 0
      var decimals = 0
      if digits > 0, index < bytes.count, bytes[index] == UInt8(ascii: ".") {
        index += 1
        while index < bytes.count, bytes[index] >= 0x30, bytes[index] <= 0x39 {
          if decimals == 9 { return nil }
          fraction = fraction * 10 + Int64(bytes[index] - 0x30)
          decimals += 1
          index += 1
        }
        if decimals == 0 { return nil }
      }
      return digits > 0 ? (whole, fraction, decimals) : nil
    }

    /// `.none` on overflow, `.some(nil)` if the value is not a whole number.
    private func value(
      _ whole: Int64, _ fraction: Int64, _ decimals: Int, _ factor: Int64
    ) -> Int64?? {
      let (scaled, overflow) = whole.multipliedReportingOverflow(by: factor)
      if overflow { return .none }
      if fraction == 0 { return .some(scaled) }
      var divisor: Int64 = 1
      for _ in 0..<decimals { divisor *= 10 }
      let (high, low) = fraction.multipliedFullWidth(by: factor)
      // The fraction is less than the divisor, so the quotient is less than the factor.
      let (quotient, remainder) = divisor.dividingFullWidth((high, low))
      if remainder != 0 { return .some(nil) }
      let (sum, overflow2) = scaled.addingReportingOverflow(quotient)
      return overflow2 ? .none : .some(sum)
    }

    private func bare(_ start: Int, _ end: Int) -> Result<Int64, Diagnostic> {
      let number = String(decoding: bytes[start..<end], as: UTF8.self)
      let (small, large) = dimension.likely
      let head = String(decoding: bytes[..<start], as: UTF8.self)
      if !head.isEmpty {
        return failure("the number \(number) at the end of '\(written)' has no unit")
      }
      return .failure(
        Diagnostic(
          dimension.code, "a \(dimension.noun) needs a unit", at: text.location,
          help: "Write \(number)\(small) or \(number)\(large)"))
    }

    /// `behind`: the end of the number; the spaces between it and the unit belong to the unit.
    private func unknownUnit(_ unit: String, _ start: Int, behind: Int) -> Result<Int64, Diagnostic> {
      let unitLocation = text.location(start, start + unit.utf8.count)
      let names = dimension.units.map(\.name)
      let meant = dimension.aliases[unit]
      return .failure(
        Diagnostic(
          dimension.code, "'\(Printable.cut(unit, limit: 20))' is not a unit of \(dimension.noun)s",
          at: unitLocation,
          help: meant.map { "Write '\($0)'\(start > behind ? ", without a space before it" : "")" }
            ?? "The units are \(names.joined(separator: ", "))",
          fixIts: meant.map { [.init(text.location(behind, start + unit.utf8.count), $0)] } ?? []))
    }

    private func tooLarge() -> Result<Int64, Diagnostic> {
      failure("the \(dimension.noun) \(written) is too large: it is at most \(dimension.largest)")
    }

    private func failure(
      _ message: String, replacement: String? = nil
    ) -> Result<Int64, Diagnostic> {
      .failure(
        Diagnostic(
          dimension.code, message, at: text.location,
          help: "Write for example \(dimension.examples)",
          fixIts: replacement.map { [.init(text.location, $0)] } ?? []))
    }
  }
}
