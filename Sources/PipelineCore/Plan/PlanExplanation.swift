/// A plan in words, for `rxd explain`: what runs together, what each expression reads and returns, and what happens to
/// events that fail.
package struct PlanExplanation {
  private let plan: Plan
  private var lines: [String] = []

  package static func text(_ plan: Plan) -> String {
    var explanation = PlanExplanation(plan: plan)
    explanation.file()
    return explanation.lines.joined(separator: "\n") + "\n"
  }

  private init(plan: Plan) { self.plan = plan }

  private mutating func say(_ depth: Int, _ text: String) {
    lines.append(String(repeating: "  ", count: depth) + text)
  }

  private mutating func file() {
    say(0, "pipeline \(plan.name) (\(plan.source.name))")
    if let description = plan.description { say(1, Printable.cut(description, limit: 500)) }
    functions()
    for (kind, title) in [
      (NamedPlan.Kind.source, "sources"), (.table, "tables"), (.signal, "signals"), (.command, "commands"),
    ] {
      let named = plan.named.filter { $0.kind == kind }
      if named.isEmpty { continue }
      say(0, "")
      say(0, title)
      for entry in named {
        if let table = plan.tables.first(where: { plan.named[$0.named].name == entry.name }) {
          self.table(table, entry)
          continue
        }
        let runs = plan.rootSubscribers.first { plan.named[$0].name == entry.name }
        let reason = runs.map {
          plan.readOnlyForErrors.contains($0) ? ", runs for its errors output" : ", runs to execute a command"
        }
        let manner = Self.manner(entry) + (reason ?? "")
        say(1, "\(entry.name): \(Self.name(entry.body.type.type))\(manner)")
        signal(entry.body, 2)
        if kind == .command, let enabled = plan.index(ofNamed: "\(entry.name).enabled?") {
          say(2, "enabled")
          signal(plan.named[enabled].body, 3)
        }
      }
    }
    if !plan.sinks.isEmpty {
      say(0, "")
      say(0, "sinks")
    }
    for sink in plan.sinks {
      say(1, "\(sink.name):")
      signal(sink.input, 2)
      step(sink.step, 2)
      if let threads = sink.component.threads { say(3, threads) }
    }
    say(0, "")
    for line in plan.deliveryLines() { say(0, line) }
    if let memory = plan.stateMemory, let size = ByteSize(memory).defaultText {
      keys(beyond: size)
    }
  }

  /// Explains which steps have keys on the disk.
  private mutating func keys(beyond size: String) {
    let walk = KeyWalk(plan)
    func names(_ steps: [StepID]) -> String {
      Set(steps.map(\.number)).sorted().map {
        "\(plan.steps[$0].keyword) (\(plan.fileAndLine(plan.steps[$0].location)))"
      }.joined(separator: ", ")
    }
    say(0, "state: beyond \(size) of memory, keys are kept on the disk: \(names(walk.moving))")
    if !walk.staying.isEmpty { say(1, "all keys stay in memory: \(names(walk.staying))") }
  }

  private mutating func table(_ table: TablePlan, _ entry: NamedPlan) {
    let key = table.key.isDyn ? "" : ", each by \(table.key.withArticle)"
    say(1, "\(entry.name): rows\(key): \(Self.name(table.row))")
    if table.isLoaded {
      say(
        2,
        "loaded before the first event passes" + (table.every.map { ", and again every \($0)" } ?? ""))
    } else {
      say(2, "changes as events come")
    }
    signal(entry.body, 2)
  }

  /// Lists the functions with their types. An expression that calls a function lists the paths that the function reads.
  private mutating func functions() {
    if plan.functions.all.isEmpty { return }
    say(0, "")
    say(0, "functions")
    for function in plan.functions.all {
      say(1, "\(function.signature) (\(plan.fileAndLine(function.location)))")
      if let summary = function.summary { say(2, Printable.cut(summary, limit: 200)) }
      say(2, "is \(Printable.cut(function.text.shown, limit: 200))")
      let uses = plan.expressions.count { report in
        report.checked.syntax.tree.nodes.contains { node in
          guard case .apply(let application) = node.kind else { return false }
          return application.function === function
        }
      }
      say(2, uses == 0 ? "no expression calls it" : "a part of \(Printable.count(uses, "expression"))")
    }
  }

  /// Whether the signal is hot or cold, as far as the file decides.
  private static func manner(_ entry: NamedPlan) -> String {
    if entry.isCold { return ", created for each reference" }
    let sharing = entry.sharing
    var words: [String] = []
    if sharing.start == .eager { words.append("started with the pipeline") }
    if sharing.stop == .never { words.append("not stopped for lack of listeners") }
    if sharing.replay > 0 {
      words.append(
        "the last \(sharing.replay) event\(sharing.replay == 1 ? "" : "s")"
          + (sharing.within.map { " of \($0)" } ?? "") + " replayed")
    }
    if !sharing.again { words.append("run once") }
    return words.isEmpty ? "" : ", shared: " + words.joined(separator: ", ")
  }

  private mutating func signal(_ signal: SignalPlan, _ depth: Int) {
    if let origin = signal.origin {
      return say(depth, "from \(origin == .input ? "the enclosing step" : plan.id(of: signal.end()))")
    }
    if signal.inputs.count == 1 || signal.isHidden {
      self.signal(signal.inputs[0], depth)
    } else {
      for (number, input) in signal.inputs.enumerated() {
        say(depth, "input \(number + 1)")
        self.signal(input, depth + 1)
      }
    }
    if signal.isHidden { return }
    let steps = signal.steps
    if steps.count > 1 {
      let readings = steps[steps.count - 1].reading + 1
      say(depth, "in one pass, with \(readings == 1 ? "one reading" : "\(readings) readings") of each event:")
    }
    for entry in steps {
      let depth = steps.count > 1 ? depth + 1 : depth
      step(entry.id, depth)
      time(entry, signal, depth + 1)
    }
    if let threads = signal.source?.threads(plan.threads) { say(depth + 1, threads) }
    if signal.source != nil, plan.threads != 1 { stage(of: signal.step, depth + 1) }
    for inner in signal.inner {
      say(depth + 1, "inner signal: \(Self.name(inner.type.type))")
      self.signal(inner, depth + 2)
    }
  }

  private mutating func stage(of source: StepID, _ depth: Int) {
    guard let stage = plan.stage(of: source) else { return }
    let sinks = stage.branches.compactMap { branch in plan.sinks.first { $0.step == branch.sink }?.name }
    let names = sinks.count == 1 ? sinks[0] : sinks.dropLast().joined(separator: ", ") + " and " + (sinks.last ?? "")
    say(depth, "the same threads do everything up to the encoding for \(names), if that is faster")
    if stage.passesThrough(.documents) {
      say(depth, "blocks of JSON objects and arrays, one a line, pass unchanged")
    } else if stage.passesThrough(.strings) {
      say(depth, "blocks of lines pass unchanged")
    }
  }

  /// Explains how a step treats event time.
  private mutating func time(_ entry: SignalPlan.Step, _ signal: SignalPlan, _ depth: Int) {
    if let note = (entry.component as? any TimedOperator)?.timeNote { say(depth, note) }
    guard signal.steps.count == 1, signal.inputs.contains(where: \.type.isTimed) else { return }
    if signal.type.isTimed, Timing.of(entry.component) == .all, signal.watermarkInputs.count > 1 {
      say(
        depth,
        "its watermark is the smallest of its \(signal.watermarkInputs.count) inputs that are not idle and have not ended"
      )
    } else if !signal.type.isTimed {
      say(depth, "event time ends here: its events have none")
    }
  }

  private mutating func step(_ id: StepID, _ depth: Int) {
    let info = plan.steps[id.number]
    var policy = info.onError.map { ", onError: \($0.rawValue)" } ?? ""
    if info.ownsWhenLate || info.whenLate != .fire { policy += ", whenLate: \(info.whenLate.rawValue)" }
    say(depth, "\(info.keyword) (\(plan.fileAndLine(info.location))\(policy))")
    for report in plan.expressions where report.step == id {
      let checked = report.checked
      let canFail = checked.canFail ? "" : ", cannot fail"
      say(depth + 1, "\(Printable.cut(checked.text.shown, limit: 80)) (\(plan.fileAndLine(checked.text.location)))")
      // The types and paths of an expression with a secret could reveal its literals.
      if checked.isSecret {
        say(depth + 2, "it contains a secret, so its fields and result are not shown")
        continue
      }
      say(depth + 2, "gives \(Self.name(checked.type))\(canFail)")
      for table in checked.tables { say(depth + 2, "reads the table \(plan.named[plan.tables[table].named].name)") }
      reads(checked, depth + 2)
    }
  }

  /// Lists each path once, with its type if known and whether it may be missing.
  private mutating func reads(_ checked: CheckedExpression, _ depth: Int) {
    var paths: [(path: String, type: ExpressionType, missing: Bool, guarded: Bool, whole: Bool)] = []
    for read in checked.reads {
      if let at = paths.firstIndex(where: { $0.path == read.path }) {
        paths[at].missing = paths[at].missing || read.canBeMissing
        paths[at].guarded = paths[at].guarded || read.isGuarded
      } else {
        paths.append((read.path, checked.type(of: read), read.canBeMissing, read.isGuarded, read.fields.isEmpty))
      }
    }
    if paths.isEmpty { return }
    let words = paths.map { entry -> String in
      let type = entry.type.isDyn ? "" : ": \(Self.name(entry.type))"
      let missing = entry.missing ? " (may be missing)" : entry.guarded ? " (guarded)" : ""
      return entry.whole ? "\(entry.path) (whole)\(type)" : entry.path + type + missing
    }
    say(depth, "reads " + words.joined(separator: ", "))
    var missing: [String] = []
    for read in checked.reads where read.canBeMissing && !missing.contains(read.neededPath) {
      missing.append(read.neededPath)
    }
    if !missing.isEmpty {
      say(depth, "fails where \(missing.joined(separator: " or ")) is missing")
    }
  }

  /// A type in everyday words.
  package static func name(_ type: ExpressionType) -> String {
    switch type {
    case .dyn: "any value"
    case .object(let fields, let open):
      "{ "
        + (fields.map { "\($0.name)\($0.mayBeAbsent ? "?" : ""): \(name($0.type))" } + (open ? ["..."] : []))
        .joined(separator: ", ") + " }"
    case .list(let element): element.isDyn ? "list" : "list of \(name(element))"
    case .optional(let inner): "\(name(inner)) or nothing"
    case .wrapper(let inner): "\(name(inner)) or null"
    case .null: "null"
    default: "\(type)"
    }
  }
}
