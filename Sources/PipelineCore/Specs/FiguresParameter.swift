/// The functions that aggregate many events.
package enum AggregateFunction: String, CaseIterable, Sendable {
  case count, countDistinct, sum, avg, min, max, first, last

  /// The syntax, for messages.
  var form: String { self == .count ? "count(CONDITION)" : "\(rawValue)(VALUE, CONDITION)" }

  /// Whether a counted value can be subtracted without the other values.
  var takesBack: Bool { self == .count || self == .sum || self == .avg }
}

/// Expressions over aggregates of many events, or a mapping of these: `{ n: count(), top: max(event.price) }`.
///
/// The arguments of an aggregate are evaluated for each event; the surrounding expression is evaluated once, after the
/// last event.
package struct FiguresParameter: ParameterValue {
  /// One aggregate; calls with equal texts share it.
  package struct Call: Sendable {
    package var function: AggregateFunction
    /// The text of the call, and the variable's name in the surrounding expression.
    package var name: String
    /// The indexes in `arguments` and in `conditions`; nil: none.
    package var argument: Int?
    package var condition: Int?
  }
  package private(set) var calls: [Call] = []
  /// The arguments of the aggregates, each once.
  package private(set) var arguments: [(text: [UInt8], expression: ExpressionParameter)] = []
  package private(set) var conditions: [(text: [UInt8], expression: ExpressionParameter)] = []
  /// The expressions around the aggregates, in which the aggregates are variables.
  package private(set) var around = MappingParameter()
  package private(set) var location: SourceLocation?

  package init() {}

  package var isGiven: Bool { around.isGiven }
  package var type: ExpressionType { around.type }

  /// Reports aggregates that cannot subtract a value, in a step whose input retracts rows.
  package func checkTakingBack(_ binder: inout Binder) {
    for call in calls where !call.function.takesBack {
      binder.diagnostics.report(
        Diagnostic(
          .cannotTakeBack, "'\(call.name)' cannot subtract a retracted value, and rows of its input are retracted",
          at: location ?? binder.location,
          help: "Use count, sum or avg, or let the input send results at the end only"))
    }
  }

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .mapping }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> FiguresParameter? {
    var parameter = FiguresParameter()
    parameter.location = node.location
    let before = context.diagnostics.all.count
    guard
      let around = MappingParameter.decode(node, &context, each: { parameter.extract($0, &$1.diagnostics) }),
      !context.diagnostics.all.dropFirst(before).contains(where: { $0.severity == .error })
    else { return nil }
    parameter.around = around
    if parameter.calls.isEmpty {
      context.diagnostics.report(
        Diagnostic(
          .aggregateMisplaced, "'\(context.parameter)' of '\(context.component)' has no aggregate", at: node.location,
          help: "Write e.g. { n: count(), top: max(event.price) }; there are "
            + AggregateFunction.allCases.map(\.rawValue).joined(separator: ", ")))
      return nil
    }
    return parameter
  }

  // MARK: Splitting expressions

  private mutating func extract(
    _ expression: ExpressionParameter, _ diagnostics: inout Diagnostics
  ) -> ExpressionParameter? {
    guard let syntax = expression.syntax else { return nil }
    var tree = syntax.tree
    let found = tree.nodes.indices.filter { Self.function(tree, $0) != nil }
    func isInside(_ inner: Int, _ outer: Int) -> Bool {
      inner != outer && tree.nodes[inner].start >= tree.nodes[outer].start
        && tree.nodes[inner].end <= tree.nodes[outer].end
    }
    for (index, node) in tree.nodes.enumerated() {
      let at = syntax.text.location(Int(node.start), Int(node.end))
      if found.contains(index), found.contains(where: { isInside(index, $0) }) {
        diagnostics.report(
          Diagnostic(
            .aggregateMisplaced, "an aggregate cannot contain another aggregate", at: at,
            help: "Compute with aggregates outside of them: sum(event.a) / count()"))
        return nil
      }
      if case .identifier(let name, _) = node.kind, name == "event",
        !found.contains(where: { isInside(index, $0) })
      {
        diagnostics.report(
          Diagnostic(
            .aggregateMisplaced, "figures cover many events, so 'event' can be used only inside of an aggregate",
            at: at, help: "Say which event is meant: first(event.x), last(event.x), max(event.x) ..."))
        return nil
      }
    }
    for index in found {
      guard let number = add(syntax, tree, index, &diagnostics) else { return nil }
      tree.nodes[index].kind = .identifier(calls[number].name, absolute: false)
      tree.nodes[index].depth = 1
    }
    return ExpressionParameter(ExpressionSyntax(text: syntax.text, tree: tree), at: expression.location)
  }

  private static func function(_ tree: SyntaxTree, _ index: Int) -> AggregateFunction? {
    switch tree.nodes[index].kind {
    case .call(target: nil, let name, _, _): AggregateFunction(rawValue: name)
    case .identifier("count", _): .count
    default: nil
    }
  }

  /// The index of an aggregate; nil after an error, which is reported.
  private mutating func add(
    _ syntax: ExpressionSyntax, _ tree: SyntaxTree, _ index: Int, _ diagnostics: inout Diagnostics
  ) -> Int? {
    guard let function = Self.function(tree, index) else { return nil }
    var given: [SyntaxTree.ID] = []
    if case .call(_, _, _, let arguments) = tree.nodes[index].kind { given = arguments }
    let node = tree.nodes[index]
    let (fewest, most) = function == .count ? (0, 1) : (1, 2)
    guard given.count >= fewest, given.count <= most else {
      diagnostics.report(
        Diagnostic(
          .aggregateMisplaced,
          "'\(function.rawValue)' takes \(function == .count ? "at most a condition" : "a value, and a condition if not all events count"), not \(given.count) arguments",
          at: syntax.text.location(Int(node.start), Int(node.end)), help: "Write \(function.form)"))
      return nil
    }
    func part(_ id: SyntaxTree.ID) -> (text: [UInt8], expression: ExpressionParameter) {
      var part = tree
      part.root = id
      let (start, end) = (Int(tree[id].start), Int(tree[id].end))
      return (
        Array(syntax.text.text[start..<end]),
        ExpressionParameter(
          ExpressionSyntax(text: syntax.text, tree: part), at: syntax.text.location(start, end))
      )
    }
    func indexOfPart(
      _ part: (text: [UInt8], expression: ExpressionParameter),
      _ list: inout [(text: [UInt8], expression: ExpressionParameter)]
    ) -> Int {
      if let known = list.firstIndex(where: { $0.text == part.text }) { return known }
      list.append(part)
      return list.count - 1
    }
    var call = Call(
      function: function,
      name: String(decoding: syntax.text.text[Int(node.start)..<Int(node.end)], as: UTF8.self))
    if function == .count {
      call.condition = given.first.map { indexOfPart(part($0), &conditions) }
    } else {
      call.argument = indexOfPart(part(given[0]), &arguments)
      call.condition = given.count > 1 ? indexOfPart(part(given[1]), &conditions) : nil
    }
    if let known = calls.firstIndex(where: {
      $0.function == function && $0.argument == call.argument && $0.condition == call.condition
    }) {
      return known
    }
    calls.append(call)
    return calls.count - 1
  }

  // MARK: Binding

  package mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard isGiven else { return }
    let each = ExpressionUse(variables: [], expecting: nil)
    for index in arguments.indices { arguments[index].expression.bind(&binder, each) }
    let condition = ExpressionUse(variables: [], expecting: .bool)
    for index in conditions.indices { conditions[index].expression.bind(&binder, condition) }
    for call in calls {
      guard call.function == .sum || call.function == .avg, let argument = call.argument else { continue }
      let expression = arguments[argument].expression
      guard expression.program != nil, !Self.isNumeric(expression.type), let at = expression.location else { continue }
      binder.diagnostics.report(
        Diagnostic(
          .expressionWrongType,
          "'\(call.function.rawValue)' takes numbers or durations, but this is \(expression.type.withArticle)", at: at,
          help: expression.type.unwrapped == .string ? "Write double(...) around it" : nil))
    }
    var whole = use
    for call in calls {
      whole.variables.append(.init(name: call.name, type: type(of: call)))
    }
    around.bind(&binder, whole)
  }

  private static func isNumeric(_ type: ExpressionType) -> Bool {
    switch type.unwrapped {
    case .dyn, .int, .uint, .double, .duration, .null: true
    case .optional(let inner): isNumeric(inner)
    default: false
    }
  }

  /// The type of an aggregate. If there are no events, only counts and sums have a value.
  private func type(of call: Call) -> ExpressionType {
    var type = call.argument.map { arguments[$0].expression.type } ?? .int
    if case .optional(let inner) = type { type = inner }
    switch call.function {
    case .count, .countDistinct: return .int
    case .sum: return type.unwrapped
    case .avg: return type.unwrapped == .dyn ? .dyn : .wrapper(type.unwrapped == .duration ? .duration : .double)
    case .min, .max, .first, .last: return type == .dyn ? .dyn : type.orNull
    }
  }

  /// The sum of no events, in the type of the sums.
  func zero(of call: Call) -> Value {
    switch type(of: call) {
    case .double: .double(0)
    case .uint: .uint(0)
    case .duration: .duration(nanoseconds: 0)
    default: .int(0)
    }
  }
}
