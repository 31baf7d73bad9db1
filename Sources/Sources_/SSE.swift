import PipelineCore
import Transport

/// `sse`: follows a feed of Server-Sent Events.
package struct SSE: SourceComponent {
  package var url = TemplateParameter()
  var headers = Table<TemplateParameter>()
  package var decode = DecodeParameter(.json)
  var auth: ClientAuth?
  var tls = TLSParameter()
  var connectTimeout = TimeSpan.seconds(5)
  var idleTimeout = TimeSpan.seconds(60)
  var reconnect = TimeSpan.seconds(3)
  var maxReconnect = TimeSpan.seconds(60)
  var maxMessage = ByteSize(1 << 20)
  var proxy: String?
  var allowPrivate = false

  package init() {}

  package static let spec = ComponentSpec<SSE>(
    "sse",
    summary: "Follows a feed of Server-Sent Events: each message is an event.",
    details: """
      `meta.event` is the type of a message (`message` if it has none), and `meta.eventId` the last `id` of the feed. The source \
      stays connected: when the answer ends, breaks off, or is silent for `idleTimeout`, it connects again after \
      `reconnect`, or the feed's `retry`, which may ask for a second or more (or for as little as `reconnect`, if that is shorter); \
      after failures in a row the pause doubles up to `maxReconnect`, and each is shortened by a random part of up to half. It then sends the id of the last message as `Last-Event-ID`, so that the server can \
      go on behind it. With a state directory that id is saved together with the state of the pipeline. It is kept \
      while the URL without its query is the same.

      The status 204 completes it, following the standard. Other statuses than 200, 408, 425, 429 and 5xx, and answers of another \
      type than `text/event-stream`, end the signal with an error. A pipeline that is slow slows the feed down.
      """,
    parameters: [
      .init("url", \.url, primary: true, required: true, "The URL, http or https."),
      .init("headers", \.headers, "Further headers."),
      .init(
        "decode", \.decode, nested: DecodeParameter.ofMessages, "How the data of a message is decoded into events."),
      .init("auth", \.auth, "How to authenticate."),
      .init(
        "tls", \.tls, applies: .any([.begins("url", ["https:"]), .begins("auth.oauth2.tokenURL", ["https:"])]),
        "Certificates."),
      .init(
        "connectTimeout", \.connectTimeout, range: 1_000_000...Int64.max,
        "How long name resolution and connecting may take, TLS included."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        "How long the server may be silent, comments included, also before its answer begins; longer than its heartbeat."
      ),
      .init("reconnect", \.reconnect, range: 1_000_000...Int64.max, "The pause before it connects again."),
      .init("maxReconnect", \.maxReconnect, range: 1_000_000...Int64.max, "The longest pause after failures in a row."),
      .init("maxMessage", \.maxMessage, "The maximum size of a message; a larger one ends the connection."),
      .init("proxy", \.proxy, "A proxy, http://HOST:PORT; the environment's is not used."),
      .init(
        "allowPrivate", \.allowPrivate,
        "Whether a host name may resolve to a private address. Literal addresses are always allowed."),
    ],
    examples: [
      .pipeline(
        "two messages, and again from the last one",
        """
        name: orders
        sources: { feed: { sse: { url: http://127.0.0.1:8090/orders, decode: text } } }
        signals: { new: { from: feed, chain: [ { map: "[meta.event, meta.eventId, event]" } ] } }
        sinks: { out: { from: new, stdout: {} } }
        tests:
          - name: goes on behind the last id
            stubs:
              http:
                - url: "*/orders"
                  sequence:
                    - { reply: { headers: { Content-Type: text/event-stream }, text: "id: 7\\nevent: new\\ndata: a\\n\\ndata: b\\n\\n" } }
                    - { reply: { status: 204 } }
            expect:
              new: [ { at: 0ms, next: [new, "7", a] }, { at: 0ms, next: [message, "7", b] }, { at: 3s, complete: true } ]
              http.requests: { events: [ { next: { method: GET, url: "http://127.0.0.1:8090/orders", headers: { accept: text/event-stream, cache-control: no-store } } }, { next: { method: GET, url: "http://127.0.0.1:8090/orders", headers: { accept: text/event-stream, cache-control: no-store, last-event-id: "7" } } } ] }
        """)
    ],
    edges: EdgeCases(
      empty: "It waits for messages.",
      error:
        "A wrong address or an answer that is not a feed ends it with an error; lost connections are reopened.",
      completion: "When the server answers 204. When the pipeline is stopped: at once.",
      disposal: "Closes the connection."),
    memory: "One message, and 256 KiB that the pipeline has not taken yet.",
    persistence: .position(version: 1),
    knownAs: ["EventSource", "Benthos http_client stream"],
    useCases: [
      .init(.reading, "follow a feed of server-sent events", "sse: { url: \"http://127.0.0.1:8090/events\" }")
    ],
    seeAlso: ["http", "httpServer"])

  package func validate(_ context: inout DecodingContext) {
    URLConfinement.validate(url, &context)
    URLConfinement.validate(proxy: proxy, &context)
    headers.validateHeaders(isRequest: true, hasAuth: auth != nil, &context)
    tls.validate(at: "tls", &context)
    if reconnect > maxReconnect {
      context.badValue(
        at: context.location(of: "reconnect"),
        "'reconnect' is \(reconnect), longer than 'maxReconnect', which is \(maxReconnect)",
        .conflictingParameters, help: "Give 'maxReconnect' a value of at least \(reconnect)")
    }
  }

  package var follows: TargetAddress? { TargetAddress(url, method: "GET") }
  package var outputType: EventType { decode.options.eventType }
  package func threads(_ limit: Int?) -> String? {
    "received by the thread of all HTTP requests, decoded on the pipeline thread"
  }
  package var runsOnVirtualTime: Bool { true }
  package var recovery: SourceRecovery { .position }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: DecodingSource {
    private let parameters: SSE
    private var options = HTTPOptions()
    private let requests = HTTPConnections()
    private lazy var frame = makeFrame()
    private var decoder: (any EventDecoder)?
    private var call: (any HTTPStream)?
    private lazy var session = SourceSession(
      of: self, Attempts(parameters.reconnect, most: parameters.maxReconnect),
      silence: .init(limit: parameters.idleTimeout, reason: "the feed was silent for \(parameters.idleTimeout)")
    ) { [unowned self] number in
      open(number)
    } close: { [unowned self] in
      call?.cancel()
      call = nil
    }
    private var parser: SSEParser
    /// The id of the last message that was sent. `previousID`: that of the message before it.
    private var lastID: String?
    private var previousID: String?
    private let ledger = PositionLedger<String?>(nil)
    /// A feed cannot ask for a shorter pause than this, unless `reconnect` is shorter.
    private static let leastPause = TimeSpan.seconds(1)

    init(_ parameters: SSE, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      parser = SSEParser(limit: parameters.maxMessage.bytes)
      super.init(nodeContext, downstream: downstream)
      options.connectTimeout = parameters.connectTimeout
      options.timeout = parameters.idleTimeout
      options.connections = requests
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.proxy = parameters.proxy
      options.allowPrivate = parameters.allowPrivate
    }

    override var connections: PipelineStatistics.Connections? { .init(requests) }

    override func dryRun() {
      if let fault = execution.services.http.fault {
        endPipeline(because: SignalFailure(.source, fault.message, at: nodeContext.location))
      }
    }

    override var isEndless: Bool { true }
    override func begin() { session.connect() }
    override func resume() { session.connect() }

    // MARK: Connections

    private func open(_ number: Int) {
      if decoder == nil { decoder = makeDecoder(parameters.decode.options.ofMessages) }
      guard decoder != nil else { return }
      frame.loadNothing()
      let template = RequestTemplate(
        method: "GET", url: parameters.url, headers: parameters.headers, body: TemplateParameter())
      switch template.render(frame) {
      case .failure(let failure):
        if rejectOuter(failure.kind == .expression ? .expressionFailed : .requestRefused, because: failure) {
          finish()
        } else {
          finish(failing: failure)
        }
      case .success(var request):
        request.options = options
        request.headers += [HTTPHeader("Accept", "text/event-stream"), HTTPHeader("Cache-Control", "no-store")]
        if let lastID, !lastID.isEmpty { request.headers.append(HTTPHeader("Last-Event-ID", lastID)) }
        parser = SSEParser(limit: parameters.maxMessage.bytes, id: lastID)
        let executor = executor
        let node = Weak(self)
        call = execution.services.http.stream(request) { part in
          executor.postBatch { node.object?.take(part, number) }
        }
      }
    }

    // MARK: Parts of the answer

    private func take(_ part: HTTPStreamPart, _ number: Int) {
      guard session.isCurrent(number) else { return }
      switch part {
      case .head(let response): begin(response)
      case .bytes(let bytes):
        guard session.isOpen else { return }
        session.heard()
        read(bytes)
        call?.handled(bytes.count)
      case .end(let failure):
        if failure?.kind == .unavailable || failure?.kind == .badRequest || failure?.kind == .forbidden, let failure {
          session.end()
          let reason = SignalFailure(.source, failure.message, at: nodeContext.location)
          return failure.kind == .unavailable ? endPipeline(because: reason) : finish(failing: reason)
        }
        // A feed may end each response after some time.
        session.lost(failure?.message ?? "the feed has ended", isFailure: failure != nil || !session.isOpen)
      }
    }

    private func begin(_ response: HTTPResponse) {
      let type = response.header("content-type")?.lowercased() ?? ""
      func refuse(_ reason: String) {
        session.end()
        finish(
          failing: SignalFailure(
            .source, reason, at: nodeContext.location, details: [.init("status", Int64(response.status))]))
      }
      switch response.status {
      case 200 where type.hasPrefix("text/event-stream"):
        session.opened()
      case 200: refuse("the answer is not a feed: its type is '\(Printable.cut(type))', not text/event-stream")
      case 204:
        session.end()
        finish()
      case 408, 425, 429, 500...:
        session.lost(
          "the feed answered \(response.status)",
          after: ServerPause.after(response, wallTime: executor.wallTime, longest: .seconds(3600)))
      default: refuse("the feed answered \(response.status)")
      }
    }

    private func read(_ bytes: [UInt8]) {
      var messages: [SSEParser.Message] = []
      let isTaken = parser.take(bytes) { item in
        switch item {
        case .message(let message): messages.append(message)
        case .retry(let milliseconds):
          // The feed may ask for a longer pause, but not for one shorter than a second or `reconnect`, whichever is
          // less.
          let least = min(parameters.reconnect, Self.leastPause)
          session.pause(
            max(least, .milliseconds(min(milliseconds, 3_600_000))), most: parameters.maxReconnect)
        }
      }
      for message in messages where !isClosed { send(message) }
      guard !isTaken, !isClosed else { return }
      session.lost("a message is longer than \(parameters.maxMessage.bytes) bytes")
    }

    private func send(_ message: SSEParser.Message) {
      guard let decoder else { return }
      previousID = lastID
      lastID = message.id
      let fields = OwnedValue(
        arena.map(["event": arena.string(message.type), "eventId": arena.string(message.id ?? "")]))
      let origin = Origin(
        source: origin.source, path: nil, receivedAt: executor.wallTime, fields: fields, reply: origin.reply,
        identity: origin.identity)
      decoder.reset()
      take(Slab(message.data), offset: 0, isLast: true, by: decoder, origin: origin)
    }

    // MARK: State

    /// The id of the last message of which all events have been sent.
    private var position: String? { isBatchDone ? lastID : previousID }

    override func beginPiece() { beginPiece(of: ledger) { [self] in position } }
    override var hasPosition: Bool { lastID != nil }

    /// The URL without its query; ids that were saved for another URL are not used.
    private lazy var key: String = {
      let buffer = OutputBuffer(capacity: 64)
      frame.loadNothing()
      _ = parameters.url.renderShown(frame, into: buffer)
      return HTTP.Node.shown(String(decoding: buffer.bytes, as: UTF8.self))
    }()

    override func save(_ state: inout StateWriter) {
      state.write(key)
      state.write(state.positions == .acknowledged ? ledger.acknowledged : position)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let key = try state.read(String.self)
      let id = try state.read(String?.self)
      if key == self.key { lastID = id }
      previousID = lastID
      ledger.reset(to: lastID)
    }

    override func suspend() {
      super.suspend()
      session.end()
    }

    override func drain() {
      session.end()
      super.drain()
    }

    override func stop() { session.end() }
  }
}

/// Parses a feed as the HTML standard specifies.
struct SSEParser {
  struct Message: Equatable {
    var type: String
    /// The last id that the feed has sent; nil if there is none yet.
    var id: String?
    var data: [UInt8]
  }
  enum Item {
    case message(Message)
    /// The pause before a new connection, in milliseconds.
    case retry(Int64)
  }

  private let limit: Int
  private var line: [UInt8] = []
  private var data: [UInt8] = []
  private var hasData = false
  private var type = ""
  private var id: String?
  private var isFirstLine = true
  /// Whether the last byte was a CR, which ended a line; an LF after it belongs to the same line break.
  private var endedWithCR = false

  /// - Parameter id: The last id of an earlier connection.
  init(limit: Int, id: String? = nil) {
    self.limit = limit
    self.id = id
  }

  /// False if a message is longer than the limit.
  mutating func take(_ bytes: [UInt8], _ each: (Item) -> Void) -> Bool {
    for byte in bytes {
      if byte == 0x0A, endedWithCR {
        endedWithCR = false
        continue
      }
      endedWithCR = byte == 0x0D
      if byte == 0x0A || byte == 0x0D {
        endLine(each)
        line.removeAll(keepingCapacity: true)
      } else {
        guard line.count + data.count < limit else { return false }
        line.append(byte)
      }
    }
    return true
  }

  private mutating func endLine(_ each: (Item) -> Void) {
    if isFirstLine {
      isFirstLine = false
      if line.starts(with: [0xEF, 0xBB, 0xBF]) { line.removeFirst(3) }
    }
    guard !line.isEmpty else {
      if hasData { each(.message(Message(type: type.isEmpty ? "message" : type, id: id, data: data))) }
      data = []
      hasData = false
      type = ""
      return
    }
    let colon = line.firstIndex(of: UInt8(ascii: ":")) ?? line.count
    var value = line[min(colon + 1, line.count)...]
    if value.first == 0x20 { value = value.dropFirst() }
    switch String(decoding: line[..<colon], as: UTF8.self) {
    case "data":
      if hasData { data.append(0x0A) }
      data += value
      hasData = true
    case "event": type = String(decoding: value, as: UTF8.self)
    case "id": if !value.contains(0) { id = String(decoding: value, as: UTF8.self) }
    case "retry":
      if !value.isEmpty, value.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) {
        each(.retry(Int64(String(decoding: value, as: UTF8.self)) ?? .max))
      }
    // Comments and unknown fields are ignored.
    default: break
    }
  }
}
