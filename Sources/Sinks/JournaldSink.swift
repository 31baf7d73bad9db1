import PipelineCore
import Transport

/// `journald`: writes events to the journal of systemd.
package struct JournaldSink: SinkComponent {
  var socket = "/run/systemd/journal/socket"
  var priority = SyslogSink.Severity()
  var identifier = "rxd"
  var maxMessage = ByteSize(16 << 20)
  var queue = ByteSize(16 << 20)
  var reconnect = ReconnectParameter()

  package init() {}

  package static let spec = ComponentSpec<JournaldSink>(
    "journald",
    summary: "Writes events to the journal of systemd, with their members as fields.",
    details: """
      The members of a map are the fields of the entry: names in capital letters, and `_` for characters that a name of the journal cannot contain. A map in a map \
      puts its name in front, so `http: { status: 200 }` is `HTTP_STATUS=200`; each element of a list is a field of its own. `message` is \
      the message; without it, and for an event that is no map, the whole event is. `priority` may be a number from 0 to 7 or a name; \
      one that is neither counts as none. Members whose names begin with `_` are left out, because only journald sets such fields: an event of the source \
      `journald` keeps its other fields.

      Entries go by the native protocol, as they are, also with line breaks and binary values; one that is too large for a datagram goes as a sealed file in memory. \
      An event counts as delivered when it waits in the socket of journald, which may still drop it by its rate limit. While journald is not there, events wait: \
      beyond `queue` the pipeline reads no further input. An event with more than 900 fields goes to the errors output.
      """,
    parameters: [
      .init(
        "socket", \.socket, primary: true, "The socket of journald; of a namespace, /run/systemd/journal.NAME/socket."),
      .init("priority", \.priority, "The priority of events that have none."),
      .init("identifier", \.identifier, "`SYSLOG_IDENTIFIER` of events that have none."),
      .init(
        "maxMessage", \.maxMessage, "The largest entry; an event that makes a larger one goes to the errors output."),
      .init("queue", \.queue, "How much may wait."),
      .init("reconnect", \.reconnect, "The pauses between attempts to connect."),
    ],
    examples: [
      .snippet("to the system's journal", "journald: {}"),
      .snippet("as a program of its own", "journald: { identifier: shop, priority: notice }"),
    ],
    edges: EdgeCases(
      empty: "Nothing is sent.",
      error: "A lost connection is reopened, forever; an event that cannot be encoded goes to the errors output.",
      completion: "Waiting events are sent first.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: "Waiting events, up to `queue`.", persistence: .position(version: 1),
    knownAs: ["systemd-cat", "rsyslog omjournal"],
    useCases: [.init(.writing, "write events to the journal of systemd", "journald: { identifier: shop }")],
    seeAlso: ["syslog", "unix"])

  package func validate(_ context: inout DecodingContext) {
    if socket.isEmpty || socket.utf8.count > 107, !socket.contains("${") {
      context.badValue(
        at: context.location(of: "socket"),
        "the path of a Unix socket has 1 to 107 bytes, and this one \(socket.utf8.count)",
        help: "Write a path such as /run/systemd/journal/socket")
    }
  }

  package var threads: String? { "encoded on the pipeline thread, sent by a thread of its own" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    var settings = MessageConnector.Settings(
      endpoint: .unix(path: socket, isDatagram: true), encode: EncodeParameter(.json))
    settings.maxMessage = maxMessage.bytes
    settings.queue = queue.bytes
    settings.attempts = reconnect.attempts
    settings.options.sendsLargeAsFiles = true
    var encoding = JournalEncoding()
    encoding.priority = priority.number
    encoding.identifier = identifier
    settings.journal = encoding
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }
}
