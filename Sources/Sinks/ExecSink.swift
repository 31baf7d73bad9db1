import PipelineCore
import Transport

/// `exec`: writes events to a program's standard input.
package struct ExecSink: SinkComponent {
  enum OnExit: String, ChoiceParameter {
    case restart, fail
    var help: String {
      self == .restart ? "it is started again, after growing pauses" : "the pipeline fails"
    }
  }

  var command: [String] = []
  var shell: String?
  var environment = Table<Secret>()
  var directory: String?
  var encode = EncodeParameter(.ndjson)
  var framing = SentFraming.lines
  var onExit = OnExit.restart
  var restart = ReconnectParameter()
  var success: [Int] = [0]
  var stopTimeout = TimeSpan.seconds(10)
  var queue = ByteSize(16 << 20)
  var maxMemory: ByteSize?

  package init() {}

  package static let spec = ComponentSpec<ExecSink>(
    "exec",
    summary: "Gives events to a program on its standard input, and starts the program again if it ends.",
    details: """
      `command` is the program and its arguments, which no shell reads; `shell` runs a text with `/bin/sh -c` instead. A program without a `/` is looked for in \
      /usr/local/bin, /usr/bin, /bin and their sbin. It gets the variables of `environment` and no others, no open file of rxd, no more \
      privileges than rxd has, and it ends with rxd. What it writes goes to the log, twenty lines a second at most.

      An event counts as delivered when the program has read all of its bytes. If the program ends before its input does, \
      the events that it has not read go to the next run, from the start of the first of them. What the program did with the events that it had read \
      is unknown: they are not sent again. While it does not read, events wait: beyond `queue` the pipeline reads no further input.

      When everything is sent its input ends, and it has `stopTimeout` to end itself; then it gets SIGTERM, and SIGKILL after 5 s. An exit status that \
      is not in `success` is a warning then. A program that closes its input and goes on is ended, and started again.
      In a reload the program runs on with the events that it has. If the parameters have changed, it gets 2 s to read these; then its input ends, and a program as \
      the new version says gets the rest.
      """,
    parameters: [
      .init("command", \.command, primary: true, "The program and its arguments."),
      .init("shell", \.shell, "A text for `/bin/sh -c`, in place of `command`."),
      .init("environment", \.environment, "The variables of its environment."),
      .init("directory", \.directory, "The directory in which it runs; default: that of rxd."),
      .init("encode", \.encode, "How events are encoded as bytes."),
      .init("framing", \.framing, "How events are delimited."),
      .init("onExit", \.onExit, "What happens if it ends before its input does."),
      .init("restart", \.restart, applies: .word("onExit", ["restart"]), "The pauses before it is started again."),
      .init("success", \.success, range: 0...255, "The exit statuses that are not errors after the end of its input."),
      .init(
        "stopTimeout", \.stopTimeout, range: 0...Int64.max, "How long it may run after the end of its input."),
      .init("queue", \.queue, "How much may wait."),
      .init("maxMemory", \.maxMemory, "The maximum private memory of the program (RLIMIT_DATA)."),
    ],
    examples: [
      .snippet("a line of JSON for each event", "exec: { command: [/usr/local/bin/import, --stdin] }"),
      .snippet("texts to a pipeline of a shell", "exec: { shell: 'sort | uniq -c', encode: text }"),
    ],
    edges: EdgeCases(
      empty: "The program is started, and its input ends.",
      error:
        "A missing program ends the pipeline; an event that cannot be encoded goes to the errors output.",
      completion: "Waiting events are sent first; then its input ends, and it is waited for.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a reader these events become dead letters \
        or, without a state directory, a number in a warning. Then the program gets SIGTERM, and SIGKILL after 1 s.
        """
    ),
    memory: "Waiting events, up to `queue`, and those that the program has not read.",
    persistence: .position(version: 1),
    knownAs: ["Telegraf execd, exec", "Logstash pipe", "Benthos subprocess", "rsyslog omprog"],
    useCases: [.init(.writing, "give events to a program", "exec: { command: [logger, -t, shop], encode: text }")],
    seeAlso: ["stdout", "unix"])

  package func validate(_ context: inout DecodingContext) {
    context.checkProgram(command, shell: shell, environment: environment, example: "[logger, -t, shop]")
  }

  package var encoding: EncodeParameter? { encode }
  package var threads: String? { "encoded on the pipeline thread, written by a thread of its own" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    let call = ProgramCall(
      command, shell: shell, environment: environment, directory: directory, maxMemory: maxMemory)
    var options = ProgramSender.Options()
    options.stopTimeout = stopTimeout
    options.restarts = onExit == .restart
    options.success = success
    var settings = MessageConnector.Settings(endpoint: .unix(path: "", isDatagram: false), encode: encode)
    settings.program = (call, options)
    settings.attempts = restart.attempts
    settings.framing = framing
    settings.queue = queue.bytes
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }
}
