/// A signal inside a component: a name, or a whole inner signal, which is created for each use.
package struct SignalParameter: ParameterValue {
  private var node: SignalNode?
  package private(set) var plan: SignalPlan?
  package private(set) var location: SourceLocation?

  package init() {}

  package var isGiven: Bool { node != nil }
  /// The type of the signal's events in expressions.
  var type: ExpressionType { plan?.type.type ?? .dyn }

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .oneOf([.signalName, .signal])
  }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> SignalParameter? {
    var parameter = SignalParameter()
    parameter.location = node.location
    parameter.node = PipelineFileParser.parseSignal(node, into: &context.diagnostics)
    return parameter.node == nil ? nil : parameter
  }

  package mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let node else { return }
    plan = binder.compileInner(node)
  }

  package var innerPlans: [SignalPlan] { plan.map { [$0] } ?? [] }

  package var required: SignalPlan {
    guard let plan else { preconditionFailure("a required signal was not bound") }
    return plan
  }
}

/// A chain of steps inside a component; its input is events of the component.
package struct ChainParameter: ParameterValue {
  private var nodes: [ComponentNode] = []
  package private(set) var isGiven = false
  package private(set) var plan: SignalPlan?

  package init() {}

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .chain }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> ChainParameter? {
    var parameter = ChainParameter()
    parameter.isGiven = true
    parameter.nodes = PipelineFileParser.parseChain(node, into: &context.diagnostics)
    return parameter
  }

  package var innerPlans: [SignalPlan] { plan.map { [$0] } ?? [] }

  package mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard isGiven else { return }
    plan = binder.compileChain(nodes)
  }
}
