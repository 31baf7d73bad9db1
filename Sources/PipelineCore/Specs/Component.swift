/// Anything that a pipeline file can name with a component key. A value: the parameters, decoded.
public protocol Component: Sendable {
  /// The defaults; what is required holds a placeholder until it is decoded.
  init()
  static var spec: ComponentSpec<Self> { get }
  /// Whether the expressions of the parameters, inner signals included, see `error`, as those of `catch` do.
  static var seesError: Bool { get }
  /// Whether the expressions of the parameters see the parts of what `combineLatest` or `zip` sends as variables.
  static var seesParts: Bool { get }
  /// Whether the chain among the parameters gets the very event that the expressions were evaluated for, after the
  /// last of them: then both share what they read of it.
  static var feedsItsEvent: Bool { get }
  /// Whether a mapping with these keys is the primary parameter itself rather than a list of parameters; nil: the names
  /// of the parameters decide.
  static func isPrimary(_ keys: [String]) -> Bool?
  /// Checks what concerns several parameters at once. Single ones are checked by their own types.
  func validate(_ context: inout DecodingContext)
  /// Prepares what depends on the types of the inputs, beyond the parameters' own expressions.
  mutating func bind(_ binder: inout Binder)
}

extension Component {
  /// The signals and chains that the parameters hold, in the order of the parameters.
  var innerPlans: [SignalPlan] { Self.spec.parameters.flatMap { $0.inner(self) } }
  /// What of a running one outlives the process.
  var persistence: Persistence { Self.spec.persistence }

  public static func isPrimary(_ keys: [String]) -> Bool? { nil }
  public static var seesError: Bool { false }
  public static var seesParts: Bool { false }
  public static var feedsItsEvent: Bool { false }
  public func validate(_ context: inout DecodingContext) {}
  public mutating func bind(_ binder: inout Binder) {}
}

/// What begins a signal.
public protocol SourceComponent: Component {
  /// What is known of the events.
  var outputType: EventType { get }
  /// Whether the source needs nothing but the executor's time and the services, so that tests of a
  /// pipeline run it as it is; others are silent there.
  var runsOnVirtualTime: Bool { get }
  /// What it sends as soon as it starts, a list or one value, if it completes at once behind that and does nothing
  /// else; nil otherwise.
  var immediateValues: OwnedValue? { get }
  /// By which rules it answers clients that wait, as an HTTP server's do; nil: nobody waits for an answer.
  var serving: ServingRules? { get }
  /// Where it listens for connections: two sources that run in one process cannot share that. Nil: nowhere.
  var listens: ListenAddress? { get }
  /// How fast its events come; nil: nothing is known.
  var pace: EventPace? { get }
  /// Whether threads of its own decode what it reads, block after block, so that it may have a ``ParallelStage``.
  var decodesBlocks: Bool { get }
  /// The files that it reads, for the checker.
  var readsFiles: [FilePathParameter] { get }
  /// Whether it reads standard input, which one source of a process can.
  var readsStandardInput: Bool { get }
  /// Which threads read and decode, in words; nil where there is nothing to tell. `limit`: the plan's ``Plan/threads``.
  func threads(_ limit: Int?) -> String?
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource
}

extension SourceComponent {
  public var serving: ServingRules? { nil }
  public var listens: ListenAddress? { nil }
  public var pace: EventPace? { nil }
  public var decodesBlocks: Bool { false }
  public var readsFiles: [FilePathParameter] { [] }
  public var readsStandardInput: Bool { false }
  public func threads(_ limit: Int?) -> String? { nil }
  public var outputType: EventType { .dyn }
  public var runsOnVirtualTime: Bool { false }
  public var immediateValues: OwnedValue? { nil }
}

/// A step of a chain, or what combines signals.
public protocol OperatorComponent: Component {
  /// Whether it subscribes its inputs more than once, or later than when it starts itself. Inner signals need
  /// no mention.
  static var subscribesAgain: Bool { get }
  /// What a step subscribes beside the signal that it stands behind, such as the command that it executes.
  var furtherInputs: [SignalPlan] { get }
  /// What is known of the events, given what is known of the inputs'.
  func outputType(_ inputs: [EventType]) -> EventType
  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode
  /// What its parameters mean for events that come at such a pace: of the signal that it follows, then of each signal
  /// among the parameters.
  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic]
  /// Whether it sends only when all that an event changes has changed.
  var settles: Bool { get }
}

extension OperatorComponent {
  public var furtherInputs: [SignalPlan] { [] }
  public func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] { [] }
  public var settles: Bool { false }
  public static var subscribesAgain: Bool { false }
  public func outputType(_ inputs: [EventType]) -> EventType { inputs.first ?? .dyn }
}

/// A step that answers each event with at most one, at once, and looks at nothing else: neighbouring
/// ones run as one pass. What it sends beside that, later or at the end, is for a ``LateStep``.
public protocol FusableOperator: OperatorComponent {
  /// Whether later steps see another value than this one.
  static var changesValue: Bool { get }
  /// Whether its steps are a ``PureStep``: what one makes of an event depends on nothing else. Said by ``PureOperator``.
  static var isPure: Bool { get }
  /// Whether its steps keep nothing from event to event and have nothing to say or do at the end: a chain of such steps
  /// may be given up and made anew between any two events.
  var isForgettable: Bool { get }
  /// Whether its steps are a ``LateStep``.
  var sendsLater: Bool { get }
  func makeStep() -> FusedStep
  /// The same for one more of many equal chains, of which `first` is a step: they may share what does not change.
  func makeStep(beside first: FusedStep) -> FusedStep
}

extension FusableOperator {
  public static var changesValue: Bool { false }
  public static var isPure: Bool { false }
  public var isForgettable: Bool { Self.isPure }
  public var sendsLater: Bool { false }
  public func makeStep(beside first: FusedStep) -> FusedStep { makeStep() }

  public func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    FusedRun(
      FusedRunPlan(parts: [.init(segment: nodeContext.segment, steps: [.init(id: nodeContext.step, component: self)])]),
      nodeContext, downstream: downstream)
  }
}

/// Combines the signals that its key lists; an origin, not a step: `merge: [a, b]`.
public protocol CombiningOperator: OperatorComponent {
  /// How few inputs make sense.
  static var minimumInputs: Int { get }
  /// Whether an event is the list of the inputs' events, which `reduce` sees by the inputs' names.
  static var makesTuple: Bool { get }
  /// Learns what the inputs are there for, in the order of `NodeContext.inputs`.
  mutating func take(_ inputs: [InputNode])
}

extension CombiningOperator {
  public static var minimumInputs: Int { 1 }
  public static var makesTuple: Bool { false }
  public mutating func take(_ inputs: [InputNode]) {}
}

/// What ends a signal.
public protocol SinkComponent: Component {
  /// Whether it does nothing but answer the request that an event came from: tests let it.
  var answersEvents: Bool { get }
  /// Which threads encode and write, in words; nil where there is nothing to tell.
  var threads: String? { get }
  /// The file that it writes, for the checker.
  var writesFile: FilePathParameter? { get }
  /// Whether it sends HTTP requests, so that tests may answer them.
  var sendsRequests: Bool { get }
  /// How it writes events, so that tests, which do not run it, reject what it would reject; nil: it takes all.
  var encoding: EncodeParameter? { get }
  /// How it writes events one behind the other to a stream, so that they may be encoded before it gets them
  /// (``ParallelStage``); nil: it must see each.
  var streamEncoding: EncodeParameter? { get }
  func makeSink(_ nodeContext: NodeContext) -> RunningSink
}

extension SinkComponent {
  public var answersEvents: Bool { false }
  public var threads: String? { nil }
  public var writesFile: FilePathParameter? { nil }
  public var sendsRequests: Bool { false }
  public var encoding: EncodeParameter? { nil }
  public var streamEncoding: EncodeParameter? { nil }
}

/// Which place a component can stand in.
public enum ComponentKind: String, Sendable, CaseIterable {
  case source, `operator`, combination, command, sink
}
