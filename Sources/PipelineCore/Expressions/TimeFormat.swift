/// Text formats of timestamps: names such as `rfc1123`, and the directives of strftime.
///
/// Names of days and months are English.
struct TimeFormat {
  /// One part of a format.
  enum Part: Equatable {
    case byte(UInt8)
    case directive(UInt8)
    /// `%:z`.
    case zoneWithColon
    /// A fraction with a decimal point, or nothing if it is zero.
    case optionalFraction
    /// `GMT` if the offset is zero, otherwise `+hhmm`.
    case zoneOrGMT
    /// `Z` if the offset is zero, otherwise `+hh:mm`.
    case zoneOrZ
    /// The time since 1970, counted in units of this many nanoseconds.
    case count(Int64)
    /// Any of the usual formats of ISO 8601.
    case iso8601
  }

  let parts: [Part]

  /// The named formats and their parts.
  static let names: [(name: String, parts: [Part])] = [
    ("rfc3339", dateAndTime + [.optionalFraction, .zoneOrZ]), ("iso8601", [.iso8601]),
    ("rfc1123", of("%a, %d %b %Y %H:%M:%S ") + [.zoneOrGMT]), ("rfc2822", of("%a, %d %b %Y %H:%M:%S %z")),
    ("rfc850", of("%A, %d-%b-%y %H:%M:%S ") + [.zoneOrGMT]), ("clf", of("%d/%b/%Y:%H:%M:%S %z")),
    ("ansic", of("%a %b %e %H:%M:%S %Y")), ("syslog", of("%b %e %H:%M:%S")), ("unix", [.count(1_000_000_000)]),
    ("unixMillis", [.count(1_000_000)]), ("unixMicros", [.count(1000)]), ("unixNanos", [.count(1)]),
  ]

  private static let dateAndTime = of("%Y-%m-%dT%H:%M:%S")

  private static func of(_ format: String) -> [Part] {
    (try? TimeFormat(directives: Array(format.utf8)))?.parts ?? []
  }

  struct Fault: Error {
    var message: String
    var help: String?
  }

  /// A format without `%` is a name; any other consists of directives.
  init(_ format: UnsafeRawBufferPointer) throws(Fault) {
    guard !format.contains(0x25) else {
      self = try TimeFormat(directives: Array(format))
      return
    }
    let name = String(decoding: format, as: UTF8.self)
    guard let known = Self.names.first(where: { $0.name == name }) else {
      let names = Self.names.map(\.name)
      let nearest = NearestName.of(name, among: names).map { "Did you mean '\($0)'? " } ?? ""
      throw Fault(
        message: "there is no time format called '\(name)'",
        help: nearest + "There are \(names.joined(separator: ", ")), and directives such as '%Y-%m-%d %H:%M:%S'.")
    }
    parts = known.parts
  }

  private static let directives = Set("YCymBbhdejHkIlMSpPfLNzZsaAuwUWVGgTRFDrcxXntD%".utf8)
  /// Directives that stand for several others.
  private static let composed: [UInt8: String] = [
    UInt8(ascii: "T"): "%H:%M:%S", UInt8(ascii: "X"): "%H:%M:%S", UInt8(ascii: "R"): "%H:%M",
    UInt8(ascii: "F"): "%Y-%m-%d", UInt8(ascii: "D"): "%m/%d/%y", UInt8(ascii: "x"): "%m/%d/%y",
    UInt8(ascii: "r"): "%I:%M:%S %p", UInt8(ascii: "c"): "%a %b %e %H:%M:%S %Y",
  ]

  private init(directives format: [UInt8]) throws(Fault) {
    var parts: [Part] = []
    var at = 0
    while at < format.count {
      guard format[at] == 0x25 else {
        parts.append(.byte(format[at]))
        at += 1
        continue
      }
      at += 1
      if at + 1 < format.count, format[at] == 0x3A, format[at + 1] == UInt8(ascii: "z") {
        parts.append(.zoneWithColon)
        at += 2
        continue
      }
      guard at < format.count, Self.directives.contains(format[at]) else {
        let rest = String(decoding: format[(at - 1)...].prefix(3), as: UTF8.self)
        throw Fault(
          message: "there is no time directive '\(rest)'",
          help: "The directives are those of strftime, with %L, %f and %N for 3, 6 and 9 digits of the second.")
      }
      if let others = Self.composed[format[at]] {
        parts += try TimeFormat(directives: Array(others.utf8)).parts
      } else if format[at] == UInt8(ascii: "n") || format[at] == UInt8(ascii: "t") {
        parts.append(.byte(format[at] == UInt8(ascii: "n") ? 0x0A : 0x09))
      } else if format[at] == 0x25 {
        parts.append(.byte(0x25))
      } else {
        parts.append(.directive(format[at]))
      }
      at += 1
    }
    self.parts = parts
  }

  static let months = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
  ]
  static let weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]

  // MARK: Writing

  /// `offset`: seconds to add to UTC.
  func append(_ time: Value, offset: Int64, to buffer: OutputBuffer) {
    let (days, second) = Calendar.floor(time.asInt &+ offset, 86_400)
    let clock = Clock(
      date: Calendar.date(days: days), days: days, second: second, nanoseconds: Int64(time.length), offset: offset,
      seconds: time.asInt)
    for part in parts { append(part, clock, to: buffer) }
  }

  private struct Clock {
    var date: Calendar.Date
    var days: Int64
    /// The second of the day.
    var second: Int64
    var nanoseconds: Int64
    var offset: Int64
    /// Since 1970.
    var seconds: Int64
    /// From 1.
    var dayOfYear: Int64 { days - Calendar.days(.init(year: date.year, month: 1, day: 1)) + 1 }
    /// Sunday is 0.
    var weekday: Int64 { Calendar.floor(days + 4, 7).remainder }
    var hour12: Int64 { (second / 3600 + 11) % 12 + 1 }

    /// Year and week of ISO 8601: a week belongs to the year that contains its Thursday.
    var isoWeek: (year: Int64, week: Int64) {
      let thursday = days - Calendar.floor(weekday + 6, 7).remainder + 3
      let year = Calendar.date(days: thursday).year
      return (year, (thursday - Calendar.days(.init(year: year, month: 1, day: 1))) / 7 + 1)
    }
  }

  private func append(_ part: Part, _ clock: Clock, to buffer: OutputBuffer) {
    switch part {
    case .byte(let byte): buffer.append(byte)
    case .zoneWithColon: Self.appendZone(clock.offset, colon: true, buffer)
    case .zoneOrZ, .zoneOrGMT:
      if clock.offset != 0 {
        Self.appendZone(clock.offset, colon: part == .zoneOrZ, buffer)
      } else if part == .zoneOrZ {
        buffer.append("Z")
      } else {
        buffer.append("GMT")
      }
    case .optionalFraction:
      guard clock.nanoseconds > 0 else { return }
      buffer.append(0x2E)
      var (rest, width) = (clock.nanoseconds, 9)
      while rest % 10 == 0 { (rest, width) = (rest / 10, width - 1) }
      Self.append(rest, width, buffer)
    case .count(let unit):
      // A count outside the range of an int has no readable text.
      let (whole, one) = clock.seconds.multipliedReportingOverflow(by: 1_000_000_000 / unit)
      let (count, two) = whole.addingReportingOverflow(clock.nanoseconds / unit)
      if one || two { buffer.append(0x30) } else { NumberText.append(count, to: buffer) }
    case .iso8601: for other in Self.dateAndTime + [.optionalFraction, .zoneOrZ] { append(other, clock, to: buffer) }
    case .directive(let letter): append(letter, clock, to: buffer)
    }
  }

  private func append(_ letter: UInt8, _ clock: Clock, to buffer: OutputBuffer) {
    let date = clock.date
    switch UnicodeScalar(letter) {
    case "Y": Self.append(date.year, 4, buffer)
    case "C": Self.append(date.year / 100, 2, buffer)
    case "y": Self.append(date.year % 100, 2, buffer)
    case "m": Self.append(date.month, 2, buffer)
    case "B": buffer.append(Self.months[Int(date.month - 1)])
    case "b", "h": buffer.append(String(Self.months[Int(date.month - 1)].prefix(3)))
    case "d": Self.append(date.day, 2, buffer)
    case "e": Self.append(date.day, 2, buffer, padding: 0x20)
    case "j": Self.append(clock.dayOfYear, 3, buffer)
    case "H": Self.append(clock.second / 3600, 2, buffer)
    case "k": Self.append(clock.second / 3600, 2, buffer, padding: 0x20)
    case "I": Self.append(clock.hour12, 2, buffer)
    case "l": Self.append(clock.hour12, 2, buffer, padding: 0x20)
    case "M": Self.append(clock.second / 60 % 60, 2, buffer)
    case "S": Self.append(clock.second % 60, 2, buffer)
    case "p": buffer.append(clock.second < 43_200 ? "AM" : "PM")
    case "P": buffer.append(clock.second < 43_200 ? "am" : "pm")
    case "L": Self.append(clock.nanoseconds / 1_000_000, 3, buffer)
    case "f": Self.append(clock.nanoseconds / 1000, 6, buffer)
    case "N": Self.append(clock.nanoseconds, 9, buffer)
    case "z": Self.appendZone(clock.offset, colon: false, buffer)
    case "Z":
      if clock.offset == 0 { buffer.append("UTC") } else { Self.appendZone(clock.offset, colon: true, buffer) }
    case "s": NumberText.append(clock.seconds, to: buffer)
    case "A": buffer.append(Self.weekdays[Int(clock.weekday)])
    case "a": buffer.append(String(Self.weekdays[Int(clock.weekday)].prefix(3)))
    case "u": NumberText.append(clock.weekday == 0 ? 7 : clock.weekday, to: buffer)
    case "w": NumberText.append(clock.weekday, to: buffer)
    case "U": Self.append((clock.dayOfYear + 6 - clock.weekday) / 7, 2, buffer)
    case "W": Self.append((clock.dayOfYear + 6 - (clock.weekday + 6) % 7) / 7, 2, buffer)
    case "V": Self.append(clock.isoWeek.week, 2, buffer)
    case "G": Self.append(clock.isoWeek.year, 4, buffer)
    case "g": Self.append(clock.isoWeek.year % 100, 2, buffer)
    default: break
    }
  }

  private static func append(_ number: Int64, _ width: Int, _ buffer: OutputBuffer, padding: UInt8 = 0x30) {
    var divisor: Int64 = 1
    for _ in 1..<width { divisor *= 10 }
    while divisor > number, divisor > 1 {
      buffer.append(padding)
      divisor /= 10
    }
    NumberText.append(number, to: buffer)
  }

  private static func appendZone(_ offset: Int64, colon: Bool, _ buffer: OutputBuffer) {
    buffer.append(offset < 0 ? 0x2D : 0x2B)
    let minutes = Int64(offset.magnitude) / 60
    append(minutes / 60, 2, buffer)
    if colon { buffer.append(0x3A) }
    append(minutes % 60, 2, buffer)
  }
}
