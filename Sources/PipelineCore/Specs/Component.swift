/// Anything that a pipeline file can name with a component key: a value with the decoded parameters.
public protocol Component: Sendable {
  /// The defaults; a required parameter has a placeholder until it is decoded.
  init()
  /// Name, parameters and documentation.
  static var spec: ComponentSpec<Self> { get }
  /// The spec of this very component: that of its type, unless a plugin offers it.
  var ownSpec: ComponentSpec<Self> { get }
  /// Whether the expressions of the parameters, inner signals included, see `error`, as those of `catch` do.
  static var seesError: Bool { get }
  /// Whether the expressions of the parameters see the parts of an event of `combineLatest` or `zip` as variables.
  static var seesParts: Bool { get }
  /// Whether the chain among the parameters receives the very event that the expressions were evaluated for, after the
  /// last of them; the two then share what they read of it.
  static var feedsItsEvent: Bool { get }
  /// Whether a mapping with these keys is the primary parameter itself rather than a list of parameters; nil: the names
  /// of the parameters decide.
  static func isPrimary(_ keys: [String]) -> Bool?
  /// The state that outlives the process: that of the spec, unless the parameters decide.
  var persistence: Persistence { get }
  /// Checks parameters against each other. The types of the parameters check single values.
  func validate(_ context: inout DecodingContext)
  /// Binds parts that depend on the types of the inputs, beyond the parameters' own expressions.
  mutating func bind(_ binder: inout Binder)
}

extension Component {
  /// The signals and chains in the parameters, in the order of the parameters.
  package var innerPlans: [SignalPlan] { ownSpec.parameters.flatMap { $0.inner?(self) ?? [] } }

  public var persistence: Persistence { ownSpec.persistence }
  public var ownSpec: ComponentSpec<Self> { Self.spec }
  public static func isPrimary(_ keys: [String]) -> Bool? { nil }
  public static var seesError: Bool { false }
  public static var seesParts: Bool { false }
  public static var feedsItsEvent: Bool { false }
  public func validate(_ context: inout DecodingContext) {}
  public mutating func bind(_ binder: inout Binder) {}
}

/// A component that starts a signal.
public protocol SourceComponent: Component {
  /// The type of its events.
  var outputType: EventType { get }
  /// Whether the source needs only the executor's time and the services: tests of a pipeline run it as it is; other
  /// sources send nothing there.
  var runsOnVirtualTime: Bool { get }
  /// Whether it needs only time and Docker's socket, for which a test may have a stub.
  var asksDocker: Bool { get }
  /// The values that it sends as soon as it starts, a list or one value, if it then completes at once and does nothing
  /// else; nil otherwise.
  var immediateValues: OwnedValue? { get }
  /// The rules by which it answers waiting clients, as an HTTP server does; nil: it has no clients.
  var serving: ServingRules? { get }
  /// The address where it listens; only HTTP servers of one process can share it. Nil: it does not listen.
  var listens: ListenAddress? { get }
  /// The server whose feed it follows, as far as it is known: what the server sends to its clients are its events.
  var follows: TargetAddress? { get }
  /// The target of its requests, as far as that is known.
  var asks: TargetAddress? { get }
  /// The rate of its events; nil: unknown.
  var pace: EventPace? { get }
  /// Whether threads of its own decode its input in blocks, so that it may have a ``ParallelStage``.
  var decodesBlocks: Bool { get }
  /// The files that it reads, for the checker.
  var readsFiles: [FilePathParameter] { get }
  /// The database that it reads, which it does not make; nil: none.
  var readsDatabase: FilePathParameter? { get }
  /// Whether it reads standard input, which only one source of a process can.
  var readsStandardInput: Bool { get }
  /// How its events come again after the process was killed before they were delivered.
  var recovery: SourceRecovery { get }
  /// Whether its events have names that come again with them (``Event/id``): their positions in it, in a file, in a request.
  var namesEvents: Bool { get }
  /// The source that sends the existing input once and then completes: a file up to its current end, the answer of one request. Nil: the
  /// source waits for events that others send, which have no end.
  var once: (any SourceComponent)? { get }
  /// The threads that read and decode, in words; nil: nothing to report. `limit`: the plan's ``Plan/threads``.
  func threads(_ limit: Int?) -> String?
  /// How far a saved state has read: reads what the `save` of its nodes wrote. Empty: the source has no position, or it is unknown.
  static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition]
  /// Makes the running source for one subscription; it starts with ``RunningSource/begin()``.
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource
}

extension SourceComponent {
  public var serving: ServingRules? { nil }
  public var listens: ListenAddress? { nil }
  public var follows: TargetAddress? { nil }
  public var asks: TargetAddress? { nil }
  public var pace: EventPace? { nil }
  public var decodesBlocks: Bool { false }
  public var readsFiles: [FilePathParameter] { [] }
  public var readsDatabase: FilePathParameter? { nil }
  public var readsStandardInput: Bool { false }
  public var recovery: SourceRecovery { .never }
  public var namesEvents: Bool { false }
  public var once: (any SourceComponent)? { nil }
  public func threads(_ limit: Int?) -> String? { nil }
  public static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] { [] }
  public var outputType: EventType { .dyn }
  public var runsOnVirtualTime: Bool { false }
  public var asksDocker: Bool { false }
  public var immediateValues: OwnedValue? { nil }
}

/// A step of a chain, or a combination of signals.
public protocol OperatorComponent: Component {
  /// Whether each event that its steps send is one that came over an input: those that come are sent once, are held, or have been
  /// counted as left out (``OperatorNode/countDropped(_:)``) or given up.
  static var relaysEvents: Bool { get }
  /// Whether it subscribes its inputs more than once, or after its own start. Inner signals need not be declared.
  static var subscribesAgain: Bool { get }
  /// Signals that a step subscribes beside its input, such as the command that it executes.
  var furtherInputs: [SignalPlan] { get }
  /// The type of its events, given the types of the inputs' events.
  func outputType(_ inputs: [EventType]) -> EventType
  /// Makes the running step for one subscription, whose events go to `downstream`.
  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode
  /// Advice about its parameters for events at these rates: that of its input, then those of the signals among the
  /// parameters.
  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic]
  /// Whether it waits until everything that an event changes has changed, and then sends once.
  var settles: Bool { get }
  /// Whether the compiler put it there: no file names it, and drawings show its first input in its place.
  static var isHidden: Bool { get }
  /// Whether it only listens to its inputs: they run for others, not for it.
  static var onlyListens: Bool { get }
}

extension OperatorComponent {
  public var furtherInputs: [SignalPlan] { [] }
  public func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] { [] }
  public var settles: Bool { false }
  public static var subscribesAgain: Bool { false }
  public static var isHidden: Bool { false }
  public static var onlyListens: Bool { false }
  public static var relaysEvents: Bool { false }
  public func outputType(_ inputs: [EventType]) -> EventType { inputs.first ?? .dyn }
}

/// A step that answers each event with at most one, at once, and needs nothing but the event: neighbouring ones are
/// fused. A ``LateStep`` also sends later or at the end.
public protocol FusableOperator: OperatorComponent {
  /// Whether later steps see another value than this one.
  static var changesValue: Bool { get }
  /// Whether its steps are ``PureStep``s, whose result depends only on the event. Set by ``PureOperator``.
  static var isPure: Bool { get }
  /// Whether its steps have no state and do nothing at the end: a chain of such steps may be discarded and made anew
  /// between any two events.
  var isForgettable: Bool { get }
  /// Whether its steps are ``LateStep``s.
  var sendsLater: Bool { get }
  /// Makes the running step for one subscription.
  func makeStep() -> FusedStep
  /// Makes the step of one more of many equal chains, of which `first` is a step: the two may share what does not
  /// change.
  func makeStep(beside first: FusedStep) -> FusedStep
}

extension FusableOperator {
  public static var changesValue: Bool { false }
  public static var isPure: Bool { false }
  public var isForgettable: Bool { Self.isPure }
  public var sendsLater: Bool { false }
  public func makeStep(beside first: FusedStep) -> FusedStep { makeStep() }

  public func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    FusedRun.make(
      FusedRunPlan(parts: [.init(segment: nodeContext.segment, steps: [.init(id: nodeContext.step, component: self)])]),
      nodeContext, downstream: downstream)
  }
}

/// A component of `commands:`, which works on demand.
package protocol CommandComponent: OperatorComponent {
  /// Its index in ``Plan/named``.
  var index: Int { get set }
}

/// Combines the signals that its key lists; an origin, not a step: `merge: [a, b]`.
package protocol CombiningOperator: OperatorComponent {
  /// The least number of inputs.
  static var minimumInputs: Int { get }
  /// Whether an event is the list of the inputs' events, which `reduce` sees by the inputs' names.
  static var makesTuple: Bool { get }
  /// Receives the declarations of the inputs, in the order of `NodeContext.inputs`.
  mutating func take(_ inputs: [InputNode])
}

extension CombiningOperator {
  package static var minimumInputs: Int { 1 }
  package static var makesTuple: Bool { false }
  package mutating func take(_ inputs: [InputNode]) {}
}

/// A component that ends a signal.
public protocol SinkComponent: Component {
  /// Whether it only answers the request that an event came from: tests then run it.
  var answersEvents: Bool { get }
  /// The threads that encode and write, in words; nil: nothing to report.
  var threads: String? { get }
  /// The file that it writes, for the checker.
  var writesFile: FilePathParameter? { get }
  /// The database that it makes if there is none, for the checker.
  var writesDatabase: FilePathParameter? { get }
  /// The addresses that it sends to, for the checker, as far as they are known.
  var sendsTo: [TargetAddress] { get }
  /// The address where it listens, which only HTTP servers of the process can share; nil: it does not listen.
  var listens: ListenAddress? { get }
  /// Whether clients of that address get its events.
  var servesEvents: Bool { get }
  /// Whether it sends HTTP requests, so that tests may answer them.
  var sendsRequests: Bool { get }
  /// The encoding, so that tests, which do not run the sink, reject what it would reject; nil: it takes every event.
  var encoding: EncodeParameter? { get }
  /// The value that it encodes for an event; nil: the event.
  var sentValue: MappingParameter? { get }
  /// The encoder that shows how the sink writes an event; nil: that of ``encoding``, or JSON.
  var shownEncoder: ShownEncoder? { get }
  /// The encoding of a sink that writes a stream, so that a ``ParallelStage`` may encode for it; nil: it must receive
  /// each event.
  var streamEncoding: EncodeParameter? { get }
  /// Whether it sends the names of events to its receiver (``RunningSink/deliveryID(of:)``).
  var namesDeliveries: Bool { get }
  /// The guarantee for an event that it has acknowledged.
  var confirmation: SinkConfirmation { get }
  /// Makes the running sink.
  func makeSink(_ nodeContext: NodeContext) -> RunningSink
}

extension SinkComponent {
  public var answersEvents: Bool { false }
  public var threads: String? { nil }
  public var writesFile: FilePathParameter? { nil }
  public var writesDatabase: FilePathParameter? { nil }
  public var sendsTo: [TargetAddress] { [] }
  public var listens: ListenAddress? { nil }
  public var sendsRequests: Bool { false }
  public var servesEvents: Bool { false }
  public var namesDeliveries: Bool { false }
  public var encoding: EncodeParameter? { nil }
  public var sentValue: MappingParameter? { nil }
  public var streamEncoding: EncodeParameter? { nil }
  public var shownEncoder: ShownEncoder? { nil }
  public var confirmation: SinkConfirmation { .nothing }
}

/// How a sink's events look where it does not write them: in `rxd run --dry-run` and in tests. Made by the package's own sinks.
public struct ShownEncoder {
  package let encoder: any EventEncoder
  package init(_ encoder: any EventEncoder) { self.encoder = encoder }
}

/// The kinds of components, by where they may occur.
public enum ComponentKind: String, Sendable, CaseIterable {
  case source, `operator`, combination, command, sink
}
