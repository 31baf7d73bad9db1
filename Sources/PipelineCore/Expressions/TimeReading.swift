extension TimeFormat {
  /// The parsed parts of a time.
  private struct Reading {
    var year: Int64?
    var month: Int64?
    var day: Int64?
    var dayOfYear: Int64?
    var hour: Int64?
    var minute: Int64 = 0
    var second: Int64 = 0
    var nanoseconds: Int64 = 0
    var isAfternoon: Bool?
    /// The offset of the text's zone east of UTC, in seconds.
    var offset: Int64?
    /// The name of a zone.
    var zone: String?
    /// Seconds since 1970; if known, all other parts are ignored.
    var seconds: Int64?
  }

  /// Why texts in this format cannot be parsed; nil if they can.
  var readingFault: Fault? {
    for case .directive(let letter) in parts where "CUWVGguw".utf8.contains(letter) {
      return Fault(
        message: "'%\(UnicodeScalar(letter))' can be written and not read",
        help: "Give the date as %Y, %m and %d, or %j for the day of the year.")
    }
    return nil
  }

  /// Whether the format has no year, so that the year must come from the context.
  var lacksYear: Bool {
    !parts.contains {
      switch $0 {
      case .count, .iso8601: true
      case .directive(let letter): "Yys".utf8.contains(letter)
      default: false
      }
    }
  }

  /// Parses a time. `zone` applies if the text has none. `near` (seconds since 1970) determines a missing year: the
  /// latest that gives a time no more than a day after `near`.
  func read(
    _ text: UnsafeRawBufferPointer, zone: String, near: Int64?
  ) throws(Fault) -> (seconds: Int64, nanoseconds: UInt32) {
    var scanner = Scanner(text: text)
    var reading = Reading()
    for part in parts { try Self.read(part, &scanner, &reading) }
    guard scanner.at == text.count else { throw scanner.fault("the text continues after the time") }
    if let seconds = reading.seconds {
      guard Calendar.range.contains(seconds) else { throw Fault(message: "the time is outside the years 1 to 9999") }
      return (seconds, UInt32(reading.nanoseconds))
    }
    if let hour = reading.hour, let afternoon = reading.isAfternoon {
      guard (1...12).contains(hour) else { throw Fault(message: "the hour is not 1 to 12") }
      reading.hour = hour % 12 + (afternoon ? 12 : 0)
    }
    let zone = reading.zone ?? zone
    guard let year = reading.year else {
      guard let near else { throw Fault(message: "the text has no year", help: Self.yearHelp) }
      let local = Calendar.date(days: Calendar.floor(near &+ 86_400, 86_400).quotient).year
      // 29 February exists only in some years, which may be eight years apart.
      for year in stride(from: local + 1, through: local - 8, by: -1) {
        if let time = try? Self.time(reading, year, zone), time <= near &+ 86_400 {
          return (time, UInt32(reading.nanoseconds))
        }
      }
      return (try Self.time(reading, local - 1, zone), UInt32(reading.nanoseconds))
    }
    return (try Self.time(reading, year, zone), UInt32(reading.nanoseconds))
  }

  static let yearHelp = "Give a point in time near it as the fourth argument: parseTime(text, form, 'UTC', now)."

  private static func time(_ reading: Reading, _ year: Int64, _ zone: String) throws(Fault) -> Int64 {
    var days: Int64
    if let day = reading.dayOfYear {
      guard day >= 1, day <= (Calendar.isLeap(year) ? 366 : 365) else {
        throw Fault(message: "the year has no day \(day)")
      }
      days = Calendar.days(.init(year: year, month: 1, day: 1)) + day - 1
    } else {
      let (month, day) = (reading.month ?? 1, reading.day ?? 1)
      guard (1...12).contains(month) else { throw Fault(message: "there is no month \(month)") }
      guard day >= 1, day <= Calendar.daysInMonth(year, month) else {
        throw Fault(message: "\(months[Int(month - 1)]) \(year) has no day \(day)")
      }
      days = Calendar.days(.init(year: year, month: month, day: day))
    }
    let hour = reading.hour ?? 0
    guard hour < 24, reading.minute < 60, reading.second < 60 else {
      throw Fault(message: "there is no time of day \(hour):\(reading.minute):\(reading.second)")
    }
    let local = days * 86_400 + hour * 3600 + reading.minute * 60 + reading.second
    let time: Int64
    if let offset = reading.offset {
      time = local - offset
    } else {
      guard let first = TimeZones.offset(of: zone, at: local) else {
        throw Fault(message: "there is no time zone '\(zone)'")
      }
      // If two instants have this local time, the earlier; in a gap, the time by the offset before it.
      let candidates = [
        first, TimeZones.offset(of: zone, at: local - first), TimeZones.offset(of: zone, at: local - 86_400),
      ]
      .compactMap { $0 }
      let valid = candidates.filter { TimeZones.offset(of: zone, at: local - $0) == $0 }.map { local - $0 }
      time = valid.min() ?? local - (candidates.min() ?? first)
    }
    guard Calendar.range.contains(time) else { throw Fault(message: "the time is outside the years 1 to 9999") }
    return time
  }

  // MARK: Parts

  private struct Scanner {
    let text: UnsafeRawBufferPointer
    var at = 0

    func fault(_ message: String) -> Fault { Fault(message: "\(message), at byte \(at)") }

    var byte: UInt8 { at < text.count ? text[at] : 0 }

    mutating func skipSpace() {
      while at < text.count, text[at] == 0x20 || text[at] == 0x09 || text[at] == 0x0A { at += 1 }
    }

    /// Between `least` and `most` digits.
    mutating func digits(_ least: Int, _ most: Int, _ what: String) throws(Fault) -> Int64 {
      var value: Int64 = 0
      let start = at
      while at < text.count, at - start < most, ASCII.isDigit(text[at]) {
        value = value &* 10 &+ Int64(text[at] - 0x30)
        at += 1
      }
      guard at - start >= least else {
        at = start
        throw fault("\(what) is missing")
      }
      return value
    }

    /// A fraction in nanoseconds; digits after the ninth are dropped.
    mutating func fraction() throws(Fault) -> Int64 {
      var value: Int64 = 0
      var count = 0
      while at < text.count, ASCII.isDigit(text[at]) {
        if count < 9 { value = value * 10 + Int64(text[at] - 0x30) }
        count += 1
        at += 1
      }
      guard count > 0 else { throw fault("a fraction of a second is missing") }
      while count < 9 {
        value *= 10
        count += 1
      }
      return value
    }

    /// The index of the name in the text, ignoring case; a name may be cut to its first three letters. The longest
    /// match wins.
    mutating func name(_ names: [String], _ what: String) throws(Fault) -> Int64 {
      for length in [Int.max, 3] {
        for (index, name) in names.enumerated() {
          let wanted = Array(name.utf8.prefix(length))
          guard at + wanted.count <= text.count else { continue }
          if wanted.indices.allSatisfy({ text[at + $0] | 0x20 == wanted[$0] | 0x20 }) {
            at += wanted.count
            return Int64(index)
          }
        }
      }
      throw fault("\(what) is missing")
    }
  }

  private static func read(
    _ part: Part, _ scanner: inout Scanner, _ reading: inout Reading
  ) throws(Fault) {
    switch part {
    case .byte(let byte) where byte == 0x20 || byte == 0x09 || byte == 0x0A:
      scanner.skipSpace()
    case .byte(let byte):
      guard scanner.at < scanner.text.count, scanner.byte == byte else {
        throw scanner.fault("'\(UnicodeScalar(byte))' is missing")
      }
      scanner.at += 1
    case .zoneWithColon, .zoneOrGMT, .zoneOrZ:
      try zone(&scanner, &reading)
    case .optionalFraction:
      guard scanner.byte == 0x2E || scanner.byte == 0x2C else { return }
      scanner.at += 1
      reading.nanoseconds = try scanner.fraction()
    case .count(let unit):
      let count = try number(&scanner)
      let scale = 1_000_000_000 / unit
      let (seconds, rest) = Calendar.floor(count, scale)
      reading.seconds = seconds
      reading.nanoseconds = rest * unit
    case .iso8601: try iso8601(&scanner, &reading)
    case .directive(let letter): try read(letter, &scanner, &reading)
    }
  }

  private static func number(_ scanner: inout Scanner) throws(Fault) -> Int64 {
    let start = scanner.at
    if scanner.byte == 0x2D { scanner.at += 1 }
    while ASCII.isDigit(scanner.byte) { scanner.at += 1 }
    guard let value = NumberText.int(UnsafeRawBufferPointer(rebasing: scanner.text[start..<scanner.at])) else {
      scanner.at = start
      throw scanner.fault("a number is missing or too large")
    }
    return value
  }

  private static func read(
    _ letter: UInt8, _ scanner: inout Scanner, _ reading: inout Reading
  ) throws(Fault) {
    switch UnicodeScalar(letter) {
    case "Y": reading.year = try scanner.digits(4, 4, "the year")
    case "y":
      let year = try scanner.digits(2, 2, "the year")
      reading.year = year + (year < 69 ? 2000 : 1900)
    case "m": reading.month = try scanner.digits(1, 2, "the month")
    case "B", "b", "h": reading.month = try scanner.name(months, "the name of a month") + 1
    case "d", "e":
      scanner.skipSpace()
      reading.day = try scanner.digits(1, 2, "the day")
    case "j": reading.dayOfYear = try scanner.digits(1, 3, "the day of the year")
    case "H", "k", "I", "l":
      scanner.skipSpace()
      reading.hour = try scanner.digits(1, 2, "the hour")
    case "M": reading.minute = try scanner.digits(2, 2, "the minute")
    case "S": reading.second = try scanner.digits(2, 2, "the second")
    case "p", "P": reading.isAfternoon = try scanner.name(["am", "pm"], "AM or PM") == 1
    case "f", "L", "N": reading.nanoseconds = try scanner.fraction()
    case "z", "Z": try zone(&scanner, &reading)
    case "s": reading.seconds = try number(&scanner)
    case "A", "a": _ = try scanner.name(weekdays, "the name of a day")
    default: throw scanner.fault("'%\(UnicodeScalar(letter))' cannot be read")
    }
  }

  /// The zones of RFC 2822, in hours. Other abbreviations are ambiguous.
  private static let mailZones: [String: Int64] = [
    "EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8,
  ]

  /// `Z`, `UTC`, `GMT`, `EST`, `+02:00`, `+0200`, `+02`, or the name of a zone.
  private static func zone(_ scanner: inout Scanner, _ reading: inout Reading) throws(Fault) {
    let sign = scanner.byte
    if sign == 0x2B || sign == 0x2D {
      scanner.at += 1
      let hours = try scanner.digits(2, 2, "the hours of the zone")
      if scanner.byte == 0x3A { scanner.at += 1 }
      let minutes = ASCII.isDigit(scanner.byte) ? try scanner.digits(2, 2, "the minutes of the zone") : 0
      guard hours < 24, minutes < 60 else { throw scanner.fault("the zone is out of range") }
      reading.offset = (hours * 3600 + minutes * 60) * (sign == 0x2D ? -1 : 1)
      return
    }
    let start = scanner.at
    while ASCII.isLetterOrUnderscore(scanner.byte) || scanner.byte == 0x2F
      || scanner.at > start && (scanner.byte == 0x2D || ASCII.isDigit(scanner.byte))
    {
      scanner.at += 1
    }
    let name = String(decoding: scanner.text[start..<scanner.at], as: UTF8.self)
    if ["Z", "z", "UTC", "UT", "GMT"].contains(name) {
      reading.offset = 0
    } else if let hours = mailZones[name] {
      reading.offset = hours * 3600
    } else if name.isEmpty || TimeZones.offset(of: name, at: 0) == nil {
      scanner.at = start
      throw scanner.fault(name.isEmpty ? "a time zone is missing" : "there is no time zone '\(name)'")
    } else {
      reading.zone = name
    }
  }

  /// Parses `2026-01-31`, `20260131` or `2026-031`, with `T` or a space and `12`, `12:30`, `1230` or `12:30:05.5`, with
  /// or without a zone.
  private static func iso8601(_ scanner: inout Scanner, _ reading: inout Reading) throws(Fault) {
    reading.year = try scanner.digits(4, 4, "the year")
    let dashed = scanner.byte == 0x2D
    if dashed { scanner.at += 1 }
    let start = scanner.at
    var digits = 0
    while ASCII.isDigit(scanner.byte), digits < 4 {
      digits += 1
      scanner.at += 1
    }
    scanner.at = start
    if digits == 3 {
      reading.dayOfYear = try scanner.digits(3, 3, "the day of the year")
    } else {
      reading.month = try scanner.digits(2, 2, "the month")
      if dashed {
        if scanner.byte == 0x2D {
          scanner.at += 1
          reading.day = try scanner.digits(2, 2, "the day")
        }
      } else {
        reading.day = try scanner.digits(2, 2, "the day")
      }
    }
    guard scanner.byte | 0x20 == UInt8(ascii: "t") || scanner.byte == 0x20 else { return }
    scanner.at += 1
    reading.hour = try scanner.digits(2, 2, "the hour")
    let colons = scanner.byte == 0x3A
    if colons { scanner.at += 1 }
    if colons || ASCII.isDigit(scanner.byte) {
      reading.minute = try scanner.digits(2, 2, "the minute")
      if colons ? scanner.byte == 0x3A : ASCII.isDigit(scanner.byte) {
        if colons { scanner.at += 1 }
        reading.second = try scanner.digits(2, 2, "the second")
        if scanner.byte == 0x2E || scanner.byte == 0x2C {
          scanner.at += 1
          reading.nanoseconds = try scanner.fraction()
        }
      }
    }
    if scanner.byte == 0x20 { scanner.at += 1 }
    if scanner.at < scanner.text.count { try zone(&scanner, &reading) }
  }
}
