import PipelineCore
import PipelineTesting

// Checks of sources.
extension Check {
  /// Waits until there is that number of events, or the source has ended or is silent. Returns whether it still runs.
  static func collect(
    _ trial: ContractTrial, _ program: TestedProgram, _ instance: TestedInstance, _ most: Int
  ) throws(ContractBreach) -> Bool {
    let first = TimeSpan(nanoseconds: min(3_000_000_000, trial.timeout.nanoseconds))
    while instance.events.count < most, instance.end == nil {
      let count = instance.events.count
      let wait = count == 0 ? first : .milliseconds(300)
      let isNews = try program.run(for: wait, until: { instance.events.count != count || instance.end != nil })
      if !isNews {
        // The program may have died.
        program.ping()
        try program.awaitAnswers()
        return false
      }
    }
    return instance.end == nil
  }

  private static func acknowledge(_ program: TestedProgram, _ instance: TestedInstance) {
    program.acknowledge(instance, instance.unacknowledged.sorted())
  }

  /// Stops the source and waits for its end.
  private static func finish(
    _ trial: ContractTrial, _ program: TestedProgram, _ instance: TestedInstance
  ) throws(ContractBreach) {
    if instance.end == nil {
      program.stop(instance)
      try program.wait(
        trial.timeout,
        {
          acknowledge(program, instance)
          return instance.end != nil
        },
        {
          ContractBreach(
            expected: "{\"from\":\(instance.number),\"complete\":true} after 'stop', within \(trial.timeout)",
            came: "nothing",
            help:
              "After {\"stop\":true} send nothing more; complete when all tokens are acknowledged or failed, also without credit"
          )
        })
    }
    program.close(instance)
    try program.end()
  }

  private static func nothing(_ instance: TestedInstance) -> Verdict {
    if case .failed(let reason) = instance.end { return .notApplicable("the source fails: \(reason)") }
    return .notApplicable("it sent nothing within 3 s")
  }

  static func sourceCredit(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    try program.run(for: .milliseconds(50))
    for credit in [1, 1, 3, 7, 50] {
      program.give(credit: credit, to: instance)
      let goesOn = try collect(trial, program, instance, instance.events.count + credit)
      // Credit is withheld: the strict host sees each event beyond it.
      try program.run(for: .milliseconds(10))
      acknowledge(program, instance)
      if !goesOn { break }
    }
    let count = instance.events.count
    try finish(trial, program, instance)
    return count == 0 ? nothing(instance) : .ok(Printable.count(count, "event"))
  }

  static func tokens(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard trial.spec.recovery == .sender else { return .notApplicable("its 'recovery' is not 'sender'") }
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    program.give(credit: 4, to: instance)
    _ = try collect(trial, program, instance, 4)
    guard !instance.events.isEmpty else { return nothing(instance) }
    guard instance.events.allSatisfy({ $0.token != nil }) || instance.tokens.count >= instance.events.count else {
      throw ContractBreach(
        expected: "a token with each event: the spec says \"recovery\": \"sender\"",
        came: "\(Printable.count(instance.events.count { $0.token == nil }, "event")) without one",
        help: "Send {\"from\":N,\"event\":...,\"token\":T}, and hold the event until T is acknowledged")
    }
    program.stop(instance)
    try program.run(for: .milliseconds(100))
    // `program` reports an earlier end as a breach.
    if let first = instance.unacknowledged.min() { program.acknowledge(instance, [first], failed: true) }
    try finish(trial, program, instance)
    return .ok(Printable.count(instance.tokens.count, "token"))
  }

  static func position(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard trial.spec.recovery == .position else { return .notApplicable("its 'recovery' is not 'position'") }
    var events: [(event: TestValue, token: Int64?, position: String?)] = []
    do {
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program)
      for number in 1...12 {
        program.give(credit: 1, to: instance)
        let goesOn = try collect(trial, program, instance, number)
        acknowledge(program, instance)
        if !goesOn { break }
      }
      events = instance.events
      if events.isEmpty { return nothing(instance) }
    }
    let indexes = events.indices.filter { events[$0].position != nil }
    guard !indexes.isEmpty else {
      throw ContractBreach(
        expected: "positions: the spec says \"recovery\": \"position\"", came: "\(events.count) events without one",
        help: "Send {\"from\":N,\"event\":...,\"position\":P}; opened with P, continue after this event")
    }
    for index in indexes {
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program, ",\"position\":\(events[index].position ?? "null")")
      program.give(credit: events.count, to: instance)
      let rest = events[(index + 1)...].map(\.event)
      _ = try collect(trial, program, instance, rest.count)
      acknowledge(program, instance)
      for (offset, expected) in rest.enumerated() {
        let found = instance.events.count > offset ? instance.events[offset].event : nil
        guard found != expected else { continue }
        throw ContractBreach(
          expected:
            "\(Printable.cut(expected.description, limit: 160)) as event \(offset + 1) after the position \(events[index].position ?? "")",
          came: found.map { Printable.cut($0.description, limit: 160) } ?? "nothing",
          help: "A position has all that is needed to continue after the event that it came with")
      }
      try finish(trial, program, instance)
    }
    return .ok(Printable.count(indexes.count, "position"))
  }

  static func sourceStop(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    // Stopped before any credit, in the middle, and with unacknowledged events.
    for credit in [0, 1, 1000] {
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program)
      if credit > 0 {
        program.give(credit: credit, to: instance)
        try program.run(for: .milliseconds(200), until: { !instance.events.isEmpty || instance.end != nil })
      }
      try finish(trial, program, instance)
    }
    // No frame is sent to it any more.
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    program.give(credit: 10, to: instance)
    try program.run(for: .milliseconds(50))
    try program.endAbruptly()
    return .ok("")
  }
}
