/// Dates in the proleptic Gregorian calendar.
enum Calendar {
  /// Seconds since 1970 of 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
  static let range: ClosedRange<Int64> = -62_135_596_800...253_402_300_799

  struct Date {
    var year: Int64
    /// 1 to 12.
    var month: Int64
    /// 1 to 31.
    var day: Int64
  }

  /// Days since 1970-01-01.
  static func days(_ date: Date) -> Int64 {
    let year = date.month <= 2 ? date.year - 1 : date.year
    let era = (year >= 0 ? year : year - 399) / 400
    let yearOfEra = year - era * 400
    let dayOfYear = (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5 + date.day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  static func date(days: Int64) -> Date {
    let shifted = days + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let part = (5 * dayOfYear + 2) / 153
    let month = part < 10 ? part + 3 : part - 9
    return Date(
      year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month: month,
      day: dayOfYear - (153 * part + 2) / 5 + 1)
  }

  static func isLeap(_ year: Int64) -> Bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
  }

  static func daysInMonth(_ year: Int64, _ month: Int64) -> Int64 {
    switch month {
    case 2: return isLeap(year) ? 29 : 28
    case 4, 6, 9, 11: return 30
    default: return 31
    }
  }

  /// Division rounding down.
  static func floor(_ a: Int64, _ b: Int64) -> (quotient: Int64, remainder: Int64) {
    let remainder = a % b
    return remainder < 0 ? (a / b - 1, remainder + b) : (a / b, remainder)
  }
}

/// Timestamps and durations as text.
package enum TimeText {
  /// Nanoseconds since 1970 of an RFC 3339 timestamp; nil if the text is invalid or the time out of range.
  package static func nanoseconds(rfc3339 text: String) -> Int64? {
    guard let time = Array(text.utf8).withUnsafeBytes({ timestamp($0) }) else { return nil }
    let (scaled, overflow) = time.seconds.multipliedReportingOverflow(by: 1_000_000_000)
    return overflow ? nil : scaled &+ Int64(time.nanoseconds)
  }

  /// Seconds since 1970 as an RFC 3339 timestamp: `2026-01-31T12:00:00Z`.
  package static func rfc3339(seconds: Int64) -> String {
    let buffer = OutputBuffer()
    append(timestamp: .timestamp(seconds: seconds, nanoseconds: 0), to: buffer)
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// Parses RFC 3339: `2026-01-31T12:00:00.5Z`, `2026-01-31T12:00:00+02:00`.
  package static func timestamp(_ bytes: UnsafeRawBufferPointer) -> (seconds: Int64, nanoseconds: UInt32)? {
    if let usual = usualTimestamp(bytes) { return usual }
    var at = 0
    func digits(_ count: Int) -> Int64? {
      guard at + count <= bytes.count else { return nil }
      var value: Int64 = 0
      for _ in 0..<count {
        guard ASCII.isDigit(bytes[at]) else { return nil }
        value = value * 10 + Int64(bytes[at] - 0x30)
        at += 1
      }
      return value
    }
    func take(_ options: StaticString) -> UInt8? {
      guard at < bytes.count else { return nil }
      let byte = bytes[at]
      for index in 0..<options.utf8CodeUnitCount where options.utf8Start[index] == byte {
        at += 1
        return byte
      }
      return nil
    }
    guard let year = digits(4), take("-") != nil, let month = digits(2), take("-") != nil,
      let day = digits(2), take("Tt ") != nil, let hour = digits(2), take(":") != nil,
      let minute = digits(2), take(":") != nil, let second = digits(2)
    else { return nil }
    guard (1...12).contains(month), day >= 1, day <= Calendar.daysInMonth(year, month), hour < 24,
      minute < 60, second < 60
    else { return nil }
    var nanoseconds: UInt32 = 0
    if take(".") != nil {
      var scale: UInt32 = 100_000_000
      var count = 0
      while at < bytes.count, ASCII.isDigit(bytes[at]) {
        nanoseconds += UInt32(bytes[at] - 0x30) * scale
        scale /= 10
        at += 1
        count += 1
      }
      guard (1...9).contains(count) else { return nil }
    }
    var offset: Int64 = 0
    guard let sign = take("Zz+-") else { return nil }
    if sign == 0x2B || sign == 0x2D {
      guard let hours = digits(2), take(":") != nil, let minutes = digits(2), hours < 24, minutes < 60
      else { return nil }
      offset = (hours * 60 + minutes) * (sign == 0x2B ? 60 : -60)
    }
    guard at == bytes.count else { return nil }
    let days = Calendar.days(.init(year: year, month: month, day: day))
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset
    guard Calendar.range.contains(seconds) else { return nil }
    return (seconds, nanoseconds)
  }

  /// Parses the form that most logs have, `2026-01-31T12:00:00Z` with a fraction of up to nine digits or none; nil for
  /// any other text.
  private static func usualTimestamp(_ bytes: UnsafeRawBufferPointer) -> (seconds: Int64, nanoseconds: UInt32)? {
    guard let text = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), (20...30).contains(bytes.count),
      text[bytes.count - 1] == UInt8(ascii: "Z"), text[4] == UInt8(ascii: "-"), text[7] == UInt8(ascii: "-"),
      text[10] == UInt8(ascii: "T"), text[13] == UInt8(ascii: ":"), text[16] == UInt8(ascii: ":")
    else { return nil }
    var areDigits = true
    @inline(__always) func two(_ at: Int) -> Int64 {
      let (tens, ones) = (text[at] &- 0x30, text[at &+ 1] &- 0x30)
      if tens > 9 || ones > 9 { areDigits = false }
      return Int64(tens) &* 10 &+ Int64(ones)
    }
    let year = two(0) &* 100 &+ two(2)
    let (month, day, hour, minute, second) = (two(5), two(8), two(11), two(14), two(17))
    guard areDigits, month >= 1, month <= 12, day >= 1, day <= 28 || day <= Calendar.daysInMonth(year, month),
      hour < 24,
      minute < 60, second < 60, year >= 1
    else { return nil }
    var nanoseconds: UInt32 = 0
    if bytes.count > 20 {
      guard text[19] == UInt8(ascii: "."), bytes.count > 21 else { return nil }
      for at in 20..<bytes.count - 1 {
        let digit = text[at] &- 0x30
        guard digit <= 9 else { return nil }
        nanoseconds = nanoseconds &* 10 &+ UInt32(digit)
      }
      for _ in bytes.count - 21..<9 { nanoseconds &*= 10 }
    }
    let days = Calendar.days(.init(year: year, month: month, day: day))
    return (days * 86_400 + hour * 3600 + minute * 60 + second, nanoseconds)
  }

  static func append(timestamp value: Value, to buffer: OutputBuffer) {
    let (days, second) = Calendar.floor(value.asInt, 86_400)
    let date = Calendar.date(days: days)
    append(date.year, 4, buffer)
    buffer.append(0x2D)
    append(date.month, 2, buffer)
    buffer.append(0x2D)
    append(date.day, 2, buffer)
    buffer.append(UInt8(ascii: "T"))
    append(second / 3600, 2, buffer)
    buffer.append(0x3A)
    append(second / 60 % 60, 2, buffer)
    buffer.append(0x3A)
    append(second % 60, 2, buffer)
    appendFraction(Int64(value.length), buffer)
    buffer.append(UInt8(ascii: "Z"))
  }

  private static func append(_ number: Int64, _ width: Int, _ buffer: OutputBuffer) {
    var divisor: Int64 = 1
    for _ in 1..<width { divisor *= 10 }
    while divisor > 0 {
      buffer.append(UInt8(truncatingIfNeeded: 0x30 + number / divisor % 10))
      divisor /= 10
    }
  }

  /// Appends `.5`, or nothing for zero.
  private static func appendFraction(_ nanoseconds: Int64, _ buffer: OutputBuffer) {
    guard nanoseconds > 0 else { return }
    buffer.append(0x2E)
    var rest = nanoseconds
    var scale: Int64 = 100_000_000
    while rest > 0 {
      buffer.append(UInt8(truncatingIfNeeded: 0x30 + rest / scale))
      rest %= scale
      scale /= 10
    }
  }

  private static let units: [(String, UInt64)] = [
    ("ns", 1), ("us", 1000), ("µs", 1000), ("μs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000),
    ("m", 60_000_000_000), ("h", 3_600_000_000_000),
  ]

  /// Parses `1h30m5.5s`, `-90m`, `0` to nanoseconds; nil if the text is invalid.
  package static func duration(_ bytes: UnsafeRawBufferPointer) -> Int64? {
    var at = 0
    var negative = false
    if at < bytes.count, bytes[at] == 0x2D || bytes[at] == 0x2B {
      negative = bytes[at] == 0x2D
      at += 1
    }
    if bytes.count == at + 1, bytes[at] == 0x30 { return 0 }
    guard at < bytes.count else { return nil }
    var total: UInt64 = 0
    while at < bytes.count {
      var whole: UInt64 = 0
      var digits = 0
      while at < bytes.count, ASCII.isDigit(bytes[at]) {
        let (scaled, one) = whole.multipliedReportingOverflow(by: 10)
        let (sum, two) = scaled.addingReportingOverflow(UInt64(bytes[at] - 0x30))
        if one || two { return nil }
        whole = sum
        at += 1
        digits += 1
      }
      var fraction: UInt64 = 0
      var scale: UInt64 = 1
      if at < bytes.count, bytes[at] == 0x2E {
        at += 1
        while at < bytes.count, ASCII.isDigit(bytes[at]) {
          if scale < 1_000_000_000_000_000 {
            fraction = fraction * 10 + UInt64(bytes[at] - 0x30)
            scale *= 10
          }
          at += 1
          digits += 1
        }
      }
      guard digits > 0 else { return nil }
      let start = at
      while at < bytes.count, !ASCII.isDigit(bytes[at]), bytes[at] != 0x2E { at += 1 }
      let name = UnsafeRawBufferPointer(rebasing: bytes[start..<at])
      guard let unit = units.first(where: { name.elementsEqual($0.0.utf8) })?.1 else { return nil }
      let (length, one) = whole.multipliedReportingOverflow(by: unit)
      let part = UInt64(Double(fraction) * (Double(unit) / Double(scale)))
      let (sum, two) = length.addingReportingOverflow(part)
      let (next, three) = total.addingReportingOverflow(sum)
      if one || two || three { return nil }
      total = next
    }
    if negative { return total <= 1 << 63 ? Int64(truncatingIfNeeded: 0 &- total) : nil }
    return Int64(exactly: total)
  }

  /// Appends decimal seconds: `1.5s`.
  static func append(duration value: Value, to buffer: OutputBuffer) {
    let magnitude = value.asInt.magnitude
    if value.asInt < 0 { buffer.append(0x2D) }
    NumberText.append(magnitude / 1_000_000_000, to: buffer)
    appendFraction(Int64(magnitude % 1_000_000_000), buffer)
    buffer.append(UInt8(ascii: "s"))
  }
}
