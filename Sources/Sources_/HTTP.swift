public import PipelineCore

/// `http`: one request, or periodic requests.
public struct HTTP: SourceComponent {
  public enum Method: String, ChoiceParameter {
    case get = "GET"
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"
    case delete = "DELETE"
    case head = "HEAD"
    public var help: String { "the method \(rawValue)" }
  }

  public var url = TemplateParameter()
  public var method = Method.get
  var headers = Table<TemplateParameter>()
  var body = TemplateParameter()
  public var every: TimeSpan?
  var jitter = TimeSpan.zero
  var immediate = true
  public var decode = DecodeParameter(.json)
  var auth: HTTPAuth?
  var tls = TLSParameter()
  public var timeout = TimeSpan.seconds(30)
  var connectTimeout = TimeSpan.seconds(5)
  var stopTimeout = TimeSpan.seconds(10)
  var redirects = 0
  var maxResponse = ByteSize(16 << 20)
  var proxy: String?
  var acceptCompressed = false
  var allowPrivate = false

  public init() {}

  public static let spec = ComponentSpec<HTTP>(
    "http",
    summary: "Requests a URL, once or periodically, and sends the contents of the response.",
    details: """
      Without `every` it completes after the response. A status other than 2xx, a broken connection or a time-out \
      ends the signal with an error, which `retry` and `catch` handle; `error.status` is the status.

      With `every`, requests start at that interval. If a request is still running when the next is due, the next is \
      skipped. A failed request goes to the errors output (RX525), with the body of the response as its `event`, and \
      the next one follows; with `onError: fail` the signal ends with the error.

      In an inner signal, the templates see the event that it was made for as `event`. Event data may appear only \
      after the host of the URL, and stays where the template puts it: a `?` or `#` in the path, `..` in any \
      encoding, a space, or a line break in a header is refused. The event then goes to the errors output of the \
      signal (RX524), and the inner signal completes without a response. `urlEncode(...)` makes any text fit.
      """,
    parameters: [
      .init("url", \.url, primary: true, required: true, "The URL, http or https."),
      .init("method", \.method, "The method."),
      .init("headers", \.headers, "Further headers."),
      .init("body", \.body, "The body of the request."),
      .init("every", \.every, range: 1_000_000...Int64.max, "The time from one request to the next."),
      .init(
        "jitter", \.jitter, range: 0...Int64.max,
        "Adds a random delay of up to this to each later request."),
      .init("immediate", \.immediate, "With `every`: whether the first request starts at once."),
      .init("decode", \.decode, "How the response body is decoded into events."),
      .init("auth", \.auth, "How to authenticate."),
      .init("tls", \.tls, "Certificates."),
      .init(
        "timeout", \.timeout, range: 1_000_000...Int64.max,
        "How long a request may take, from its start to the last byte of the response."),
      .init(
        "connectTimeout", \.connectTimeout, range: 1_000_000...Int64.max,
        "How long name resolution and connecting may take, TLS included; at most `timeout`."),
      .init(
        "stopTimeout", \.stopTimeout, range: 0...Int64.max,
        "How long a request under way may still take when the pipeline is stopped; then it is cancelled."),
      .init(
        "redirects", \.redirects, range: 0...20,
        "How many redirects to follow; only to the same scheme and host."),
      .init("maxResponse", \.maxResponse, "The largest response body, after decompression."),
      .init("proxy", \.proxy, "A proxy, http://HOST:PORT; the environment's is not used."),
      .init("acceptCompressed", \.acceptCompressed, "Whether the response may be compressed."),
      .init(
        "allowPrivate", \.allowPrivate,
        "Whether a host name may resolve to a private address. Literal addresses are always allowed."),
    ],
    examples: [
      .snippet("every ten seconds", "http: { url: 'http://127.0.0.1:8080/status', every: 10s, timeout: 2s }"),
      .snippet("a text", "http: { url: 'http://127.0.0.1:8080/health', decode: text }"),
    ],
    edges: EdgeCases(
      empty: "A response without a body gives no event (text) or an event that cannot be decoded (JSON).",
      error: """
        A status other than 2xx, a broken connection or a time-out ends it with an error; with `every` that request goes to \
        the errors output, and the next one follows. If libcurl is not installed, the pipeline ends.
        """,
      completion:
        """
        After the response; with `every`, never. When the pipeline is stopped: after the response, or \
        `stopTimeout`.
        """,
      disposal: "Cancels the request and frees the connection."),
    memory: """
      The request under way, and the response until it is decoded. After a restart, a request that was under way is \
      repeated, and the schedule of `every` continues.
      """,
    persistence: .state(version: 1),
    lateness: .leavesOut("Requests that were due are left out; the next one comes in its period.") { http, _ in
      http.every == nil ? "it asks once" : nil
    },
    knownAs: ["Vector http_client", "Benthos http_client", "Logstash http_poller"],
    useCases: [
      .init(.reading, "poll a URL periodically", "http: { url: \"http://127.0.0.1:8080/status\", every: 10s }"),
      .init(.reading, "fetch something once", "http: { url: \"http://127.0.0.1:8080/config.json\" }"),
    ],
    seeAlso: ["httpServer", "flattenMap"])

  public func validate(_ context: inout DecodingContext) {
    URLConfinement.validate(url, &context)
    URLConfinement.validate(proxy: proxy, &context)
    headers.validateHeaders(isRequest: true, hasAuth: auth != nil, &context)
    tls.validate(at: "tls", &context)
  }

  public var outputType: EventType { decode.options.eventType }

  public func threads(_ limit: Int?) -> String? {
    """
    fetched by the thread of all HTTP requests, decoded on the pipeline thread
    """
  }

  public var runsOnVirtualTime: Bool { true }
  public var recovery: SourceRecovery { .request }

  public func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: PolledSource {
    private let parameters: HTTP
    private var options = HTTPOptions()
    private lazy var frame = makeFrame()

    init(_ parameters: HTTP, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(
        Schedule(
          every: parameters.every, jitter: parameters.jitter, immediate: parameters.immediate,
          stopTimeout: parameters.stopTimeout),
        ("a request", "no response came"), nodeContext, downstream)
      options.timeout = parameters.timeout
      options.connectTimeout = parameters.connectTimeout
      options.maxRedirects = parameters.redirects
      options.maxResponseBytes = parameters.maxResponse.bytes
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.proxy = parameters.proxy
      options.acceptCompressed = parameters.acceptCompressed
      options.allowPrivate = parameters.allowPrivate
    }

    override func dryRun() {
      if let fault = execution.services.http.fault {
        endPipeline(because: SignalFailure(.source, fault.message, at: nodeContext.location))
      }
    }

    override func ask() -> (any Cancellable)? {
      frame.loadNothing()
      let template = RequestTemplate(
        method: parameters.method.rawValue, url: parameters.url, headers: parameters.headers,
        body: parameters.body)
      switch template.render(frame) {
      case .failure(let failure):
        refused(.requestRefused, poll: .pollFailed, failure)
        return nil
      case .success(var request):
        request.options = options
        let executor = executor
        let node = Weak(self)
        let url = request.shownURL
        return execution.services.http.send(request) { result in
          let answer = Answer(result)
          executor.post {
            if let result = answer.take() { node.object?.answered(result, url) }
          }
        }
      }
    }

    /// A response on its way into the turn. A long body exists only once, so no other owner retains it.
    private final class Answer: @unchecked Sendable {
      private var result: Result<HTTPResponse, HTTPFailure>?
      init(_ result: Result<HTTPResponse, HTTPFailure>) { self.result = result }
      func take() -> Result<HTTPResponse, HTTPFailure>? {
        defer { result = nil }
        return result
      }
    }

    private func answered(_ result: consuming Result<HTTPResponse, HTTPFailure>, _ url: String) {
      guard take() else { return }
      switch consume result {
      case .failure(let failure):
        let reason = SignalFailure(.source, failure.message, at: nodeContext.location)
        if failure.kind == .unavailable { return endPipeline(because: reason) }
        failed(.pollFailed, reason, from: makeOrigin(nil, url))
      case .success(var response) where (200..<300).contains(response.status):
        let origin = makeOrigin(response, url)
        let body = response.body
        response.body = []
        sendBody(body, parameters.decode.options, origin)
        return
      case .success(let response):
        let reason = SignalFailure(
          .source, "\(parameters.method.rawValue) \(Self.shown(url)) answered \(response.status)",
          at: nodeContext.location,
          details: [.init("status", Int64(response.status))])
        failed(.pollFailed, reason, response.body, from: makeOrigin(response, url))
      }
      end()
    }

    private func makeOrigin(_ response: HTTPResponse?, _ url: String) -> Origin {
      let fields = response.map { OwnedValue(arena.map(["status": .int($0.status)])) } ?? OwnedValue()
      return Origin(
        source: origin.source, path: Self.shown(url), receivedAt: executor.wallTime, fields: fields,
        reply: origin.reply, identity: origin.identity)
    }

    /// A URL for messages: without the query, which may contain keys.
    static func shown(_ url: String) -> String {
      String(decoding: url.utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }, as: UTF8.self)
    }
  }
}
