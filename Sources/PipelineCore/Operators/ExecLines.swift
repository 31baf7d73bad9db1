internal import DequeModule

/// `exec` in a chain: a program that keeps running and answers each line with a line.
struct ExecLines: OperatorComponent {
  enum Answer: String, ChoiceParameter {
    case json, text
    var help: String { self == .json ? "a JSON document" : "a text" }
  }

  var command: [String] = []
  var shell: String?
  var environment = Table<Secret>()
  var directory: String?
  var encode = EncodeParameter(.ndjson)
  var answer = Answer.json
  var to = MappingParameter()
  var timeout = TimeSpan.seconds(10)
  var inFlight = 1
  var limit = 10_000
  var delay = TimeSpan.milliseconds(100)
  var maxDelay = TimeSpan.seconds(10)
  var maxLine = ByteSize(1 << 20)
  var maxMemory: ByteSize?

  static let spec = ComponentSpec<ExecLines>(
    "exec",
    summary: "Writes each event as a line to a program that keeps running, and sends the line that it answers.",
    details: """
      The program is started once. It reads a line for each event from its standard input and writes one line for each to its standard output, in the same order, \
      and must write it out at once (`stdbuf -oL`, `python3 -u`, `jq --unbuffered`). A program that is started again for each event is `flattenMap: { signal: { exec: ... } }`.

      `command` is the program and its arguments, which no shell reads; `shell` runs a text with `/bin/sh -c` instead. A program without a `/` is looked for in \
      /usr/local/bin, /usr/bin, /bin and their sbin. It gets the variables of `environment` and no others, no open file of rxd, no more privileges than rxd has, and it ends with rxd. \
      Its standard error goes to the log, twenty lines a second at most.

      At most `inFlight` events are with the program, 1 by default; more cost less time for each, if it reads on before it has answered. If it ends, or does not answer the first of them within `timeout` (it is then ended), \
      all events that are with it go to the errors output (RX551): it may have acted on them. It is started again after a pause of `delay`, which doubles with each failure in a row up to `maxDelay`, \
      and gets the events that wait. A line without a request ends it too, because the answers would be those of other events from then on. An event whose text has a line break in it (`encode: text`) and an answer that is no JSON are rejected alone.

      `to` makes the new event of `event` and `answer`; without it, the answer is the new event.
      """,
    parameters: [
      .init("command", \.command, primary: true, "The program and its arguments."),
      .init("shell", \.shell, "A text for `/bin/sh -c`, in place of `command`."),
      .init("environment", \.environment, "The variables of its environment."),
      .init("directory", \.directory, "The directory in which it runs; default: that of rxd."),
      .init("encode", \.encode, "How an event becomes a line."),
      .init("answer", \.answer, "How an answer line is decoded."),
      .init("to", \.to, variables: [("answer", .dyn)], "The new event, made of `event` and `answer`."),
      .init("timeout", \.timeout, range: 1_000_000...Int64.max, "How long an answer may take."),
      .init("inFlight", \.inFlight, range: 1...10_000, "How many events the program may have at once."),
      .init("limit", \.limit, range: 1...10_000_000, "How many events may wait before the pipeline's input pauses."),
      .init("delay", \.delay, range: 1_000_000...Int64.max, "The first pause before it is started again."),
      .init("maxDelay", \.maxDelay, range: 1_000_000...Int64.max, "The longest pause."),
      .init("maxLine", \.maxLine, "The longest answer; a longer one ends the program."),
      .init("maxMemory", \.maxMemory, "The maximum private memory of the program (RLIMIT_DATA)."),
    ],
    examples: [
      .snippet("each text in capitals", "exec: { command: [stdbuf, -oL, tr, a-z, A-Z], encode: text, answer: text }"),
      .pipeline(
        "the answer of a model to each event",
        """
        name: scores
        sources:
          in: { stdin: { decode: ndjson } }
        signals:
          scored:
            from: in
            chain:
              - exec: { command: [/usr/bin/python3, -u, /opt/score.py], to: { id: event.id, score: answer.score } }
        sinks:
          out: { from: scored, stdout: {} }
        tests:
          - name: one score
            inputs: { in: { marbles: "a|", values: { a: { id: 7 } } } }
            stubs:
              exec: [ { command: "/usr/bin/python3 -u /opt/score.py", reply: { json: { score: 0.5 } } } ]
            expect:
              scored: { marbles: "a|", values: { a: { id: 7, score: 0.5 } } }
        """),
    ],
    edges: EdgeCases(
      empty: "The program is started, and its input ends.",
      error:
        "Passed on at once; waiting events are dropped, and the program is ended. A missing program is an error.",
      completion: "Passed on when all events have been answered or rejected; then its input ends.",
      disposal: "Ends the program: its input ends, SIGTERM, and SIGKILL after 5 s. Waiting events are dropped."),
    memory: "Events that wait or are with the program. After a restart they are given to the new one.",
    persistence: .state(version: 1),
    lateness: .always("an event has no time"),
    knownAs: ["Benthos subprocess", "Telegraf processors.execd", "Fluentd exec_filter", "Vector exec"],
    useCases: [
      .init(
        .shaping, "have a program of my own change each event",
        "exec: { command: [/usr/bin/python3, -u, /opt/score.py] }")
    ],
    seeAlso: ["flattenMap", "map"])

  func validate(_ context: inout DecodingContext) {
    context.checkProgram(command, shell: shell, environment: environment, example: "[tr, a-z, A-Z]")
    if encode.options.format == .csv, encode.options.csv.header {
      context.badValue(
        at: context.location(of: "encode"), "a header would be a line without an answer",
        help: "Write 'encode: { csv: { header: false } }'")
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    if to.isGiven { return EventType(to.type) }
    return answer == .json ? .dyn : EventType(.string)
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  fileprivate var call: ProgramCall {
    var call = ProgramCall(
      command, shell: shell, environment: environment, directory: directory, maxMemory: maxMemory)
    call.options.timeout = timeout
    return call
  }

  final class Node: OperatorNode {
    private struct Entry {
      var event: OwnedEvent
      var line: [UInt8]
      /// The acknowledgement of the event; nil if nothing waits for it.
      var ack: Ack?
    }

    private let parameters: ExecLines
    private let encoder: any EventEncoder
    private let builder: ValueBuilder?
    private lazy var frame = makeFrame()
    private let buffer = OutputBuffer()
    /// Events in order; the first `given` of them have been written to the program.
    private var entries = Deque<Entry>()
    private var given = 0
    private var backlog = Backlog()
    private var program: (any ProgramDialogue)?
    /// The number of the current program; output of earlier programs is ignored.
    private var generation = 0
    private var attempts: Attempts
    private var hasAnswered = false
    /// While the program has events, the deadline of its first answer; while there is no program, its restart.
    private var timer = Wake.none
    private var isEnding = false
    private static let starts = 1

    init(_ parameters: ExecLines, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      attempts = Attempts(parameters.delay, most: parameters.maxDelay)
      encoder = parameters.encode.makeEncoder()
      builder = parameters.to.isGiven ? parameters.to.makeBuilder() : nil
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      open()
      super.start()
    }

    override func restored() {
      backlog.restore(false, entries.lazy.map(\.event), self)
      open()
    }

    private var name: String { parameters.shell == nil ? parameters.command.first ?? "" : "/bin/sh" }

    private func log(_ level: Services.Level, _ message: String) {
      execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
    }

    // MARK: The program

    private func open() {
      // A dry run must not send the events of a running pipeline to another process.
      guard !isClosed, !execution.isDryRun, program == nil else { return }
      generation += 1
      hasAnswered = false
      let number = generation
      let executor = executor
      let node = Weak(self)
      program = execution.services.programs.converse(parameters.call, maxLine: parameters.maxLine.bytes) { part in
        executor.post { node.object?.take(part, of: number) }
      }
      give()
    }

    private func give() {
      guard let program, !isClosed else { return }
      var bytes: [UInt8] = []
      while given < entries.count, given < parameters.inFlight {
        bytes += entries[given].line
        given += 1
      }
      if !bytes.isEmpty { program.write(bytes) }
      if given > 0, !timer.isSet { timer = wake(after: parameters.timeout) }
    }

    private func take(_ part: ProgramPart, of number: Int) {
      guard !isClosed, number == generation, program != nil else { return }
      switch part {
      case .said(let level, let text): log(level, text)
      case .line(let line): answered(line)
      case .ended(let result): ended(result)
      }
    }

    private func answered(_ line: [UInt8]) {
      guard given > 0, var entry = entries.popFirst() else {
        return end("'\(name)' has written a line that belongs to no event: \(Printable.cut(line, limit: 200))")
      }
      given -= 1
      if !hasAnswered {
        hasAnswered = true
        if attempts.succeed() > 0 { log(.info, "'\(name)' answers again") }
      }
      cancelWake(&timer)
      backlog.removed(entry.event, entries.count, parameters.limit, self)
      goOn(with: &entry.ack)
      entry.event.keep(in: arena)
      send(entry.event.event, line)
      guard !isClosed else { return }
      give()
      finishIfDone()
    }

    private func send(_ event: Event, _ line: [UInt8]) {
      let copy = line.withUnsafeBytes { arena.copy($0) }
      var value: Value
      switch parameters.answer {
      case .text:
        guard UTF8Text.isValid(copy) else { return reject(event, .notAnswered, "the answer of '\(name)' is not UTF-8") }
        value = .string(copy)
      case .json:
        value = execution.json.parse(copy, into: arena)
        guard !value.isError else {
          return reject(
            event, .notAnswered, "the answer of '\(name)' is not JSON: \(Printable.cut(line, limit: 200))")
        }
      }
      if let builder {
        if let failure = frame.load(event) { return reject(event, .eventNotReadable, EventFrame.message(of: failure)) }
        frame.set(0, value)
        var failing: Unmanaged<Program>?
        let new = builder.build(frame, &failing)
        if new.isError, let program = failing?.takeUnretainedValue() {
          return reject(event, .expressionFailed, program.failureMessage(new, frame.frame))
        }
        value = new.is(.optional) ? new.wrapped ?? .null : new
      }
      emit(event.with(value))
    }

    private func ended(_ result: Result<ProgramResult, ProgramFailure>) {
      let reason: String
      switch result {
      case .failure(let failure):
        reason = "'\(name)' \(failure.message)"
        // The program cannot be started at all, so no later attempt would succeed.
        if failure.kind == .start || failure.kind == .arguments, generation == 1 {
          return finish(failing: SignalFailure(.plugin, reason, at: nodeContext.location))
        }
      case .success(let end):
        let lines = end.errors.split(separator: UInt8(ascii: "\n"))
        let said = lines.last.map { ", after it had written: \(Printable.cut(Array($0), limit: 200))" } ?? ""
        reason = "'\(name)' \(end.exit.map { "exited with \($0)" } ?? "was ended by signal \(end.signal ?? 0)")\(said)"
      }
      program = nil
      again(because: reason)
    }

    /// Ends a program that violates the protocol.
    private func end(_ reason: String, hint: String = "") {
      let running = program
      program = nil
      running?.cancel()
      again(because: reason, hint: hint)
    }

    /// Rejects the events that the program had, and restarts it after a pause for those that wait.
    private func again(because reason: String, hint: String = "") {
      cancelWake(&timer)
      attempts.fail()
      countRetry()
      // The pause has no jitter: the program is local, so no other client restarts it at the same time.
      let pause = attempts.pause(nil)
      log(.warning, "\(reason)\(hint); it is started again after \(pause)")
      let lost = (0..<given).compactMap { _ in entries.popFirst() }
      given = 0
      for var entry in lost where !isClosed {
        backlog.removed(entry.event, entries.count, parameters.limit, self)
        goOn(with: &entry.ack)
        entry.event.keep(in: arena)
        reject(entry.event.event, .notAnswered, reason)
      }
      guard !isClosed else { return }
      if isEnding, entries.isEmpty { return finish() }
      timer = wake(after: pause, Self.starts)
    }

    override func woke(_ token: Int) {
      timer = .none
      if token == Self.starts { return open() }
      end(
        "'\(name)' has not answered within \(parameters.timeout)",
        // The usual cause of silence, which the program itself cannot report.
        hint: hasAnswered ? "" : " (it must write each line out at once, as with 'stdbuf -oL')")
    }

    // MARK: Events

    override func receive(_ event: Event) {
      guard !isClosed else { return }
      buffer.clear()
      if let failure = encoder.append(event.value, to: buffer) {
        return reject(event, .notAnswered, "the event cannot be written: \(failure)")
      }
      var line = Array(buffer.bytes)
      if line.last != 0x0A { line.append(0x0A) }
      guard line.firstIndex(of: 0x0A) == line.count - 1 else {
        return reject(event, .notAnswered, "the event has a line break, so it is more than one line")
      }
      let owned = OwnedEvent(event)
      entries.append(Entry(event: owned, line: line, ack: holdAck()))
      backlog.added(owned, entries.count, parameters.limit, self)
      give()
    }

    override func complete() {
      isEnding = true
      finishIfDone()
    }

    private func finishIfDone() {
      guard isEnding, entries.isEmpty, !isClosed else { return }
      finish()
    }

    override func stop() {
      cancelWake(&timer)
      let running = program
      program = nil
      if isEnding, entries.isEmpty { running?.close() } else { running?.cancel() }
      let left = entries
      entries = []
      given = 0
      for var entry in left { goOn(with: &entry.ack, isGivenUp: true) }
      backlog.cleared(parameters.limit, self)
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(each: entries) { state, entry in
        state.write(entry.event)
        state.write(entry.line)
      }
      state.write(isEnding)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) { entries.append(Entry(event: try state.read(), line: try state.read())) }
      isEnding = try state.read()
    }
  }
}
