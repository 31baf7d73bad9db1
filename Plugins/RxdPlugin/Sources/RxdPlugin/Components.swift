/// Anything that a pipeline file can name with a component key: a value with the decoded parameters.
public protocol Component: Sendable {
  /// Creates the component with the defaults; a required parameter has a placeholder until it is decoded.
  init()
  static var spec: ComponentSpec<Self> { get }
  /// How many unanswered inputs it takes at once, 1 to 65,536.
  static var credit: Int { get }
  /// Checks what no parameter type expresses, such as rules across parameters: `context.badValue(at: "path", "no such
  /// file")`.
  func validate(_ context: inout DecodingContext)
}

extension Component {
  public static var credit: Int { 1024 }
  public func validate(_ context: inout DecodingContext) {}
}

/// A component that starts a signal.
public protocol SourceComponent: Component {
  /// The type of the source's events.
  var outputType: EventType { get }
  /// How the source's events are delivered again after the process was killed before their delivery. If that depends on a boolean or
  /// choice parameter, the spec lists each case.
  var recovery: SourceRecovery { get }
  /// Whether the source names its events. The name is the last part of `meta.id`.
  static var namesEvents: Bool { get }
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource
}

extension SourceComponent {
  public var outputType: EventType { .dyn }
  public var recovery: SourceRecovery { .never }
  public static var namesEvents: Bool { false }
}

/// A step of a chain.
public protocol OperatorComponent: Component {
  /// The type of the events that the operator accepts.
  static var inputType: EventType { get }
  /// Whether the steps send only events that they received.
  static var relaysEvents: Bool { get }
  /// The type of the operator's events, given the type of its input.
  func outputType(_ inputs: [EventType]) -> EventType
  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode
}

extension OperatorComponent {
  public static var inputType: EventType { .dyn }
  public static var relaysEvents: Bool { false }
  public func outputType(_ inputs: [EventType]) -> EventType { inputs.first ?? .dyn }
}

/// An operator whose steps emit at most one event for each event, immediately.
public protocol FusableOperator: OperatorComponent {
  /// Whether steps may change the value of an event.
  static var changesValue: Bool { get }
  /// Whether its steps are ``PureStep``s, whose result depends only on the event. Set by ``PureOperator``.
  static var isPure: Bool { get }
  func makeStep() -> FusedStep
}

extension FusableOperator {
  public static var changesValue: Bool { false }
  public static var isPure: Bool { false }
  public func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    FusedRun(makeStep(), nodeContext, downstream: downstream)
  }
}

/// A fusable operator whose steps are ``PureStep``s: it runs in the turn of the event, and is fused with adjacent steps like a built-in one.
public protocol PureOperator: FusableOperator {
  func makePureStep() -> PureStep
}

extension PureOperator {
  public static var isPure: Bool { true }
  public func makeStep() -> FusedStep { makePureStep() }
}

/// A component that ends a signal.
public protocol SinkComponent: Component {
  /// The type of the events that the sink accepts.
  static var inputType: EventType { get }
  /// The durability of an acknowledged event. If that depends on a boolean or choice parameter, the spec lists each case.
  var confirmation: SinkConfirmation { get }
  func makeSink(_ nodeContext: NodeContext) -> RunningSink
}

extension SinkComponent {
  public static var inputType: EventType { .dyn }
  public var confirmation: SinkConfirmation { .nothing }
}

/// How the events of a source are delivered again after the process was killed before their delivery.
public enum SourceRecovery: String, Sendable, Equatable {
  /// Lost events are not delivered again.
  case never
  /// The sender waits for an answer and repeats unanswered events; each event has a token.
  case sender
  /// The source requests the events again; the reply may differ.
  case request
  /// The source reads them again from a saved position.
  case position
}

/// The durability of an event that a sink has acknowledged.
public enum SinkConfirmation: String, Sendable, Equatable {
  /// None: the sink gets no confirmation.
  case nothing
  /// The system has the bytes of the event.
  case system
  /// The event is on the disk.
  case disk
  /// The receiver has acknowledged the event.
  case receiver
}
