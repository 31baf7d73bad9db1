import PipelineCore
import Transport

/// `httpServer`: receives HTTP requests.
package struct HTTPServerSource: SourceComponent, PageAccessComponent {
  /// A URL path as in requests: encoded, from the slash to the `?`.
  struct Path: ParameterValue {
    var text = ""
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Path? {
      guard let text = String.decode(node, &context) else { return nil }
      if node.scalar?.isPlaceholder == true { return Path(text: text) }
      func refuse(_ reason: String, _ help: String) -> Path? {
        context.badValue(node, "no request has the path '\(node.shown)': \(reason)", help: help)
        return nil
      }
      guard text.hasPrefix("/") else { return refuse("a path begins with '/'", "Write '/\(text)'") }
      if let mark = text.utf8.first(where: { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") }) {
        return refuse(
          "'\(Character(Unicode.Scalar(mark)))' ends it",
          "Leave out the rest; 'meta.query' has the query of a request")
      }
      guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
        return refuse(
          "spaces and non-ASCII characters are percent-encoded", "Write it as clients send it, such as '/a%20b'")
      }
      return Path(text: text)
    }
  }

  /// The method of a request.
  struct Method: ParameterValue {
    var text = ""
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Method? {
      guard let text = String.decode(node, &context) else { return nil }
      if node.scalar?.isPlaceholder == true { return Method(text: text) }
      let common = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
      if !common.contains(text), common.contains(text.uppercased()) {
        context.badValue(
          node, "methods are case-sensitive, and no client sends '\(node.shown)'",
          help: "Write '\(text.uppercased())'")
        return nil
      }
      guard HostSyntax.isToken(text) else {
        context.badValue(node, "'\(node.shown)' is not an HTTP method", help: "Write one such as POST")
        return nil
      }
      return Method(text: text)
    }
  }

  var address = NetworkAddress()
  var path: Path?
  var methods: [Method] = []
  package var decode: DecodeParameter?
  var charset = CharsetParameter()
  var answer: ServingRules.Answer?
  var auth: HTTPAuth?
  var tls: ServingTLSParameter?
  var allowUnauthenticated = false
  package var hosts: [String] = []
  package var origins: [String] = []
  var maxBody = ByteSize(1 << 20)
  var maxBuffered: ByteSize?
  var maxConnections = 1024
  var queueTimeout = TimeSpan.seconds(5)
  var replyTimeout = TimeSpan.seconds(30)

  package init() {}

  package static let spec = ComponentSpec<HTTPServerSource>(
    "httpServer",
    summary: "Receives HTTP requests and sends each as an event, or the events in its body.",
    details: """
      Without `decode` the event is the request: `{ method, path, query, headers, body }`, header names in lower \
      case; a `reply` sink answers it. With `decode` the events are the contents of the body, `meta` has the method, \
      path and query, and the server itself answers when the sinks have written the results of the events: a client \
      need not repeat requests answered with 200. It also waits for the requests that inner signals make for the \
      events, but not for events that a step keeps for later (`throttle`, a window). By default it listens on the \
      loopback address; any other address requires `auth`, `tls` with `clientCA`, or `allowUnauthenticated`.

      With `tls`, clients speak https. The files are looked at again when connections come: those that come after a change \
      have the new certificate. With `clientCA` only clients with a certificate of its authorities connect, and \
      `meta.subject` has their name.

      Several sources and sinks can share an address, also those of several pipelines: `httpServer`, `sse`, `webSocket` and \
      `prometheusExporter`, each with its own `path`, or with other `methods` of the same path. A path that none of them has is \
      answered 404, that of a pipeline that has ended 503, a method that none of them takes there 405 with `Allow`. Without \
      `path` a server gets what no other one has. \
      All of them need the same `tls`; the other parameters are each server's own. A connection counts towards the \
      `maxConnections` of the server of its last request; the address takes as many as all of them together.

      A browser lets the pages of all web sites send requests to the programs of its machine. So on a loopback address a request whose \
      `Host` is another name than `localhost` and loopback addresses is answered 421 unless `hosts` has the name, and one of a page of another host or \
      port (its `Origin` says so) 403 unless `origins` has its site. Where a reverse proxy passes the name on, `hosts` needs it. These answers, \
      and 401, come before the body is read.

      Bodies may be compressed (`Content-Encoding: gzip`, `deflate` or `zstd`; any other is answered 415), and \
      `maxBody` limits the decompressed size. The event of a compressed request has the decompressed content and no \
      header about the compression.

      If the pipeline takes no input, because a sink cannot write, waiting requests must not fill the memory. A \
      request that has waited for `queueTimeout` gets 503 with `Retry-After`, and then every new one gets it at once \
      until the pipeline takes input again. All incoming and waiting requests share `maxBuffered`; a request that \
      does not fit gets the same answer. A request whose client has disconnected is dropped if the pipeline has not \
      taken it. No request with this answer has been taken.
      """,
    parameters: [
      .init("address", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("path", \.path, "The only path to serve; others are answered 404, or by other servers of the address."),
      .init(
        "methods", \.methods, "The only methods to serve; others are answered 405, or by other servers of the path."),
      .init(
        "decode", \.decode, nested: DecodeParameter.ofMessagesWithCharset,
        "How bodies are decoded into events; by default the event is the request itself."),
      .init(
        "charset", \.charset,
        applies: .with("decode"),
        "How the characters of bodies are encoded; by default, where the format is text, from the `Content-Type`."),
      .init("answer", \.answer, "What answers, and when; `written` with `decode`, otherwise `reply`."),
      .init("auth", \.auth, "The credentials that clients must present."),
      .init("tls", \.tls, "The certificate; by default connections are not encrypted."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated,
        "Serve every client on an address other than loopback."),
    ] + accessParameters + [
      .init("maxBody", \.maxBody, "The largest body, also when it is decompressed; more is answered 413."),
      .init(
        "maxBuffered", \.maxBuffered,
        """
        The memory for all requests that come in or wait for the pipeline; more are answered 503. Default: 64MiB, \
        or `maxBody` if that is larger.
        """
      ),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        "The largest number of connections of this server; more are answered 503."),
      .init(
        "queueTimeout", \.queueTimeout, range: 1_000_000...Int64.max,
        "How long a request may wait for the pipeline before it gets 503."),
      .init(
        "replyTimeout", \.replyTimeout, range: 1_000_000...Int64.max,
        "How long a request may wait for its answer before it gets 504. The pipeline does not take it after that."
      ),
    ],
    examples: [
      .snippet("requests to answer", "httpServer: { address: 127.0.0.1:8899, path: /search.json }"),
      .snippet("events to receive", "httpServer: { address: 8900, decode: ndjson }"),
      .snippet(
        "encrypted, for clients with a certificate",
        "httpServer: { address: '0.0.0.0:8443', decode: ndjson, tls: { certificate: /etc/rxd/server.pem, clientCA: /etc/rxd/clients.pem } }"
      ),
      .pipeline(
        "two paths of one port: orders as events, and a question that is answered",
        """
        name: shop
        sources:
          orders: { httpServer: { address: 8899, path: /orders, methods: [POST], decode: ndjson } }
          asked: { httpServer: { address: 8899, path: /hello, methods: [GET] } }
        signals: { greeted: { from: asked, chain: [ { map: "'hello ' + event.query.name" } ] } }
        sinks:
          out: { from: orders, stdout: {} }
          answers: { from: greeted, reply: {} }
        tests:
          - name: orders pass, and a question is answered
            inputs:
              orders: { marbles: "a|", values: { a: { id: 1 } } }
              asked: { marbles: "b|", values: { b: { query: { name: Ann } } } }
            expect:
              out: [ { next: { id: 1 } }, { complete: true } ]
              answers: [ { next: hello Ann }, { complete: true } ]
        """),
      .snippet(
        "large bodies, and little memory for them",
        "httpServer: { address: 8900, decode: ndjson, maxBody: 8MiB, maxBuffered: 16MiB, queueTimeout: 2s }"),
    ],
    edges: EdgeCases(
      empty: "A body without an event is answered like any other.",
      error:
        "A port that cannot be used ends it with an error; a bad request is answered with 400 and goes to the errors output.",
      completion: "Only when the pipeline is stopped.",
      disposal: "Closes the port, unless others share it; requests under way are answered first."),
    memory: "Requests that wait for the pipeline, up to `maxBuffered`.",
    knownAs: ["Vector http_server", "Benthos http_server", "Fluent Bit http"],
    useCases: [
      .init(.reading, "receive events over HTTP", "httpServer: { address: 8080, decode: json }"),
      .init(.reading, "be an HTTP service that answers", "httpServer: { address: 8080, path: /search }"),
    ],
    seeAlso: ["http", "reply"])

  package func validate(_ context: inout DecodingContext) {
    tls?.validate(at: "tls", &context)
    validateAccess(&context)
    if let decode {
      charset.check(decode.options, joins: false, &context)
    }
    if !address.isLoopback, auth == nil, tls?.clientCA == nil, !allowUnauthenticated {
      context.badValue(
        at: context.location, "'httpServer' would serve every client that can reach \(address.host)",
        .conflictingParameters,
        help: "Add 'auth', or 'tls' with 'clientCA', listen on 127.0.0.1, or set 'allowUnauthenticated: true'")
    }
    if let maxBuffered, maxBuffered.bytes < maxBody.bytes {
      context.badValue(
        at: context.location,
        "'maxBuffered' is \(maxBuffered.defaultText ?? "0"), so a body of 'maxBody' (\(maxBody.defaultText ?? "0")) would never fit",
        .conflictingParameters, help: "Raise 'maxBuffered', or lower 'maxBody'")
    }
  }

  package var serving: ServingRules? { rules }
  // A client that was answered 202 before its events were safe does not send them again.
  package var namesEvents: Bool { true }
  package var recovery: SourceRecovery { rules.answer == .accepted ? .never : .sender }

  package var listens: ListenAddress? {
    ListenAddress(
      host: address.host, port: address.port, location: address.location,
      site: ListenAddress.Site(path: path?.text, methods: rules.methods, tls: tls?.files.all ?? []))
  }

  private var rules: ServingRules {
    var rules = ServingRules()
    rules.path = path?.text
    rules.methods = methods.isEmpty ? nil : methods.map(\.text)
    rules.auth = auth?.value ?? .none
    rules.access = access
    rules.access.isLocal = address.isLoopback
    rules.maxBodyBytes = maxBody.bytes
    // A body of `maxBody` must fit together with its head, even if nothing else fits.
    let (one, isOver) = maxBody.bytes.addingReportingOverflow(128 << 10)
    rules.maxBufferedBytes = max(maxBuffered?.bytes ?? rules.maxBufferedBytes, isOver ? .max : one)
    rules.maxConnections = maxConnections
    rules.queueTimeout = queueTimeout
    rules.replyTimeout = replyTimeout
    rules.answer = answer ?? (decode == nil ? .reply : .written)
    rules.sendsRequests = decode == nil
    return rules
  }

  package var outputType: EventType { decode?.options.eventType ?? .dyn }

  package func threads(_ limit: Int?) -> String? {
    """
    received by the threads of the HTTP server, decoded on the pipeline thread
    """
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: DecodingSource {
    private let parameters: HTTPServerSource
    private let rules: ServingRules
    private var server: HTTPServer?
    override var connections: PipelineStatistics.Connections? { server?.counts }
    /// Decodes the bodies one after another; nil: each request is an event.
    private var decoder: (any EventDecoder)?
    /// The decoders for bodies with another charset, by the charset's name.
    private var decoders: [String: any EventDecoder] = [:]
    private static let mostDecoders = 16
    private lazy var unknown = OncePerSecond {
      [services = execution.services, step = nodeContext.step, plan = execution.plan] in
      services.log(.warning, plan.steps[step.number].label, $0)
    }

    init(_ parameters: HTTPServerSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      var rules = parameters.rules
      // A rehearsal has no effects, so it must not answer 202.
      if nodeContext.execution.isRehearsal, rules.answer == .accepted { rules.answer = .written }
      self.rules = rules
      super.init(nodeContext, downstream: downstream)
    }

    private var options: HTTPServer.Options {
      var options = HTTPServer.Options()
      options.host = parameters.address.host
      options.port = parameters.address.port
      options.isShared = true
      options.rules = rules
      return options
    }

    /// The options with the certificate; nil if the certificate cannot be used, and the source has then failed.
    private func servingOptions() -> HTTPServer.Options? {
      do throws(SocketFailure) {
        return try options.encrypted(
          by: parameters.tls, execution.services, execution.plan.steps[nodeContext.step.number].label)
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
        return nil
      }
    }

    private func makesDecoder() -> Bool {
      guard var decoding = parameters.decode?.options else { return true }
      decoding.unit = .body
      decoding = parameters.charset.reading(decoding, maxLine: parameters.maxBody)
      decoder = makeDecoder(decoding)
      return decoder != nil
    }

    /// Reserves the address until the reload has finished.
    override func dryRun() {
      guard makesDecoder(), let options = servingOptions() else { return }
      do throws(HTTPServerFailure) {
        try HTTPServer.reserve(options)
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func begin() {
      guard makesDecoder(), let options = servingOptions() else { return }
      let server = HTTPServer(options: options)
      let executor = executor
      let node = Weak(self)
      let queue = server.queue
      let feed = Feed(queue, executor, node)
      let services = execution.services
      let label = execution.plan.steps[nodeContext.step.number].label
      let storage = execution.storage
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handOver: {
          if queue.attend() { feed.post() }
        } handler: { request in
          // The input waits until the disk has room, which may take forever, so the client is refused.
          if storage.isFull { request.reply.reply(.full) } else { queue.add(request) }
        }
        self.server = server
        services.log(.info, label, "listening on \(options.host):\(port)")
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// Passes the requests of a queue to the pipeline, each in a turn of its own.
    private final class Feed: Sendable {
      let queue: RequestQueue
      let executor: Executor
      let node: Weak<Node>

      init(_ queue: RequestQueue, _ executor: Executor, _ node: Weak<Node>) {
        self.queue = queue
        self.executor = executor
        self.node = node
      }

      /// Posts a turn for the oldest waiting request; that turn posts the one for the next request.
      func post() { executor.postBatch { self.takeNext() } }

      private func takeNext() {
        let next = queue.take()
        // Posted before the turn continues, because sinks check whether more input is queued.
        if next.isMoreToCome { post() }
        guard let request = next.request else { return }
        if let node = node.object { node.take(request) } else { request.reply.reply(.stopped) }
      }
    }

    private func take(_ request: ServerRequest) {
      guard !isClosed else {
        request.reply.reply(.stopped)
        return
      }
      let source = Origin(
        source: origin.source, path: request.path, receivedAt: executor.wallTime, facts: request.facts,
        reply: request.reply, identity: freshIdentity())
      arena.keep(source)
      let reply = request.reply
      guard let body = content(of: request, source) else { return }
      let storage = execution.storage
      if rules.answer == .written {
        executor.track(Ack.ofClient(reply) { $0 != .acknowledged && storage.isFull ? .full : .after($0) })
      }
      guard parameters.decode != nil else {
        produce(event(request, body), origin: source, position: source.identity == nil ? -1 : 0)
        if rules.answer == .accepted { reply.reply(.accepted) }
        return
      }
      guard let decoder = decoder(for: request) else { return }
      decoder.reset()
      let found = take(body, offset: 0, isLast: true, by: decoder, origin: source)
      guard rules.answer != .reply else { return }
      if found.refused > 0, found.decoded == 0 {
        reply.reply(.undecodable)
      } else if rules.answer == .accepted {
        reply.reply(.accepted)
      }
    }

    /// The decoder for the charset of a request.
    private func decoder(for request: ServerRequest) -> (any EventDecoder)? {
      guard !parameters.charset.isGiven,
        let name = CharsetParameter.charset(ofType: request.headerBytes("content-type")), !Charset.isUTF8(name),
        var decoding = parameters.decode?.options
      else { return decoder }
      if let known = decoders[name] { return known }
      decoding.unit = .body
      let options = parameters.charset.reading(
        decoding, maxLine: parameters.maxBody, type: request.header("content-type")
      ) { name in
        unknown.write("a request's charset '\(Printable.cut(name))' is not known here; it is read as UTF-8")
      }
      guard options.charset != nil, let made = makeDecoder(options) else { return decoder }
      if decoders.count >= Self.mostDecoders { decoders = [:] }
      decoders[name] = made
      return made
    }

    /// The query as a map; if a name is repeated, its first value counts.
    private func query(of request: ServerRequest) -> Value {
      var members: [(key: Value, value: Value)] = []
      for pair in request.query where !members.contains(where: { $0.key.rawBytes.elementsEqual(pair.name.utf8) }) {
        members.append((arena.string(pair.name), arena.string(pair.value)))
      }
      return arena.map(members)
    }

    /// The decompressed body; nil if it cannot be decompressed, and the request has then been answered.
    private func content(of request: ServerRequest, _ origin: Origin) -> Slab? {
      guard let coding = request.coding else { return request.body }
      switch Decompressor.decompress(request.body, coding, limit: rules.maxBodyBytes) {
      case .bytes(let content): return content
      case .tooLarge: request.reply.reply(ServerAnswer(413))
      case .unavailable: request.reply.reply(.unknownCoding)
      case .damaged:
        rejectInput(request.body.bytes, "the body is not \(coding), its Content-Encoding", origin: origin)
        request.reply.reply(.damaged)
      }
      return nil
    }

    private func event(_ request: ServerRequest, _ body: Slab) -> Value {
      var headers: [(key: Value, value: Value)] = []
      for header in request.headers {
        let name = header.name.lowercased()
        if request.coding != nil, name == "content-encoding" || name == "content-length" { continue }
        if let at = headers.firstIndex(where: { $0.key.rawBytes.elementsEqual(name.utf8) }) {
          let both = String(decoding: headers[at].value.rawBytes, as: UTF8.self) + ", " + header.value
          headers[at].value = arena.string(both)
        } else {
          headers.append((arena.string(name), arena.string(header.value)))
        }
      }
      arena.keep(body)
      let bytes = body.bytes
      return arena.map([
        "method": .string(arena.copy(request.methodBytes)), "path": .string(arena.copy(request.pathBytes)),
        "query": query(of: request), "headers": arena.map(headers),
        "body": UTF8Text.isValid(bytes) ? .string(bytes) : .bytes(bytes),
      ])
    }

    /// Clients whose requests have been taken must be answered before the next execution listens; it answers all
    /// others.
    override func suspend() {
      super.suspend()
      close(handsOver: true)
    }

    override func stop() { close(handsOver: !execution.hasBegun) }

    private func close(handsOver: Bool = false) {
      guard let server else { return }
      self.server = nil
      server.end(of: execution, handsOver: handsOver, within: parameters.replyTimeout)
    }
  }
}
