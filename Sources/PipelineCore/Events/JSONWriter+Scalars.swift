import CJSON

/// The text of scalars, shared by all formats.
extension JSONWriter {
  /// Appends the number in decimal.
  @inline(__always)
  package static func appendInt(_ number: Int64, to output: OutputBuffer) {
    output.append(count: 20) {
      rx_json_write_int(number, UnsafeMutableRawPointer($0).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Appends the number in decimal.
  @inline(__always)
  package static func appendUInt(_ number: UInt64, to output: OutputBuffer) {
    output.append(count: 20) {
      rx_json_write_uint(number, UnsafeMutableRawPointer($0).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Appends the shortest digits that read back, with `.` or `e`; NaN and infinities as JSON strings, quotes included.
  package static func appendDouble(_ number: Double, to output: OutputBuffer) {
    guard number.isFinite else {
      if number.isNaN {
        output.append("\"NaN\"")
      } else {
        output.append(number < 0 ? "\"-Infinity\"" : "\"Infinity\"")
      }
      return
    }
    output.append(count: 32) {
      rx_json_write_double(number, UnsafeMutableRawPointer($0).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Appends base64 (RFC 4648) with padding.
  package static func appendBase64(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    func digit(_ six: UInt32) -> UInt8 {
      let six = UInt8(truncatingIfNeeded: six & 63)
      switch six {
      case 0..<26: return UInt8(ascii: "A") &+ six
      case 26..<52: return UInt8(ascii: "a") &+ (six &- 26)
      case 52..<62: return UInt8(ascii: "0") &+ (six &- 52)
      case 62: return UInt8(ascii: "+")
      default: return UInt8(ascii: "/")
      }
    }
    output.append(count: (bytes.count + 2) / 3 * 4) { target in
      var at = 0
      var out = 0
      while at < bytes.count {
        let left = bytes.count - at
        var word = UInt32(bytes[at]) << 16
        if left > 1 { word |= UInt32(bytes[at + 1]) << 8 }
        if left > 2 { word |= UInt32(bytes[at + 2]) }
        target[out] = digit(word >> 18)
        target[out + 1] = digit(word >> 12)
        target[out + 2] = left > 1 ? digit(word >> 6) : UInt8(ascii: "=")
        target[out + 3] = left > 2 ? digit(word) : UInt8(ascii: "=")
        at += 3
        out += 4
      }
      return out
    }
  }

  /// Appends RFC 3339 in UTC with as many fraction digits as needed: `2026-01-31T08:00:00.5Z`.
  package static func appendTimestamp(seconds: Int64, nanoseconds: UInt32, to output: OutputBuffer) {
    let day = seconds.quotientFloored(by: 86_400)
    let second = seconds &- day &* 86_400
    let (year, month, date) = CivilDate.from(day: day)
    if year < 0 || year > 9999 {
      // Outside the range of timestamps; ISO 8601 writes such years with a sign.
      output.append(year < 0 ? "-" : "+")
      appendUInt(year.magnitude, to: output)
    } else {
      appendDigits(UInt64(year), 4, to: output)
    }
    output.append(UInt8(ascii: "-"))
    appendDigits(UInt64(month), 2, to: output)
    output.append(UInt8(ascii: "-"))
    appendDigits(UInt64(date), 2, to: output)
    output.append(UInt8(ascii: "T"))
    appendDigits(UInt64(second / 3600), 2, to: output)
    output.append(UInt8(ascii: ":"))
    appendDigits(UInt64(second / 60 % 60), 2, to: output)
    output.append(UInt8(ascii: ":"))
    appendDigits(UInt64(second % 60), 2, to: output)
    appendFraction(nanoseconds, to: output)
    output.append(UInt8(ascii: "Z"))
  }

  /// Appends decimal seconds with as many fraction digits as needed: `1.5s`, `-0.25s`, `3600s`.
  package static func appendDuration(nanoseconds: Int64, to output: OutputBuffer) {
    let magnitude = nanoseconds.magnitude
    if nanoseconds < 0 { output.append(UInt8(ascii: "-")) }
    appendUInt(magnitude / 1_000_000_000, to: output)
    appendFraction(UInt32(magnitude % 1_000_000_000), to: output)
    output.append(UInt8(ascii: "s"))
  }

  private static func appendFraction(_ nanoseconds: UInt32, to output: OutputBuffer) {
    if nanoseconds == 0 { return }
    var digits = 9
    var rest = nanoseconds
    while rest % 10 == 0 {
      rest /= 10
      digits -= 1
    }
    output.append(UInt8(ascii: "."))
    appendDigits(UInt64(rest), digits, to: output)
  }

  /// Appends the last `count` digits of `number`, with leading zeros.
  private static func appendDigits(_ number: UInt64, _ count: Int, to output: OutputBuffer) {
    output.append(count: count) { target in
      var rest = number
      for index in stride(from: count - 1, through: 0, by: -1) {
        target[index] = UInt8(ascii: "0") + UInt8(rest % 10)
        rest /= 10
      }
      return count
    }
  }
}

extension Int64 {
  /// Division rounding towards minus infinity; `divisor` must be positive.
  func quotientFloored(by divisor: Int64) -> Int64 {
    let quotient = self / divisor
    return self % divisor < 0 ? quotient - 1 : quotient
  }
}

/// The proleptic Gregorian calendar over days since 1970-01-01.
enum CivilDate {
  /// `day` must come from a count of seconds, which keeps the arithmetic within Int64.
  static func from(day: Int64) -> (year: Int64, month: Int64, day: Int64) {
    // Years start in March here, so the leap day is the last day of its year.
    let shifted = day + 719_468
    let era = shifted.quotientFloored(by: 146_097)
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let date = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, date)
  }

  /// `year` 0 ... 9999, `month` 1 ... 12.
  static func day(year: Int64, month: Int64, day: Int64) -> Int64 {
    let shifted = month <= 2 ? year - 1 : year
    let era = shifted.quotientFloored(by: 400)
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
  }

  static func isLeap(_ year: Int64) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }

  static func days(inMonth month: Int64, of year: Int64) -> Int64 {
    switch month {
    case 2: isLeap(year) ? 29 : 28
    case 4, 6, 9, 11: 30
    default: 31
    }
  }
}
