#if canImport(Glibc)
  import Glibc
#endif

/// The text of numbers.
enum NumberText {
  static func append(_ number: UInt64, to buffer: OutputBuffer) {
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      var at = 20
      var rest = number
      repeat {
        at -= 1
        digits[at] = UInt8(truncatingIfNeeded: 0x30 + rest % 10)
        rest /= 10
      } while rest > 0
      buffer.append(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(digits)[at..<20]))
    }
  }

  static func append(_ number: Int64, to buffer: OutputBuffer) {
    if number < 0 { buffer.append(0x2D) }
    append(number.magnitude, to: buffer)
  }

  /// The shortest digits that read back as the same number: `7`, `0.0045`, `1.5e+21`; an exponent is used below 1e-4
  /// and from 1e6 on.
  static func append(_ number: Double, to buffer: OutputBuffer) {
    if number.isNaN { return buffer.append("NaN") }
    if number < 0 || (number == 0 && number.sign == .minus) { buffer.append(0x2D) }
    if number.isInfinite { return buffer.append("Infinity") }
    if number == 0 { return buffer.append(0x30) }
    let (digits, point) = shortest(number.magnitude)
    let exponent = point - 1
    if exponent < -4 || exponent >= 6 {
      appendScientific(digits, exponent, buffer)
    } else {
      appendPlain(digits, point, buffer)
    }
  }

  /// The shortest digits that read back as the same number, without an exponent.
  static func appendPlain(_ number: Double, to buffer: OutputBuffer) {
    guard number.isFinite, number != 0 else { return append(number, to: buffer) }
    if number < 0 { buffer.append(0x2D) }
    let (digits, point) = shortest(number.magnitude)
    appendPlain(digits, point, buffer)
  }

  private static func appendPlain(_ digits: [UInt8], _ point: Int, _ buffer: OutputBuffer) {
    if point <= 0 {
      buffer.append("0.")
      for _ in 0..<(-point) { buffer.append(0x30) }
      buffer.append(digits)
    } else if digits.count <= point {
      buffer.append(digits)
      for _ in 0..<(point - digits.count) { buffer.append(0x30) }
    } else {
      buffer.append(Array(digits[..<point]))
      buffer.append(0x2E)
      buffer.append(Array(digits[point...]))
    }
  }

  private static func appendScientific(_ digits: [UInt8], _ exponent: Int, _ buffer: OutputBuffer) {
    buffer.append(digits[0])
    if digits.count > 1 {
      buffer.append(0x2E)
      buffer.append(Array(digits[1...]))
    }
    buffer.append(UInt8(ascii: "e"))
    buffer.append(exponent < 0 ? 0x2D : 0x2B)
    if exponent.magnitude < 10 { buffer.append(0x30) }
    append(UInt64(exponent.magnitude), to: buffer)
  }

  /// The significant digits of a positive number and the position of the decimal point.
  private static func shortest(_ number: Double) -> (digits: [UInt8], point: Int) {
    var digits: [UInt8] = []
    var point: Int?
    var exponent = 0
    let text = Array(number.description.utf8)
    for (index, byte) in text.enumerated() {
      if byte == 0x2E {
        point = digits.count
      } else if byte == UInt8(ascii: "e") {
        exponent = Int(String(decoding: text[(index + 1)...], as: UTF8.self)) ?? 0
        break
      } else {
        digits.append(byte)
      }
    }
    var scale = (point ?? digits.count) + exponent
    while digits.count > 1, digits[0] == 0x30 {
      digits.removeFirst()
      scale -= 1
    }
    while digits.count > 1, digits[digits.count - 1] == 0x30 { digits.removeLast() }
    return (digits, scale)
  }

  /// `precision` digits after the point, rounded half to even; `exponent` selects scientific notation.
  static func append(_ number: Double, precision: Int, exponent: Bool, to buffer: OutputBuffer) {
    if number.isNaN { return buffer.append("NaN") }
    if number.isInfinite { return buffer.append(number < 0 ? "-Infinity" : "Infinity") }
    let precision = Int32(clamping: min(max(precision, 0), 400))
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 800) { text in
      let count = withVaList([precision, number]) {
        vsnprintf(text.baseAddress, 800, exponent ? "%.*e" : "%.*f", $0)
      }
      buffer.append(
        UnsafeRawBufferPointer(start: text.baseAddress, count: min(max(Int(count), 0), 799)))
    }
  }
}

/// The text of values.
enum ValueText {
  /// Appends the text of `string(x)`; false if the kind has none.
  static func append(_ value: Value, to buffer: OutputBuffer, _ context: Context) -> Bool {
    switch value.what {
    case .bool: buffer.append(value.asBool ? "true" : "false")
    case .int: NumberText.append(value.asInt, to: buffer)
    case .uint: NumberText.append(value.asUInt, to: buffer)
    case .double: NumberText.append(value.asDouble, to: buffer)
    case .string: buffer.append(context.plain(value).rawBytes)
    case .timestamp: TimeText.append(timestamp: value, to: buffer)
    case .duration: TimeText.append(duration: value, to: buffer)
    case .type, .bytes: buffer.append(value.rawBytes)
    default: return false
    }
    return true
  }

  /// Appends the value as written in an expression, for messages and `%s`.
  static func describe(_ value: Value, into buffer: OutputBuffer, _ context: Context, depth: Int = 0) {
    switch value.what {
    case .string:
      buffer.append(0x27)
      buffer.append(context.plain(value).rawBytes)
      buffer.append(0x27)
    case .null: buffer.append("null")
    case .list, .jsonList, .map, .jsonMap, .optional, .error, .absent:
      buffer.append(value.typeName)
    default:
      _ = append(value, to: buffer, context)
    }
  }
}

enum JSONFailureText {
  /// The message for an error value of a JSON reader.
  static func message(_ error: Value) -> String { JSONFailure(error)?.description ?? "malformed JSON" }
}
