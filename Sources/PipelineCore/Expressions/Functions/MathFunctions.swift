extension FunctionRegistry {
  private static let numbers: [ExpressionType] = [.int, .uint, .double]

  /// Numbers, based on CEL's math extension.
  static let math: [FunctionSpec] = [
    FunctionSpec(
      "math.greatest", "The greatest of some numbers, given one by one or as a list.", extremes(.greater),
      examples: [("math.greatest(1, 3, 2)", "3")]),
    FunctionSpec(
      "math.least", "The least of some numbers, given one by one or as a list.", extremes(.less),
      examples: [("math.least([1, 3, 2])", "1")]),
    rounding("math.ceil", "The next whole number up, as a double.", ("1.2", "2.0"), .up),
    rounding("math.floor", "The next whole number down, as a double.", ("-1.2", "-2.0"), .down),
    rounding(
      "math.round", "The nearest whole number as a double, halves away from zero.", ("1.5", "2.0"),
      .toNearestOrAwayFromZero),
    rounding("math.trunc", "The whole part of a number, as a double.", ("-1.9", "-1.0"), .towardZero),
    FunctionSpec(
      "math.abs", "The number without its sign.",
      [
        .global([.int], .int) { arguments in
          arguments[0].asInt == .min
            ? arguments.context.failure(.overflow) : .int(abs(arguments[0].asInt))
        },
        .global([.uint], .uint) { $0[0] },
        .global([.double], .double) { .double(abs($0[0].asDouble)) },
      ], examples: [("math.abs(-11)", "11")]),
    FunctionSpec(
      "math.sign", "-1, 0 or 1 as the number is negative, zero or positive.",
      [
        .global([.int], .int) { .int($0[0].asInt.signum()) },
        .global([.uint], .uint) { .uint($0[0].asUInt == 0 ? 0 : 1) },
        .global([.double], .double) {
          let number = $0[0].asDouble
          return .double(number > 0 ? 1 : number < 0 ? -1 : number)
        },
      ], examples: [("math.sign(-32.5)", "-1.0")]),
    FunctionSpec(
      "math.sqrt", "The square root.",
      numbers.map { .global([$0], .double) { .double($0[0].asNumber.squareRoot()) } },
      examples: [("math.sqrt(81)", "9.0")]),
    FunctionSpec(
      "math.isNaN", "Whether the double is not a number.",
      [.global([.double], .bool) { .bool($0[0].asDouble.isNaN) }],
      examples: [("math.isNaN(0.0 / 0.0)", "true")]),
    FunctionSpec(
      "math.isInf", "Whether the double is infinite.",
      [.global([.double], .bool) { .bool($0[0].asDouble.isInfinite) }],
      examples: [("math.isInf(1.0 / 0.0)", "true")]),
    FunctionSpec(
      "math.isFinite", "Whether the double is neither infinite nor not a number.",
      [.global([.double], .bool) { .bool($0[0].asDouble.isFinite) }],
      examples: [("math.isFinite(1.5)", "true")]),
    bits("math.bitAnd", "The bits set in both numbers.", ("6, 3", "2")) { $0 & $1 },
    bits("math.bitOr", "The bits set in either number.", ("4, 1", "5")) { $0 | $1 },
    bits("math.bitXor", "The bits set in one of the numbers only.", ("1, 3", "2")) { $0 ^ $1 },
    FunctionSpec(
      "math.bitNot", "The number with every bit inverted.",
      [.global([.int], .int) { .int(~$0[0].asInt) }, .global([.uint], .uint) { .uint(~$0[0].asUInt) }],
      examples: [("math.bitNot(1)", "-2")]),
    shift("math.bitShiftLeft", "The bits moved to the left.", ("1, 2", "4")) { $0 << $1 },
    shift("math.bitShiftRight", "The bits moved to the right; zeros come in.", ("1024, 2", "256")) { $0 >> $1 },
  ]

  /// If all numbers have one type, so has the result; otherwise its type is known only at run time.
  private static func extremes(_ relation: Relation) -> [FunctionOverload] {
    let each: FunctionOverload.Body = {
      extreme(UnsafeBufferPointer(start: $0.values, count: $0.count), relation, $0.context)
    }
    let mixed = numbers.flatMap { a in numbers.filter { $0 != a }.map { [a, $0] } } + [[.dyn, .dyn, .dyn]]
    return numbers.map { .global([.list($0)], $0) { extreme($0[0].elements, relation, $0.context) } }
      + numbers.map { .variadic([$0], $0, each) }
      + mixed.map { $0.count == 2 ? .global($0, .dyn, each) : .variadic($0, .dyn, each) }
  }

  private static func extreme(
    _ values: UnsafeBufferPointer<Value>, _ relation: Relation, _ context: Context
  ) -> Value {
    guard var best = values.first else { return context.failure(.invalidArgument, .absent, "the list is empty") }
    for value in values {
      guard value.isNumber else { return context.noOverload(relation == .less ? "math.least" : "math.greatest", value) }
      if context.compare(relation, value, best) == Truth.yes { best = value }
    }
    return best
  }

  private static func rounding(
    _ name: String, _ summary: String, _ example: (String, String), _ rule: FloatingPointRoundingRule
  ) -> FunctionSpec {
    FunctionSpec(
      name, summary, [.global([.double], .double) { .double($0[0].asDouble.rounded(rule)) }],
      examples: [("\(name)(\(example.0))", example.1)])
  }

  private static func bits(
    _ name: String, _ summary: String, _ example: (String, String),
    _ combine: @escaping @Sendable (UInt64, UInt64) -> UInt64
  ) -> FunctionSpec {
    FunctionSpec(
      name, summary,
      [
        .global([.int, .int], .int) { Value(kind: .int, payload: combine($0[0].payload, $0[1].payload)) },
        .global([.uint, .uint], .uint) { .uint(combine($0[0].payload, $0[1].payload)) },
      ], examples: [("\(name)(\(example.0))", example.1)])
  }

  private static func shift(
    _ name: String, _ summary: String, _ example: (String, String),
    _ move: @escaping @Sendable (UInt64, UInt64) -> UInt64
  ) -> FunctionSpec {
    @Sendable func shifted(_ arguments: Arguments, _ kind: Value.Kind) -> Value {
      let count = arguments[1].asInt
      guard count >= 0 else {
        return arguments.context.failure(.invalidArgument, arguments[1], "a negative number of places")
      }
      return Value(kind: kind, payload: count > 63 ? 0 : move(arguments[0].payload, UInt64(count)))
    }
    return FunctionSpec(
      name, summary,
      [
        .global([.int, .int], .int) { shifted($0, .int) },
        .global([.uint, .int], .uint) { shifted($0, .uint) },
      ], examples: [("\(name)(\(example.0))", example.1)])
  }
}
