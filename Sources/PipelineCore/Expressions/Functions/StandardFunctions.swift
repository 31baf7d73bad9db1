extension FunctionRegistry {
  private static let t = ExpressionType.param("T")
  private static let k = ExpressionType.param("K")
  private static let v = ExpressionType.param("V")

  /// Sizes, texts and patterns, as CEL's standard defines them.
  static let standard: [FunctionSpec] = [
    FunctionSpec(
      "size", "The number of code points, bytes, elements or entries.",
      [
        .global([.string], .int, sizeOfText), .member([.string], .int, sizeOfText),
        .global([.bytes], .int, sizeOf), .member([.bytes], .int, sizeOf),
        .global([.list(t)], .int, sizeOf), .member([.list(t)], .int, sizeOf),
        .global([.map(k, v)], .int, sizeOf), .member([.map(k, v)], .int, sizeOf),
      ],
      examples: [("size('née')", "3"), ("[1, 2].size()", "2")]),
    FunctionSpec(
      "contains", "Whether a text contains another.",
      [
        .member([.string, .string], .bool) {
          .bool(CodePoints.find($0[1].rawBytes, in: $0[0].rawBytes) != nil)
        }
      ], examples: [("'hello'.contains('ell')", "true")]),
    FunctionSpec(
      "startsWith", "Whether a text begins with another.",
      [
        .member([.string, .string], .bool) { arguments in
          let (text, part) = (arguments[0], arguments[1])
          guard part.length <= text.length else { return .bool(false) }
          return .bool(Context.equalBytes(arguments.context.slice(text, 0..<Int(part.length)), part))
        }
      ], examples: [("'hello'.startsWith('he')", "true")]),
    FunctionSpec(
      "endsWith", "Whether a text ends with another.",
      [
        .member([.string, .string], .bool) { arguments in
          let (text, part) = (arguments[0], arguments[1])
          guard part.length <= text.length else { return .bool(false) }
          let start = Int(text.length - part.length)
          return .bool(
            Context.equalBytes(arguments.context.slice(text, start..<Int(text.length)), part))
        }
      ], examples: [("'hello'.endsWith('lo')", "true")]),
    FunctionSpec(
      "matches", "Whether a pattern in RE2's syntax matches somewhere in a text.",
      [.member([.string, .string], .bool, matches), .global([.string, .string], .bool, matches)],
      examples: [("'order-42'.matches(r'\\d+$')", "true")]),
  ]

  private static let sizeOf: FunctionOverload.Body = { .int(Int($0[0].length)) }
  private static let sizeOfText: FunctionOverload.Body = { .int(CodePoints.count($0[0].rawBytes)) }

  private static let matches: FunctionOverload.Body = { arguments in
    let source = arguments[1].rawBytes
    guard source.count <= ExpressionLimits.patternBytes else {
      return arguments.context.failure(.tooLarge)
    }
    let pattern = arguments.context.frame.pattern(source)
    if let failure = pattern.failure {
      return arguments.context.failure(.badPattern, .absent, text: failure.reason)
    }
    return .bool(pattern.matches(arguments[0].rawBytes))
  }

  // MARK: Conversions

  /// `type`, `dyn` and the functions named like types.
  static let conversions: [FunctionSpec] = [
    FunctionSpec(
      "type", "The type of a value.",
      [.global([t], .type(t)) { $0.context.type(of: $0[0]) }],
      examples: [("type(1) == int", "true")]),
    FunctionSpec(
      "dyn", "The value with a type that the checker does not know.", [.global([t], .dyn) { $0[0] }],
      examples: [("dyn(1) == 1.0", "true")]),
    FunctionSpec(
      "bool", "The bool that a text stands for: 1, t, true, True, TRUE or 0, f, false, False, FALSE.",
      [
        .global([.bool], .bool) { $0[0] },
        .global([.string], .bool) { arguments in
          let text = arguments[0].rawBytes
          for name in ["1", "t", "true", "TRUE", "True"] where text.elementsEqual(name.utf8) {
            return .bool(true)
          }
          for name in ["0", "f", "false", "FALSE", "False"] where text.elementsEqual(name.utf8) {
            return .bool(false)
          }
          return arguments.context.failure(.conversion, arguments[0], "bool")
        },
      ], examples: [("bool('true')", "true")]),
    FunctionSpec(
      "int", "A whole number: a double towards zero, a text read, a timestamp as seconds since 1970.",
      [
        .global([.int], .int) { $0[0] },
        .global([.uint], .int) { arguments in
          Int64(exactly: arguments[0].asUInt).map { .int($0) }
            ?? arguments.context.failure(.outOfRange, arguments[0], "int")
        },
        .global([.double], .int) { arguments in
          let number = arguments[0].asDouble
          guard number > -0x1p63, number < 0x1p63 else {
            return arguments.context.failure(.outOfRange, arguments[0], "int")
          }
          return .int(Int64(number))
        },
        .global([.string], .int) { arguments in
          NumberText.int(arguments[0].rawBytes).map { .int($0) }
            ?? arguments.context.failure(.conversion, arguments[0], "int")
        },
        .global([.timestamp], .int) { .int($0[0].asInt) },
        .global([.duration], .int) { .int($0[0].asInt) },
      ], examples: [("int('42')", "42"), ("int(-7.9)", "-7")]),
    FunctionSpec(
      "uint", "An unsigned whole number.",
      [
        .global([.uint], .uint) { $0[0] },
        .global([.int], .uint) { arguments in
          UInt64(exactly: arguments[0].asInt).map { .uint($0) }
            ?? arguments.context.failure(.outOfRange, arguments[0], "uint")
        },
        .global([.double], .uint) { arguments in
          let number = arguments[0].asDouble
          guard number >= 0, number < 0x1p64 else {
            return arguments.context.failure(.outOfRange, arguments[0], "uint")
          }
          return .uint(UInt64(number))
        },
        .global([.string], .uint) { arguments in
          NumberText.uint(arguments[0].rawBytes).map { .uint($0) }
            ?? arguments.context.failure(.conversion, arguments[0], "uint")
        },
      ], examples: [("uint(7)", "7u")]),
    FunctionSpec(
      "double", "A number with a fraction.",
      [
        .global([.double], .double) { $0[0] },
        .global([.int], .double) { .double(Double($0[0].asInt)) },
        .global([.uint], .double) { .double(Double($0[0].asUInt)) },
        .global([.string], .double) { arguments in
          NumberText.double(arguments[0].rawBytes).map { .double($0) }
            ?? arguments.context.failure(.conversion, arguments[0], "double")
        },
      ], examples: [("double('1.5')", "1.5")]),
    FunctionSpec(
      "string", "The value as text.",
      [ExpressionType.bool, .int, .uint, .double, .timestamp, .duration].map {
        .global([$0], .string) { arguments in
          arguments.context.build { _ = ValueText.append(arguments[0], to: $0, arguments.context) }
        }
      } + [
        .global([.string], .string) { $0[0] },
        .global([.bytes], .string) { arguments in
          guard CodePoints.areValid(arguments[0].rawBytes) else {
            return arguments.context.failure(.invalidArgument, .absent, "the bytes are not valid UTF-8")
          }
          return .string(arguments[0].rawBytes)
        },
      ]
        + ["net.IP", "net.CIDR"].map {
          .global([.abstract($0, [])], .string) { .string($0[0].rawBytes) }
        }, examples: [("string(1.5)", "'1.5'"), ("string(duration('90s'))", "'90s'")]),
    FunctionSpec(
      "bytes", "The UTF-8 bytes of a text.",
      [.global([.bytes], .bytes) { $0[0] }, .global([.string], .bytes) { .bytes($0[0].rawBytes) }],
      examples: [("bytes('a')", "b'a'")]),
    FunctionSpec(
      "timestamp", "A point in time, from RFC 3339 text or seconds since 1970.",
      [
        .global([.timestamp], .timestamp) { $0[0] },
        .global([.string], .timestamp) { arguments in
          guard let time = TimeText.timestamp(arguments[0].rawBytes) else {
            return arguments.context.failure(.conversion, arguments[0], "timestamp")
          }
          return .timestamp(seconds: time.seconds, nanoseconds: time.nanoseconds)
        },
        .global([.int], .timestamp) { arguments in
          guard Calendar.range.contains(arguments[0].asInt) else {
            return arguments.context.failure(.outOfRange, arguments[0], "timestamp")
          }
          return .timestamp(seconds: arguments[0].asInt, nanoseconds: 0)
        },
      ], examples: [("timestamp('1970-01-01T00:01:00Z')", "timestamp(60)")]),
    FunctionSpec(
      "duration", "A length of time, from text such as 1h30m or 250ms.",
      [
        .global([.duration], .duration) { $0[0] },
        .global([.string], .duration) { arguments in
          TimeText.duration(arguments[0].rawBytes).map { .duration(nanoseconds: $0) }
            ?? arguments.context.failure(.conversion, arguments[0], "duration")
        },
      ], examples: [("duration('1m')", "duration('60s')")]),
  ]
}

extension Context {
  func type(of value: Value) -> Value {
    let name: StaticString
    switch value.what {
    case .null: name = "null_type"
    case .bool: name = "bool"
    case .int: name = "int"
    case .uint: name = "uint"
    case .double: name = "double"
    case .string:
      name = value.flags & Value.ipFlag != 0 ? "net.IP" : value.flags & Value.cidrFlag != 0 ? "net.CIDR" : "string"
    case .bytes: name = "bytes"
    case .list, .jsonList: name = "list"
    case .map, .jsonMap: name = "map"
    case .timestamp: name = "google.protobuf.Timestamp"
    case .duration: name = "google.protobuf.Duration"
    case .optional: name = "optional_type"
    case .type, .absent, .error: name = "type"
    }
    return Value(kind: .type, pointer: UnsafeRawPointer(name.utf8Start), length: name.utf8CodeUnitCount)
  }
}

extension NumberText {
  /// Parses decimal digits with an optional sign.
  static func int(_ bytes: UnsafeRawBufferPointer) -> Int64? {
    guard let first = bytes.first else { return nil }
    let negative = first == 0x2D
    let digits = negative || first == 0x2B ? UnsafeRawBufferPointer(rebasing: bytes.dropFirst()) : bytes
    guard let magnitude = uint(digits) else { return nil }
    if negative { return magnitude <= 1 << 63 ? Int64(truncatingIfNeeded: 0 &- magnitude) : nil }
    return Int64(exactly: magnitude)
  }

  static func uint(_ bytes: UnsafeRawBufferPointer) -> UInt64? {
    guard !bytes.isEmpty else { return nil }
    var value: UInt64 = 0
    for byte in bytes {
      guard ASCII.isDigit(byte) else { return nil }
      let (scaled, one) = value.multipliedReportingOverflow(by: 10)
      let (sum, two) = scaled.addingReportingOverflow(UInt64(byte - 0x30))
      if one || two { return nil }
      value = sum
    }
    return value
  }

  /// Parses a decimal number, `NaN`, `Infinity` or `Inf`, with an optional sign; hexadecimal is rejected.
  static func double(_ bytes: UnsafeRawBufferPointer) -> Double? {
    let text = String(decoding: bytes, as: UTF8.self)
    let body = text.utf8.first.map { $0 == 0x2B || $0 == 0x2D } == true ? String(text.dropFirst()) : text
    switch body.lowercased() {
    case "nan": return .nan
    case "inf", "infinity": return text.hasPrefix("-") ? -.infinity : .infinity
    default: break
    }
    guard let first = body.utf8.first, ASCII.isDigit(first) || first == 0x2E,
      body.utf8.allSatisfy({
        ASCII.isDigit($0) || $0 == 0x2E || $0 | 0x20 == 0x65 || $0 == 0x2B || $0 == 0x2D
      })
    else { return nil }
    return Double(text)
  }
}
