import PipelineCore

/// `docker`: the logs of containers, or Docker's events, read from its socket.
package struct DockerSource: SourceComponent {
  enum Emission: String, ChoiceParameter {
    case logs, events
    var help: String {
      switch self {
      case .logs: "an event for each line that a container writes: `{ container, stream, message, time }`"
      case .events: "what happens to containers, images, networks and volumes: `{ type, action, id, attributes, time }`"
      }
    }
  }

  var socket = "/var/run/docker.sock"
  var emit = Emission.logs
  var containers: [String] = []
  var labels: [String] = []
  var since = TimeSpan.zero
  var maxLine = ByteSize(1 << 20)
  var reconnect = TimeSpan.seconds(1)
  var maxReconnect = TimeSpan.seconds(30)
  var timeout = TimeSpan.seconds(30)

  package init() {}

  package static let spec = ComponentSpec<DockerSource>(
    "docker",
    summary: "Reads the logs of Docker's containers, or Docker's events, over its socket.",
    details: """
      With `emit: logs`, all containers are read that `containers` and `labels` select, those that start later too: `container` has their `id`, `name`, `image` and `labels`, \
      `stream` is `stdout` or `stderr` (with a terminal all is `stdout`), and `time` is when Docker has read the line. A line that Docker has cut in parts is one line again; a line of more than `maxLine` bytes goes to the errors output. \
      What is no UTF-8 is replaced. A container whose logging driver cannot be read is left out, with a warning.

      The position is the time of the last line of each container, or of the last event: with a state directory, a restart goes on behind it, also for containers that have ended meanwhile, as long as they are there. \
      Of a line with exactly the same time, in nanoseconds, as the last one that was read before a new connection, it cannot be known whether it was read: it is left out. Lines that Docker's log rotation has removed are gone.

      If the connection ends, it is made again, after `reconnect`, which doubles with each failure in a row up to `maxReconnect`. Every user that can connect to the socket controls the machine: \
      rxd only sends GET requests, but the user that runs it needs the permission. Podman answers the same requests on its own socket. \
      This source is tested against a small server that gives the answers of Docker's documentation (API 1.24 and later), not against a running Docker.
      """,
    parameters: [
      .init("socket", \.socket, primary: true, "The path of Docker's socket."),
      .init("emit", \.emit, "What becomes an event."),
      .init(
        "containers", \.containers, applies: .word("emit", ["logs"]),
        "Names of containers, with `*` for any text; by default all."),
      .init("labels", \.labels, "Labels that containers must have, each `NAME` or `NAME=VALUE`."),
      .init(
        "since", \.since, range: 0...Int64.max,
        "How far back the first start reads; by default only later lines."),
      .init("maxLine", \.maxLine, applies: .word("emit", ["logs"]), "The longest line."),
      .init("reconnect", \.reconnect, range: 1_000_000...Int64.max, "The first pause before a new connection."),
      .init("maxReconnect", \.maxReconnect, range: 1_000_000...Int64.max, "The longest pause."),
      .init("timeout", \.timeout, range: 1_000_000...Int64.max, "How long an answer may take that is not a stream."),
    ],
    examples: [
      .snippet("what all containers write", "docker: /var/run/docker.sock"),
      .snippet(
        "of some, and of the last hour too", "docker: { containers: ['shop-*'], labels: [env=prod], since: 1h }"),
      .pipeline(
        "containers that end with an error",
        """
        name: deaths
        sources:
          docker: { docker: { emit: events } }
        signals:
          deaths:
            from: docker
            chain:
              - filter: event.type == 'container' && event.action == 'die' && event.attributes.?exitCode.orValue('0') != '0'
              - map: { name: "event.attributes.?name.orValue('')", exit: event.attributes.exitCode }
        sinks:
          out: { from: deaths, stdout: {} }
        tests:
          - name: one of two
            inputs:
              docker:
                marbles: "ab|"
                values:
                  a: { type: container, action: die, id: x, attributes: { name: web, exitCode: "0" }, time: "2026-01-02T03:04:05Z" }
                  b: { type: container, action: die, id: y, attributes: { name: db, exitCode: "137" }, time: "2026-01-02T03:04:05Z" }
            expect:
              deaths: { marbles: "-b|", values: { b: { name: db, exit: "137" } } }
        """),
      .pipeline(
        "errors of the shop's containers, with a stub of Docker",
        """
        name: complaints
        sources:
          shop: { docker: { containers: ['shop-*'], labels: [env=prod] } }
        sinks:
          out:
            from: shop
            chain: [ { filter: event.stream == 'stderr' }, { map: "event.container.name + ': ' + event.message" } ]
            stdout: text
        tests:
          - name: only errors, and only of the shop
            stubs:
              docker:
                - { container: shop-web, labels: { env: prod }, lines: [ { text: fine, at: 1ms }, { text: no room, stream: stderr, at: 2ms } ] }
                - { container: shop-db, labels: { env: prod }, starts: 3ms, ends: 6ms, lines: [ { text: corrupt, stream: stderr, at: 4ms } ] }
                - { container: shop-test, labels: { env: test }, lines: [ { text: ignored, stream: stderr, at: 1ms } ] }
                - { container: mail, labels: { env: prod }, lines: [ { text: ignored, stream: stderr, at: 1ms } ] }
            expect:
              out: [ { at: 2ms, next: "shop-web: no room" }, { at: 4ms, next: "shop-db: corrupt" } ]
        """),
    ],
    edges: EdgeCases(
      empty: "Nothing is sent until a container writes.",
      error: """
        A socket that is not there or does not answer is tried again, and logged once. If libcurl is not installed, the pipeline ends.
        """,
      completion: "Only when the pipeline is stopped.", disposal: "Closes the connections."),
    memory: "The parts of one line for each container, and the position of each container.",
    persistence: .position(version: 1),
    lateness: .always("a line keeps its time") { _, _ in nil },
    knownAs: ["Vector docker_logs", "Telegraf docker_log", "Fluent Bit docker events", "Logspout"],
    useCases: [
      .init(.reading, "read the logs of containers", "docker: { containers: ['shop-*'] }"),
      .init(.reading, "know when containers start and end", "docker: { emit: events }"),
    ],
    seeAlso: ["journald", "file", "exec"])

  package func validate(_ context: inout DecodingContext) {
    if !socket.hasPrefix("/") || socket.utf8.count > 107 || socket.utf8.contains(0) {
      context.badValue(
        at: context.location(of: "socket"), "'socket' of 'docker' must be an absolute path of at most 107 bytes",
        help: "Write a path such as /var/run/docker.sock")
    }
    if reconnect > maxReconnect {
      context.badValue(
        at: context.location(of: "reconnect"), "'reconnect' is \(reconnect), longer than 'maxReconnect'",
        .conflictingParameters, help: "Give 'maxReconnect' a value of at least \(reconnect)")
    }
  }

  package var outputType: EventType {
    let texts = ExpressionType.map(.string, .string)
    switch emit {
    case .logs:
      let container = ExpressionType.object(
        fields: [
          .init("id", .string), .init("name", .string), .init("image", .string), .init("labels", texts),
        ], open: false)
      var stream = ExpressionType.Field("stream", .string)
      stream.choices = ["stdout", "stderr"]
      return EventType(
        .object(
          fields: [.init("container", container), stream, .init("message", .string), .init("time", .timestamp)],
          open: false))
    case .events:
      return EventType(
        .object(
          fields: [
            .init("type", .string), .init("action", .string), .init("id", .string), .init("attributes", texts),
            .init("time", .timestamp),
          ], open: false))
    }
  }

  package var stub: String? { "docker" }
  package var recovery: SourceRecovery { .position }
  package func threads(_ limit: Int?) -> String? {
    "received by the thread of all HTTP requests, taken apart on the pipeline thread"
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }
}
