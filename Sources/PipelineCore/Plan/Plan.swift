/// A compiled pipeline: immutable, shared by everything that runs, draws or explains it.
package final class Plan: Sendable {
  package let name: String
  package let description: String?
  package let source: SourceText
  /// The named signals: sources first, then signals, each in the order of the file.
  package let named: [NamedPlan]
  package let sinks: [SinkPlan]
  /// Indexes in `named` of the signals that run without a reader, because they execute commands or because only their
  /// errors outputs are read.
  package let rootSubscribers: [Int]
  /// The ``rootSubscribers`` that run only because their errors outputs are read.
  package let readOnlyForErrors: Set<Int>
  /// The tables, in the order of the file.
  package let tables: [TablePlan]
  /// Every step, by ``StepID``.
  package let steps: [StepPlan]
  /// A report on each expression, in the order of compilation.
  package let expressions: [ExpressionReport]
  /// The functions that expressions of the file can call.
  package let functions: UserFunctions
  /// The functions, decoders and encoders of plugins that the plan uses; some may occur several times.
  package let pluginFunctions: [PluginFunction]
  /// How many threads may decode one input at the same time; 1: the pipeline thread decodes. Nil: as many as there are
  /// processors.
  package var threads: Int? { limits.threads }
  /// The location of the source that reads standard input; nil: there is none.
  package let standardInput: SourceLocation?
  /// The mode that the file asks for; see ``delivery(hasStateDirectory:)``.
  let requestedDelivery: Located<Delivery>?
  /// The file's `whenLate`, the rule for time that passed while the pipeline was down; nil: ``WhenLate/fire``.
  /// ``StepPlan/whenLate`` is the rule of a step.
  package let whenLate: Located<WhenLate>?
  /// The bytes of keys in memory beyond which steps move keys to the disk; nil: all stay in memory.
  package var stateMemory: Int? { limits.stateMemory }
  /// The resource limits that the file sets for the pipeline.
  private let limits: (threads: Int?, stateMemory: Int?)
  /// The minimum guarantee that the file requires.
  let requirement: Located<DeliveryRequirement>?
  /// All sources, in the order of the plan.
  package let sources: [PlannedSource]

  /// The former names of parts of the file, in the order of the file.
  package let formerNames: [FormerName]

  /// The edges between the steps, by ``EdgeID``; the first is ``EdgeID/none``.
  package let edges: [EdgePlan]
  /// Sources and operators, by the numbers of their steps.
  package let components: [Int: any Component]

  /// The sources that send to inner signals, whatever else reads them.
  let sourcesOfInnerSignals: Set<StepID>

  /// The outputs of the sinks that may be the inputs of sources, also of other pipelines.
  let outsideWays: [OutsideWay]

  /// The steps of the tables that are loaded from their own sources.
  let stepsOfTables: Set<StepID>

  /// The parallel stages, by the step IDs of sources.
  let stages: [StepID: ParallelStage]

  init(
    name: String, description: String?, threads: Int? = nil, source: SourceText, named: [NamedPlan], sinks: [SinkPlan],
    rootSubscribers: [Int] = [], readOnlyForErrors: [Int] = [], tables: [TablePlan] = [], steps: [StepPlan],
    expressions: [ExpressionReport],
    functions: UserFunctions = .none, standardInput: SourceLocation? = nil, delivery: Located<Delivery>? = nil,
    require: Located<DeliveryRequirement>? = nil, whenLate: Located<WhenLate>? = nil, outsideWays: [OutsideWay] = [],
    formerNames: [FormerName] = [], codecs: [PluginFunction] = [], stateMemory: Int? = nil
  ) {
    // Most files can call none, and have many expressions.
    let called = functions.offered.isEmpty ? [] : expressions.flatMap(\.checked.foreignFunctions)
    pluginFunctions = codecs + called.compactMap { $0 as? PluginFunction }
    self.formerNames = formerNames
    self.outsideWays = outsideWays
    self.whenLate = whenLate
    self.name = name
    self.description = description
    limits = (threads, stateMemory)
    self.source = source
    self.named = named
    self.sinks = sinks
    self.rootSubscribers = rootSubscribers
    self.readOnlyForErrors = Set(readOnlyForErrors)
    self.tables = tables
    stepsOfTables = Plan.stepsOfTables(tables, named)
    self.steps = steps
    self.expressions = expressions
    self.functions = functions
    self.standardInput = standardInput
    requestedDelivery = delivery
    requirement = require
    let walk = Plan.edges(named, sinks)
    (edges, components, sources) = walk
    sourcesOfInnerSignals = Plan.sourcesOfInnerSignals(walk.components, named)
    stages = Plan.stages(named, sinks)
  }

  /// The former name of a sink; nil: the file gives none.
  package func formerName(ofSink name: String) -> String? {
    formerNames.first { $0.isSink && $0.name == name }?.former
  }

  package func index(ofNamed name: String) -> Int? { named.firstIndex { $0.name == name } }

  /// The owner of the errors output `NAME.errors`.
  package func owner(_ name: String) -> ErrorsOwner? {
    index(ofNamed: name).map { .named($0) } ?? sinks.firstIndex { $0.name == name }.map { .sink($0) }
  }

  /// The name of an owner in the file, and its location.
  package func name(of owner: ErrorsOwner) -> (text: String, location: SourceLocation) {
    switch owner {
    case .named(let index): (named[index].name, named[index].location)
    case .sink(let index): (sinks[index].name, sinks[index].location)
    }
  }
}

/// A named source or signal: it runs once and is shared, unless it is cold.
package struct NamedPlan: Sendable {
  /// The kind of a named part.
  package enum Kind: String, Sendable {
    case source, signal, command, table
    /// An output of a command, or the signal that enables it.
    case part
  }
  package var name: String
  package var kind: Kind
  package var body: SignalPlan
  /// Whether each reference runs its own instance.
  package var isCold: Bool
  package var sharing = Sharing()
  package var location: SourceLocation
  /// The number of references in the file.
  package var references = 0
}

/// A table.
package struct TablePlan: Sendable {
  /// The table's index in ``Plan/named``.
  package var named: Int
  /// Whether the table's own source is read at the start, before the first event passes. Otherwise the rows change as
  /// events of a signal arrive.
  package var isLoaded: Bool
  /// The table's own source, if it reports that it has sent its initial data; later events then change the rows.
  package var source: StepID?
  /// How often its source is read again; nil: never.
  package var every: TimeSpan?
  package var key: ExpressionType
  package var row: ExpressionType
}

/// How the references to a named source or signal share it: the option `share`.
package struct Sharing: RecordParameter, Equatable {
  /// When a shared signal starts.
  package enum Start: String, ChoiceParameter {
    case lazy, eager
    package var help: String {
      self == .lazy ? "with its first subscriber" : "with the pipeline, even without listeners"
    }
  }
  /// When a shared signal stops.
  package enum Stop: String, ChoiceParameter {
    case unused, never
    package var help: String {
      self == .unused ? "when the last listener has left" : "only by its own end, or with the pipeline"
    }
  }

  /// The number of events that a late subscriber receives first.
  package var replay = 0
  /// The greatest age of these events.
  package var within: TimeSpan?
  package var start = Start.lazy
  package var stop = Stop.unused
  /// Whether a subscriber that comes after the end restarts the signal; otherwise it receives the kept events and the
  /// end.
  package var again = true

  package init() {}

  package static var fields: [RecordField<Sharing>] {
    [
      .init("replay", \.replay, range: 0...1_000_000, "How many of the last events a late subscriber first receives."),
      .init("within", \.within, range: 1...(Int64.max / 4), "How old these may be."),
      .init("start", \.start, "When it starts."),
      .init("stop", \.stop, "When it stops."),
      .init(
        "again", \.again,
        "Whether a subscriber after the end makes it run again, or receives the last events and the end."),
    ]
  }

  /// Whether this is the default.
  var isPlain: Bool { self == Sharing() }
}

extension NamedPlan {
  /// The part's source, or the source that a signal starts with if it defines one in place.
  package var ownSource: SignalPlan? { kind == .command || kind == .part ? nil : body.ownSource }
}

/// A sink with its input.
package struct SinkPlan: Sendable {
  package var name: String
  package var step: StepID
  package var keyword: String
  package var input: SignalPlan
  /// The component that runs.
  let work: any SinkWork
  package var component: any SinkDeclaration { work.component }
  package var segment: Segment
  package var location: SourceLocation
  package var outboxLimit = OutboxLimit()
  /// The key of the sink in a saved state.
  var reference: String { "sinks.\(name)" }
  /// The signal that this sink was added to print (``FrontEnd/printed``), as it was named; nil: the sink is in the
  /// file.
  package var printedSignal: String? {
    name.hasPrefix(PipelineFile.printedPrefix) ? String(name.dropFirst(PipelineFile.printedPrefix.count)) : nil
  }
}

/// The description of one step, for counters, messages and drawings.
package struct StepPlan: Sendable {
  /// The component key: `filter`, `http`.
  package var keyword: String
  /// The named source, signal or sink that contains the step.
  package var owner: String
  /// The step's name for display: the signal or sink, the steps in whose inner chains the step is, and its keyword or
  /// the name that the file gives it: `books/filter`, `books/groupBy/filter`, `out/http`. It is unique, and stays the
  /// same when another step is inserted.
  package var label: String {
    // The names of sinks and signals differ, and have no dots.
    key.hasPrefix("sinks.") ? String(key.dropFirst("sinks.".count)) : key
  }
  package var location: SourceLocation
  /// The policy in the file; nil: the operator's default.
  package var onError: ErrorPolicy?
  /// The step's name in a saved state: signal and keywords, or the names that the file gives to steps. It stays the
  /// same when another step is inserted.
  var key: String
  /// The names in a saved state that the step may have had (`movedFrom`), which no current step has.
  var formerKeys: [String] = []
  /// Hash of the parameters; state saved under another hash is refused.
  var fingerprint: UInt64
  /// The `delivery` alongside a source or a sink, always ``Delivery/bestEffort``; nil: that of the pipeline applies.
  package var delivery: Located<Delivery>?
  /// The rule for time that passed while the pipeline was down.
  package var whenLate = WhenLate.fire
  /// Whether the file sets `whenLate` at this step.
  var ownsWhenLate = false
  /// The settings in the file, for drawings.
  package var settings = StepSettings()
}
