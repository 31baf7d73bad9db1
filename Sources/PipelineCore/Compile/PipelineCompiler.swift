/// Compiles a parsed pipeline file to a plan without side effects. `rxd check` does only this; `rxd run` also launches
/// the plan.
package struct PipelineCompiler: Sendable {
  package var catalogue: Catalogue
  /// The map `env` of expressions.
  package var environment: [String: String]

  /// Supplies schema files.
  package var schemas: SchemaFiles
  /// Checks files that parameters name, such as certificates.
  package var files = FileProbe.none

  package init(
    _ catalogue: Catalogue, environment: [String: String] = [:], schemas: SchemaFiles = .none
  ) {
    self.catalogue = catalogue
    self.environment = environment
    self.schemas = schemas
  }

  /// Reports every error; nil if there is any.
  package func compile(_ file: PipelineFile, into diagnostics: inout Diagnostics) -> Plan? {
    let compilation = Compilation(catalogue, environment, schemas, files, file)
    let plan = compilation.run()
    diagnostics.report(contentsOf: compilation.diagnostics.all)
    return plan
  }
}

/// The state of one compilation.
final class Compilation: SignalCompiler {
  let catalogue: Catalogue
  let file: PipelineFile
  private let environment: OwnedValue
  private let schemas: SchemaFiles
  let files: FileProbe
  var diagnostics = Diagnostics()
  var expressions: [ExpressionReport] = []
  var steps: [StepPlan] = []
  /// The names of steps and references in saved states, each with the last number that was appended to it.
  private var keys: [String: Int] = [:]
  /// The former names of the named parts of the file.
  var formerNames: [FormerName] = []
  /// The values of `movedFrom`, with the numbers of their steps.
  var moves: [(step: Int, node: YAMLNode)] = []
  /// The named schedulers, in the order of their first use.
  private var schedulers: [String] = []
  /// The indexes of named entries.
  var index: [String: Int] = [:]
  var entries: [Entry] = []
  /// The names of signals that execute a command.
  var executing: Set<String> = []
  /// The types of the tables' keys and rows.
  var tableTypes: [String: (key: ExpressionType, row: ExpressionType)] = [:]
  /// Which named entries depend on which.
  var readings: [Reading] = []
  /// The inputs of sources that a sink may have written, by the entries that contain the sources.
  var inlets: [String: [OutsideInlet]] = [:]
  /// The targets of the sources' requests, by the entries that contain the sources.
  var requests: [String: [(TargetAddress, SourceLocation)]] = [:]
  /// The databases that sources read.
  var databases: [FilePathParameter] = []
  /// The locations of sources that read standard input.
  var standardInputs: [SourceLocation] = []
  /// The grok patterns that the file defines.
  private(set) lazy var patterns = GrokDefinitions(
    Dictionary(file.patterns.map { ($0.name.value, $0.node.value) }) { first, _ in first })
  /// The functions that the file defines.
  private(set) lazy var functions = defineFunctions()
  private lazy var codecs = catalogue.called.filter { $0.offered.kind != .function }
  /// The decoders and encoders of plugins that components use.
  private var usedCodecs: [PluginFunction] = []
  private lazy var functionMeanings = file.functions.isEmpty ? [:] : Meaning.functions(file.functionSection)
  /// The maximum nesting of inner signals.
  private static let depthLimit = 16

  struct Entry {
    enum State {
      case waiting, running
      case done(SignalPlan?)
    }
    var name: Located<String>
    var kind: NamedPlan.Kind
    var isCold = false
    var sharing = Sharing()
    var state = State.waiting
    var references = 0
    /// The indexes of the commands that it may execute, directly or through the signals that it refers to.
    var executes: [Int] = []
  }

  init(
    _ catalogue: Catalogue, _ environment: [String: String], _ schemas: SchemaFiles, _ files: FileProbe,
    _ file: PipelineFile
  ) {
    self.catalogue = catalogue
    self.schemas = schemas
    self.files = files
    self.file = file
    let arena = Arena()
    self.environment = OwnedValue(
      arena.map(
        environment.sorted { $0.key < $1.key }.map {
          (key: arena.string($0.key), value: arena.string($0.value))
        }))
  }

  func run() -> Plan? {
    declare()
    for at in entries.indices { _ = named(at, from: nil) }
    let sinks = file.sinks.compactMap(sink)
    checkMoves()
    applyFormerNames()
    refuseSinkCycles()
    let outsideWays = outsideWays(sinks)
    checkFiles(sinks, outsideWays)
    if sinks.isEmpty, file.sinks.isEmpty, executing.isEmpty, file.isWhole {
      diagnostics.report(
        Diagnostic(
          .noSinks, "the pipeline has no sink, so nothing would come out of it", at: file.name.location,
          help: "Add e.g. 'sinks: { out: { from: NAME, stdout: {} } }'"))
    }
    // After an error, parts could look unused that are not.
    guard file.isWhole, !diagnostics.hasErrors else { return nil }
    // A signal that executes a command runs even if it has no reader, or gets one only later.
    var rootSubscribers = entries.indices.filter {
      !entries[$0].isCold && executing.contains(entries[$0].name.value)
    }
    for at in rootSubscribers { entries[at].references += 1 }
    warnUnused()
    let tables = file.tables.compactMap { table in index[table.name.value].flatMap(tablePlan) }
    // A table changes before other subscribers receive the event that changes it.
    rootSubscribers = tables.filter { !$0.isLoaded }.map(\.named) + rootSubscribers
    for segment in segments { segment.projection.freeze() }
    let named = entries.compactMap { entry -> NamedPlan? in
      guard case .done(let plan?) = entry.state else { return nil }
      return NamedPlan(
        name: entry.name.value, kind: entry.kind, body: plan, isCold: entry.isCold, sharing: entry.sharing,
        location: entry.name.location, references: entry.references)
    }
    let readOnlyForErrors = SignalReach.readOnlyForErrors(named, sinks, besides: rootSubscribers)
    rootSubscribers += readOnlyForErrors
    let plan = Plan(
      name: file.name.value, description: file.description?.value, threads: file.threads?.value, source: file.source,
      named: named, sinks: sinks, rootSubscribers: rootSubscribers,
      readOnlyForErrors: readOnlyForErrors, tables: tables, steps: steps, expressions: expressions,
      functions: functions, standardInput: standardInputs.first, delivery: file.delivery, require: file.require,
      whenLate: file.whenLate, outsideWays: outsideWays,
      formerNames: formerNames, codecs: usedCodecs, stateMemory: file.stateMemory?.value)
    var listeners: [Plan.Listener] = []
    plan.reportSharedAddresses(beside: &listeners, into: &diagnostics)
    plan.reportUnansweredRequests(into: &diagnostics)
    for shortfall in plan.deliveryShortfalls(hasStateDirectory: true) { diagnostics.report(shortfall) }
    reportStateWithoutEffect(plan)
    return diagnostics.hasErrors ? nil : plan
  }

  private var segments: [Segment] = []
  /// The common projection of the chains that start at a named signal, by the signal's index.
  private var commonProjections: [Int: Projection] = [:]
  private lazy var sourceNames = Set(catalogue.names(.source))

  /// - Parameter projection: That of an upstream step that sees the same event.
  func makeSegment(_ projection: Projection? = nil) -> Segment {
    projection?.isShared = true
    let segment = Segment(environment: environment, projection: projection ?? Projection())
    segments.append(segment)
    return segment
  }

  /// The segment of a chain's first fused steps. Chains that start at the same signal see each event one after another,
  /// so the event is read once for all of them.
  private func firstSegment(of input: SignalPlan, _ projection: Projection?) -> Segment {
    guard projection == nil, case .named(let at)? = input.origin, !entries[at].isCold else {
      return makeSegment(projection)
    }
    let common = commonProjections[at]
    if let common { common.isShared = true } else { commonProjections[at] = Projection() }
    let segment = Segment(environment: environment, projection: Projection(within: commonProjections[at]))
    segments.append(segment)
    return segment
  }

  // MARK: Signals

  func signal(_ node: SignalNode, _ context: SignalContext) -> SignalPlan? {
    guard context.depth <= Self.depthLimit else {
      diagnostics.report(
        Diagnostic(
          .signalsTooDeep, "inner signals are nested more than \(Self.depthLimit) deep", at: node.location,
          help: "Give inner signals names and refer to them"))
      return nil
    }
    var origin: SignalPlan?
    switch node.origin {
    case .reference(let reference): origin = self.reference(reference, context)
    case .inline(let component):
      refuseOptions(component.options, known: Self.sourceOptions)
      origin = source(component, context)
    case .combining(let combining): origin = self.combining(combining, context)
    }
    if let made = origin { origin = timed(made, node.options, context) }
    // The chain is compiled even if its origin is faulty, so that its errors are reported.
    let placeholder = SignalPlan(.input, step: StepID(0), type: .dyn)
    let chain = chain(node.chain, origin ?? placeholder, context)
    return origin == nil ? nil : chain
  }

  func source(_ node: ComponentNode, _ context: SignalContext) -> SignalPlan? {
    let step = addStep(node, context, ownsName: false)
    guard let entry = entry(.source, node) else { return nil }
    var (component, isWhole) = decode(entry, node)
    guard case .source(var source) = component else { return nil }
    if isWhole { settleLateness(of: source, node, step) }
    let segment = makeSegment()
    // The parameters of an inner source see the event for which the inner signal is created.
    let inputs = context.outer.map { [$0] } ?? []
    isWhole = bind(&source, inputs, segment, context, step, node.location) && isWhole
    if isWhole { note(source, context, node.keyword.location) }
    let declared = node.options["schema"].map { EventSchema.read($0, schemas, into: &diagnostics) }
    guard isWhole else { return nil }
    // A faulty schema counts as unknown, so that it causes no further errors.
    let given = source.outputType
    if let schema = node.options["schema"], case .some(.some(let declared)) = declared {
      compare(declared, at: schema, with: given, node)
    }
    var type = declared.map { EventType($0 ?? .dyn) } ?? given
    if type.text != nil { type.text = textOrigin(node) }
    return timed(SignalPlan(SourceWork(source, segment), step: step, type: type), node.options, context)
  }

  /// The location of a source that reads texts, and the change that makes it read JSON.
  func textOrigin(_ node: ComponentNode) -> TextOrigin {
    guard let arguments = node.arguments else { return TextOrigin(location: node.keyword.location) }
    if let decode = arguments["decode"] {
      return TextOrigin(
        location: decode.location, remedy: decode.scalar == nil ? nil : .init(decode.location, "json"))
    }
    let isEmpty = arguments.entries?.isEmpty == true && arguments.location.length > 0
    return TextOrigin(
      location: node.keyword.location, remedy: isEmpty ? .init(arguments.location, "{ decode: json }") : nil)
  }

  private func combining(_ node: CombiningNode, _ context: SignalContext) -> SignalPlan? {
    guard catalogue.component(.combination, node.keyword.value.rawValue) != nil else {
      unfinished(node.keyword.value.rawValue, node.keyword.location)
      return nil
    }
    let component = component(of: node)
    let step = addStep(component, context, more: node.inputs.map { $0.name?.value ?? "" })
    var inputs: [SignalPlan] = []
    var failed = false
    for (number, input) in node.inputs.enumerated() {
      var plan: SignalPlan?
      var context = context
      context.path = "\(steps[step.number].key).\(input.name?.value ?? "\(number)")"
      switch input.signal {
      case .reference(let reference): plan = self.reference(reference, context)
      case .inline(let signal): plan = self.signal(signal, context)
      }
      if let plan { inputs.append(plan) } else { failed = true }
    }
    guard let entry = entry(.combination, component) else { return nil }
    var (decoded, isWhole) = decode(entry, component)
    guard case .combination(var combining) = decoded else { return nil }
    if node.inputs.count < entry.minimumInputs {
      diagnostics.report(
        Diagnostic(
          .missingParameter,
          "'\(entry.name)' needs at least \(entry.minimumInputs) input\(entry.minimumInputs == 1 ? "" : "s")",
          at: component.location, help: "List the signals: '\(entry.name): [a, b]'"))
      return nil
    }
    combining.take(node.inputs)
    let types = inputs.map(\.type)
    let segment = makeSegment()
    isWhole = bind(&combining, types, segment, context, step, component.location) && isWhole
    guard !failed, isWhole else { return nil }
    var type = combining.outputType(types)
    type.time = time(behind: combining, types, component)
    type.changes = changes(behind: combining, types, component)
    if entry.makesTuple {
      type.tuple = node.inputs.enumerated().map { $1.name?.value ?? "@\($0)" }
      type.elements = types.map(\.type)
    }
    return SignalPlan(OperatorWork(combining, segment), inputs: inputs, step: step, type: type)
  }

  private static func entry(_ option: OptionNode, at location: SourceLocation) -> YAMLEntry {
    YAMLEntry(
      key: YAMLScalar(
        text: LocatedText(
          text: Array(option.key.value.utf8), source: option.key.location.text,
          offsets: (0...Int32(option.key.value.utf8.count)).map { Int32(location.offset) + $0 }),
        location: option.key.location), value: option.value)
  }

  /// A combining key as a component: its parameters are the keys of its long form besides the inputs.
  private func component(of node: CombiningNode) -> ComponentNode {
    let keyword = node.keyword.map(\.rawValue)
    guard !node.arguments.isEmpty else {
      return ComponentNode(keyword: keyword, location: node.location)
    }
    let entries = node.arguments.map {
      Self.entry($0, at: node.location)
    }
    return ComponentNode(
      keyword: keyword, arguments: YAMLNode(.mapping(entries), at: node.location),
      location: node.location)
  }

  /// Compiles the steps of a chain and fuses adjacent fusable ones into runs. `seeing`: the projection of an upstream
  /// step that sees the same event as the first step.
  func chain(
    _ nodes: [ComponentNode], _ input: SignalPlan, _ context: SignalContext, seeing projection: Projection? = nil
  ) -> SignalPlan? {
    var result = input
    var parts: [FusedRunPlan.Part] = []
    var runInput = input
    var runStep = input.step
    var type = input.type
    var failed = false

    func closeRun() {
      if !parts.isEmpty {
        result = SignalPlan(FusedWork(FusedRunPlan(parts: parts)), inputs: [runInput], step: runStep, type: type)
        parts = []
      }
    }

    var open: Segment?
    for (position, node) in nodes.enumerated() {
      let step = addStep(node, context)
      guard let entry = entry(.operator, node) else {
        failed = true
        type = .dyn
        open = nil
        continue
      }
      var (decoded, isWhole) = decode(entry, node)
      switch decoded {
      case .row(var row):
        if isWhole { settleLateness(of: row, node, step) }
        let segment = open ?? (position == 0 ? firstSegment(of: input, projection) : makeSegment())
        isWhole = bind(&row, [type], segment, context, step, node.location) && isWhole
        guard isWhole else {
          failed = true
          // Later steps are compiled nevertheless, with the types known so far.
          if entry.changesValue { type = .dyn }
          open = nil
          continue
        }
        if parts.isEmpty {
          runInput = result
          runStep = step
        }
        if open == nil {
          parts.append(.init(segment: segment, steps: []))
          open = segment
        }
        parts[parts.count - 1].steps.append(.init(id: step, component: row))
        let time = time(behind: row, [type], node)
        let changes = changes(behind: row, [type], node)
        type = passing(type, row.outputType([type]), step)
        (type.time, type.changes) = (time, changes)
        if entry.changesValue { open = nil }
      case .operator(var component):
        if isWhole { settleLateness(of: component, node, step) }
        closeRun()
        open = nil
        if var giving = component as? EventTimeStep {
          giving.isLive = pace(of: result) != .unbounded
          component = giving
        }
        let segment = makeSegment(position == 0 ? projection : nil)
        var context = context
        context.settling = result.settling
        context.isInGroup = input.origin == .input
        isWhole = bind(&component, [type], segment, context, step, node.location) && isWhole
        guard isWhole else {
          failed = true
          type = .dyn
          continue
        }
        let paces = ([result] + component.innerPlans).map { pace(of: $0) }
        for remark in component.remarks(paces, node.keyword.location) { diagnostics.report(remark) }
        if !component.innerPlans.isEmpty, !segment.hasPrograms { warnOfPolicy(node) }
        let timed = [type] + (Timing.of(component) == .all ? component.innerPlans.map(\.type) : [])
        let time = time(behind: component, timed, node, inGroup: input.origin == .input)
        let changes = changes(behind: component, [type], node)
        var output = passing(type, component.outputType([type]), step)
        (output.time, output.changes) = (time, changes)
        let inputs = [result] + component.furtherInputs
        result = SignalPlan(OperatorWork(component, segment), inputs: inputs, step: step, type: output)
        type = output
      case .source, .combination, .command, .sink: preconditionFailure("an operator is decoded as something else")
      }
    }
    closeRun()
    return failed ? nil : result
  }

  /// The event time of the events that a step sends.
  private func time(
    behind component: any OperatorComponent, _ inputs: [EventType], _ node: ComponentNode, inGroup: Bool = false
  ) -> EventType.Time {
    guard component is EventTimeStep || inputs.contains(where: { $0.time != .none }) else { return .none }
    let lost = inputs.map(\.time).first { $0 != .given && $0 != .none }
    switch Timing.of(component) {
    case .begins: return .given
    // The chains of groups share their clocks, and a step with its own node has no clock to share.
    case .passes where !inGroup: return inputs.first?.time ?? .none
    case .all where !inGroup && inputs.allSatisfy(\.isTimed), .inTurn where inputs.allSatisfy(\.isTimed): return .given
    case .passes, .all, .inTurn, .ends:
      return inputs.contains(where: \.isTimed) ? .ended(at: node.keyword.value, node.keyword.location) : lost ?? .none
    }
  }

  /// The signal with the event time that its options define: `time` and the options that belong to it.
  private func timed(_ signal: SignalPlan, _ options: [OptionNode], _ context: SignalContext) -> SignalPlan? {
    let given = options.filter { EventTimeStep.options.contains($0.key.value) && !$0.value.isPlaceholder }
    guard let first = given.first else { return signal }
    guard given.contains(where: { $0.key.value == "time" }) else {
      diagnostics.report(
        Diagnostic(
          .missingParameter, "'\(first.key.value)' belongs to the event time of a signal, but 'time' is missing",
          at: first.key.location, help: "Add e.g. 'time: timestamp(event.at)'"))
      return nil
    }
    let location = first.key.location
    let step = ComponentNode(
      keyword: Located(EventTimeStep.spec.name, at: location),
      arguments: YAMLNode(
        .mapping(given.map { Self.entry($0, at: location) }), at: location), location: location)
    return chain([step], signal, context)
  }

  /// The `onError` of a step.
  func policy(of step: StepID) -> ErrorPolicy? { steps[step.number].onError }

  /// The type of a step's output; with `onError: keep` it includes the type of its input.
  private func passing(_ input: EventType, _ output: EventType, _ step: StepID) -> EventType {
    steps[step.number].onError == .keep && input != output ? .dyn : output
  }

  private func sink(_ named: NamedNode<SinkNode>) -> SinkPlan? {
    let context = SignalContext(owner: named.name.value, path: "sinks.\(named.name.value)")
    let origin: SignalPlan? =
      switch named.node.from {
      case .reference(let reference): self.reference(reference, context)
      case .inline(let node): signal(node, context)
      }
    let placeholder = SignalPlan(.input, step: StepID(0), type: .dyn)
    let chained = chain(named.node.chain, origin ?? placeholder, context)
    let input = origin == nil ? nil : chained.map { holding(commandReach(of: $0).later, $0, context) }
    let node = named.node.component
    let step = addStep(node, context, ownsName: false)
    guard let entry = entry(.sink, node) else { return nil }
    var (component, isWhole) = decode(entry, node)
    guard case .sink(var sink) = component else { return nil }
    let segment = makeSegment()
    isWhole = bind(&sink, [input?.type ?? .dyn], segment, context, step, node.location) && isWhole
    guard isWhole, let input else { return nil }
    return SinkPlan(
      name: named.name.value, step: step, keyword: entry.name, input: input, work: RunnableSink(sink),
      segment: segment, location: named.name.location, outboxLimit: outboxLimit(of: node, sink))
  }

  // MARK: Components

  /// - Parameter ownsName: Whether `movedFrom` next to the step is the former name of the step, and not of the source
  ///   or sink that the step is.
  func addStep(
    _ node: ComponentNode, _ context: SignalContext, more: [String] = [], ownsName: Bool = true
  ) -> StepID {
    var policy: ErrorPolicy?
    if let option = node.options["onError"] {
      policy = option.string.flatMap(ErrorPolicy.init)
      if policy == nil {
        let known = ErrorPolicy.allCases.map(\.rawValue)
        diagnostics.report(
          Diagnostic(
            .unknownChoice, "'onError' cannot be '\(option.shown)'", at: option.location,
            help: "It can be: " + known.joined(separator: ", ")))
      }
    }
    let name = node.options["name"]?.string
    steps.append(
      StepPlan(
        keyword: node.keyword.value, owner: context.owner, location: node.keyword.location, onError: policy,
        key: key("\(context.path)/\(name ?? node.keyword.value)"), fingerprint: fingerprint(node, more),
        delivery: node.options["delivery"].flatMap { delivery($0, of: node, context) },
        settings: StepSettings(node.arguments, inputs: more)))
    if ownsName, let option = node.options["movedFrom"] { note(movedFrom: option, context) }
    return StepID(steps.count - 1)
  }

  /// `wanted`, with a number appended if the name is taken.
  func key(_ wanted: String) -> String {
    guard var number = keys[wanted] else {
      keys[wanted] = 1
      return wanted
    }
    var key: String
    repeat {
      number += 1
      key = "\(wanted)#\(number)"
    } while keys[key] != nil
    keys[wanted] = number
    keys[key] = 1
    return key
  }

  private func fingerprint(_ node: ComponentNode, _ more: [String]) -> UInt64 {
    var print = Fingerprint()
    print.add(node.keyword.value.utf8)
    let kinds: [ComponentKind] = [.operator, .combination, .source, .sink, .command]
    print.add(
      Meaning(catalogue: catalogue, functions: functionMeanings).of(kinds, node.keyword.value, node.arguments) ?? 0)
    for text in more {
      print.add(UInt8(0))
      print.add(text.utf8)
    }
    return print.value
  }

  /// The number of a named scheduler.
  func number(ofScheduler name: String) -> Int {
    if let known = schedulers.firstIndex(of: name) { return known }
    schedulers.append(name)
    return schedulers.count - 1
  }

  /// The name of a step in a saved state; the names of its inner steps start with it.
  func path(of step: StepID) -> String { steps[step.number].key }

  private func entry(_ kind: ComponentKind, _ node: ComponentNode) -> CatalogueEntry? {
    if let entry = catalogue.component(kind, node.keyword.value) { return entry }
    let word = node.keyword.value
    let noun = kind == .source ? "source" : kind == .sink ? "sink" : "operator"
    let meant = Suggestion.camelCase(word)
    let elsewhere =
      catalogue.component(kind, meant) == nil
      ? ComponentKind.allCases.first { catalogue.component($0, meant) != nil } : nil
    let correction = Suggestion.correction(for: word, among: catalogue.names(kind))
    let plugin = KnownPlugin.help(for: word, noun, besides: catalogue.names(kind))
    var help = plugin ?? correction?.help
    if plugin == nil, let elsewhere {
      help =
        elsewhere == .combination
        ? "'\(meant)' begins a signal: 'NAME: { \(CombiningNode.Keyword(rawValue: meant)?.example ?? "\(meant): [a, b]") }'"
        : "'\(meant)' is a \(elsewhere.rawValue)"
    }
    diagnostics.report(
      Diagnostic(
        .unknownComponent, "there is no \(noun) '\(word)'", at: node.keyword.location,
        help: help ?? Suggestion.nothing(for: word) ?? "'rxd list' lists them",
        fixIts: elsewhere == nil && plugin == nil
          ? correction.map { [.init(node.keyword.location, $0.name)] } ?? [] : []))
    return nil
  }

  /// The component as far as it could be decoded; `isWhole` is false after an error, which has been reported.
  func decode(_ entry: CatalogueEntry, _ node: ComponentNode) -> (component: DecodedComponent, isWhole: Bool) {
    var context = DecodingContext(at: node.keyword.location)
    context.sources = sourceNames
    context.files = files
    context.codecs = codecs
    context.beside = node.options.filter { ReservedKeys.stepParameters.contains($0.key.value) }
    let component = entry.decode(node.arguments, &context)
    usedCodecs += context.usedCodecs.compactMap { $0 as? PluginFunction }
    diagnostics.report(contentsOf: context.diagnostics.all.map { node.arguments.keepingEnvironment(outOf: $0) })
    return (component, !context.diagnostics.hasErrors)
  }

  func bind<C: Component>(
    _ component: inout C, _ inputs: [EventType], _ segment: Segment, _ context: SignalContext,
    _ step: StepID, _ location: SourceLocation
  ) -> Bool {
    let before = diagnostics.all.count
    var binder = Binder(
      inputs: inputs, location: location, segment: segment, context: context, compilation: self,
      hasEvent: !(C.self is any SourceComponent.Type) || context.outer != nil, seesError: C.seesError,
      seesParts: C.seesParts, feedsItsEvent: C.feedsItsEvent, step: step)
    component.bind(&binder)
    for parameter in component.ownSpec.parameters { parameter.bind(&component, &binder) }
    diagnostics.report(contentsOf: binder.diagnostics.all)
    return !diagnostics.all.dropFirst(before).contains { $0.severity == .error }
  }
}
