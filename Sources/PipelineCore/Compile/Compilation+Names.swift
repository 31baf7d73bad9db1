/// Resolves the names in a file.
extension Compilation {
  // MARK: Names

  func declare() {
    func add(
      _ name: Located<String>, _ kind: NamedPlan.Kind, _ options: [OptionNode], cold: Bool? = nil
    ) {
      guard index[name.value] == nil else { return }
      index[name.value] = entries.count
      let cold = cold ?? isCold(options)
      entries.append(Entry(name: name, kind: kind, isCold: cold, sharing: sharing(options, isCold: cold)))
    }
    for source in file.sources { add(source.name, .source, source.node.options) }
    for signal in file.signals { add(signal.name, .signal, signal.node.options) }
    for command in file.commands { declare(command) { add($0, $1, [], cold: $2) } }
    for table in file.tables { add(table.name, .table, []) }
    for pattern in file.patterns { check(pattern) }
    checkExamples()
    if let setting = file.defaults.first { unfinished("defaults", setting.name.location) }
    func take(_ name: Located<String>, _ kind: String, _ options: [OptionNode], known: [String]) {
      refuseOptions(options, known: known + ["movedFrom"])
      note(formerNameOf: name, kind, options)
    }
    for source in file.sources { take(source.name, "source", source.node.options, known: Self.sourceOptions) }
    for signal in file.signals {
      take(signal.name, "signal", signal.node.options, known: ReservedKeys.signal.without(ReservedKeys.Later.signal))
    }
    for table in file.tables {
      take(table.name, "table", table.node.signal.options, known: ["description"])
    }
    for command in file.commands { take(command.name, "command", command.node.options, known: ["description"]) }
    for sink in file.sinks { take(sink.name, "sink", sink.node.component.options, known: Self.sinkOptions) }
  }

  static let sinkOptions = ReservedKeys.sink.without(ReservedKeys.Later.sink)

  private func check(_ pattern: NamedNode<Located<String>>) {
    let reference = Array("%{\(pattern.name.value)}".utf8)
    do throws(GrokPattern.Fault) {
      _ = try GrokPattern(reference, [patterns])
    } catch {
      diagnostics.report(
        Diagnostic(.expressionFormat, error.message, at: pattern.node.location, help: error.help))
    }
  }

  private func sharing(_ options: [OptionNode], isCold: Bool) -> Sharing {
    guard let option = options.first(where: { $0.key.value == "share" }) else { return Sharing() }
    if isCold {
      diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'cold' and 'share' cannot be combined",
          at: option.key.location, help: "Remove 'cold' or 'share'"))
    }
    var context = DecodingContext(at: option.key.location)
    context.component = "share"
    context.parameter = "share"
    let sharing = Sharing.decode(option.value, &context)
    diagnostics.report(contentsOf: context.diagnostics.all)
    if let sharing, sharing.within != nil, sharing.replay == 0, !context.diagnostics.hasErrors {
      diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'within' of 'share' limits the age of replayed events, but none are replayed",
          at: option.key.location, help: "Add 'replay: N', or remove it"))
    }
    return sharing ?? Sharing()
  }

  static let sourceOptions = ReservedKeys.source.without(ReservedKeys.Later.source + ["movedFrom"])

  private func isCold(_ options: [OptionNode]) -> Bool {
    guard let option = options["cold"] else { return false }
    if let value = option.bool { return value }
    diagnostics.report(
      Diagnostic(
        .wrongType, "'cold' must be true or false, not \(option.kindName)", at: option.location))
    return false
  }

  /// Unsupported options are errors, never silently ignored.
  func refuseOptions(_ options: [OptionNode], known: [String]) {
    for option in options where !known.contains(option.key.value) {
      if option.key.value == "movedFrom" {
        diagnostics.report(
          Diagnostic(
            .misplacedKey, "'movedFrom' is given for a source without a name", at: option.key.location,
            help: "Write it at the signal, sink or step that was renamed"))
        continue
      }
      unfinished(option.key.value, option.key.location)
    }
  }

  func unfinished(_ section: String, _ location: SourceLocation) {
    diagnostics.report(
      Diagnostic(
        .sectionWithoutEngine, "'\(section)' is part of the pipeline file, but this version of rxd cannot run it yet",
        at: location, help: "Remove it, or use a version of rxd that has it"))
  }

  /// Warns of `onError` at a step that evaluates nothing itself: it only makes inner signals, whose errors the option
  /// does not handle.
  func warnOfPolicy(_ node: ComponentNode) {
    guard let option = node.options.first(where: { $0.key.value == "onError" }) else { return }
    diagnostics.report(
      Diagnostic(
        .conflictingParameters,
        "'onError' has no effect on '\(node.keyword.value)' with 'signal': an error of an inner signal ends the signal",
        at: option.key.location, severity: .warning,
        help: "Handle it in the chain of the inner signal, e.g. with 'retry: 3' or 'catch: { value: EXPRESSION }'"))
  }

  func warnUnused() {
    warnUnusedFunctions()
    for entry in entries where entry.references == 0 && entry.kind != .part {
      guard entry.kind != .command else {
        diagnostics.report(
          Diagnostic(
            .unusedName, "nothing executes the command '\(entry.name.value)', so it never runs",
            at: entry.name.location, help: "Write 'execute: \(entry.name.value)' in a chain, or remove it"))
        continue
      }
      guard entry.kind != .table else {
        diagnostics.report(
          Diagnostic(
            .unusedName, "no expression reads the table '\(entry.name.value)'", at: entry.name.location,
            help: "Read a row as \(entry.name.value)[KEY], or remove it"))
        continue
      }
      diagnostics.report(
        Diagnostic(
          .unusedName, "nothing refers to the \(entry.kind.rawValue) '\(entry.name.value)', so it never runs",
          at: entry.name.location, help: "Read it with 'from: \(entry.name.value)', or remove it"))
    }
  }

  /// The plan of a named source or signal, which is compiled by the first call.
  func named(_ at: Int, from reference: SourceLocation?) -> SignalPlan? {
    switch entries[at].state {
    case .done(let plan): return plan
    case .running:
      diagnostics.report(
        Diagnostic(
          .cycle, "the signal '\(entries[at].name.value)' depends on itself", at: reference,
          notes: [.init("it is defined here", at: entries[at].name.location)],
          help: "a signal cannot wait for its own events: break the cycle"))
      return nil
    case .waiting:
      entries[at].state = .running
      let name = entries[at].name.value
      let context = SignalContext(owner: name, path: name)
      let body: SignalPlan? =
        if let source = file.sources.first(where: { $0.name.value == name }) {
          self.source(source.node, context)
        } else if let signal = file.signals.first(where: { $0.name.value == name }) {
          self.signal(signal.node, context)
        } else if let table = file.tables.first(where: { $0.name.value == name }) {
          self.table(table, context)
        } else {
          command(at, context)
        }
      let plan = body.map { body in
        let reach = commandReach(of: body)
        entries[at].executes = reach.all
        return holding(reach.later, body, context)
      }
      entries[at].state = .done(plan)
      return plan
    }
  }
}
