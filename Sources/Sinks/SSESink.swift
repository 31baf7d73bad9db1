import PipelineCore
import Transport

/// `sse`: a live feed of Server-Sent Events.
package struct SSESink: SinkComponent {
  var address = NetworkAddress()
  var path = "/events"
  package var encode = EncodeParameter(.json)
  var event = TemplateParameter()
  var id = TemplateParameter()
  var replay = 100
  var retry: TimeSpan?
  var heartbeat = TimeSpan.seconds(15)
  var maxClients = 1000
  var allowOrigin: String?
  var auth: HTTPAuth?
  var tls: ServingTLSParameter?
  var allowUnauthenticated = false
  var hosts: [String] = []

  package init() {}

  /// The limit of a message, and of the messages kept for clients that reconnect: both must fit into the buffer of a client.
  static let largest = ResponseStream.room / 2
  static let methods = ["GET"]

  package static let spec = ComponentSpec<SSESink>(
    "sse",
    summary: "Serves events as a live feed of Server-Sent Events, as a browser's `EventSource` reads them.",
    details: """
      Clients send `GET` to `path` and get each event as it comes: `encode` makes its data, `event` its type, and `id` the name by \
      which a client that lost the connection goes on. Without `id`, events are numbered; the numbers restart, with another prefix, \
      when the sink starts. A client that comes back with `Last-Event-ID` first gets the events since then, as far as they are kept: the last \
      `replay` events, at most 128 KiB. If that event is not kept any more, it gets all that is kept; a new client gets none of it.

      Nothing waits for clients. A client that reads so slowly that 256 KiB wait for it is disconnected, which the log \
      counts; it can come back and go on where it was. While nothing is sent, comments keep connections open.

      With `tls`, clients speak https; changed files are read again. With `clientCA` only clients with a certificate of its \
      authorities connect. Other sources and sinks that serve HTTP can share the address with other paths, as `httpServer` says, \
      also about `hosts`; `allowOrigin` names the site whose pages may read it.

      By default it listens on the loopback address; any other address requires `auth`, `tls` with `clientCA`, or \
      `allowUnauthenticated`.
      """,
    parameters: [
      .init("address", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("path", \.path, "The path of the feed; others are answered 404, or by other servers of the address."),
      .init("encode", \.encode, "How events are encoded as data."),
      .init("event", \.event, "The type of an event, for `addEventListener`; by default it has none."),
      .init("id", \.id, "The name of an event; by default a number."),
      .init("replay", \.replay, range: 0...100_000, "How many events are kept for clients that reconnect."),
      .init(
        "retry", \.retry, range: 1_000_000...Int64.max,
        "The `retry` time sent to clients: how long they wait before they connect again; by default they decide."),
      .init(
        "heartbeat", \.heartbeat, range: 1_000_000...Int64.max,
        "The time between two comments that keep connections open."),
      .init(
        "maxClients", \.maxClients, range: 1...100_000, "The largest number of connections; more are answered 503."),
      .init(
        "allowOrigin", \.allowOrigin,
        "The web site whose pages may read the feed (`Access-Control-Allow-Origin`), or `*`; by default only pages of the same address."
      ),
      .init("auth", \.auth, "The credentials that clients must present."),
      .init("tls", \.tls, "The certificate; by default connections are not encrypted."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Serve every client on an address other than loopback."),
      .init("hosts", \.hosts, PageAccess.helpOfHosts),
    ],
    examples: [
      .snippet("a feed for a page", "sse: 127.0.0.1:8090"),
      .snippet(
        "encrypted", "sse: { address: 8090, tls: { certificate: /etc/rxd/server.pem, key: /etc/rxd/server.key } }"),
      .snippet(
        "with types and names",
        "sse: { address: 8090, path: /orders, event: '{{ event.kind }}', id: '{{ event.id }}', replay: 1000, retry: 2s, allowOrigin: '*' }"
      ),
    ],
    edges: EdgeCases(
      empty: "Clients get comments only.",
      error: """
        An event that cannot be encoded, is larger than 128 KiB, or whose `id` or `event` would have a line break goes to the \
        errors output. A port that cannot be used ends the pipeline.
        """,
      completion: "Ends the answers of all clients.",
      disposal: "Ends the answers of all clients and closes the port."),
    memory: "The last `replay` events, at most 128 KiB, and at most 256 KiB for each client.",
    knownAs: ["Benthos http_server", "EventSource"],
    useCases: [
      .init(.writing, "show events live in a web page", "sse: 127.0.0.1:8090"),
      .init(.writing, "push events to browsers", "sse: { address: 8090, event: \"{{ event.kind }}\" }"),
    ],
    seeAlso: ["httpServer", "reply"])

  package func validate(_ context: inout DecodingContext) {
    if !path.hasPrefix("/")
      || !path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") })
    {
      context.badValue(
        at: context.location(of: "path"), "no request has the path '\(Printable.cut(path))'",
        help: "Write it as clients send it, beginning with '/', such as /events")
    }
    PageAccess.validate(hosts: hosts, &context)
    if let allowOrigin, !allowOrigin.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) || allowOrigin.isEmpty {
      context.badValue(
        at: context.location(of: "allowOrigin"), "'allowOrigin' is not an origin",
        help: "Write e.g. https://example.org, or '*'")
    }
    tls?.validate(at: "tls", &context)
    if !address.isLoopback, auth == nil, tls?.clientCA == nil, !allowUnauthenticated {
      context.badValue(
        at: context.location, "'sse' would serve every client that can reach \(address.host)", .conflictingParameters,
        help: "Add 'auth', or 'tls' with 'clientCA', listen on 127.0.0.1, or set 'allowUnauthenticated: true'")
    }
  }

  package var encoding: EncodeParameter? { encode }
  package var threads: String? { "encoded on the pipeline thread, sent by the threads of the HTTP server" }
  package var servesEvents: Bool { true }
  package var listens: ListenAddress? {
    ListenAddress(
      host: address.host, port: address.port, location: address.location,
      site: ListenAddress.Site(path: path, methods: Self.methods, tls: tls?.files.all ?? []))
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink, TimerTarget {
    private let parameters: SSESink
    private let encoder: any EventEncoder
    private let buffer = OutputBuffer()
    private lazy var frame = makeFrame()
    private var server: HTTPServer?
    override var connections: PipelineStatistics.Connections? { server?.counts }
    private var clients: [Int: ResponseStream] = [:]
    private var lastClient = 0
    private var kept = KeptMessages()
    private var timer = Wake.none
    /// The number of clients that were too slow.
    private var slow = 0
    private let log: OncePerSecond
    /// The prefix of the message IDs of this run.
    private lazy var prefix = String(execution.services.random(), radix: 36)
    private var number = 0

    init(_ parameters: SSESink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      var encode = parameters.encode
      encode.options.terminated = false
      encoder = encode.makeEncoder()
      let services = nodeContext.execution.services
      let label = nodeContext.execution.plan.steps[nodeContext.step.number].label
      log = OncePerSecond { services.log(.warning, label, $0) }
      super.init(nodeContext)
    }

    private var options: HTTPServer.Options {
      var options = HTTPServer.Options()
      options.host = parameters.address.host
      options.port = parameters.address.port
      options.isShared = true
      options.rules.path = parameters.path
      options.rules.methods = SSESink.methods
      options.rules.maxBodyBytes = 1 << 10
      options.rules.maxConnections = parameters.maxClients
      options.rules.auth = parameters.auth?.value ?? .none
      options.rules.access.hosts = parameters.hosts
      options.rules.access.origins = parameters.allowOrigin.map { [$0] } ?? []
      return options
    }

    /// The options with the certificate; nil: it cannot be used, and the sink has failed.
    private func servingOptions() -> HTTPServer.Options? {
      do throws(SocketFailure) {
        return try options.encrypted(
          by: parameters.tls, execution.services, execution.plan.steps[nodeContext.step.number].label)
      } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
        return nil
      }
    }

    override func dryRun() {
      guard let options = servingOptions() else { return }
      do throws(HTTPServerFailure) {
        try HTTPServer.reserve(options)
      } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }

    override func open() {
      guard let options = servingOptions() else { return }
      let server = HTTPServer(options: options)
      let executor = executor
      let node = Weak(self)
      let services = execution.services
      let label = execution.plan.steps[nodeContext.step.number].label
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handler: { request in
          executor.post {
            if let node = node.object { node.add(request) } else { request.reply.reply(.stopped) }
          }
        }
        self.server = server
        services.log(.info, label, "listening on \(options.host):\(port)")
        timer = executor.schedule(at: executor.now + parameters.heartbeat, self, 0)
      } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }

    // MARK: Clients

    private func add(_ request: ServerRequest) {
      guard server != nil else {
        request.reply.reply(.stopped)
        return
      }
      var headers = [
        (name: "Content-Type", value: "text/event-stream"), (name: "Cache-Control", value: "no-store"),
        // A proxy that buffers the response would delay the events.
        (name: "X-Accel-Buffering", value: "no"),
      ]
      if let origin = parameters.allowOrigin {
        headers.append((name: "Access-Control-Allow-Origin", value: origin))
        if origin != "*" { headers.append((name: "Vary", value: "Origin")) }
      }
      lastClient += 1
      let identity = lastClient
      let executor = executor
      let node = Weak(self)
      let stream = request.stream(status: 200, headers: headers) {
        executor.post { node.object?.clients[identity] = nil }
      }
      guard let stream else { return }
      var greeting = Array(":\n\n".utf8)
      if let retry = parameters.retry { greeting = Array("retry: \(max(1, retry.nanoseconds / 1_000_000))\n\n".utf8) }
      if let last = request.header("last-event-id"), !last.isEmpty {
        for message in kept.after(last) { greeting += message }
      }
      if stream.send(greeting) { clients[identity] = stream }
    }

    private func send(_ bytes: [UInt8]) {
      for (identity, stream) in clients where !stream.send(bytes) {
        clients[identity] = nil
        guard stream.isOpen else { continue }
        stream.abort()
        slow += 1
        log.write("a client reads too slowly and was disconnected, \(slow) so far")
      }
    }

    func woke(_ token: Int) {
      send(Array(":\n\n".utf8))
      timer = executor.schedule(at: executor.now + parameters.heartbeat, self, 0)
    }

    // MARK: Events

    override func receive(_ event: Event) {
      if let failure = frame.load(event) { return reject(event, EventFrame.message(of: failure)) }
      var name: String?
      var type: String?
      switch (line(parameters.id), line(parameters.event)) {
      case (.failure(let failure), _): return reject(event, "'id' cannot be used: \(failure.message)")
      case (_, .failure(let failure)): return reject(event, "'event' cannot be used: \(failure.message)")
      case (.success(let id), .success(let kind)): (name, type) = (id, kind)
      }
      buffer.clear()
      encoder.reset()
      if let failure = encoder.append(event.value, to: buffer) { return reject(event, because: failure) }
      if name == nil {
        number += 1
        name = "\(prefix)-\(number)"
      }
      let message = SSEMessage(id: name ?? "", type: type ?? "", data: Array(buffer.bytes)).bytes
      guard message.count <= SSESink.largest else {
        return reject(event, "the event takes \(message.count) bytes, and a message may have \(SSESink.largest)")
      }
      kept.add(name ?? "", message, most: parameters.replay)
      send(message)
      countBytes(message.count)
      delivered()
    }

    private struct Refusal: Error {
      var message: String
    }

    /// The text of a template, on one line; nil: it is not given.
    private func line(_ template: TemplateParameter) -> Result<String?, Refusal> {
      guard template.isGiven else { return .success(nil) }
      buffer.clear()
      if let failure = template.render(frame, into: buffer) {
        return .failure(
          Refusal(message: template.program.map { $0.failureMessage(failure, frame.frame) } ?? "it fails"))
      }
      guard buffer.bytes.allSatisfy({ $0 != 0x0A && $0 != 0x0D && $0 != 0 }) else {
        return .failure(Refusal(message: "it would contain a line break or NUL"))
      }
      return .success(String(decoding: buffer.bytes, as: UTF8.self))
    }

    // MARK: The end

    override func finish() {
      close { [weak self] in self?.drained() }
    }

    override func cancel() { close {} }

    private func close(_ done: @escaping () -> Void) {
      if timer.isSet { executor.unschedule(timer) }
      timer = .none
      guard let server else { return done() }
      self.server = nil
      for stream in clients.values { stream.end() }
      clients = [:]
      // Output on its way to clients is awaited, except in a reload.
      server.end(
        of: execution, handsOver: true, within: .seconds(2), waits: execution.successor == nil, done)
    }
  }

  /// The newest messages, for clients that reconnect.
  struct KeptMessages {
    private var all: [(id: String, bytes: [UInt8])] = []
    private var size = 0

    mutating func add(_ id: String, _ bytes: [UInt8], most: Int) {
      all.append((id, bytes))
      size += bytes.count
      var surplus = 0
      while surplus < all.count, all.count - surplus > most || size > SSESink.largest {
        size -= all[surplus].bytes.count
        surplus += 1
      }
      all.removeFirst(surplus)
    }

    /// The messages after the one with this ID; all, if there is none.
    func after(_ id: String) -> [[UInt8]] {
      let next = all.lastIndex { $0.id == id }.map { $0 + 1 } ?? 0
      return all[next...].map(\.bytes)
    }
  }
}

/// A message of a feed.
struct SSEMessage {
  var id: String
  var type: String
  var data: [UInt8]

  /// The encoded message, with one `data` line for each line of the data.
  var bytes: [UInt8] {
    var result: [UInt8] = []
    result.reserveCapacity(data.count + 64)
    if !id.isEmpty { result += "id: \(id)\n".utf8 }
    if !type.isEmpty { result += "event: \(type)\n".utf8 }
    result += "data: ".utf8
    var at = data.startIndex
    while at < data.endIndex {
      let byte = data[at]
      at += 1
      if byte == 0x0D || byte == 0x0A {
        if byte == 0x0D, at < data.endIndex, data[at] == 0x0A { at += 1 }
        result += "\ndata: ".utf8
      } else {
        result.append(byte)
      }
    }
    result += "\n\n".utf8
    return result
  }
}
