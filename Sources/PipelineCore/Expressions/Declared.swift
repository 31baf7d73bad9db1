import CJSON

/// Types that JSON does not distinguish. A field that a schema declares with one of them is read as that type, if the
/// value permits.
enum Declared: UInt8 {
  case int, uint, double, timestamp, duration

  init?(_ type: ExpressionType) {
    switch type {
    case .int: self = .int
    case .uint: self = .uint
    case .double: self = .double
    case .timestamp: self = .timestamp
    case .duration: self = .duration
    default: return nil
    }
  }
}

extension Context {
  /// An int or a uint as a double that keeps its whole-number text.
  fileprivate func asDouble(_ value: Value) -> Value {
    let digits = state.pointee.arena._withUnsafeGuaranteedRef { $0.allocate(20) }
    let target = digits.assumingMemoryBound(to: CChar.self)
    let count =
      value.is(.int) ? rx_json_write_int(value.asInt, target) : rx_json_write_uint(value.asUInt, target)
    return .double(value.asNumber, text: UnsafeRawBufferPointer(start: digits, count: count))
  }
}

extension Machine {
  /// Reads `7` as a double, `7.0` as an int, `"2026-01-31T12:00:00Z"` as a timestamp. Other values are unchanged; using
  /// them fails with a reason.
  @inline(__always)
  func declared(_ at: Int32, _ value: Value) -> Value {
    switch value.what {
    case .int, .uint, .double, .string: return declaredSlow(at, value)
    default: return value
    }
  }

  /// An argument or result of a function, converted to the type that the function declares.
  @inline(__always)
  func argument(_ at: Int32, _ value: Value) -> Value {
    let kinds = UInt32(bitPattern: operations[Int(at)].b)
    if value.is(.int), operations[Int(at)].detail == Declared.double.rawValue { return .double(Double(value.asInt)) }
    return value.isError || kinds & KindSet.of(value) != 0 ? value : argumentSlow(at, kinds, value)
  }

  @inline(never)
  private func argumentSlow(_ at: Int32, _ kinds: UInt32, _ value: Value) -> Value {
    let converted = declaredSlow(at, value)
    if converted.isError || kinds & KindSet.of(converted) != 0 { return converted }
    let what = String(decoding: operations[Int(at)].literal.rawBytes, as: UTF8.self)
    return located(
      context.failure(.noSuchOverload, .absent, text: "\(what), not \(Printable.withArticle(value.shortTypeName))"), at)
  }

  @inline(never)
  private func declaredSlow(_ at: Int32, _ value: Value) -> Value {
    switch (Declared(rawValue: operations[Int(at)].detail), value.what) {
    case (.double, .int), (.double, .uint): return context.asDouble(value)
    case (.int, .uint): return Int64(exactly: value.asUInt).map { .int($0) } ?? value
    case (.int, .double): return Int64(exactly: value.asDouble).map { .int($0) } ?? value
    case (.uint, .int): return UInt64(exactly: value.asInt).map { .uint($0) } ?? value
    case (.uint, .double): return UInt64(exactly: value.asDouble).map { .uint($0) } ?? value
    case (.timestamp, .string):
      guard let time = TimeText.timestamp(context.plain(value).rawBytes) else {
        return located(context.failure(.conversion, value, "a timestamp, as it is declared"), at)
      }
      return .timestamp(seconds: time.seconds, nanoseconds: time.nanoseconds)
    case (.duration, .string):
      guard let span = TimeText.duration(context.plain(value).rawBytes) else {
        return located(context.failure(.conversion, value, "a duration, as it is declared"), at)
      }
      return .duration(nanoseconds: span)
    default: return value
    }
  }
}
