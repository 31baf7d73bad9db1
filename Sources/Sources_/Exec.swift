import PipelineCore
import Transport

/// `exec`: runs a program once, periodically, or continuously.
package struct Exec: SourceComponent, RepeatingSource {
  /// The part of the output that becomes an event.
  package enum Emission: String, ChoiceParameter {
    case output, exit
    package var help: String {
      switch self {
      case .output: "the standard output of the program, decoded"
      case .exit:
        "one event when it has ended: `{ exit, signal, output, errors }`; `exit` is -1 if a signal ended it, otherwise `signal` is 0"
      }
    }
  }

  var command: [TemplateParameter] = []
  var shell: String?
  var input = TemplateParameter()
  var environment = Table<TemplateParameter>()
  var directory: String?
  package var every: TimeSpan?
  var jitter = TimeSpan.zero
  var immediate = true
  package var streaming = false
  var emit = Emission.output
  package var decode = DecodeParameter(.lines)
  var join: JoinParameter?
  var charset = CharsetParameter()
  var success: [Int] = [0]
  package var timeout = TimeSpan.seconds(30)
  var stopTimeout = TimeSpan.seconds(10)
  var maxOutput = ByteSize(16 << 20)
  var maxLine = ByteSize(1 << 20)
  var whenTooLong = WhenTooLong.reject
  var maxMemory: ByteSize?
  var maxCPU: TimeSpan?

  package init() {}

  package static let spec = ComponentSpec<Exec>(
    "exec",
    summary: "Runs a program and sends its output: once, periodically, or for as long as it runs.",
    details: """
      `command` is the program and its arguments. No shell reads them, so an argument may hold anything; `shell` runs a text with `/bin/sh -c` \
      instead. A program without a `/` is looked for in /usr/local/bin, /usr/bin, /bin and their sbin. It gets the \
      variables of `environment` and no others, no open file of rxd, no more privileges than rxd has, and it ends with rxd. What it leaves \
      running in its process group is killed when it ends.

      Without `every` the program runs once, and the signal completes when it has ended. An exit status that is not in `success`, a signal, \
      or `timeout` is an error, which `retry` and `catch` handle; `error.exit` and `error.signal` say which, and the message has the last line of its standard error. \
      With `every`, a run that fails goes to the errors output (RX527) and the next one follows; a run that is still under way when the \
      next is due goes on, and the next is left out.

      In an inner signal the templates see the event that it was made for as `event`: `flattenMap: { signal: { exec: ... } }` runs a program for each event, as many at a time as \
      `flattenMap` allows. An argument that begins with event data must not begin with `-`, which would be an option, unless the file has \
      the argument `--` before it: the event then goes to the errors output of the signal (RX526). `shell` has no templates; event data comes in by \
      `input` and `environment`.

      With `streaming: true` lines are sent as the program writes them, and it may run for ever: `repeat` and `retry` start it again. When the pipeline stops, it gets \
      SIGTERM, and SIGKILL after `stopTimeout`. Over a reload the program runs on, with its event at hand; one whose command, input or \
      environment has changed is ended first, and its output until then is sent. Its standard error goes to the log, twenty lines a second at most.
      """,
    parameters: [
      .init("command", \.command, primary: true, "The program and its arguments."),
      .init("shell", \.shell, "A text for `/bin/sh -c`, in place of `command`."),
      .init("input", \.input, "What the program reads from its standard input."),
      .init("environment", \.environment, "The variables of its environment."),
      .init("directory", \.directory, "The directory in which it runs; default: that of rxd."),
      .init(
        "every", \.every, range: 1_000_000...Int64.max, applies: .off("streaming"), "The time from one run to the next."
      ),
      .init(
        "jitter", \.jitter, range: 0...Int64.max, applies: .with("every"),
        "Adds a random delay of up to this to each later run."),
      .init("immediate", \.immediate, applies: .with("every"), "Whether the first run starts at once."),
      .init("streaming", \.streaming, "Send lines while the program runs, however long."),
      .init("emit", \.emit, "What becomes an event."),
      .init(
        "decode", \.decode, applies: .word("emit", ["output"]), nested: DecodeParameter.withCharsetAndJoin,
        "How its output is decoded into events."),
      .init(
        "charset", \.charset,
        applies: .word("emit", ["output"]),
        "How characters are encoded: utf-8, utf-16 (with a byte order mark), utf-16le, utf-16be, latin1, windows-1252, or another one that iconv(3) knows."
      ),
      .init(
        "join", \.join, applies: .word("emit", ["output"]),
        "Which lines make one event together, as with `file`; by default each is one."),
      .init(
        "success", \.success, range: 0...255, applies: .word("emit", ["output"]),
        "The exit statuses that are not errors."
      ),
      .init(
        "timeout", \.timeout, range: 1_000_000...Int64.max,
        applies: .off("streaming"), "How long a run may take; then it gets SIGTERM, and SIGKILL 5 s later."),
      .init(
        "stopTimeout", \.stopTimeout, range: 0...Int64.max,
        "How long a run under way may still take when the pipeline is stopped."),
      .init("maxOutput", \.maxOutput, applies: .off("streaming"), "The maximum output of a run; more is an error."),
      .init("maxLine", \.maxLine, applies: .on("streaming"), "The longest line."),
      .init("whenTooLong", \.whenTooLong, applies: .on("streaming"), "What happens to a longer line."),
      .init("maxMemory", \.maxMemory, "The maximum private memory of the program (RLIMIT_DATA)."),
      .init(
        "maxCPU", \.maxCPU, range: 1_000_000_000...Int64.max,
        "The maximum CPU time of the program, in whole seconds (RLIMIT_CPU)."),
    ],
    examples: [
      .snippet("the load each ten seconds", "exec: { command: [cat, /proc/loadavg], every: 10s }"),
      .snippet("JSON from a tool", "exec: { command: [lsblk, --json], every: 1m, decode: json }"),
      .snippet(
        "the log of a service, continuously",
        "exec: { command: [journalctl, -f, -o, json], streaming: true, decode: ndjson }"),
      .snippet("whether a unit runs", "exec: { command: [systemctl, is-active, nginx], every: 30s, emit: exit }"),
    ],
    edges: EdgeCases(
      empty: "A program that writes nothing gives no event (`lines`) or an event that cannot be decoded (`json`).",
      error: """
        A program that cannot be started, another exit status than those of `success`, a signal or the end of `timeout` ends it with an error; with `every` \
        that run goes to the errors output, and the next one follows.
        """,
      completion: """
        When the program has ended; with `every`, never. When the pipeline is stopped: after the run, or `stopTimeout`.
        """,
      disposal: "Ends the program: SIGTERM, and SIGKILL after 5 s."),
    memory: """
      What the program has written, until it ends and is decoded; with `streaming`, a block. After a restart, a run that was under way is repeated, and the \
      schedule of `every` continues.
      """,
    persistence: .state(version: 1),
    lateness: .leavesOut("Missed runs are skipped; the next one starts in its period.") { exec, _ in
      exec.every == nil ? "it runs once" : nil
    },
    knownAs: ["Vector exec", "Telegraf exec, execd", "Logstash exec", "Benthos subprocess, command"],
    useCases: [
      .init(
        .reading, "run a program periodically and read its output",
        "exec: { command: [cat, /proc/loadavg], every: 10s }"),
      .init(
        .reading, "know whether a program succeeds",
        "exec: { command: [systemctl, is-active, nginx], every: 30s, emit: exit }"),
    ],
    seeAlso: ["http", "interval", "flattenMap"])

  package func validate(_ context: inout DecodingContext) {
    if command.isEmpty == (shell == nil) {
      context.badValue(
        at: context.location,
        command.isEmpty ? "'exec' needs 'command' or 'shell'" : "'exec' has both 'command' and 'shell'",
        .conflictingParameters, help: "Write 'exec: { command: [uptime, -p] }'")
      return
    }
    if let program = command.first, let location = program.location {
      if !program.isConstant {
        context.badValue(
          at: location, "the program must be written out, not come from an event",
          help: "Put event data into an argument")
      } else if program.containsSecret {
        context.badValue(
          at: location, "the program must not contain a secret", .misplacedSecret,
          help: "Messages name the program; give secrets by 'input' or 'environment'")
      } else if case let name = program.shownPrefix, !name.contains("${") {
        if name.isEmpty {
          context.badValue(at: location, "the program has no name", help: "Write 'command: [uptime, -p]'")
        } else if name.contains(" "), !name.contains("/"), command.count == 1 {
          context.badValue(
            at: location,
            "'command' is a list of the program and its arguments; there is no program '\(Printable.cut(name))'",
            help:
              "Write 'command: [\(Printable.cut(name.split(separator: " ").joined(separator: ", ")))]', or 'shell:' for a text that a shell reads"
          )
        }
      }
    }
    warnOfCode(&context)
    if streaming, emit == .exit {
      context.badValue(
        at: context.location(of: "emit"),
        "'emit: exit' has no effect with 'streaming': the program may run for any time",
        .conflictingParameters, help: "Leave one of them out")
    }
    context.checkVariables(environment)
    join?.check(decode.options, &context)
    charset.check(decode.options, joins: join != nil, &context)
  }

  /// How the program's output becomes events.
  var decoding: DecoderOptions { charset.reading(join?.joining(decode.options) ?? decode.options, maxLine: maxLine) }

  package var outputType: EventType {
    guard emit == .exit else { return decode.options.eventType }
    return EventType(
      .object(
        fields: [
          .init("exit", .int), .init("signal", .int), .init("output", .string), .init("errors", .string),
        ], open: false))
  }

  package func threads(_ limit: Int?) -> String? {
    streaming
      ? decoding.threads(limit)
      : "waited for by a thread of its own, decoded on the pipeline thread"
  }

  package var runsOnVirtualTime: Bool { !streaming }

  package var repeats: TimeSpan? { every }

  package var once: (any SourceComponent)? {
    var once = self
    once.every = nil
    return once
  }

  /// A program that runs continuously has no schedule to save.
  package var persistence: Persistence { streaming ? .nothing : Self.spec.persistence }
  package var recovery: SourceRecovery { streaming ? .never : .request }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    streaming ? ExecStream(self, nodeContext, downstream) : ExecRuns(self, nodeContext, downstream)
  }

  /// The program's name for messages.
  var name: String { shell == nil ? command.first?.shownPrefix ?? "" : "/bin/sh" }

  /// The call for the loaded event. A failure of kind `expression` names the failing expression; one of kind `source`
  /// says why a call with these texts is not allowed.
  func call(_ frame: EventFrame) -> Result<ProgramCall, SignalFailure> {
    var call = ProgramCall(name)
    do throws(SignalFailure) {
      if let shell { call.arguments = ["-c", shell] }
      var isAfterOptions = false
      var shown: [String] = []
      for argument in command.dropFirst() {
        var inserted: [Range<Int>] = []
        let text = String(decoding: try argument.text(frame, inserted: &inserted), as: UTF8.self)
        if text.utf8.first == UInt8(ascii: "-"), inserted.first?.lowerBound == 0, inserted.first?.isEmpty == false,
          !isAfterOptions
        {
          throw SignalFailure(
            .source, "an argument of event data would begin with '-' and be an option: put the argument '--' before it",
            at: argument.location)
        }
        if argument.isConstant, text == "--" { isAfterOptions = true }
        call.arguments.append(text)
        shown.append(
          argument.containsSecret ? String(decoding: try argument.text(frame, isShown: true), as: UTF8.self) : text)
      }
      if shown != call.arguments, shell == nil { call.maskedArguments = shown }
      if input.isGiven { call.input = try input.text(frame) }
      for entry in environment.entries {
        call.options.environment[entry.name] = String(decoding: try entry.value.text(frame), as: UTF8.self)
      }
    } catch {
      return .failure(error)
    }
    call.options.directory = directory
    call.options.timeout = timeout
    call.options.maxOutput = maxOutput.bytes
    call.options.memory = maxMemory?.bytes ?? 0
    call.options.cpu = maxCPU.map { Int(($0.nanoseconds + 999_999_999) / 1_000_000_000) } ?? 0
    for text in [call.program] + call.arguments + call.options.environment.values where text.utf8.contains(0) {
      return .failure(SignalFailure(.source, "an argument or variable would contain a NUL byte"))
    }
    return .success(call)
  }
}
