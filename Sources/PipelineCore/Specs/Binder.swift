/// The compiler's services for binding a component's parameters.
protocol SignalCompiler: AnyObject {
  /// The grok patterns that the file defines.
  var patterns: GrokDefinitions { get }
  /// The functions that the file defines.
  var functions: UserFunctions { get }
  /// One report for each expression that was compiled, in the order of the file.
  var expressions: [ExpressionReport] { get set }
  /// The `onError` of a step; nil: the file does not give it.
  func policy(of step: StepID) -> ErrorPolicy?
  /// The index of a named scheduler, in the order in which the file names them.
  func number(ofScheduler name: String) -> Int
  /// The name of a step in a saved state.
  func path(of step: StepID) -> String
  /// Compiles an inner signal; nil after an error, which is reported.
  func signal(_ node: SignalNode, _ context: SignalContext) -> SignalPlan?
  /// Compiles a chain downstream of `input`, which may share `projection` with it; nil after an error, which is
  /// reported.
  func chain(
    _ nodes: [ComponentNode], _ input: SignalPlan, _ context: SignalContext, seeing projection: Projection?
  ) -> SignalPlan?
  /// The table of that name, which an expression of the context reads; nil: there is none. The table's rows are
  /// compiled, which may report errors.
  func table(_ name: String, _ location: SourceLocation, _ context: SignalContext) -> ExpressionScope.NamedTable?
  /// The names of all tables.
  var tableNames: [String] { get }
  /// The command that a step executes: its index in ``Plan/named``, the type of its values, and the signal that
  /// represents it among the step's inputs; nil after an error, which is reported.
  func executed(_ name: Located<String>, _ context: SignalContext) -> (
    index: Int, type: EventType, signal: SignalPlan
  )?
}

/// The context for binding a component's parameters: the types of the component's inputs, the variables that its
/// parameters may use, and the compiler.
public struct Binder {
  package var diagnostics = Diagnostics()
  /// The types of the events that the component's expressions see as `event`.
  package let inputs: [EventType]
  /// The location of the component in the file.
  package let location: SourceLocation
  /// The segment of the step's expressions.
  let segment: Segment
  let context: SignalContext
  let compilation: any SignalCompiler
  /// Whether the component's expressions see an event. Those of a source do only in an inner signal, which is started
  /// for an event.
  let hasEvent: Bool
  /// Whether the component's expressions see `error`, as those of `catch` do.
  let seesError: Bool
  /// Whether the component's expressions see the parts of a combined event as variables, as those of `reduce` do.
  let seesParts: Bool
  /// Whether a chain of the component sees the event that its expressions see.
  let feedsItsEvent: Bool
  let step: StepID

  /// The scope of a parameter's expressions: the common variables, the parameter's own, and the inputs that `reduce`
  /// sees by name.
  private func scope(_ use: ExpressionUse, reading syntaxes: [ExpressionSyntax]) -> ExpressionScope {
    var variables: [ExpressionScope.Variable] = []
    for (index, base) in Variables.base.enumerated() {
      switch index {
      case Variables.event where !hasEvent: variables.append(.init("@event"))
      case Variables.event: variables.append(.init("event", use.types["event"] ?? inputs.first?.type ?? .dyn))
      case Variables.outer where context.outer == nil: variables.append(.init("@outer"))
      case Variables.outer: variables.append(.init("outer", context.outer?.type ?? .dyn))
      case Variables.error where !(seesError || context.seesError): variables.append(.init("@error"))
      default: variables.append(.init(base.name, base.type))
      }
    }
    for own in use.variables { variables.append(.init(own.name, use.types[own.name] ?? own.type)) }
    if let tuple = inputs.first?.tuple, seesParts {
      for (index, name) in tuple.enumerated() {
        let type = inputs[0].elements.indices.contains(index) ? inputs[0].elements[index] : .dyn
        variables.append(.init(name, type))
      }
    }
    var scope = ExpressionScope(variables)
    scope.patterns = compilation.patterns
    scope.functions = compilation.functions
    scope.tableNames = compilation.tableNames
    scope.tables = tables(read: syntaxes, beside: scope)
    scope.event = inputs.first?.form ?? .any
    scope.outer = context.outer?.form ?? .any
    return scope
  }

  /// The tables that expressions name, each once.
  private func tables(read syntaxes: [ExpressionSyntax], beside scope: ExpressionScope) -> [ExpressionScope.NamedTable]
  {
    if scope.tableNames.isEmpty { return [] }
    var found: [ExpressionScope.NamedTable] = []
    for syntax in syntaxes {
      for node in syntax.tree.nodes {
        guard case .identifier(let name, absolute: false) = node.kind, scope.tableNames.contains(name),
          scope.index(of: name) == nil, !found.contains(where: { $0.name == name })
        else { continue }
        let location = syntax.text(node.text).location(Int(node.start), Int(node.end))
        if let table = compilation.table(name, location, context) { found.append(table) }
      }
    }
    return found
  }

  /// Checks and compiles an expression; nil after an error, which is reported.
  mutating func compile(
    _ syntax: ExpressionSyntax, _ use: ExpressionUse
  ) -> (Program, ExpressionType, reads: [ReadPath])? {
    let scope = scope(use, reading: [syntax])
    guard let checked = syntax.check(in: scope, expecting: use.expecting, into: &diagnostics) else {
      return nil
    }
    note(checked, scope)
    // A condition without `onError` drops events that fail, so only that case needs advice.
    let drops = use.expecting == .bool && compilation.policy(of: step) == nil
    diagnostics.concealing(checked.text) { $0.report(contentsOf: checked.advice(isCondition: drops)) }
    return (checked.compile(projection: segment.projection), checked.type, checked.reads)
  }

  mutating func compile(
    _ template: ExpressionTemplate, _ use: ExpressionUse
  ) -> (TemplateProgram, reads: [ReadPath])? {
    let scope = scope(use, reading: template.expressions)
    guard let checked = template.check(in: scope, into: &diagnostics) else { return nil }
    for part in checked.expressions {
      note(part, scope)
      diagnostics.concealing(part.text) { $0.report(contentsOf: part.advice(isCondition: false)) }
    }
    return (checked.compile(projection: segment.projection), checked.reads)
  }

  /// The index of the report on the expression that was compiled last.
  var lastReport: Int { compilation.expressions.count - 1 }

  private func note(_ checked: CheckedExpression, _ scope: ExpressionScope) {
    segment.hasPrograms = true
    segment.variableCount = max(segment.variableCount, scope.variables.count)
    for read in checked.reads where read.variable == "meta" {
      segment.usesMeta = true
      if let member = read.fields.first { segment.metaMembers?.insert(member) } else { segment.metaMembers = nil }
    }
    if checked.reads.contains(where: { $0.variable == "now" }) { segment.usesNow = true }
    if !checked.tables.isEmpty { segment.usesTables = true }
    compilation.expressions.append(ExpressionReport(step: step, checked: checked))
  }

  /// The number of a named scheduler, in the order of the file.
  func number(ofScheduler name: String) -> Int { compilation.number(ofScheduler: name) }

  /// Warns that the component uses the clock, although its events had event time further upstream.
  mutating func warnOfLostTime(_ what: String) {
    if let time = inputs.first?.time, let warning = Diagnostic.lostTime(what, time, at: location) {
      diagnostics.report(warning)
    }
  }

  /// Whether the component is a step of a chain that another component feeds, such as the chain of a group.
  var isInGroup: Bool { context.isInGroup }

  /// The command that the component executes.
  func command(_ name: Located<String>) -> (index: Int, type: EventType, signal: SignalPlan)? {
    compilation.executed(name, context)
  }

  /// Compiles an inner signal: its expressions see this component's event as `outer`.
  mutating func compileInner(_ node: SignalNode) -> SignalPlan? {
    var inner = context
    inner.outer = inputs.first ?? .dyn
    inner.depth += 1
    inner.path = compilation.path(of: step)
    inner.seesError = context.seesError || seesError
    return compilation.signal(node, inner)
  }

  /// Compiles a chain whose input is this component's events.
  mutating func compileChain(_ nodes: [ComponentNode]) -> SignalPlan? {
    var inner = context
    inner.depth += 1
    inner.path = compilation.path(of: step)
    let input = SignalPlan(.input, step: step, type: inputs.first ?? .dyn, settling: context.settling)
    return compilation.chain(nodes, input, inner, seeing: feedsItsEvent ? segment.projection : nil)
  }
}

/// The context in which a signal is compiled.
struct SignalContext {
  /// The named source, signal or sink that contains the signal.
  var owner: String
  /// The prefix of the names of the signal's steps in a saved state.
  var path: String
  /// The type of `outer`; nil outside inner signals.
  var outer: EventType?
  /// Whether the step whose parameters are being compiled belongs to a chain that another step feeds.
  var isInGroup = false
  var seesError = false
  var depth = 0
  /// The number of consecutive nodes with `settle` upstream of the step whose parameters are being compiled.
  var settling = 0
}

extension Diagnostic {
  /// A warning that a component uses the clock, although events of one of its signals had event time further upstream;
  /// nil: they had none.
  static func lostTime(_ what: String, _ time: EventType.Time, at location: SourceLocation) -> Diagnostic? {
    guard case .ended(let step, let end) = time else { return nil }
    return Diagnostic(
      .eventTimeEnded, "this '\(what)' goes by the clock: the events of '\(step)' have no event time", at: location,
      notes: [.init("event time ends here", at: end)],
      help: "Give the events a time after that step ('eventTime: EXPRESSION'), or write 'clock: true'")
  }
}
