import PipelineCore

// Checks of operators.
extension Check {
  static func instances(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    if trial.varies { return .notApplicable("its answers differ from run to run") }
    let expected = try trial.reference()
    let program = try trial.program()
    defer { program.kill() }
    let instances = [try trial.open(program), try trial.open(program)]
    var found: [[TestedAnswer.Outcome]] = [[], []]
    for (step, now) in expected.steps {
      for (index, instance) in instances.enumerated() {
        found[index].append(try program.ask(instance, step, now: trial.time(now)).outcome)
      }
    }
    for (index, outcomes) in found.enumerated() {
      try trial.compare(
        expected.outcomes, outcomes, "from instance \(index + 1) of two in one process",
        help: "Keep what belongs to an instance by its number ('open', 'to'), and nothing in global variables")
    }
    try program.end()
    return .ok("")
  }

  /// Inputs are pending when the output completes: they must produce nothing, and the other instances of the process continue.
  static func finish(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let expected = try trial.reference()
    guard expected.hasFinished else { return .notApplicable("it completes with its input") }
    let program = try trial.program()
    defer { program.kill() }
    let (one, other) = (try trial.open(program), try trial.open(program))
    var answers: [TestedAnswer] = []
    for (step, now) in expected.steps { answers.append(program.input(one, step, now: trial.time(now))) }
    let now = trial.time(expected.steps.last?.now ?? 1_767_225_600_000_000_000)
    let rest = min(trial.spec.credit, 64) - expected.steps.count
    for index in 0..<max(0, rest) where !trial.one.inputs.isEmpty {
      _ = program.input(one, trial.one.inputs[index % trial.one.inputs.count], now: now)
    }
    program.ping()
    try program.awaitAnswers()
    if !trial.varies {
      try trial.compare(
        expected.outcomes.map(\.withoutTimers), answers.map(\.outcome.withoutTimers), "with further inputs under way",
        help: "The output completes with the same input, whatever waits after it")
    }
    program.close(one)
    let found = try trial.ask(program, other, expected.steps)
    if !trial.varies {
      try trial.compare(
        expected.outcomes, found, "of another instance, after the first had completed its output",
        help: "The end of an output is that of one instance")
    }
    program.ping()
    try program.awaitAnswers()
    try program.end()
    return .ok("behind input \(expected.steps.count)")
  }

  static func state(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard trial.hasState else { return .notApplicable("the spec has no 'state'") }
    if trial.varies { return .notApplicable("its answers differ from run to run") }
    let expected = try trial.reference()
    if expected.hasFinished, expected.steps.isEmpty { return .notApplicable("its output completes when it is opened") }
    let instants = instants(expected.openCount, most: 40)
    // Most of the time is spent on starting processes. Each runs a few instances, one after the other; the check
    // 'instances' tests that they share nothing, and 'kill' opens each saved state in a process of its own.
    var (program, other) = (try trial.program(), try trial.program())
    defer {
      program.kill()
      other.kill()
    }
    for (index, cut) in instants.enumerated() {
      if index > 0, index % instancesOfProcess == 0 {
        program.kill()
        other.kill()
        program = try trial.program()
        other = try trial.program()
      }
      let instance = try trial.open(program)
      let before = try trial.ask(program, instance, expected.steps[..<cut])
      let saved = try program.ask(instance, .save)
      guard let state = saved.state else {
        throw ContractBreach(
          expected: "a state before input \(cut + 1)", came: "error \"\(saved.error ?? "")\"",
          help: "Without a state rxd keeps all inputs; after 16,384 the signal fails")
      }
      let help = "The state is everything that later answers depend on; saving changes nothing"
      let on = try trial.ask(program, instance, expected.steps[cut...])
      try trial.compare(expected.outcomes, before + on, "with 'save' before input \(cut + 1)", help: help)
      let restored = try trial.open(other, trial.restoring(state))
      let rest = try trial.ask(other, restored, expected.steps[cut...])
      try trial.compare(
        expected.outcomes, before + rest,
        "from another process, in an instance that was opened with the state saved before input \(cut + 1)", help: help)
      program.close(instance)
      other.close(restored)
    }
    return .ok(
      instants.count == expected.openCount + 1
        ? "all \(instants.count) instants" : "\(instants.count) of \(expected.openCount + 1) instants")
  }

  private static let instancesOfProcess = 8

  /// Indexes between `count` inputs, evenly spaced.
  private static func instants(_ count: Int, most: Int) -> [Int] {
    guard count + 1 > most else { return Array(0...count) }
    return (0..<most).map { $0 * count / (most - 1) }
  }

  static func kill(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    if trial.spec.kind == .sink { return try sinkKill(trial) }
    if trial.varies { return .notApplicable("its answers differ from run to run") }
    let expected = try trial.reference()
    let help =
      "After a crash rxd opens it with the last state and repeats every later input: nothing else may outlive the process"
    let instants = instants(expected.openCount, most: 8)
    for cut in instants {
      var savedAt = 0
      var state: String?
      var taken: [TestedAnswer.Outcome] = []
      do {
        let program = try trial.program()
        defer { program.kill() }
        let instance = try trial.open(program)
        for (index, (step, now)) in expected.steps[..<cut].enumerated() {
          if trial.hasState, index == cut / 2 {
            savedAt = index
            state = try program.ask(instance, .save).state
          }
          taken.append(try program.ask(instance, step, now: trial.time(now)).outcome)
        }
        for (step, now) in expected.steps[cut...].prefix(3) {
          _ = program.input(instance, step, now: trial.time(now))
        }
        // Some may have been read, and some answered.
        if cut % 2 == 1 { try program.run(for: .milliseconds(2)) }
      }
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program, state.map(trial.restoring) ?? "")
      if trial.hasState {
        let again = try trial.ask(program, instance, expected.steps[savedAt..<cut])
        try trial.compare(
          Array(taken[savedAt...]), again, "handed over again after a kill at input \(cut + 1)", help: help)
      }
      let rest = try trial.ask(program, instance, expected.steps[cut...])
      if trial.hasState || !trial.remembers {
        try trial.compare(expected.outcomes, taken + rest, "after a kill at input \(cut + 1)", help: help)
      }
    }
    return .ok(
      "\(instants.count) instants" + (trial.hasState || !trial.remembers ? "" : "; it forgets what it remembers"))
  }
}
