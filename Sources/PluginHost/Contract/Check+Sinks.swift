import PipelineCore

// Checks of sinks.
extension Check {
  /// Outcomes of the events, one at a time, and of the completion; empty: it asks for a pause.
  static func sinkOutcomes(
    _ trial: ContractTrial, _ program: TestedProgram, _ instance: TestedInstance
  ) throws(ContractBreach) -> [TestedAnswer.Outcome] {
    var outcomes: [TestedAnswer.Outcome] = []
    for input in trial.one.inputs {
      outcomes.append(try program.ask(instance, input, now: trial.time(1_767_225_600_000_000_000)).outcome)
      if instance.skipsUntilAgain { return [] }
    }
    return outcomes
  }

  static func sinkAnswers(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    let outcomes = try sinkOutcomes(trial, program, instance)
    if instance.skipsUntilAgain { return .ok("it asks for a pause, as without its server; see 'retry'") }
    let completion = try program.ask(instance, .complete)
    if let error = completion.error {
      throw ContractBreach(
        expected: "{\"id\":N} to 'complete'", came: "error \"\(error)\"",
        help: "Answer an event that cannot be delivered with 'error' or 'retry'")
    }
    program.close(instance)
    try program.end()
    return .ok("\(outcomes.count { $0.error == nil }) of \(outcomes.count) events delivered, the others refused")
  }

  static func sinkKill(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard !trial.one.inputs.isEmpty else { return .notApplicable("no input reaches it") }
    for pause in [0, 1, 5, 20] {
      var left: [TestedStep] = []
      do {
        let program = try trial.program()
        defer { program.kill() }
        let instance = try trial.open(program)
        for input in trial.one.inputs.prefix(trial.spec.credit) {
          _ = program.input(instance, input, now: trial.time(1_767_225_600_000_000_000))
        }
        try program.run(for: .milliseconds(Int64(pause)))
        if instance.skipsUntilAgain { return .notApplicable("it asks for a pause") }
        left = program.unansweredSteps
      }
      // The program runs in the same directory, which contains its unfinished work.
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program)
      for step in left { _ = program.input(instance, step, now: trial.time(1_767_225_600_000_000_000)) }
      program.flush(instance)
      try program.awaitAnswers()
      try program.end()
    }
    return .ok("4 instants")
  }

  static func retry(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    let inputs = Array(trial.one.inputs.prefix(min(trial.spec.credit, 16)))
    var answers = inputs.map { program.input(instance, $0, now: trial.time(1_767_225_600_000_000_000)) }
    program.flush(instance)
    try program.awaitAnswers()
    guard instance.skipsUntilAgain else { return .notApplicable("it has not asked to have anything again") }
    for _ in 0..<3 {
      let left = answers.filter { $0.retry != nil }.map(\.step)
      guard !left.isEmpty else { break }
      // The sink must ignore inputs until the frame with 'again', and must not answer them.
      instance.skipsUntilAgain = false
      answers = left.enumerated().map { index, step in
        program.input(
          instance, step, now: trial.time(1_767_225_600_000_000_000), more: index == 0 ? ",\"again\":true" : "")
      }
      program.flush(instance)
      try program.awaitAnswers()
    }
    try program.endAbruptly()
    return .ok("")
  }
}
