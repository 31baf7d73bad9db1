/// Anything that a pipeline file can name with a component key: a value with the decoded parameters.
public protocol Component: Sendable {
  /// The defaults; a required parameter has a placeholder until it is decoded.
  init()
  static var spec: ComponentSpec<Self> { get }
  /// How many unanswered inputs it takes at once, 1 to 65,536.
  static var credit: Int { get }
  /// Checks that no type can express, also of several parameters: `context.badValue(at: "path", "no such file")`.
  func validate(_ context: inout DecodingContext)
}

extension Component {
  public static var credit: Int { 1024 }
  public func validate(_ context: inout DecodingContext) {}
}

/// A component that starts a signal.
public protocol SourceComponent: Component {
  /// The type of its events.
  var outputType: EventType { get }
  /// How its events come again after the process was killed before they were delivered. Where it depends on a parameter that is a boolean
  /// or a choice, rxd knows.
  var recovery: SourceRecovery { get }
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource
}

extension SourceComponent {
  public var outputType: EventType { .dyn }
  public var recovery: SourceRecovery { .never }
}

/// A step of a chain.
public protocol OperatorComponent: Component {
  /// The type of the events that it takes.
  static var inputType: EventType { get }
  /// Whether each event that its steps send is one that came over the input.
  static var relaysEvents: Bool { get }
  /// The type of its events, given that of the input's.
  func outputType(_ inputs: [EventType]) -> EventType
  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode
}

extension OperatorComponent {
  public static var inputType: EventType { .dyn }
  public static var relaysEvents: Bool { false }
  public func outputType(_ inputs: [EventType]) -> EventType { inputs.first ?? .dyn }
}

/// A step that answers each event with at most one, at once.
public protocol FusableOperator: OperatorComponent {
  /// Whether later steps see another value than this one.
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

/// A fusable operator whose steps are ``PureStep``s: it runs in the turn of the event, and is fused with its neighbours as a built-in one.
public protocol PureOperator: FusableOperator {
  func makePureStep() -> PureStep
}

extension PureOperator {
  public static var isPure: Bool { true }
  public func makeStep() -> FusedStep { makePureStep() }
}

/// A component that ends a signal.
public protocol SinkComponent: Component {
  /// The type of the events that it takes.
  static var inputType: EventType { get }
  /// The durability of an acknowledged event. Where it depends on a parameter that is a boolean or a choice, rxd knows.
  var confirmation: SinkConfirmation { get }
  func makeSink(_ nodeContext: NodeContext) -> RunningSink
}

extension SinkComponent {
  public static var inputType: EventType { .dyn }
  public var confirmation: SinkConfirmation { .nothing }
}

/// How the events of a source come again after the process was killed before they were delivered.
public enum SourceRecovery: String, Sendable, Equatable {
  /// They do not.
  case never
  /// Their sender waits for an answer and repeats unanswered ones: events have a token.
  case sender
  /// The source asks for them again, and may receive others.
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
