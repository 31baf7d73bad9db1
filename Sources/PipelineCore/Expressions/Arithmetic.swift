/// The operators `+ - * / %` and unary minus.
extension Context {
  private static let nanoseconds: Int64 = 1_000_000_000

  func negated(_ value: Value) -> Value {
    switch value.what {
    case .int:
      let (result, overflow) = (0 as Int64).subtractingReportingOverflow(value.asInt)
      return overflow ? failure(.overflow) : .int(result)
    case .double: return .double(-value.asDouble)
    default: return noOverload("-", value)
    }
  }

  /// `mixes`: whether a whole number and a double may be combined; the result is a double.
  func arithmetic(_ op: SyntaxTree.Operator, _ a: Value, _ b: Value, mixes: Bool) -> Value {
    switch (a.what, b.what) {
    case (.int, .int): return ints(op, a.asInt, b.asInt)
    case (.uint, .uint): return uints(op, a.asUInt, b.asUInt)
    case (.double, .double): return doubles(op, a.asDouble, b.asDouble) ?? noOverload(op.symbol, a, b)
    case (.int, .double), (.uint, .double), (.double, .int), (.double, .uint):
      guard mixes else { return noOverload(op.symbol, a, b) }
      return doubles(op, a.asNumber, b.asNumber) ?? noOverload(op.symbol, a, b)
    case (.int, .uint) where mixes:
      // JSON's whole numbers are uints only above the range of ints.
      guard let right = Int64(exactly: b.asUInt) else { return failure(.overflow) }
      return ints(op, a.asInt, right)
    case (.uint, .int) where mixes:
      guard b.asInt >= 0 else { return failure(.overflow) }
      return uints(op, a.asUInt, UInt64(b.asInt))
    default: break
    }
    switch op {
    case .add: return sum(a, b)
    case .subtract: return difference(a, b)
    default: return noOverload(op.symbol, a, b)
    }
  }

  private func ints(_ op: SyntaxTree.Operator, _ a: Int64, _ b: Int64) -> Value {
    let outcome: (partialValue: Int64, overflow: Bool)
    switch op {
    case .add: outcome = a.addingReportingOverflow(b)
    case .subtract: outcome = a.subtractingReportingOverflow(b)
    case .multiply: outcome = a.multipliedReportingOverflow(by: b)
    case .divide:
      if b == 0 { return failure(.divideByZero) }
      outcome = a.dividedReportingOverflow(by: b)
    case .modulo:
      if b == 0 { return failure(.moduloByZero) }
      outcome = a.remainderReportingOverflow(dividingBy: b)
    default: return noOverload(op.symbol, .int(a), .int(b))
    }
    return outcome.overflow ? failure(.overflow) : .int(outcome.partialValue)
  }

  private func uints(_ op: SyntaxTree.Operator, _ a: UInt64, _ b: UInt64) -> Value {
    let outcome: (partialValue: UInt64, overflow: Bool)
    switch op {
    case .add: outcome = a.addingReportingOverflow(b)
    case .subtract: outcome = a.subtractingReportingOverflow(b)
    case .multiply: outcome = a.multipliedReportingOverflow(by: b)
    case .divide:
      if b == 0 { return failure(.divideByZero) }
      outcome = a.dividedReportingOverflow(by: b)
    case .modulo:
      if b == 0 { return failure(.moduloByZero) }
      outcome = a.remainderReportingOverflow(dividingBy: b)
    default: return noOverload(op.symbol, .uint(a), .uint(b))
    }
    return outcome.overflow ? failure(.overflow) : .uint(outcome.partialValue)
  }

  private func doubles(_ op: SyntaxTree.Operator, _ a: Double, _ b: Double) -> Value? {
    switch op {
    case .add: return .double(a + b)
    case .subtract: return .double(a - b)
    case .multiply: return .double(a * b)
    case .divide: return .double(a / b)
    default: return nil
    }
  }

  private func sum(_ a: Value, _ b: Value) -> Value {
    switch (a.what, b.what) {
    case (.string, .string) where (a.flags | b.flags) & Value.netFlags == 0:
      return concatenated(plain(a), plain(b))
    case (.bytes, .bytes): return concatenated(a, b)
    case (.timestamp, .duration): return moved(a, by: b.asInt)
    case (.duration, .timestamp): return moved(b, by: a.asInt)
    case (.duration, .duration):
      let (result, overflow) = a.asInt.addingReportingOverflow(b.asInt)
      return overflow ? failure(.overflow) : .duration(nanoseconds: result)
    default: break
    }
    guard a.isAnyList, b.isAnyList else { return noOverload("+", a, b) }
    let (left, right) = (expanded(a), expanded(b))
    if left.isError { return left }
    if right.isError { return right }
    if left.length == 0 { return right }
    if right.length == 0 { return left }
    guard hasRoom else { return failure(.tooLarge) }
    let target = arena.elements(Int(left.length) + Int(right.length))
    for (index, element) in left.elements.enumerated() { target[index] = element }
    for (index, element) in right.elements.enumerated() { target[Int(left.length) + index] = element }
    return Value(kind: .list, pointer: target.baseAddress, length: target.count)
  }

  private func concatenated(_ a: Value, _ b: Value) -> Value {
    if a.isError { return a }
    if b.isError { return b }
    if a.length == 0 { return b }
    if b.length == 0 { return a }
    let count = Int(a.length) + Int(b.length)
    guard count <= ExpressionLimits.stringBytes, hasRoom else { return failure(.tooLarge) }
    let target = arena.allocate(count)
    if let source = a.pointer { target.copyMemory(from: source, byteCount: Int(a.length)) }
    if let source = b.pointer {
      (target + Int(a.length)).copyMemory(from: source, byteCount: Int(b.length))
    }
    var result = a
    result.aux = a.aux & b.aux
    result.payload = UInt64(UInt(bitPattern: target))
    result.length = UInt32(count)
    return result
  }

  private func difference(_ a: Value, _ b: Value) -> Value {
    switch (a.what, b.what) {
    case (.timestamp, .timestamp):
      let (seconds, first) = a.asInt.subtractingReportingOverflow(b.asInt)
      let (scaled, second) = seconds.multipliedReportingOverflow(by: Self.nanoseconds)
      let (result, third) = scaled.addingReportingOverflow(Int64(a.length) - Int64(b.length))
      return first || second || third ? failure(.overflow) : .duration(nanoseconds: result)
    case (.timestamp, .duration):
      guard b.asInt != .min else { return failure(.overflow) }
      return moved(a, by: -b.asInt)
    case (.duration, .duration):
      let (result, overflow) = a.asInt.subtractingReportingOverflow(b.asInt)
      return overflow ? failure(.overflow) : .duration(nanoseconds: result)
    default: return noOverload("-", a, b)
    }
  }

  private func moved(_ timestamp: Value, by nanoseconds: Int64) -> Value {
    var seconds = nanoseconds / Self.nanoseconds
    var rest = Int64(timestamp.length) + nanoseconds % Self.nanoseconds
    if rest < 0 {
      rest += Self.nanoseconds
      seconds -= 1
    } else if rest >= Self.nanoseconds {
      rest -= Self.nanoseconds
      seconds += 1
    }
    let (sum, overflow) = timestamp.asInt.addingReportingOverflow(seconds)
    guard !overflow, Calendar.range.contains(sum) else { return failure(.overflow) }
    return .timestamp(seconds: sum, nanoseconds: UInt32(rest))
  }
}
