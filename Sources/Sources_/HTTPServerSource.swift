public import PipelineCore
import Transport

/// `httpServer`: requests that others make.
public struct HTTPServerSource: SourceComponent {
  /// `127.0.0.1:8899`, `[::1]:8899`, or a port alone.
  struct Address: ParameterValue {
    var host = "127.0.0.1"
    var port = 0
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .oneOf([.text, .int(0...65_535)])
    }
    var defaultText: String? { nil }
    /// Names are not looked up: only `localhost` and the addresses themselves count.
    var isLoopback: Bool {
      let parts = host.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
      let isDotted =
        parts.count == 4
        && parts.allSatisfy { UInt8(String(decoding: $0, as: UTF8.self)) != nil }
      return host == "::1" || host == "localhost" || isDotted && host.hasPrefix("127.")
    }

    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Address? {
      guard let text = String.decode(node, &context) else { return nil }
      if node.scalar?.isPlaceholder == true { return Address() }
      var address = Address()
      var port = Substring(text)
      if let colon = text.lastIndex(of: ":") {
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        if !host.isEmpty { address.host = String(host) }
        port = text[text.index(after: colon)...]
      }
      guard let number = Int(port), (0...65_535).contains(number) else {
        context.badValue(
          node, "'\(node.shown)' is no address", help: "Write a port, or HOST:PORT such as 127.0.0.1:8899")
        return nil
      }
      address.port = number
      return address
    }
  }

  var address = Address()
  var path: String?
  var methods: [String] = []
  public var decode: DecodeParameter?
  var answer: ServingRules.Answer?
  var auth: HTTPAuth?
  var allowUnauthenticated = false
  var maxBody = ByteSize(1 << 20)
  var maxConnections = 1024
  var replyTimeout = TimeSpan.seconds(30)

  public init() {}

  public static let spec = ComponentSpec<HTTPServerSource>(
    "httpServer",
    summary: "Takes HTTP requests and sends each as an event, or the events that its body holds.",
    details: """
      Without `decode` the event is the request: `{ method, path, query, headers, body }`, header names \
      in lower case; a `reply` sink answers it. With `decode` the events are what the body holds, `meta` \
      tells the method, path and query, and the server answers by itself: when the sinks have written what \
      came of the events, so a client may forget what has been answered with 200. What a step keeps for later \
      (`throttle`, a window, an inner signal that waits) is not waited for. It listens on the loopback \
      address unless told otherwise; elsewhere it wants `auth`, or `allowUnauthenticated`.
      """,
    parameters: [
      .init("address", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("path", \.path, "The only path to serve; others are answered 404."),
      .init("methods", \.methods, "The only methods to serve; others are answered 405."),
      .init("decode", \.decode, "How bodies become events; the request itself if left out."),
      .init("answer", \.answer, "Who answers, and when; `written` with `decode`, else `reply`."),
      .init("auth", \.auth, "What clients must present."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated,
        "Serve everybody on an address that is not loopback."),
      .init("maxBody", \.maxBody, "The largest body; more is answered 413."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        "Connections at a time; more are answered 503."),
      .init(
        "replyTimeout", \.replyTimeout, range: 1_000_000...Int64.max,
        "How long a request may wait for its answer before it gets 504; what the pipeline has not taken in by then, it does not take in."
      ),
    ],
    examples: [
      .snippet("requests to answer", "httpServer: { address: 127.0.0.1:8899, path: /search.json }"),
      .snippet("events to take in", "httpServer: { address: 8900, decode: ndjson }"),
    ],
    edges: EdgeCases(
      empty: "A body without an event is answered like any other.",
      error:
        "A port that cannot be used ends it with an error; a bad request is answered with 400 and goes to the errors output.",
      completion: "Never, but at a shutdown.", disposal: "Closes the port; requests under way are answered first."),
    rivals: ["Vector http_server", "Benthos http_server", "Fluent Bit http"],
    wants: [
      .init(.reading, "take events over HTTP", "httpServer: { address: 8080, decode: json }"),
      .init(.reading, "be an HTTP service that answers", "httpServer: { address: 8080, path: /search }"),
    ],
    seeAlso: ["http", "reply"])

  public func validate(_ context: inout DecodingContext) {
    if !address.isLoopback, auth == nil, !allowUnauthenticated {
      context.badValue(
        at: context.location, "'httpServer' would serve everybody who can reach \(address.host)",
        .conflictingParameters,
        help: "Add 'auth', listen on 127.0.0.1, or say 'allowUnauthenticated: true'")
    }
  }

  public var serving: ServingRules? { rules }

  private var rules: ServingRules {
    var rules = ServingRules()
    rules.path = path
    rules.methods = methods.isEmpty ? nil : methods
    rules.auth = auth?.value ?? .none
    rules.maxBodyBytes = maxBody.bytes
    rules.maxConnections = maxConnections
    rules.replyTimeout = replyTimeout
    rules.answer = answer ?? (decode == nil ? .reply : .written)
    rules.sendsRequests = decode == nil
    return rules
  }

  public var outputType: EventType { decode?.options.eventType ?? .dyn }

  public func threads(_ limit: Int?) -> String? { "received by the threads of the HTTP server, decoded in the turns" }

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    Node(self, seat, downstream)
  }

  final class Node: DecodingSource {
    private let parameters: HTTPServerSource
    private let rules: ServingRules
    private var server: HTTPServer?

    init(_ parameters: HTTPServerSource, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      rules = parameters.rules
      super.init(seat, downstream: downstream)
    }

    override func begin() {
      var options = HTTPServer.Options()
      options.host = parameters.address.host
      options.port = parameters.address.port
      options.rules = rules
      let server = HTTPServer(options: options)
      let executor = executor
      let node = Weak(self)
      let rules = rules
      do throws(HTTPServerFailure) {
        let port = try server.start { request in
          if let refusal = rules.refusal(ofAuthorization: request.header("authorization")) {
            request.reply.reply(refusal)
            return
          }
          // Requests are bounded by the server's connections; each has at most one under way.
          executor.postBatch { node.object?.take(request) }
        }
        self.server = server
        execution.services.log(
          .info, execution.plan.steps[seat.step.number].label,
          "listening on \(options.host):\(port)")
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    private func take(_ request: ServerRequest) {
      // Who has been told so will send it again: it must not come twice.
      guard !request.isTimedOut else { return }
      guard !isClosed else {
        request.reply.reply(.stopped)
        return
      }
      var query: [(key: Value, value: Value)] = []
      for pair in request.query where !query.contains(where: { $0.key.rawBytes.elementsEqual(pair.name.utf8) }) {
        query.append((arena.string(pair.name), arena.string(pair.value)))
      }
      let method = arena.string(request.method)
      let path = arena.string(request.path)
      let queryMap = arena.map(query)
      let fields = OwnedValue(
        arena.map(["method": method, "path": path, "query": queryMap, "peer": arena.string(request.peer)]))
      let source = Origin(
        source: origin.source, path: request.path, receivedAt: executor.wallTime, fields: fields,
        reply: request.reply)
      arena.keep(source)
      let reply = request.reply
      if rules.answer == .written { executor.track(Settlement { reply.reply(.after($0)) }) }
      guard let decode = parameters.decode else {
        produce(event(request, method, path, queryMap), origin: source)
        if rules.answer == .accepted { reply.reply(.accepted) }
        return
      }
      var options = decode.options
      options.unit = .body
      guard let decoder = try? options.decoder() else { return }
      let found = take(Slab(request.body), offset: 0, isLast: true, by: decoder, origin: source)
      guard rules.answer != .reply else { return }
      if found.refused > 0, found.decoded == 0 {
        reply.reply(.undecodable)
      } else if rules.answer == .accepted {
        reply.reply(.accepted)
      }
    }

    private func event(
      _ request: ServerRequest, _ method: Value, _ path: Value, _ query: Value
    ) -> Value {
      var headers: [(key: Value, value: Value)] = []
      for header in request.headers {
        let name = header.name.lowercased()
        if let at = headers.firstIndex(where: { $0.key.rawBytes.elementsEqual(name.utf8) }) {
          let both = String(decoding: headers[at].value.rawBytes, as: UTF8.self) + ", " + header.value
          headers[at].value = arena.string(both)
        } else {
          headers.append((arena.string(name), arena.string(header.value)))
        }
      }
      let body = request.body.withUnsafeBytes { arena.copy($0) }
      return arena.map([
        "method": method, "path": path, "query": query, "headers": arena.map(headers),
        "body": UTF8Text.isValid(body) ? .string(body) : .bytes(body),
      ])
    }

    /// Whoever has asked is answered before the next execution listens.
    override func pause() { close() }

    override func stop() { close() }

    private func close() {
      guard let server else { return }
      self.server = nil
      // The port is free when this returns: whoever comes next may want it.
      server.stopListening()
      // Closing waits for answers under way; another thread does that, and the pipeline has not ended before.
      // Whoever is never answered gets 503 as soon as nobody can answer any more.
      let execution = Weak(execution)
      let executor = executor
      let limit = parameters.replyTimeout
      execution.object?.hold()
      let thread = try? OwnThread("rxd close") {
        server.stop(within: limit)
        executor.post { execution.object?.release() }
      }
      if thread == nil {
        server.stop(within: .zero)
        execution.object?.release()
      }
    }
  }
}
