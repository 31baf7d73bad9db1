extension FunctionRegistry {
  private static let t = ExpressionType.param("T")

  /// Functions that combine all elements of a list.
  static let aggregates: [FunctionSpec] = [
    FunctionSpec(
      "sum", "The sum of the numbers or durations of a list; 0 for the empty list.",
      [
        .member([.list(.int)], .int) { sum($0, empty: .int(0)) },
        .member([.list(.uint)], .uint) { sum($0, empty: .uint(0)) },
        .member([.list(.double)], .double) { sum($0, empty: .double(0)) },
        .member([.list(.duration)], .duration) { sum($0, empty: .duration(nanoseconds: 0)) },
      ],
      examples: [
        ("[1, 2, 3].sum()", "6"), ("[1, 0.5].sum()", "1.5"),
        ("[duration('1m'), duration('30s')].sum()", "duration('90s')"),
      ]),
    FunctionSpec(
      "avg", "The mean of the numbers of a list as a double, or of its durations; an error for the empty list.",
      [
        .member([.list(.int)], .double, average), .member([.list(.uint)], .double, average),
        .member([.list(.double)], .double, average), .member([.list(.duration)], .duration, average),
      ], examples: [("[1, 2, 4, 5].avg()", "3.0"), ("[duration('1s'), duration('2s')].avg()", "duration('1.5s')")]),
    FunctionSpec(
      "min", "The least element of a list; an error for the empty list.",
      [.member([.list(t)], t) { extreme($0, .less) }],
      examples: [("[3, 1, 2].min()", "1"), ("['pear', 'apple'].min()", "'apple'")]),
    FunctionSpec(
      "max", "The greatest element of a list; an error for the empty list.",
      [.member([.list(t)], t) { extreme($0, .greater) }],
      examples: [("[3, 1, 2].max()", "3"), ("[timestamp(0), timestamp(9)].max()", "timestamp(9)")]),
    FunctionSpec(
      "percentile", "The value below which the given percentage of the numbers of a list lies, as a double.",
      [ExpressionType.int, .double].map { kind in
        .member([.list(.dyn), kind], .double) { percentile($0) }
      },
      examples: [
        ("[15, 20, 35, 40, 50].percentile(50)", "35.0"), ("[1, 2, 3, 4].percentile(50)", "2.5"),
        ("[0, 10].percentile(12.5)", "1.25"),
      ],
      details:
        "From 0, the least, to 100, the greatest. Between two elements the value is interpolated. The empty list is an error."
    ),
  ]

  private static func sum(_ arguments: Arguments, empty: Value) -> Value {
    let context = arguments.context
    guard var total = arguments[0].elements.first else { return empty }
    for (at, element) in arguments[0].elements.enumerated() {
      guard element.isNumber || element.is(.duration) else { return notNumber(element, context) }
      if at == 0 { continue }
      total = context.arithmetic(.add, total, element, mixes: true)
      if total.isError { return total }
    }
    return total
  }

  private static func notNumber(_ element: Value, _ context: Context) -> Value {
    context.failure(.invalidArgument, .absent, text: "the list holds a \(element.typeName) among its numbers")
  }

  private static let average: FunctionOverload.Body = { arguments in
    let context = arguments.context
    let elements = arguments[0].elements
    guard let first = elements.first else {
      return context.failure(.invalidArgument, .absent, "the list is empty")
    }
    if first.is(.duration) {
      let total = sum(arguments, empty: .null)
      return total.isError ? total : .duration(nanoseconds: total.asInt / Int64(elements.count))
    }
    var total = 0.0
    for element in elements {
      guard element.isNumber else { return notNumber(element, context) }
      total += element.asNumber
    }
    return .double(total / Double(elements.count))
  }

  private static func extreme(_ arguments: Arguments, _ relation: Relation) -> Value {
    let context = arguments.context
    guard var best = arguments[0].elements.first else {
      return context.failure(.invalidArgument, .absent, "the list is empty")
    }
    for element in arguments[0].elements {
      let outcome = context.compare(relation, element, best)
      if outcome == Truth.failed { return context.noOverload("<", element, best) }
      if outcome == Truth.yes { best = element }
    }
    return best
  }

  private static func percentile(_ arguments: Arguments) -> Value {
    let context = arguments.context
    let share = arguments[1].asNumber
    guard share >= 0, share <= 100 else {
      return context.failure(.invalidArgument, arguments[1], "the percentage is not from 0 to 100")
    }
    var numbers: [Double] = []
    numbers.reserveCapacity(Int(arguments[0].length))
    for element in arguments[0].elements {
      guard element.isNumber else { return notNumber(element, context) }
      let number = element.asNumber
      guard !number.isNaN else { return context.failure(.invalidArgument, .absent, "the list holds a NaN") }
      numbers.append(number)
    }
    guard !numbers.isEmpty else { return context.failure(.invalidArgument, .absent, "the list is empty") }
    numbers.sort()
    let rank = share / 100 * Double(numbers.count - 1)
    let low = Int(rank)
    guard low + 1 < numbers.count else { return .double(numbers[numbers.count - 1]) }
    let part = rank - Double(low)
    return .double(part == 0 ? numbers[low] : numbers[low] + (numbers[low + 1] - numbers[low]) * part)
  }
}
