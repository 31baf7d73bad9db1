import PipelineCore
import PipelineTesting

// Checks that apply to more than one kind of component.
extension Check {
  typealias Verdict = ContractSuite.Finding.Verdict

  static func open(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let program = try trial.program()
    defer { program.kill() }
    let first = try trial.open(program)
    let second = try trial.open(program, ",\"memberOfALaterVersion\":{\"a\":[1]}")
    program.close(first)
    program.ping()
    try program.awaitAnswers()
    program.close(second)
    program.ping()
    try program.awaitAnswers()
    try program.end()
    return .ok("")
  }

  /// Checks that the process continues after it has refused these parameters.
  static func refused(_ trial: ContractTrial, _ why: String) throws(ContractBreach) -> Verdict {
    let program = try trial.program()
    defer { program.kill() }
    _ = try program.open(trial.spec, trial.one.parameters)
    program.ping()
    try program.awaitAnswers()
    try program.end()
    return .notApplicable(why + hint(trial))
  }

  private static func hint(_ trial: ContractTrial) -> String {
    trial.suite.files == nil ? "; --files DIR gives it files, --parameters other parameters" : ""
  }

  // MARK: Parameters

  static func parameters(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let variants = variants(trial)
    let program = try trial.program()
    defer { program.kill() }
    var refused = 0
    for (what, parameters) in variants {
      do throws(ContractBreach) {
        let instance = try program.open(trial.spec, parameters)
        if instance.refusal != nil { refused += 1 }
        program.close(instance)
        program.ping()
        try program.awaitAnswers()
      } catch {
        throw ContractBreach(
          expected: "'opened', or 'opened' with an 'error', for \(what)", came: error.came,
          help:
            "Look at each parameter in 'open', and refuse what cannot be: {\"opened\":N,\"error\":\"...\",\"at\":\"name\"}"
        )
      }
    }
    return .ok("\(variants.count) openings, \(refused) refused")
  }

  /// Openings with unusual parameters: a description and the parameters.
  private static func variants(_ trial: ContractTrial) -> [(String, String)] {
    guard let owned = JSON.owned(Array(trial.one.parameters.utf8)), case .object(let members) = TestValue(owned.value)
    else { return [] }
    func text(_ members: [TestValue.Member]) -> String { TestValue.object(members).description }
    var variants = [
      ("a parameter that it does not know", text(members + [.init(Array("zzUnknown".utf8), .list([.int(1), .null]))]))
    ]
    for parameter in trial.spec.parameters where !parameter.type.isPerEvent {
      let name = Array(parameter.name.utf8)
      let others = members.filter { $0.key != name }
      if !parameter.isRequired, parameter.fallback == nil, others.count < members.count {
        variants.append(("no '\(parameter.name)'", text(others)))
      }
      for value in odd(parameter.type) {
        let shown = Printable.cut(value.description, limit: 60)
        variants.append(("\(parameter.name) = \(shown)", text(others + [.init(name, value)])))
      }
    }
    return variants
  }

  private static func odd(_ type: PluginParameterType) -> [TestValue] {
    switch type {
    case .boolean: [.bool(true), .bool(false)]
    case .integer(let range):
      range.map { [.int($0.lowerBound), .int($0.upperBound)] } ?? [.int(.min), .int(0), .int(.max)]
    case .number: [.int(0), .double(-1e300), .double(1e-300), .double(1e300)]
    case .text, .secret:
      [
        .text(""), .text(String(repeating: "x", count: 100_000)), .text("ä \u{1F600}\u{0}\n\"\\"),
        .text("%s%n{}${HOME}"),
      ]
    case .duration(let range):
      range.map { [.int($0.lowerBound), .int($0.upperBound)] } ?? [.int(0), .int(1), .int(.max / 2)]
    case .size: [.int(0), .int(1), .int(1 << 62)]
    case .json: [.null, .list([]), .text("x"), .object([])]
    case .choice(let choices): choices.map { .text($0.name) }
    case .list(let element): [.list([])] + (odd(element).first.map { [.list(Array(repeating: $0, count: 300))] } ?? [])
    case .table(let element): [.object([])] + (odd(element).first.map { [.object([.init([], $0)])] } ?? [])
    case .expression, .template: []
    }
  }

  // MARK: Answers

  static func answers(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    if trial.spec.kind == .sink { return try sinkAnswers(trial) }
    let expected = try trial.reference()
    let program = try trial.program()
    defer { program.kill() }
    let again = try trial.ask(program, try trial.open(program), expected.steps)
    if again != expected.outcomes {
      guard trial.hasState else {
        trial.varies = true
        return .ok("its answers differ from run to run, so checks that compare them are skipped")
      }
      try trial.compare(
        expected.outcomes, again, "in a second run",
        help:
          "With state, the same inputs must give the same answers: rxd hands them over again after a crash. Take the time from 'now' (\"clock\": true)"
      )
    }
    try program.end()
    return .ok("\(expected.steps.count) inputs")
  }

  static func types(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard trial.spec.output != .dyn || trial.spec.form == .row else {
      return .notApplicable("the spec has no 'output'")
    }
    var sent: [TestValue] = []
    if trial.spec.kind == .source {
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program)
      program.give(credit: 50, to: instance)
      _ = try collect(trial, program, instance, 50)
      sent = instance.events.map(\.event)
    } else {
      let outcomes = try trial.reference().outcomes
      if trial.spec.form == .row, let many = outcomes.first(where: { $0.events.count > 1 }) {
        throw ContractBreach(
          expected: "one event or none, because of \"form\": \"row\"", came: many.shown, help: "Leave 'form' out")
      }
      sent = outcomes.flatMap(\.events)
      // Each answer of such a decoder is a list of events.
      if trial.spec.makesList {
        var events: [TestValue] = []
        for answer in sent {
          guard case .list(let some) = answer else {
            throw ContractBreach(
              expected: "a list of events, because of \"list\": true",
              came: Printable.cut(answer.description, limit: 160),
              help: "Return a list, even of one event, or leave 'list' out")
          }
          events += some
        }
        sent = events
      }
    }
    for event in sent {
      guard let problem = trial.spec.output.problem(with: event) else { continue }
      throw ContractBreach(
        expected: "events of the type in 'output' of the spec",
        came: "\(Printable.cut(event.description, limit: 160)): \(problem)",
        help: "Correct 'output', or what is sent: 'rxd check' relies on it, and later steps may fail")
    }
    return sent.isEmpty ? .notApplicable("it sent nothing") : .ok(Printable.count(sent.count, "event"))
  }

  static func credit(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    switch trial.spec.kind {
    case .source: return try sourceCredit(trial)
    default: break
    }
    let most = min(trial.spec.credit, 1024)
    var steps: [TestedStep] = []
    while steps.count < min(max(most, 20), 300), !trial.one.inputs.isEmpty { steps += trial.one.inputs }
    guard !steps.isEmpty else { return .notApplicable("no input reaches it") }
    let plain = try run(trial, steps, atOnce: 1)
    let crowd = try run(trial, steps, atOnce: most)
    if !trial.varies {
      try trial.compare(
        plain, crowd, "with up to \(most) inputs at once",
        help: "Answers must not depend on how many inputs wait; \"credit\": N in the spec limits them")
    }
    return .ok("\(steps.count) inputs, up to \(most) at once")
  }

  /// Outcomes of events while several wait at once, with pings between them.
  private static func run(
    _ trial: ContractTrial, _ steps: [TestedStep], atOnce most: Int
  ) throws(ContractBreach) -> [TestedAnswer.Outcome] {
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    var answers: [TestedAnswer] = []
    for (index, step) in steps.enumerated() {
      if program.unansweredCount >= most {
        if trial.spec.kind == .sink { program.flush(instance) }
        try program.awaitAnswers()
        // Pauses of sinks are tested by another check.
        if instance.takesNoMore { break }
      }
      answers.append(program.input(instance, step, now: trial.time(1_767_225_600_000_000_000)))
      if index % 3 == 0, most > 1 { program.ping() }
    }
    if trial.spec.kind == .sink { program.flush(instance) }
    try program.awaitAnswers()
    try program.end()
    return instance.skipsUntilAgain ? [] : outcomes(answers)
  }

  /// Up to the input that completes the output.
  private static func outcomes(_ answers: [TestedAnswer]) -> [TestedAnswer.Outcome] {
    let end = answers.firstIndex(where: \.finishes).map { $0 + 1 } ?? answers.count
    return answers[..<end].map(\.outcome.withoutTimers)
  }

  static func pieces(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard !trial.suite.isNative else { return .notApplicable("a shared library reads no frames") }
    let steps = trial.one.inputs.filter { $0.members.utf8.count < 2000 }.map { step -> TestedStep in
      .event(step.members + ",\"later\":[{\"id\":1}]")
    }
    let plain = try run(trial, trial.one.inputs.filter { $0.members.utf8.count < 2000 }, atOnce: 1)
    for seed: UInt64 in [1, 2] {
      let program = try trial.program(pieces: seed)
      defer { program.kill() }
      let instance = try trial.open(program)
      var answers: [TestedAnswer] = []
      for step in steps {
        if program.unansweredCount >= min(trial.spec.credit, 64) {
          if trial.spec.kind == .sink { program.flush(instance) }
          try program.awaitAnswers()
          if instance.takesNoMore { break }
        }
        answers.append(program.input(instance, step, now: trial.time(1_767_225_600_000_000_000)))
      }
      if trial.spec.kind == .sink { program.flush(instance) }
      try program.awaitAnswers()
      if instance.skipsUntilAgain { return .notApplicable("it asks for a pause") }
      if !trial.varies {
        try trial.compare(
          plain, outcomes(answers), "with frames in pieces and a member 'later'",
          help: "Read whole lines, whatever a read returns, and ignore members that are not known")
      }
      try program.end()
    }
    return .ok("")
  }

  // MARK: Stop

  static func stop(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    if trial.spec.kind == .source { return try sourceStop(trial) }
    // The input ends with inputs unread, unanswered, or half of one written.
    for (count, rest) in [(0, ""), (1, ""), (200, ""), (3, "{\"id\":4,\"to\":1,\"ev")] {
      let program = try trial.program()
      defer { program.kill() }
      let instance = try trial.open(program)
      for index in 0..<count where !trial.one.inputs.isEmpty {
        _ = program.input(
          instance, trial.one.inputs[index % trial.one.inputs.count], now: trial.time(1_767_225_600_000_000_000))
      }
      program.sendRaw(rest)
      try program.run(for: .milliseconds(20))
      try program.endAbruptly()
    }
    return .ok("")
  }

  // MARK: Memory and log

  static func memory(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    let inputs = trial.smallInputs
    guard !inputs.isEmpty else { return .notApplicable("no small input reaches it") }
    let program = try trial.program()
    defer { program.kill() }
    var instance = try trial.open(program)
    if instance.hasFinished { return .notApplicable("its output completes before there is input") }
    var sent = 0
    func send(_ count: Int, for time: TimeSpan) throws(ContractBreach) {
      let clock = ContinuousClock()
      let begin = clock.now
      for _ in 0..<max(1, count / 500) {
        for _ in 0..<500 {
          if program.unansweredCount >= trial.spec.credit { try awaitAnswers() }
          if instance.hasFinished {
            program.close(instance)
            instance = try trial.open(program)
          }
          _ = program.input(
            instance, inputs[sent % inputs.count], now: trial.time(1_767_225_600_000_000_000 + Int64(sent)))
          sent += 1
        }
        try awaitAnswers()
        if instance.skipsUntilAgain || begin.duration(to: clock.now) > .nanoseconds(time.nanoseconds) { return }
      }
    }
    func awaitAnswers() throws(ContractBreach) {
      if trial.spec.kind == .sink { program.flush(instance) }
      try program.awaitAnswers()
    }
    try send(3000, for: .seconds(2))
    if instance.skipsUntilAgain { return .notApplicable("it asks for a pause") }
    let warm = sent
    guard let before = program.memory else { return .notApplicable("its memory use is unknown") }
    try send(15_000, for: .seconds(20))
    guard let after = program.memory else { return .notApplicable("its memory use is unknown") }
    let grown = after - before
    let each = grown / max(1, sent - warm)
    let figures = "\(grown >> 10) KiB more after \(sent - warm) events"
    guard grown > 4 << 20, each > 100 else { return .ok(figures) }
    if !trial.spec.memory.isEmpty { return .ok("\(figures); its spec says: \(trial.spec.memory)") }
    throw ContractBreach(
      expected: "memory that does not grow with the events: the spec has no 'memory'",
      came: "\(figures), \(each) bytes each",
      help: "Free the memory of an event, or declare it in 'memory' of the spec, and bound it by a parameter")
  }

  static func log(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard !trial.one.inputs.isEmpty else { return .notApplicable("no input reaches it") }
    let program = try trial.program()
    defer { program.kill() }
    let instance = try trial.open(program)
    var count = 0
    for _ in 0..<4 {
      for input in trial.one.inputs {
        if program.unansweredCount >= trial.spec.credit {
          if trial.spec.kind == .sink { program.flush(instance) }
          try program.awaitAnswers()
        }
        if instance.takesNoMore { break }
        _ = program.input(instance, input, now: trial.time(1_767_225_600_000_000_000))
        count += 1
      }
      if trial.spec.kind == .sink { program.flush(instance) }
      try program.awaitAnswers()
      if instance.takesNoMore { break }
    }
    try program.run(for: .milliseconds(20))
    let most = max(100, 2 * count)
    guard program.loudestSecond > most else { return .ok("\(program.loudestSecond) lines for \(count) events") }
    throw ContractBreach(
      expected: "at most a line or two for an event",
      came: "\(program.loudestSecond) lines within a second, for \(count) events",
      help:
        "rxd logs 20 lines of standard error a second: report frequent events once, and count them")
  }

  // MARK: Shared libraries

  static func lifetimes(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    if trial.varies { return .notApplicable("its answers differ from run to run") }
    var found: [[TestedAnswer.Outcome]] = []
    // The allocator overwrites freed memory, and fills new memory.
    for byte in [0xA5, 0x3C] {
      let program = try trial.program(
        environment: ["GLIBC_TUNABLES": "glibc.malloc.perturb=\(byte):glibc.malloc.tcache_count=0"])
      defer { program.kill() }
      let instance = try trial.open(program)
      if trial.spec.kind != .sink {
        found.append(try trial.ask(program, instance, try trial.reference().steps))
      } else {
        found.append(try sinkOutcomes(trial, program, instance))
      }
    }
    let expected = try trial.spec.kind != .sink ? trial.reference().outcomes : found[0]
    for outcomes in found {
      try trial.compare(
        expected, outcomes, "where the allocator overwrites freed and new memory",
        help:
          "Data from rxd is valid until the function returns: copy it to keep it. Build with -fsanitize=address")
    }
    return .ok("")
  }

  static func threads(_ trial: ContractTrial) throws(ContractBreach) -> Verdict {
    guard trial.suite.isNative, trial.spec.form == .row else { return .notApplicable("it is not a pure function") }
    let program = try trial.program(["--threads", "4"])
    defer { program.kill() }
    let expected = try trial.reference()
    let found = try trial.ask(program, try trial.open(program), expected.steps)
    try trial.compare(
      expected.outcomes, found, "on four threads at once",
      help: "'row' is called on any thread, several at once: change nothing but what belongs to the call")
    return .ok("4 threads")
  }
}
