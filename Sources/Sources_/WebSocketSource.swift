import PipelineCore
import Transport

/// `webSocket`: receives WebSocket messages, as a client or as a server.
package struct WebSocketSource: SourceComponent, WebSocketComponent {
  package var socket = WebSocketParameters()
  package var decode = DecodeParameter(.json)
  var send = TemplateParameter()
  var reconnect = TimeSpan.seconds(1)
  var maxReconnect = TimeSpan.seconds(60)
  var idleTimeout: TimeSpan?
  var maxMessage = ByteSize(1 << 20)
  var maxFrame: ByteSize?

  package init() {}

  package var listens: ListenAddress? { socket.serving?.listens }

  package static let spec = ComponentSpec<WebSocketSource>(
    "webSocket",
    summary: "Receives the messages of WebSockets, as a client of a server or as a server for clients.",
    details: """
      With `url` it connects to a server and stays connected. When a connection cannot be made or ends, it connects again \
      after `reconnect`; after failures in a row the pause doubles up to `maxReconnect`, and each is shortened by a random part of up \
      to half. `send` is a message that it sends on each connection first, such as a subscription. An answer to the opening \
      handshake other than 101, 408, 425, 429 and 5xx ends it with an error. The log says the code with which the server has closed.

      With `listen` it is a server: clients connect to `path`. Other sources and sinks that serve HTTP can share the address, as \
      `httpServer` says. A page of a browser may connect if it comes from the same host and port, or from one of \
      `origins`; programs send no origin. By default it listens on the loopback address; any other address requires `auth`, \
      `serverTLS` with `clientCA`, or `allowUnauthenticated`.

      Each message is decoded by itself: text and binary messages alike, whole when their last fragment has come. `meta.type` is `text` or \
      `binary`; of a server's messages `meta.peer` is the client's address, and `meta.path` and `meta.query` are those of its request. \
      Where the pipeline is slow, nothing more is read from a connection for which 64 KiB wait. Messages of all clients of a server that come in \
      or wait take 64 MiB at most; beyond, the connection with the largest unfinished message is closed with the code 1013.

      A connection on which nothing comes for `ping` is asked for a sign, and broken off if none comes within `pingTimeout`. A \
      message or frame that is too large closes it with the code 1009, a text that is not UTF-8 with 1007, anything that \
      breaks the rules of RFC 6455 with 1002.

      At a stop each connection is closed with the code 1001, and everything that the other side has sent before its answer to that still becomes \
      events; if no answer comes within 5 seconds, the connection is broken off, and the log says how many were. A reload keeps connections open, \
      and messages that come meanwhile wait for the new version; where it has another address, other credentials, another `send` or other \
      limits, they are closed as at a stop.

      WebSockets have no acknowledgement: messages that were sent without a connection, and those that had been read \
      when the process was killed, are lost.
      """,
    parameters: addressParameters + [
      .init("decode", \.decode, nested: DecodeParameter.ofMessages, "How messages are decoded into events.")
    ] + clientParameters + [
      .init("send", \.send, applies: .with("url"), "A text message that is sent first on each connection."),
      .init(
        "reconnect", \.reconnect, range: 1_000_000...Int64.max, applies: .with("url"),
        "The pause before it connects again."),
      .init(
        "maxReconnect", \.maxReconnect, range: 1_000_000...Int64.max,
        applies: .with("url"), "The longest pause after failures in a row."),
    ] + serverParameters + [
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        applies: .with("listen"),
        "The longest silence of a client before it is disconnected; by default there is no limit.")
    ] + pingParameters + [
      .init("maxMessage", \.maxMessage, "The largest message, all fragments together."),
      .init("maxFrame", \.maxFrame, "The largest frame; by default as `maxMessage`."),
    ],
    examples: [
      .snippet(
        "a subscription",
        #"webSocket: { url: 'wss://feed.example.org/v1', send: '{"subscribe":"trades"}', reconnect: 2s }"#),
      .snippet(
        "a server for pages of one site", "webSocket: { listen: 8090, path: /clicks, origins: ['https://example.org'] }"
      ),
      .snippet(
        "events of devices that know a token",
        "webSocket: { listen: '0.0.0.0:8443', path: /in, decode: ndjson, auth: { bearer: '${secret:TOKEN}' }, serverTLS: /etc/rxd/server.pem, idleTimeout: 5m }"
      ),
    ],
    edges: EdgeCases(
      empty: "It waits for messages.",
      error: """
        A port that cannot be used, a wrong address or an answer that is no WebSocket ends it with an error; lost connections \
        are made again. A message that cannot be decoded goes to the errors output.
        """,
      completion:
        "Only when the pipeline is stopped: connections are closed with the code 1001, and messages sent before are taken.",
      disposal: "Closes its connections with the code 1001."),
    memory: "For each connection a message that comes in, and 64 KiB that the pipeline has not taken yet.",
    knownAs: ["Vector websocket", "Benthos websocket", "Benthos http_server ws_path", "Node-RED websocket"],
    useCases: [
      .init(.reading, "follow a WebSocket feed", "webSocket: wss://feed.example.org/v1"),
      .init(.reading, "receive events from web pages", "webSocket: { listen: 8090, path: /clicks }"),
    ],
    seeAlso: ["httpServer", "sse", "tcp"])

  package func validate(_ context: inout DecodingContext) {
    validateSocket(&context)
    guard socket.url.isGiven, reconnect > maxReconnect else { return }
    context.badValue(
      at: context.location(of: "reconnect"),
      "'reconnect' is \(reconnect), longer than 'maxReconnect', which is \(maxReconnect)",
      .conflictingParameters, help: "Give 'maxReconnect' a value of at least \(reconnect)")
  }

  var session: WebSocketSession.Options {
    var options = WebSocketSession.Options()
    options.maxMessage = maxMessage.bytes
    options.maxFrame = maxFrame?.bytes ?? maxMessage.bytes
    options.room = 64 << 10
    options.ping = socket.ping
    options.pingTimeout = socket.pingTimeout
    options.idle = idleTimeout
    return options
  }

  package var follows: TargetAddress? { socket.target }
  package var outputType: EventType { decode.options.eventType }
  package func threads(_ limit: Int?) -> String? {
    "received by the network thread, decoded on the pipeline thread"
  }
  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }
}
