import PipelineCore

/// `http`: one request, or periodic requests.
package struct HTTP: SourceComponent, RepeatingSource {
  package enum Method: String, ChoiceParameter {
    case get = "GET"
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"
    case delete = "DELETE"
    case head = "HEAD"
    package var help: String { "the method \(rawValue)" }
  }

  package var url = TemplateParameter()
  package var method = Method.get
  var headers = Table<TemplateParameter>()
  var body = TemplateParameter()
  package var every: TimeSpan?
  var jitter = TimeSpan.zero
  var immediate = true
  var conditional = false
  var pages: Pages?
  var cursor: Cursor?
  package var decode = DecodeParameter(.json)
  var charset = CharsetParameter()
  var auth: ClientAuth?
  var tls = TLSParameter()
  package var timeout = TimeSpan.seconds(30)
  var connectTimeout = TimeSpan.seconds(5)
  var stopTimeout = TimeSpan.seconds(10)
  var redirects = 0
  var maxResponse = ByteSize(16 << 20)
  var proxy: String?
  var acceptCompressed = false
  var allowPrivate = false

  package init() {}

  package static let spec = ComponentSpec<HTTP>(
    "http",
    summary: "Requests a URL, once or periodically, and sends the contents of the response.",
    details: """
      Without `every` it completes after the response. A status other than 2xx, a broken connection or a time-out \
      ends the signal with an error, which `retry` and `catch` handle; `error.status` is the status.

      With `every`, requests start at that interval. If a request is still running when the next is due, the next is \
      skipped. A failed request goes to the errors output (RX525), with the body of the response as its `event`, and \
      the next one follows; with `onError: fail` the signal ends with the error.

      With `pages`, the pages of an answer are requested one after another, each once all events of the page before it have \
      been sent. The expressions see the page as `response`: `response.status`, `response.headers` (their names in small \
      letters), `response.body` (JSON for `decode: json`, otherwise a text) and `response.page`, counted from 1; and `link`, the URL \
      of the header `Link` with `rel="next"`, or null. A next page must have the scheme, host and port of `url`. If the request for \
      a page fails, the next poll goes on at that page; if the server refuses it for good (4xx), at the first one.

      With `cursor`, `from` is evaluated for each page. Its value is sent from the next poll on, once all pages have come; with \
      a state directory it is saved together with the state of the pipeline, so a restart leaves nothing out. \
      Where the newest item comes first, take the cursor of the first page: \
      `response.page == 1 ? response.body.items[0].id : cursor`. A changed URL path or `parameter` starts with `start` again.

      A server that asks for a pause gets it, up to an hour: `Retry-After` of an answer other than 2xx, or a used-up \
      rate limit (`RateLimit`, `RateLimit-Remaining` and `-Reset`, or the same with `X-`). A poll or page that is due in \
      the meantime follows at its end.

      In an inner signal, the templates see the event that it was made for as `event`. Event data may appear only \
      after the host of the URL. It is percent-encoded for its place: one segment of the path, one value of the query. \
      `raw(...)` inserts a text as it is, such as a path of several segments; then a `?` or `#` that would end its part of the URL is refused. \
      So are `..` in any encoding, and a line break in a header. The event then goes to the errors output of the \
      signal (RX524), and the inner signal completes without a response.
      """,
    parameters: [
      .init("url", \.url, primary: true, required: true, "The URL, http or https."),
      .init("method", \.method, "The method."),
      .init("headers", \.headers, "Further headers."),
      .init("body", \.body, "The body of the request."),
      .init("every", \.every, range: 1_000_000...Int64.max, "The time from one request to the next."),
      .init(
        "jitter", \.jitter, range: 0...Int64.max,
        applies: .with("every"), "Adds a random delay of up to this to each later request."),
      .init("immediate", \.immediate, applies: .with("every"), "Whether the first request starts at once."),
      .init(
        "conditional", \.conditional,
        applies: .with("every"),
        "Whether to send the `ETag` and `Last-Modified` of the last answer back; 304 then means no news. With `pages`, those of each page: after an unchanged page the next one is requested all the same."
      ),
      .init(
        "pages", \.pages, variables: pageVariables,
        "How an answer of several pages is read; by default the first page is the whole answer."),
      .init(
        "cursor", \.cursor, variables: pageVariables,
        applies: .with("every"),
        "The progress of the polls, which each request carries, so that the server sends only new data."),
      .init(
        "decode", \.decode, nested: DecodeParameter.ofMessagesWithCharset,
        "How the response body is decoded into events."),
      .init(
        "charset", \.charset,
        "How the characters of bodies are encoded; by default, where the format is text, from the `Content-Type`."),
      .init("auth", \.auth, "How to authenticate."),
      .init(
        "tls", \.tls, applies: .any([.begins("url", ["https:"]), .begins("auth.oauth2.tokenURL", ["https:"])]),
        "Certificates."),
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
      .pipeline(
        "only new data, from all pages",
        """
        name: items
        sources:
          new:
            http:
              url: http://127.0.0.1:8080/items
              every: 1m
              cursor: { from: "response.body.items.last().?id", parameter: after, start: "0" }
              pages: { next: "response.body.?next" }
        signals:
          items: { from: new, chain: [ { flattenMap: event.items } ] }
        sinks:
          out: { from: items, stdout: {} }
        tests:
          - name: two pages, then new data
            stubs:
              http:
                - { url: "*/items?after=0", reply: { json: { items: [ { id: 1 } ], next: "/items?after=0&page=2" } } }
                - { url: "*/items?after=0&page=2", reply: { json: { items: [ { id: 2 } ] } } }
                - { url: "*/items?after=2", reply: { json: { items: [] } } }
            until: 90s
            expect:
              items: [ { at: 0ms, next: { id: 1 } }, { at: 0ms, next: { id: 2 } } ]
        """),
      .snippet(
        "numbered pages, as far as there are any",
        "http: { url: 'http://127.0.0.1:8080/users', pages: { page: page, until: size(response.body) == 0 } }"),
      .snippet(
        "only when it has changed", "http: { url: 'http://127.0.0.1:8080/config.json', every: 1m, conditional: true }"),
      .snippet(
        "with a token of OAuth 2.0",
        """
        http:
          url: https://api.example.org/orders
          auth: { oauth2: { tokenURL: 'https://id.example.org/token', clientID: rxd, clientSecret: "${secret:orders}", scope: read } }
        """),
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
      repeated, and the schedule of `every` continues, with the cursor, the page and what `conditional` knows. If parameters \
      have changed, the source starts again, with its cursor.
      """,
    persistence: .position(version: 3),
    lateness: .leavesOut("Missed requests are skipped; the next one is made in its period.") { http, _ in
      http.every == nil ? "it asks once" : nil
    },
    knownAs: ["Vector http_client", "Benthos http_client", "Logstash http_poller"],
    useCases: [
      .init(.reading, "poll a URL periodically", "http: { url: \"http://127.0.0.1:8080/status\", every: 10s }"),
      .init(
        .reading, "read a list that comes in pages",
        "http: { url: \"http://127.0.0.1:8080/users\", pages: { next: link } }"),
      .init(
        .reading, "poll an API for new data",
        "http: { url: \"http://127.0.0.1:8080/items\", every: 1m, cursor: { from: response.body.newest, parameter: since } }"
      ),
      .init(.reading, "fetch something once", "http: { url: \"http://127.0.0.1:8080/config.json\" }"),
    ],
    seeAlso: ["httpServer", "flattenMap"])

  package func validate(_ context: inout DecodingContext) {
    URLConfinement.validate(url, &context)
    URLConfinement.validate(proxy: proxy, &context)
    headers.validateHeaders(isRequest: true, hasAuth: auth != nil, &context)
    tls.validate(at: "tls", &context)
    charset.check(decode.options, joins: false, &context)
    validatePolling(&context)
  }

  package var asks: TargetAddress? { TargetAddress(url, method: method.rawValue) }
  package var outputType: EventType { decode.options.eventType }

  package func threads(_ limit: Int?) -> String? {
    """
    fetched by the thread of all HTTP requests, decoded on the pipeline thread
    """
  }

  package var runsOnVirtualTime: Bool { true }

  package var repeats: TimeSpan? { every }

  package var once: (any SourceComponent)? {
    var once = self
    once.every = nil
    return once
  }

  package var recovery: SourceRecovery { cursor == nil ? .request : .position }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }
}
