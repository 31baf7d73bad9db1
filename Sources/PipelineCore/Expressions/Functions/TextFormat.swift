/// The clauses of `format`, such as `%s` and `%d`.
enum TextFormat {
  static func format(_ text: Value, _ list: Value, _ context: Context) -> Value {
    var failure: Value?
    let result = context.build { buffer in
      failure = append(text.rawBytes, list, buffer, context)
    }
    return failure ?? result
  }

  private static func append(
    _ text: UnsafeRawBufferPointer, _ list: Value, _ buffer: OutputBuffer, _ context: Context
  ) -> Value? {
    var at = 0
    var next = 0
    while at < text.count {
      let byte = text[at]
      at += 1
      guard byte == 0x25 else {
        buffer.append(byte)
        continue
      }
      guard at < text.count else {
        return context.failure(.invalidArgument, .absent, "a '%' at the end of the format")
      }
      if text[at] == 0x25 {
        buffer.append(0x25)
        at += 1
        continue
      }
      var precision: Int?
      if text[at] == 0x2E {
        at += 1
        var value = 0
        let start = at
        while at < text.count, ASCII.isDigit(text[at]), value < 10_000 {
          value = value * 10 + Int(text[at] - 0x30)
          at += 1
        }
        guard at > start, at < text.count else {
          return context.failure(.invalidArgument, .absent, "a '.' without digits in the format")
        }
        precision = value
      }
      let clause = text[at]
      at += 1
      guard next < list.elements.count else {
        return context.failure(.indexOutOfRange, .int(next))
      }
      let value = context.argument(list.elements[next])
      if value.isError { return value }
      next += 1
      if let failure = append(value, clause, precision, buffer, context) { return failure }
      if buffer.count > ExpressionLimits.stringBytes { return nil }
    }
    return nil
  }

  private static func append(
    _ value: Value, _ clause: UInt8, _ precision: Int?, _ buffer: OutputBuffer, _ context: Context
  ) -> Value? {
    switch clause {
    case UInt8(ascii: "s"):
      return text(value, buffer, context, depth: 0)
    case UInt8(ascii: "d"):
      if value.is(.int) || value.is(.uint) { return text(value, buffer, context, depth: 0) }
      if value.is(.double), !value.asDouble.isFinite { return text(value, buffer, context, depth: 0) }
      return context.failure(.invalidArgument, value, "%d takes whole numbers")
    case UInt8(ascii: "f"), UInt8(ascii: "e"):
      guard value.isNumber else { return context.failure(.invalidArgument, value, "%f and %e take numbers") }
      NumberText.append(
        value.asNumber, precision: precision ?? 6, exponent: clause == UInt8(ascii: "e"), to: buffer)
    case UInt8(ascii: "b"):
      if value.is(.bool) {
        buffer.append(value.asBool ? 0x31 : 0x30)
        return nil
      }
      return digits(value, 2, upper: false, buffer, context)
    case UInt8(ascii: "o"):
      return digits(value, 8, upper: false, buffer, context)
    case UInt8(ascii: "x"), UInt8(ascii: "X"):
      let upper = clause == UInt8(ascii: "X")
      if value.is(.string) || value.is(.bytes) {
        for byte in value.rawBytes {
          for digit in [byte >> 4, byte & 15] {
            buffer.append(digit < 10 ? 0x30 + digit : (upper ? 0x37 : 0x57) + digit)
          }
        }
        return nil
      }
      return digits(value, 16, upper: upper, buffer, context)
    default:
      return context.failure(.invalidArgument, .absent, "unknown clause in the format")
    }
    return nil
  }

  private static func digits(
    _ value: Value, _ radix: Int, upper: Bool, _ buffer: OutputBuffer, _ context: Context
  ) -> Value? {
    guard value.is(.int) || value.is(.uint) else {
      return context.failure(.invalidArgument, value, "this clause takes whole numbers")
    }
    if value.is(.int), value.asInt < 0 { buffer.append(0x2D) }
    let magnitude = value.is(.int) ? value.asInt.magnitude : value.asUInt
    buffer.append(String(magnitude, radix: radix, uppercase: upper))
    return nil
  }

  /// The output of `%s`.
  private static func text(
    _ value: Value, _ buffer: OutputBuffer, _ context: Context, depth: Int
  ) -> Value? {
    guard depth < 100 else { return context.failure(.tooLarge) }
    switch value.what {
    case .null: buffer.append("null")
    case .double: NumberText.appendPlain(value.asDouble, to: buffer)
    case .list, .jsonList:
      let list = context.expanded(value)
      if list.isError { return list }
      buffer.append(0x5B)
      for (index, element) in list.elements.enumerated() {
        if index > 0 { buffer.append(", ") }
        if let failure = text(element, buffer, context, depth: depth + 1) { return failure }
      }
      buffer.append(0x5D)
    case .map, .jsonMap:
      let map = context.expanded(value)
      if map.isError { return map }
      var members: [(key: [UInt8], value: Value)] = []
      for entry in map.entries {
        let key = OutputBuffer(capacity: 64)
        if let failure = text(entry.key, key, context, depth: depth + 1) { return failure }
        members.append((Array(key.bytes), entry.value))
      }
      members.sort { $0.key.lexicographicallyPrecedes($1.key) }
      buffer.append(0x7B)
      for (index, member) in members.enumerated() {
        if index > 0 { buffer.append(", ") }
        buffer.append(member.key)
        buffer.append(": ")
        if let failure = text(member.value, buffer, context, depth: depth + 1) { return failure }
      }
      buffer.append(0x7D)
    default:
      guard ValueText.append(value, to: buffer, context) else { return context.noOverload("format", value) }
    }
    return nil
  }
}
