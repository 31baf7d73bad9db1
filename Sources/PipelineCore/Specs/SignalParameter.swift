/// A signal inside a component: a name, or a whole inner signal, which is made anew each time.
public struct SignalParameter: ParameterValue {
  private var node: SignalNode?
  public private(set) var plan: SignalPlan?
  public private(set) var location: SourceLocation?

  public init() {}

  public var isGiven: Bool { node != nil }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .oneOf([.signalName, .signal])
  }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> SignalParameter? {
    var parameter = SignalParameter()
    parameter.location = node.location
    parameter.node = PipelineFileParser.parseSignal(node, into: &context.diagnostics)
    return parameter.node == nil ? nil : parameter
  }

  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let node else { return }
    plan = binder.compileInner(node)
  }

  public var innerPlans: [SignalPlan] { plan.map { [$0] } ?? [] }

  public var required: SignalPlan {
    guard let plan else { preconditionFailure("a required signal was not bound") }
    return plan
  }
}

/// A chain of steps inside a component, whose input are events of the component.
public struct ChainParameter: ParameterValue {
  private var nodes: [ComponentNode] = []
  public private(set) var isGiven = false
  public private(set) var plan: SignalPlan?

  public init() {}

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .chain }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> ChainParameter? {
    var parameter = ChainParameter()
    parameter.isGiven = true
    parameter.nodes = PipelineFileParser.parseChain(node, into: &context.diagnostics)
    return parameter
  }

  public var innerPlans: [SignalPlan] { plan.map { [$0] } ?? [] }

  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard isGiven else { return }
    plan = binder.compileChain(nodes)
  }
}
