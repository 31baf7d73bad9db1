/// A command becomes several named plans: the command, its outputs, and the signal that enables it. No name in a file
/// can equal theirs: `NAME.values`, `NAME.enabled?`.
extension Compilation {
  func declare(
    _ command: NamedNode<CommandNode>, _ add: (Located<String>, NamedPlan.Kind, Bool) -> Void
  ) {
    let name = command.name
    add(name, .command, false)
    if command.node.enabled != nil { add(name.map { "\($0).enabled?" }, .part, false) }
    // An output first sends its current state to each reader, so each reader has its own output.
    for kind in CommandOutput.Kind.allCases { add(name.map { "\($0).\(kind.rawValue)" }, .part, true) }
  }

  /// The plan of an entry that `declare` added.
  func command(_ at: Int, _ context: SignalContext) -> SignalPlan? {
    let parts = entries[at].name.value.split(separator: ".", maxSplits: 1).map(String.init)
    guard let command = file.commands.first(where: { $0.name.value == parts[0] }),
      let commandIndex = index[parts[0]]
    else { return nil }
    var context = context
    context.owner = parts[0]
    guard parts.count == 2 else { return commandPlan(command.node, at, context) }
    guard let kind = CommandOutput.Kind(rawValue: parts[1]) else {
      switch command.node.enabled {
      case .reference(let reference): return self.reference(reference, context)
      case .inline(let signal): return self.signal(signal, context)
      case nil: return nil
      }
    }
    guard let plan = named(commandIndex, from: nil) else { return nil }
    let node = ComponentNode(keyword: Located(parts[1], at: command.name.location), location: command.name.location)
    let step = addStep(node, context)
    let output = CommandOutput(kind: kind, command: commandIndex, type: plan.type)
    return SignalPlan(
      OperatorWork(output, makeSegment()), inputs: [commandSignal(commandIndex, context)], step: step,
      type: output.outputType([]))
  }

  private func commandPlan(_ node: CommandNode, _ at: Int, _ context: SignalContext) -> SignalPlan? {
    let component = ComponentNode(
      keyword: Located("command", at: entries[at].name.location), arguments: node.arguments,
      location: node.location)
    let step = addStep(component, context)
    var (decoded, isWhole) = decode(CatalogueEntry(command: Command.self, "command"), component)
    guard case .command(let any) = decoded, var command = any as? Command else { return nil }
    let segment = makeSegment()
    isWhole = bind(&command, [.dyn], segment, context, step, node.location) && isWhole
    guard isWhole else { return nil }
    command.index = at
    // The plan may need the command's own outputs, so it is compiled separately and referred to by name.
    var inputs: [SignalPlan] = []
    if node.enabled != nil, let enabled = index["\(context.owner).enabled?"] {
      entries[enabled].references += 1
      inputs = [
        SignalPlan(.named(enabled), step: step, type: .dyn, reference: key("\(context.path)/@enabled"))
      ]
    }
    return SignalPlan(OperatorWork(command, segment), inputs: inputs, step: step, type: command.outputType([]))
  }

  private func commandSignal(_ at: Int, _ context: SignalContext) -> SignalPlan {
    SignalPlan(
      .named(at), step: StepID(0), type: .dyn,
      reference: key("\(context.path)/@\(entries[at].name.value)"))
  }

  /// Resolves `from: NAME.values` and the other outputs.
  func commandOutput(_ name: ReferenceNode, _ context: SignalContext) -> SignalPlan? {
    let outputs = CommandOutput.Kind.allCases.map(\.rawValue) + ["errors"]
    let list = outputs.map { "'\(name.name.value).\($0)'" }.joined(separator: ", ")
    guard let output = name.output else {
      diagnostics.report(
        Diagnostic(
          .unknownOutput, "'\(name.name.value)' is a command, which has several outputs", at: name.name.location,
          help: "Name one of them: \(list)"))
      return nil
    }
    guard let at = index["\(name.name.value).\(output.value)"] else {
      diagnostics.report(
        Diagnostic(
          .unknownOutput, "the command '\(name.name.value)' has no output '\(output.value)'", at: output.location,
          help: Suggestion.nearest(to: output.value, among: outputs).map { "Did you mean '\($0)'?" }
            ?? "It has: \(list)"))
      return nil
    }
    entries[at].references += 1
    guard let plan = named(at, from: name.name.location) else { return nil }
    return SignalPlan(
      .named(at), step: plan.step, type: plan.type,
      reference: key("\(context.path)/@\(entries[at].name.value)"))
  }

  /// The commands that a signal may execute: all of them, and those that it may begin to execute only while it runs, in
  /// inner signals or after it subscribes again.
  struct CommandReach {
    fileprivate(set) var all: [Int] = []
    fileprivate(set) var later: [Int] = []

    fileprivate mutating func add(_ command: Int, isLater: Bool) {
      if !all.contains(command) { all.append(command) }
      if isLater, !later.contains(command) { later.append(command) }
    }
  }

  /// The commands reached through everything that the signal refers to. A command counts as later only if a later
  /// subscription leads to it: a signal that runs together with this one keeps its own commands alive.
  func commandReach(of signal: SignalPlan) -> CommandReach {
    var reach = CommandReach()
    if file.commands.isEmpty { return reach }
    signal.forEachReference { origin, isLater in
      guard case .named(let at) = origin else { return }
      if entries[at].kind == .command { reach.add(at, isLater: isLater) }
      for command in entries[at].executes { reach.add(command, isLater: isLater) }
    }
    return reach
  }

  /// Keeps commands alive as long as `signal`, which may execute them later: a command ends when every possible caller
  /// has ended.
  func holding(_ commands: [Int], _ signal: SignalPlan, _ context: SignalContext) -> SignalPlan {
    guard !commands.isEmpty else { return signal }
    let location = steps[signal.step.number].location
    let node = ComponentNode(keyword: Located("hold", at: location), location: location)
    let step = addStep(node, context)
    let inputs = [signal] + commands.map { commandSignal($0, context) }
    return SignalPlan(
      OperatorWork(CommandHold(commands: commands), makeSegment()), inputs: inputs, step: step, type: signal.type)
  }

  /// Records that the owner executes a command, unless it is a command itself: a command runs only when it is executed.
  func noteExecution(by owner: String) {
    if index[owner].map({ entries[$0].kind }) != .command { executing.insert(owner) }
  }

  /// Resolves `execute: NAME`.
  func executed(_ name: Located<String>, _ context: SignalContext) -> (
    index: Int, type: EventType, signal: SignalPlan
  )? {
    guard let at = index[name.value], entries[at].kind == .command else {
      // The error has been reported at the definition.
      if file.broken.contains(name.value) { return nil }
      let known = entries.filter { $0.kind == .command }.map(\.name.value)
      diagnostics.report(
        Diagnostic(
          .unknownName, "there is no command '\(Printable.cut(name.value))'", at: name.location,
          help: Suggestion.nearest(to: name.value, among: known).map { "Did you mean '\($0)'?" }
            ?? (known.isEmpty
              ? "Define it under 'commands:'" : "There are: " + known.joined(separator: ", "))))
      return nil
    }
    entries[at].references += 1
    readings.append(
      Reading(reader: name.value, name: context.owner, isExecution: true, location: name.location))
    noteExecution(by: context.owner)
    guard let plan = named(at, from: name.location) else { return nil }
    return (at, plan.type, commandSignal(at, context))
  }
}
