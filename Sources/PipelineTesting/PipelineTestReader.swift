import PipelineCore

/// Parses the tests of a pipeline file, and reports their errors with locations.
package struct PipelineTestReader {
  /// The pipeline under test.
  private(set) var plan: Plan
  private let compile: Compile
  /// Whether tests without `env` are compiled, too.
  private let compilesAll: Bool
  var diagnostics = Diagnostics()
  /// The test's `tick`.
  var tick = TimeSpan.milliseconds(1)

  /// Compiles the pipeline with these values instead of those of the environment.
  package typealias Compile = (_ environment: [String: String], _ diagnostics: inout Diagnostics) -> Plan?

  init(_ plan: Plan, compilesAll: Bool, _ compile: @escaping Compile) {
    self.plan = plan
    self.compilesAll = compilesAll
    self.compile = compile
  }

  /// Reports every error; after an error the tests must not be run.
  package static func read(
    _ tests: [TestNode], of plan: Plan, into diagnostics: inout Diagnostics, compilesAll: Bool = false,
    compile: @escaping Compile
  ) -> [PipelineTest] {
    var reader = PipelineTestReader(plan, compilesAll: compilesAll, compile)
    let read = tests.map { reader.test($0) }
    diagnostics.report(contentsOf: reader.diagnostics.all)
    return read
  }

  private mutating func test(_ node: TestNode) -> PipelineTest {
    var test = PipelineTest(name: node.name, location: node.location)
    tick = .milliseconds(1)
    let usual = plan
    defer { plan = usual }
    for option in node.options {
      switch option.key.value {
      case "tick": if let span = duration(option.value, "'tick'", atLeast: 1) { tick = span }
      case "until": test.until = duration(option.value, "'until'")
      case "now": test.wallTime = time(option.value)
      default: break
      }
    }
    if let own = environment(node.options["env"], of: node) {
      test.plan = own
      plan = own
    }
    test.tick = tick
    for input in node.inputs { if let input = self.input(input) { test.inputs.append(input) } }
    test.inputs += rows(node.tables)
    for stub in node.stubs {
      guard let kind = stubKinds.first(where: { $0.key == stub.name.value }) else {
        let keys = stubKinds.map { "'\($0.key)'" }
        report(
          .unknownSubject, "there are no stubs for '\(stub.name.value)'", stub.name.location,
          help:
            "Only \(keys.dropLast().joined(separator: ", ")) and \(keys[keys.count - 1]) can be stubbed; named sources get their events under 'inputs:'"
        )
        continue
      }
      if let set = kind.init(stub.node, &self) { test.stubs.append(set) }
      test.stubsLocation = stub.name.location
    }
    for expectation in node.expect {
      if let expectation = self.expectation(expectation) { test.expectations.append(expectation) }
    }
    return test
  }

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ location: SourceLocation, help: String? = nil
  ) {
    diagnostics.report(Diagnostic(code, message, at: location, help: help))
  }

  mutating func duration(_ node: YAMLNode, _ what: String, atLeast least: Int64 = 0) -> TimeSpan? {
    switch node.decodeDuration(what) {
    case .success(let span) where span.nanoseconds >= least: return span
    case .success:
      report(.outOfRange, "\(what) must be more than 0s", node.location)
    case .failure(let diagnostic): diagnostics.report(diagnostic)
    }
    return nil
  }

  private mutating func time(_ node: YAMLNode) -> Int64? {
    guard let text = text(node, "'now'") else { return nil }
    let time = Array(text.utf8).withUnsafeBytes { TimeText.timestamp($0) }
    let seconds = time.map { $0.seconds.multipliedReportingOverflow(by: 1_000_000_000) }
    guard let time, let seconds, !seconds.overflow else {
      report(
        .testStep, "'now' is a time such as 2026-05-01T12:00:00Z, not '\(Printable.cut(text))'", node.location)
      return nil
    }
    return seconds.partialValue &+ Int64(time.nanoseconds)
  }

  /// The plan with the test's values; nil after an error, or if there are no values.
  private mutating func environment(_ option: YAMLNode?, of test: TestNode) -> Plan? {
    guard option != nil || compilesAll else { return nil }
    var variables: [String: String] = [:]
    if let option {
      guard let entries = option.entries else {
        report(
          .testStep, "'env' takes a mapping from name to value, not \(option.kindName)", option.location,
          help: "Write 'env: { NAME: value }'")
        return nil
      }
      for entry in entries {
        if let value = text(entry.value, "'\(entry.key.shown)'") { variables[entry.name] = value }
      }
    }
    var found = Diagnostics()
    let own = compile(variables, &found)
    // Errors of the pipeline itself have been reported already.
    for diagnostic in found.all where diagnostic.severity == .error {
      var diagnostic = diagnostic
      diagnostic.notes.append(.init("with the values of this test", at: option?.location ?? test.name.location))
      diagnostics.report(diagnostic)
    }
    return found.hasErrors ? nil : own
  }

  // MARK: Inputs

  private mutating func input(_ node: NamedNode<YAMLNode>) -> PipelineTest.Input? {
    let name = node.name.value
    guard let index = plan.index(ofNamed: name), let origin = plan.named[index].ownSource else {
      let sources = plan.named.filter { $0.ownSource != nil && $0.kind != .part }.map(\.name)
      let isKnown = plan.named.contains { $0.name == name }
      report(
        .unknownSubject,
        isKnown ? "'\(name)' does not begin with a source of its own" : "there is no source '\(name)'",
        node.name.location,
        help: isKnown
          ? "Give events to the source that it comes from" : known(name, sources, "The sources are"))
      return nil
    }
    guard let sequence = sequence(node.node, "an input", isExpectation: false) else { return nil }
    var now = TimeSpan.zero
    let entries = sequence.items.map { item in
      now = item.at ?? now
      let moment: SignalHistory.Moment =
        switch item.moment {
        case .next(let value): .next(value)
        case .complete: .complete
        case .error(let message): .error(message ?? "error")
        case .subscribe: .subscribe
        case .cancel: .cancel
        }
      return SignalHistory.Entry(at: now, moment)
    }
    check(order: entries, sequence.items)
    let type = origin.type.type
    for (entry, item) in zip(entries, sequence.items) {
      guard case .next(let value) = entry.moment, let problem = TypedInput.problem(value, type) else { continue }
      report(
        .testStep,
        "\(problem.path.isEmpty ? "an event" : "'\(problem.path)'") of '\(name)' is a \(problem.type), not \(problem.written)",
        item.location, help: problem.help)
    }
    var input = PipelineTest.Input(source: node.name, origin: origin, type: type, history: SignalHistory(entries))
    for (index, item) in sequence.items.enumerated() {
      if let meta = item.meta, let origin = self.origin(meta) { input.origins[index] = origin }
    }
    return input
  }

  /// The members of `meta` that a test gives an event.
  private mutating func origin(_ node: YAMLNode) -> ScriptedOrigin? {
    guard let entries = node.entries else {
      report(
        .testStep, "'meta' takes a mapping, not \(node.kindName)", node.location,
        help: "Write for example { path: /var/log/app.log, offset: 0 }")
      return nil
    }
    var origin = ScriptedOrigin()
    var fields: [TestValue.Member] = []
    for entry in entries {
      switch entry.name {
      case "path": origin.path = text(entry.value, "'path'")
      case "offset":
        guard case .int(let offset) = TestValue(entry.value), offset >= 0 else {
          report(
            .testStep, "'offset' is a whole number from 0 on, not \(entry.value.scalar?.shown ?? entry.value.kindName)",
            entry.value.location)
          continue
        }
        origin.offset = offset
      case "source", "time", "key", "id":
        report(
          .testStep, "a test cannot set '\(entry.name)' of 'meta'", entry.key.location,
          help: entry.name == "time"
            ? "It is the time of the test: set 'now' and 'at'" : "The pipeline sets it: remove it here")
      default: fields.append(.init(Array(entry.name.utf8), TestValue(entry.value)))
      }
    }
    if !fields.isEmpty { origin.fields = TestValue.object(unsorted: fields).owned }
    return origin
  }

  /// The rows of the tables that are loaded from sources of their own: those of the test; else those in the pipeline file, or none.
  private mutating func rows(_ given: [NamedNode<YAMLNode>]) -> [PipelineTest.Input] {
    let loaded = plan.tables.filter(\.isLoaded).map(\.named)
    for table in given where !loaded.contains(where: { plan.named[$0].name == table.name.value }) {
      let isTable = plan.named.contains { $0.name == table.name.value && $0.kind == .table }
      report(
        .unknownSubject,
        isTable
          ? "the rows of '\(table.name.value)' come from a signal" : "there is no table '\(table.name.value)'",
        table.name.location,
        help: isTable
          ? "Give its events under 'inputs:'" : known(table.name.value, loaded.map { plan.named[$0].name }, "There are")
      )
    }
    return loaded.compactMap { index in
      guard let origin = plan.named[index].ownSource else { return nil }
      let table = given.first { $0.name.value == plan.named[index].name }
      if table == nil, origin.source?.runsOnVirtualTime == true { return nil }
      let type = origin.type.type
      let rows = table.map { self.rows(of: $0, type) } ?? []
      let name = table?.name ?? Located(plan.named[index].name, at: plan.named[index].location)
      return PipelineTest.Input(
        source: name, origin: origin, type: type,
        history: SignalHistory((rows.map { .next($0) } + [.complete]).map { .init(at: .zero, $0) }))
    }
  }

  private mutating func rows(of table: NamedNode<YAMLNode>, _ type: ExpressionType) -> [TestValue] {
    guard let items = table.node.items else {
      report(
        .testStep, "the rows of a table are a list, not \(table.node.kindName)", table.node.location,
        help: "Write for example [{ id: 1, name: Ada }], or [] for none")
      return []
    }
    return items.map { item in
      let row = TestValue(item)
      check(row, type, "a row of '\(table.name.value)'", item.location)
      return row
    }
  }

  /// Reports a value that is not what the source of the type sends.
  private mutating func check(_ value: TestValue, _ type: ExpressionType, _ what: String, _ location: SourceLocation) {
    guard let problem = TypedInput.problem(value, type) else { return }
    let part = problem.path.isEmpty ? what : "'\(problem.path)' of \(what)"
    report(.testStep, "\(part) is a \(problem.type), not \(problem.written)", location, help: problem.help)
  }

  private mutating func check(
    order entries: [SignalHistory.Entry], _ items: [PipelineTest.Expectation.Item]
  ) {
    for index in entries.indices.dropFirst() {
      if entries[index].at < entries[index - 1].at {
        report(
          .testStep, "\(entries[index].at) is earlier than the step before it, at \(entries[index - 1].at)",
          items[index].location, help: "Write the steps in the order of time")
      }
      if case .next = entries[index - 1].moment { continue }
      report(
        .testStep, "nothing can follow the end of the input", items[index].location,
        help: "Remove it, or what ends the input before it")
      return
    }
  }

  func known(_ name: String, _ names: [String], _ introduction: String) -> String? {
    Suggestion.nearest(to: name, among: names).map { "Did you mean '\($0)'?" }
      ?? (names.isEmpty ? nil : "\(introduction) \(Suggestion.list(names))")
  }

  // MARK: Expectations

  private mutating func expectation(_ node: NamedNode<YAMLNode>) -> PipelineTest.Expectation? {
    guard let target = target(node.name) else { return nil }
    guard let sequence = sequence(node.node, "an expectation", isExpectation: true) else { return nil }
    let expectation = PipelineTest.Expectation(
      subject: node.name, target: target, items: sequence.items, allowsMore: sequence.allowsMore,
      letters: sequence.letters, tick: sequence.tick, node: node.node)
    if expectation.hasMarks, let mark = expectation.items.first(where: { $0.moment.isMark }) {
      guard case .signal(let index) = target, plan.named[index].kind != .part, plan.named[index].references > 0
      else {
        report(
          .testStep, "the subscriptions of '\(node.name.value)' cannot be observed", mark.location,
          help: "They can be observed for named sources and signals that something refers to")
        return nil
      }
    }
    return expectation
  }

  private mutating func target(_ subject: Located<String>) -> PipelineTest.Expectation.Target? {
    let text = subject.value
    if text == "http.requests" { return .requests }
    if plan.sinks.contains(where: { $0.name == text }) { return .sink(text) }
    if let index = plan.index(ofNamed: text) {
      let named = plan.named[index]
      guard named.isCold, named.kind != .part else { return .signal(index) }
      report(
        .unknownSubject,
        "'\(text)' is cold: it is created for each reference, so there is no single signal to observe",
        subject.location,
        help: "Look at what refers to it, or remove 'cold: true'")
      return nil
    }
    let parts = text.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
    if parts.count == 2, let owner = plan.owner(parts[0]) {
      if parts[1] == "errors" { return .errors(owner) }
      guard case .named(let index) = owner else {
        report(
          .unknownSubject, "the sink '\(parts[0])' has no output '\(parts[1])'", subject.location,
          help: "Every sink has the output 'errors': '\(parts[0]).errors'")
        return nil
      }
      if parts[1] == "replies" {
        if let source = plan.named[index].ownSource?.source, source.serving != nil {
          return .replies(index)
        }
        report(
          .unknownSubject, "the events of '\(parts[0])' have no answers", subject.location,
          help: "'replies' are the answers to clients of an httpServer")
        return nil
      }
      report(
        .unknownSubject, "'\(parts[0])' has no output '\(parts[1])'", subject.location,
        help: plan.named[index].kind == .command
          ? "A command has the outputs 'values', 'executing', 'enabled' and 'errors'"
          : "Every source and signal has the output 'errors': '\(parts[0]).errors'")
      return nil
    }
    let names =
      if parts.count == 2, parts[1] == "errors" {
        (plan.sinks.map(\.name) + plan.named.filter { $0.kind != .part }.map(\.name)).map { "\($0).errors" }
      } else {
        plan.sinks.map(\.name) + plan.named.filter { !$0.name.hasSuffix("?") }.map(\.name) + ["http.requests"]
      }
    report(
      .unknownSubject, "there is no sink or signal '\(text)'", subject.location,
      help: known(text, names, "There are"))
    return nil
  }

  // MARK: Marbles and timed lists

  private struct Sequence {
    var items: [PipelineTest.Expectation.Item] = []
    var allowsMore = false
    var letters: [(name: String, value: TestValue)] = []
    var tick: TimeSpan
    /// Of an input: members of `meta` of events that give none themselves.
    var meta: YAMLNode?
  }

  private mutating func sequence(
    _ node: YAMLNode, _ what: String, isExpectation: Bool
  ) -> Sequence? {
    switch node.content {
    case .scalar(let scalar):
      guard scalar.kind != .null else {
        report(
          .testStep, "\(what) is marbles or a list of steps, not nothing", node.location,
          help: "Write [] if no event is expected")
        return nil
      }
      return marbles(scalar, Sequence(tick: tick), isExpectation, error: nil)
    case .sequence(let items):
      return steps(items, Sequence(tick: tick), isExpectation)
    case .mapping(let entries):
      return mapping(node, entries, what, isExpectation)
    }
  }

  private mutating func mapping(
    _ node: YAMLNode, _ entries: [YAMLEntry], _ what: String, _ isExpectation: Bool
  ) -> Sequence? {
    let keys = ["marbles", "values", "error", "tick", "events"] + [isExpectation ? "more" : "meta"]
    guard check(keys: entries, keys, what) else { return nil }
    var sequence = Sequence(tick: tick)
    var error: String?
    for entry in entries {
      switch entry.name {
      case "tick": if let span = duration(entry.value, "'tick'", atLeast: 1) { sequence.tick = span }
      case "error": error = text(entry.value, "'error'")
      case "more": sequence.allowsMore = flag(entry.value, "'more'")
      case "values": sequence.letters = letters(entry.value)
      case "meta": sequence.meta = entry.value
      default: break
      }
    }
    if let marbles = node["marbles"] {
      guard let scalar = marbles.scalar, scalar.kind != .null else {
        report(.testStep, "'marbles' takes a text, not \(marbles.kindName)", marbles.location)
        return nil
      }
      if let events = node["events"] {
        report(
          .testStep, "'marbles' and 'events' are two forms of the same list", events.location,
          help: "Keep one of them")
        return nil
      }
      return self.marbles(scalar, sequence, isExpectation, error: error)
    }
    guard let events = node["events"] else {
      report(
        .testStep, "\(what) needs 'marbles' or 'events'", node.location,
        help: "Write for example { marbles: \"a-b-|\", values: { a: 1 } }")
      return nil
    }
    guard let items = events.items else {
      report(.testStep, "'events' takes a list of steps, not \(events.kindName)", events.location)
      return nil
    }
    return steps(items, sequence, isExpectation)
  }

  private mutating func letters(_ node: YAMLNode) -> [(name: String, value: TestValue)] {
    guard let entries = node.entries else {
      report(
        .testStep, "'values' takes a mapping from letter to value, not \(node.kindName)", node.location)
      return []
    }
    return entries.compactMap { entry in
      let name = entry.name.utf8
      let isLetter = name.count == 1 && name.allSatisfy { $0 == 0x2A || $0 == 0x5F || Name.isPart($0) }
      guard isLetter, entry.name != "-" else {
        report(
          .testStep, "'\(entry.key.shown)' is not a letter of marbles", entry.key.location,
          help: "The keys of 'values' are single letters and digits")
        return nil
      }
      return (entry.name, TestValue(entry.value))
    }
  }

  private mutating func marbles(
    _ scalar: YAMLScalar, _ start: Sequence, _ isExpectation: Bool, error: String?
  ) -> Sequence? {
    var sequence = start
    let table = Dictionary(sequence.letters.map { ($0.name, $0.value) }) { first, _ in first }
    let picture: Marbles
    do {
      picture = try Marbles(scalar.string, tick: sequence.tick)
    } catch {
      report(.marbleSyntax, error.message, scalar.text.location(error.offset, error.offset + 1))
      return nil
    }
    for entry in picture.entries {
      let location = scalar.text.location(entry.offset, entry.offset + 1)
      let moment: PipelineTest.Expectation.Item.Moment
      switch entry.moment {
      case .next(let name): moment = .next(SignalHistory.value(named: name, table))
      case .complete: moment = .complete
      case .error: moment = .error(error)
      case .subscribe, .cancel:
        guard isExpectation else {
          report(.marbleSyntax, "'^' and '!' have no meaning here: the pipeline subscribes", location)
          continue
        }
        moment = entry.moment == .subscribe ? .subscribe : .cancel
      }
      sequence.items.append(.init(at: entry.at, moment: moment, location: location, meta: sequence.meta))
    }
    return sequence
  }

  private mutating func steps(
    _ nodes: [YAMLNode], _ start: Sequence, _ isExpectation: Bool
  ) -> Sequence? {
    var sequence = start
    for node in nodes {
      guard let entries = node.entries else {
        report(
          .testStep, "a step is a mapping, not \(node.kindName)", node.location,
          help: "Write { at: 20ms, next: VALUE }, { error: TEXT } or { complete: true }")
        continue
      }
      let keys =
        ["at", "next", "error", "complete"] + (isExpectation ? ["more", "subscribe", "cancel"] : ["meta"])
      guard check(keys: entries, keys, "a step") else { continue }
      if let more = node["more"], entries.count == 1 {
        sequence.allowsMore = flag(more, "'more'")
        continue
      }
      let kinds = entries.filter { $0.name != "at" && $0.name != "meta" }
      guard kinds.count == 1, let kind = kinds.first else {
        report(
          .testStep,
          kinds.isEmpty
            ? "the step has a time, but nothing that happens" : "a step is one of 'next', 'error' and 'complete'",
          node.location, help: "Write { at: 20ms, next: VALUE }, { error: TEXT } or { complete: true }")
        continue
      }
      let moment: PipelineTest.Expectation.Item.Moment
      switch kind.name {
      case "next": moment = .next(TestValue(kind.value))
      case "error": moment = .error(kind.value.bool == true ? nil : text(kind.value, "'error'"))
      default:
        guard flag(kind.value, "'\(kind.name)'") else { continue }
        moment = kind.name == "subscribe" ? .subscribe : kind.name == "cancel" ? .cancel : .complete
      }
      var at: TimeSpan?
      if let node = node["at"] { at = duration(node, "'at'") }
      if let meta = node["meta"], kind.name != "next" {
        report(.testStep, "'meta' belongs to an event, and '\(kind.name)' sends none", meta.location)
        continue
      }
      sequence.items.append(
        .init(at: at, moment: moment, location: node.location, meta: node["meta"] ?? sequence.meta))
    }
    return sequence
  }

  // MARK: Small things

  mutating func check(keys entries: [YAMLEntry], _ known: [String], _ what: String) -> Bool {
    var isFine = true
    for entry in entries where !known.contains(entry.name) {
      isFine = false
      report(
        .testStep, "\(what) has no '\(entry.key.shown)'", entry.key.location,
        help: self.known(entry.name, known, "It has"))
    }
    return isFine
  }

  mutating func text(_ node: YAMLNode, _ what: String) -> String? {
    switch node.decodeText(what) {
    case .success(let text): return text.string
    case .failure(let diagnostic):
      diagnostics.report(diagnostic)
      return nil
    }
  }

  /// Only `true` has an effect; `false` is the same as leaving the key out.
  mutating func flag(_ node: YAMLNode, _ what: String) -> Bool {
    switch node.decodeBool(what) {
    case .success(let flag): return flag
    case .failure(let diagnostic):
      diagnostics.report(diagnostic)
      return false
    }
  }
}
