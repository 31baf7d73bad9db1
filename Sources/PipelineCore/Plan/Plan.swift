/// A pipeline, compiled: immutable, shared by all that run, draw or explain it.
public final class Plan: Sendable {
  public let name: String
  public let description: String?
  public let source: SourceText
  /// What can be referred to: sources first, then signals, each in the order of the file.
  public let named: [NamedPlan]
  public let sinks: [SinkPlan]
  /// Indexes in `named` of signals that run without a reader, too: they execute commands.
  public let rootSubscribers: [Int]
  /// Every step, by ``StepID``.
  public let steps: [StepPlan]
  /// What is known of each expression, in the order of compilation.
  public let expressions: [ExpressionReport]
  /// How many threads may decode one input at the same time; 1: the thread that runs the turns does it. Nil: as
  /// many as there are processors.
  public let threads: Int?
  /// Where a source reads standard input; nil: none does.
  public let standardInput: SourceLocation?

  /// What the threads that decode can do beyond that, by the steps of sources.
  let stages: [StepID: ParallelStage]

  public init(
    name: String, description: String?, threads: Int? = nil, source: SourceText, named: [NamedPlan], sinks: [SinkPlan],
    rootSubscribers: [Int] = [], steps: [StepPlan], expressions: [ExpressionReport],
    standardInput: SourceLocation? = nil
  ) {
    self.name = name
    self.description = description
    self.threads = threads
    self.source = source
    self.named = named
    self.sinks = sinks
    self.rootSubscribers = rootSubscribers
    self.steps = steps
    self.expressions = expressions
    self.standardInput = standardInput
    stages = Plan.stages(named, sinks)
  }

  public func index(ofNamed name: String) -> Int? { named.firstIndex { $0.name == name } }

  /// Whose errors output `NAME.errors` is.
  func owner(_ name: String) -> ErrorsOwner? {
    index(ofNamed: name).map { .named($0) } ?? sinks.firstIndex { $0.name == name }.map { .sink($0) }
  }

  /// What the file calls it, and where.
  func name(of owner: ErrorsOwner) -> (text: String, location: SourceLocation) {
    switch owner {
    case .named(let index): (named[index].name, named[index].location)
    case .sink(let index): (sinks[index].name, sinks[index].location)
    }
  }
}

/// Who has an errors output, by its place in the plan: a source, a signal or a command, or a sink.
public enum ErrorsOwner: Hashable, Sendable {
  case named(Int)
  case sink(Int)
}

/// A source or a signal that has a name: it runs once and is shared, unless it is cold.
public struct NamedPlan: Sendable {
  public enum Kind: String, Sendable {
    case source, signal, command
    /// An output of a command, or what enables it.
    case part
  }
  public var name: String
  public var kind: Kind
  public var body: SignalPlan
  /// Made anew for each reference.
  public var isCold: Bool
  public var sharing = Sharing()
  public var location: SourceLocation
  /// How many places of the file refer to it.
  public var references = 0
}

extension NamedPlan {
  /// The source that it begins with, if it is a source, or a signal that begins with one source of its own.
  var ownSource: SignalPlan? { kind == .command || kind == .part ? nil : body.ownSource }
}

extension SignalPlan {
  fileprivate var ownSource: SignalPlan? {
    switch kind {
    case .source: self
    case .run(_, let input): input.ownSource
    case .node(_, _, let inputs): inputs.first?.ownSource
    case .named, .errors, .input: nil
    }
  }
}

public struct SinkPlan: Sendable {
  public var name: String
  public var step: StepID
  public var keyword: String
  public var input: SignalPlan
  public var component: any SinkComponent
  public var segment: Segment
  public var location: SourceLocation
  /// The sink in a saved state.
  var reference: String { "sinks.\(name)" }
}

/// What counters, messages and drawings know of one step.
public struct StepPlan: Sendable {
  /// The keyword: `filter`, `http`.
  public var keyword: String
  /// The named source, signal or sink that it is part of.
  public var owner: String
  /// `owner` with the place in the chain: `books/2 filter`.
  public var label: String
  public var location: SourceLocation
  /// What the file says of failing events; nil: the operator's default.
  public var onError: ErrorPolicy?
  /// The step's name in a saved state: signal and keywords, or the names that the file gives to steps. Inserting
  /// another step does not change it.
  var key: String
  /// Of what the file says of the step; what was kept under another one does not fit.
  var fingerprint: UInt64
}

/// What becomes of an event for which a step fails.
public enum ErrorPolicy: String, Sendable, CaseIterable {
  /// It is dropped and counted; the first of each kind is logged.
  case drop
  /// It goes on as if the step were not there.
  case keep
  /// The signal ends with the error.
  case fail
  /// It goes to the errors output, with the reason.
  case route
}

/// A signal as the compiler sees it: a tree of steps over references.
public final class SignalPlan: Sendable {
  public enum Kind: Sendable {
    /// The named source or signal of that index in `Plan.named`.
    case named(Int)
    case errors(ErrorsOwner)
    case source(any SourceComponent, Segment)
    /// What the enclosing node feeds in: the origin of a chain parameter.
    case input
    case node(any OperatorComponent, Segment, inputs: [SignalPlan])
    /// Row-wise steps in one pass.
    case run(FusedRunPlan, input: SignalPlan)
  }

  public let kind: Kind
  public let step: StepID
  public let type: EventType
  /// The place of a reference in a saved state; unique in the plan.
  let reference: String
  /// How many nodes that settle lie one above the other, up to here.
  let settling: Int

  /// In place of a signal where there is none.
  static let nothing = SignalPlan(.input, step: StepID(0), type: .dyn)

  public convenience init(_ kind: Kind, step: StepID, type: EventType) {
    self.init(kind, step: step, type: type, reference: "")
  }

  init(_ kind: Kind, step: StepID, type: EventType, reference: String, settling: Int = 0) {
    self.kind = kind
    switch kind {
    case .named, .errors, .source, .input: self.settling = settling
    case .run(_, let input): self.settling = input.settling
    case .node(let component, _, let inputs):
      let above = (inputs + component.innerPlans).map(\.settling).max() ?? 0
      self.settling = above + (component.settles ? 1 : 0)
    }
    self.step = step
    self.type = type
    self.reference = reference
  }
}

/// Neighbouring row-wise steps, compiled into one pass over each event.
public struct FusedRunPlan: Sendable {
  /// Steps that see the same event value and so share one projection.
  public struct Part: Sendable {
    public var segment: Segment
    public var steps: [Step]
  }
  public struct Step: Sendable {
    public var id: StepID
    public var component: any FusableOperator
  }
  public var parts: [Part]
  public init(parts: [Part]) { self.parts = parts }
}

extension SignalPlan {
  /// Its row-wise steps, one or several; nil: it is something else.
  var run: FusedRunPlan? {
    switch kind {
    case .run(let run, _): run
    case .node(let component as any FusableOperator, let segment, _):
      FusedRunPlan(parts: [.init(segment: segment, steps: [.init(id: step, component: component)])])
    default: nil
    }
  }
}

/// What the compiler knows of the events of a signal.
public struct EventType: Sendable, Equatable {
  public var type: ExpressionType
  /// The names of the inputs, while the event is still the list that `combineLatest` or `zip` makes.
  public var tuple: [String]?
  public var elements: [ExpressionType] = []
  /// The source that reads the events as texts, while they are still what it read; nil: they may be anything.
  public var text: TextOrigin?

  public init(_ type: ExpressionType, tuple: [String]? = nil, elements: [ExpressionType] = []) {
    self.type = type
    self.tuple = tuple
    self.elements = elements
  }
  public static let dyn = EventType(.dyn)

  /// What is known beside the type, for messages.
  var form: ExpressionScope.EventForm {
    if let tuple { return .parts(tuple) }
    return text.map { .text($0) } ?? .any
  }

  /// Events that a source reads as texts. Their type is not `string`, because a test of the pipeline may send other
  /// values in place of the source; but no field is ever read of a text.
  static let text: EventType = {
    var type = EventType.dyn
    type.text = TextOrigin()
    return type
  }()
}

/// The expressions of one or several steps that look at the same event: they share the slots that one
/// projection of the event fills.
public final class Segment: @unchecked Sendable {
  /// Frozen after compilation.
  public let projection: Projection
  public internal(set) var usesMeta = false
  public internal(set) var usesNow = false
  public internal(set) var hasPrograms = false
  /// Number of variables that a frame needs.
  public internal(set) var variableCount = Variables.base.count
  /// The environment as a map, fixed at load.
  public let environment: OwnedValue
  public init(environment: OwnedValue, projection: Projection = Projection()) {
    self.environment = environment
    self.projection = projection
  }
  static let empty = Segment(environment: OwnedValue())
}
