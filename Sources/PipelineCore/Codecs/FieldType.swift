import CJSON

/// The type of a field's text.
package enum FieldType: String, Sendable, CaseIterable {
  case string
  /// Digits with an optional sign, within Int64.
  case int
  /// A decimal number in JSON's form; an unchanged number is written with its original spelling.
  case double
  /// `true` or `false`.
  case bool
  /// RFC 3339 (`2015-05-17T10:05:03Z`) or the access log's `17/May/2015:10:05:03 +0000`.
  case timestamp
  /// A JSON number, `true`, `false`, or null for an empty text; anything else is a string, including a number with a
  /// superfluous leading zero.
  case infer

  /// Reads `text`, which must outlive the value; nil if it is not of this type. Except for `string`, an empty text is
  /// null.
  func read(_ text: UnsafeRawBufferPointer) -> Value? {
    if self == .string { return .string(text) }
    if text.isEmpty { return .null }
    switch self {
    case .string: return .string(text)
    case .int: return Self.int(text).map { .int($0) }
    case .double:
      guard let number = JSONParser.number(text) else { return nil }
      switch number.what {
      case .int: return .double(Double(number.asInt), text: text)
      case .uint: return .double(Double(number.asUInt), text: text)
      default: return number
      }
    case .bool:
      if text.equals("true") { return .bool(true) }
      return text.equals("false") ? .bool(false) : nil
    case .timestamp: return TimestampText.read(text)
    case .infer:
      let first = text[0]
      if first == UInt8(ascii: "-") || (first >= 0x30 && first <= 0x39) {
        return JSONParser.number(text) ?? .string(text)
      }
      if text.equals("true") { return .bool(true) }
      return text.equals("false") ? .bool(false) : .string(text)
    }
  }

  /// Leading zeros and `+` are allowed, unlike in JSON.
  private static func int(_ text: UnsafeRawBufferPointer) -> Int64? {
    var at = 0
    var negative = false
    if text[0] == UInt8(ascii: "-") || text[0] == UInt8(ascii: "+") {
      negative = text[0] == UInt8(ascii: "-")
      at = 1
    }
    guard at < text.count else { return nil }
    var number: Int64 = 0
    while at < text.count {
      let digit = text[at] &- 0x30
      guard digit < 10 else { return nil }
      let (shifted, overflow) = number.multipliedReportingOverflow(by: 10)
      // Summing negative numbers also reaches Int64.min.
      let (sum, more) = shifted.subtractingReportingOverflow(Int64(digit))
      if overflow || more { return nil }
      number = sum
      at += 1
    }
    if negative { return number }
    return number == .min ? nil : -number
  }
}

extension UnsafeRawBufferPointer {
  @inline(__always)
  func equals(_ text: StaticString) -> Bool {
    equals(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }
}

/// Parses the timestamps of logs.
enum TimestampText {
  static func read(_ text: UnsafeRawBufferPointer) -> Value? {
    if text.count > 2, text[2] == UInt8(ascii: "/") { return accessLog(text) }
    return rfc3339(text)
  }

  /// `17/May/2015:10:05:03 +0000`
  private static func accessLog(_ text: UnsafeRawBufferPointer) -> Value? {
    guard text.count == 26, text[6] == UInt8(ascii: "/"), text[11] == UInt8(ascii: ":"),
      text[14] == UInt8(ascii: ":"), text[17] == UInt8(ascii: ":"), text[20] == UInt8(ascii: " "),
      let day = digits(text, 0, 2), let month = month(text, 3), let year = digits(text, 7, 4),
      let hour = digits(text, 12, 2), let minute = digits(text, 15, 2), let second = digits(text, 18, 2),
      let zone = zone(text, 21, colon: false)
    else { return nil }
    return timestamp(year, month, day, hour, minute, second, zone, nanoseconds: 0)
  }

  /// `2015-05-17T10:05:03.123+02:00`; also with a space for the T.
  private static func rfc3339(_ text: UnsafeRawBufferPointer) -> Value? {
    guard text.count >= 20, text[4] == UInt8(ascii: "-"), text[7] == UInt8(ascii: "-"),
      text[10] | 0x20 == UInt8(ascii: "t") || text[10] == UInt8(ascii: " "),
      text[13] == UInt8(ascii: ":"), text[16] == UInt8(ascii: ":"),
      let year = digits(text, 0, 4), let month = digits(text, 5, 2), let day = digits(text, 8, 2),
      let hour = digits(text, 11, 2), let minute = digits(text, 14, 2), let second = digits(text, 17, 2)
    else { return nil }
    var at = 19
    var nanoseconds: Int64 = 0
    if text[at] == UInt8(ascii: ".") {
      at += 1
      var unit: Int64 = 100_000_000
      let first = at
      while at < text.count, text[at] &- 0x30 < 10 {
        nanoseconds += Int64(text[at] &- 0x30) * unit
        unit /= 10
        at += 1
      }
      if at == first { return nil }
    }
    guard at < text.count else { return nil }
    if text[at] | 0x20 == UInt8(ascii: "z") {
      guard at + 1 == text.count else { return nil }
      return timestamp(year, month, day, hour, minute, second, 0, nanoseconds: nanoseconds)
    }
    guard at + 6 == text.count, let zone = zone(text, at, colon: true) else { return nil }
    return timestamp(year, month, day, hour, minute, second, zone, nanoseconds: nanoseconds)
  }

  private static func timestamp(
    _ year: Int64, _ month: Int64, _ day: Int64, _ hour: Int64, _ minute: Int64, _ second: Int64,
    _ zone: Int64, nanoseconds: Int64
  ) -> Value? {
    // A leap second counts as the second before it.
    guard year >= 1, (1...12).contains(month), day >= 1, day <= CivilDate.days(inMonth: month, of: year),
      hour < 24, minute < 60, second <= 60
    else { return nil }
    let days = CivilDate.day(year: year, month: month, day: day)
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + min(second, 59) - zone
    guard seconds >= -62_135_596_800, seconds <= 253_402_300_799 else { return nil }
    return .timestamp(seconds: seconds, nanoseconds: UInt32(nanoseconds))
  }

  private static func digits(_ text: UnsafeRawBufferPointer, _ start: Int, _ count: Int) -> Int64? {
    var number: Int64 = 0
    for at in start..<start + count {
      let digit = text[at] &- 0x30
      guard digit < 10 else { return nil }
      number = number * 10 + Int64(digit)
    }
    return number
  }

  private static func month(_ text: UnsafeRawBufferPointer, _ start: Int) -> Int64? {
    let name = text.part(start, start + 3)
    for (index, month) in months.enumerated() where name.equals(month) { return Int64(index + 1) }
    return nil
  }

  private static let months: [StaticString] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  /// Seconds east of Greenwich.
  private static func zone(_ text: UnsafeRawBufferPointer, _ start: Int, colon: Bool) -> Int64? {
    let sign = text[start]
    guard sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-"),
      !colon || text[start + 3] == UInt8(ascii: ":"),
      let hours = digits(text, start + 1, 2), let minutes = digits(text, start + (colon ? 4 : 3), 2),
      hours < 24, minutes < 60
    else { return nil }
    let seconds = hours * 3600 + minutes * 60
    return sign == UInt8(ascii: "-") ? -seconds : seconds
  }
}
