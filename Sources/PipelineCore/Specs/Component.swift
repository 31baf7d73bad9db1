/// Anything that a pipeline file can name with a component key: a value with the decoded parameters.
public protocol Component: Sendable {
  /// The defaults; a required parameter has a placeholder until it is decoded.
  init()
  /// Name, parameters and documentation.
  static var spec: ComponentSpec<Self> { get }
  /// The spec of this component: the spec of its type, unless a plugin offers the component.
  var ownSpec: ComponentSpec<Self> { get }
  /// Whether the expressions of the parameters, inner signals included, see `error`, as those of `catch` do.
  static var seesError: Bool { get }
  /// Whether the expressions of the parameters see the parts of an event of `combineLatest` or `zip` as variables.
  static var seesParts: Bool { get }
  /// Whether the chain among the parameters receives the same event as the expressions, after all of them were
  /// evaluated; the chain and the expressions then share the fields that they read.
  static var feedsItsEvent: Bool { get }
  /// Whether a mapping with these keys is the primary parameter itself rather than a list of parameters; nil: the names
  /// of the parameters decide.
  static func isPrimary(_ keys: [String]) -> Bool?
  /// The state that outlives the process: as in the spec, unless it depends on the parameters.
  var persistence: Persistence { get }
  /// Checks parameters against each other. The types of the parameters check single values.
  func validate(_ context: inout DecodingContext)
  /// Binds everything that depends on the types of the inputs, besides the parameters' own expressions.
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

/// The declaration of a component that starts a signal; its running side is ``SourceComponent``.
public protocol SourceDeclaration: Component {
  /// The type of the source's events.
  var outputType: EventType { get }
  /// Whether the source needs only the executor's time and the services. Tests of a pipeline run such a source
  /// unchanged; other sources send nothing in tests.
  var runsOnVirtualTime: Bool { get }
  /// The stub of a test (`stubs:`) with which the source also runs in tests; nil: none.
  var stub: String? { get }
  /// The values, a list or one value, that the source sends as soon as it starts, if it then completes at once and does
  /// nothing else; nil otherwise.
  var immediateValues: OwnedValue? { get }
  /// The rules by which it answers waiting clients, as an HTTP server does; nil: it has no clients.
  var serving: ServingRules? { get }
  /// The address on which the source listens; only HTTP servers of one process can share an address. Nil: it does not
  /// listen.
  var listens: ListenAddress? { get }
  /// The server whose feed the source follows: its events are those that the server sends to clients. Nil: none, or
  /// unknown.
  var follows: TargetAddress? { get }
  /// The target of the source's requests; nil: it sends none, or the target is unknown.
  var asks: TargetAddress? { get }
  /// The rate of the source's events; nil: unknown.
  var pace: EventPace? { get }
  /// Whether the source's own threads decode its input in blocks, so that it may have a ``ParallelStage``.
  var decodesBlocks: Bool { get }
  /// The files that the source reads, for the checker.
  var readsFiles: [FilePathParameter] { get }
  /// The database that the source reads and does not create; nil: none.
  var readsDatabase: FilePathParameter? { get }
  /// Whether the source reads standard input, which only one source of a process can.
  var readsStandardInput: Bool { get }
  /// How the source's events are received again if the process is killed before they were delivered.
  var recovery: SourceRecovery { get }
  /// Whether the source's events have names that are the same when they come again (``Event/id``): their positions in
  /// the source, a file or a request.
  var namesEvents: Bool { get }
  /// The threads that read and decode, in words; nil: nothing to report. `limit`: the plan's ``Plan/threads``.
  func threads(_ limit: Int?) -> String?
}

extension SourceDeclaration {
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
  public func threads(_ limit: Int?) -> String? { nil }
  public var outputType: EventType { .dyn }
  public var runsOnVirtualTime: Bool { false }
  public var stub: String? { nil }
  public var immediateValues: OwnedValue? { nil }
}

/// A source that may report when it has sent everything that existed at its start (``RunningSource/hasLoaded()``), and then
/// continues.
package protocol LoadingSource: SourceDeclaration {
  var loads: Bool { get }
}

/// A source that may read its whole input repeatedly, such as an answer or the result of a query.
package protocol RepeatingSource: SourceDeclaration {
  /// The time between two reads; nil: the source reads once.
  var repeats: TimeSpan? { get }
}

/// The declaration of a step of a chain, or of a combination of signals; its running side is ``OperatorComponent``.
public protocol OperatorDeclaration: Component {
  /// Whether each event that the operator's steps send came over an input: each input event is sent once, held, counted
  /// as dropped (``OperatorNode/countDropped(_:)``), or given up.
  static var relaysEvents: Bool { get }
  /// Whether the operator subscribes to its inputs more than once, or after its own start. Inner signals need not be
  /// declared.
  static var subscribesAgain: Bool { get }
  /// Signals that a step subscribes to in addition to its input, such as the command that it executes.
  var furtherInputs: [SignalPlan] { get }
  /// The type of the operator's events, given the types of the inputs' events.
  func outputType(_ inputs: [EventType]) -> EventType
  /// Advice about the operator's parameters for events at these rates: the rate of its input, then those of the signals
  /// in the parameters.
  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic]
  /// Whether the operator waits until an event has reached all of its inputs that the event changes, and then sends
  /// once.
  var settles: Bool { get }
  /// Whether the compiler inserted the operator: no file names it, and drawings show its first input instead.
  static var isHidden: Bool { get }
  /// Whether the operator only observes its inputs, which run because of other subscribers.
  static var onlyListens: Bool { get }
}

extension OperatorDeclaration {
  public var furtherInputs: [SignalPlan] { [] }
  public func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] { [] }
  public var settles: Bool { false }
  public static var subscribesAgain: Bool { false }
  public static var isHidden: Bool { false }
  public static var onlyListens: Bool { false }
  public static var relaysEvents: Bool { false }
  public func outputType(_ inputs: [EventType]) -> EventType { inputs.first ?? .dyn }
}

/// The declaration of a step that is fused with adjacent steps; its running side is ``FusableOperator``.
public protocol FusableDeclaration: OperatorDeclaration {
  /// Whether later steps see a different value than this one.
  static var changesValue: Bool { get }
  /// Whether the operator's steps are ``PureStep``s, whose result depends only on the event. Set by ``PureOperator``.
  static var isPure: Bool { get }
  /// Whether the operator's steps have no state and do nothing at the end: a chain of such steps may be discarded and
  /// recreated between any two events.
  var isForgettable: Bool { get }
  /// Whether the operator's steps are ``LateStep``s.
  var sendsLater: Bool { get }
}

extension FusableDeclaration {
  public static var changesValue: Bool { false }
  public static var isPure: Bool { false }
  public var isForgettable: Bool { Self.isPure }
  public var sendsLater: Bool { false }
}

/// The declaration of a combination; its running side is ``CombiningOperator``.
package protocol CombiningDeclaration: OperatorDeclaration {
  /// The minimum number of inputs.
  static var minimumInputs: Int { get }
  /// Whether an event is the list of the inputs' events, which `reduce` sees by the inputs' names.
  static var makesTuple: Bool { get }
  /// Receives the declarations of the inputs, in the order of `NodeContext.inputs`.
  mutating func take(_ inputs: [InputNode])
}

extension CombiningDeclaration {
  package static var minimumInputs: Int { 1 }
  package static var makesTuple: Bool { false }
  package mutating func take(_ inputs: [InputNode]) {}
}

/// The declaration of a component that ends a signal; its running side is ``SinkComponent``.
public protocol SinkDeclaration: Component {
  /// Whether the sink only answers the request that an event came from; tests run such a sink.
  var answersEvents: Bool { get }
  /// The threads that encode and write, in words; nil: nothing to report.
  var threads: String? { get }
  /// The file that the sink writes, for the checker.
  var writesFile: FilePathParameter? { get }
  /// The database that the sink creates if it does not exist, for the checker.
  var writesDatabase: FilePathParameter? { get }
  /// The known addresses that the sink sends to, for the checker.
  var sendsTo: [TargetAddress] { get }
  /// The address on which the sink listens; only HTTP servers of one process can share an address. Nil: it does not
  /// listen.
  var listens: ListenAddress? { get }
  /// Whether clients of that address receive the sink's events.
  var servesEvents: Bool { get }
  /// Whether the sink sends HTTP requests, so that tests may answer them.
  var sendsRequests: Bool { get }
  /// The encoding, with which tests, which do not run the sink, reject the events that the sink would reject; nil: the
  /// sink accepts every event.
  var encoding: EncodeParameter? { get }
  /// The value that the sink encodes for an event; nil: the event itself.
  var sentValue: MappingParameter? { get }
  /// The encoder that shows how the sink writes an event; nil: the encoder of ``encoding``, or else JSON.
  var shownEncoder: ShownEncoder? { get }
  /// The encoding of a sink that writes a stream, with which a ``ParallelStage`` may encode for it; nil: the sink must
  /// receive each event.
  var streamEncoding: EncodeParameter? { get }
  /// Whether the sink sends the names of events to its receiver (``RunningSink/deliveryID(of:_:)``).
  var namesDeliveries: Bool { get }
  /// The guarantee for an event that the sink has acknowledged.
  var confirmation: SinkConfirmation { get }
}

extension SinkDeclaration {
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

/// Shows a sink's events where the sink does not write them: in `rxd run --dry-run` and in tests. Only sinks of this
/// package make one.
public struct ShownEncoder {
  package let encoder: any EventEncoder
  package init(_ encoder: any EventEncoder) { self.encoder = encoder }
}

/// The kinds of components, by where they may occur.
public enum ComponentKind: String, Sendable, CaseIterable {
  case source, `operator`, combination, command, sink
  /// For plugins only: a function that expressions call, a format for `decode`, a format for `encode`.
  case function, decoder, encoder

  /// Whether the component is a pure function without an instance in the graph.
  package var isCalled: Bool { self == .function || self == .decoder || self == .encoder }
}
