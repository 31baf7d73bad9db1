import PipelineCore
import Transport

/// `http`: sends events in HTTP requests.
package struct HTTPSink: SinkComponent {
  enum Method: String, ChoiceParameter {
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"
    var help: String { "the method \(rawValue)" }
  }

  struct Batch: RecordParameter {
    enum Form: String, ChoiceParameter {
      case lines, array
      var help: String { self == .lines ? "the events one after the other" : "one JSON array" }
    }
    var count = 1
    var bytes = ByteSize(1 << 20)
    var every = TimeSpan.milliseconds(200)
    var form = Form.lines
    var open = 1000
    static var fields: [RecordField<Batch>] {
      [
        .init("count", \.count, primary: true, range: 1...100_000, "The largest number of events in one request."),
        .init("bytes", \.bytes, applies: .with("count"), "The largest body."),
        .init(
          "every", \.every, range: 0...Int64.max, applies: .with("count"),
          "How long an event may wait for others to share its request."),
        .init("form", \.form, "How several events form the body."),
        .init(
          "open", \.open, range: 1...100_000,
          applies: .all([.with("count"), .any([.template("/url"), .template("/headers")])]),
          "How many batches may wait, where the URL or a header depends on the event; beyond, the oldest is sent."),
      ]
    }
  }

  struct Compression: RecordParameter {
    enum Format: String, ChoiceParameter {
      case none, gzip, zstd
      var help: String {
        switch self {
        case .none: "bodies go as they are"
        case .gzip: "supported by most servers"
        case .zstd: "three times as fast at nearly the same size, for servers that support it"
        }
      }
    }
    var format = Format.none
    /// Nil: the default of the format.
    var level: Int?
    var least = ByteSize(1 << 10)
    static var fields: [RecordField<Compression>] {
      [
        .init("format", \.format, primary: true, required: true, "How bodies are compressed."),
        .init(
          "level", \.level, range: 1...19, applies: .notWord("format", ["none"]),
          "From fast to small: 1 to 9 for gzip, 6 by default; 1 to 19 for zstd, 3 by default."),
        .init(
          "least", \.least, applies: .notWord("format", ["none"]),
          "The least body that is compressed; smaller ones fit in a packet."),
      ]
    }
    /// The format and level; nil: no compression.
    var choice: (format: Compressor.Format, level: Int)? {
      guard let format = Compressor.Format(rawValue: format.rawValue) else { return nil }
      return (format, level ?? format.usualLevel)
    }
  }

  struct RetryPolicy: RecordParameter {
    /// Nil: no limit.
    var attempts: Int?
    var delay = TimeSpan.milliseconds(100)
    var maxDelay = TimeSpan.seconds(30)
    var after = ExpressionParameter()
    static var fields: [RecordField<RetryPolicy>] {
      [
        .init(
          "attempts", \.attempts, primary: true, range: 1...1_000_000,
          """
          The total number of attempts; unlimited by default. After the last one the events go to the errors \
          output if it has a reader; otherwise the pipeline ends.
          """
        ),
        .init(
          "delay", \.delay, range: 1_000_000...Int64.max,
          """
          The pause before the second attempt. It doubles with each attempt up to `maxDelay`; each pause is \
          shortened by a random part of up to half.
          """
        ),
        .init("maxDelay", \.maxDelay, range: 1_000_000...Int64.max, "The longest pause."),
        .init(
          "after", \.after,
          """
          The pause that the answer's body asks for: a duration or seconds, at most ten minutes. It sees \
          `response` and `count`. By default, and where it fails or is null, `Retry-After` says it.
          """),
      ]
    }
  }

  var url = TemplateParameter()
  var urls: [TemplateParameter] = []
  var balance = Balance.failover
  var method = Method.post
  var headers = Table<TemplateParameter>()
  var encode = EncodeParameter(.json)
  var body = MappingParameter()
  var envelope = MappingParameter()
  var batch = Batch()
  var compress = Compression()
  var retry = RetryPolicy()
  var circuitBreaker: CircuitBreaker?
  var answer = ExpressionParameter()
  var partial = ExpressionParameter()
  var auth: ClientAuth?
  var tls = TLSParameter()
  var timeout = TimeSpan.seconds(30)
  var connectTimeout = TimeSpan.seconds(5)
  var maxConcurrent = 1
  var queue = 10_000
  var proxy: String?
  var allowPrivate = false

  package init() {}

  /// The variables of expressions about an answer.
  static let responseVariables: [(String, ExpressionType)] = [("response", ResponseVariable.type), ("count", .int)]
  private static let requestVariables = [(RequestVariable.name, RequestVariable.type)]

  package static let spec = ComponentSpec<HTTPSink>(
    "http",
    summary: "Sends events to a URL, one or several in a request, and repeats failed requests.",
    details: """
      One request is sent at a time, so the order is kept, unless `maxConcurrent` allows more: then requests may \
      overtake each other, but the events of one request stay in order, and each event is still repeated until the \
      server has answered for it. The status decides: 2xx acknowledges the events; 429, 5xx (but not 501 and 505) and broken \
      connections are repeated, after `Retry-After` (at most ten minutes) or after growing pauses; 400 and 422 mean that an \
      event is bad: the batch is halved until the bad event is alone, which goes to the errors output; 413 halves \
      the batch permanently. Other statuses (301, 401, 404 ...) mean that the configuration is wrong: if the errors \
      output has a reader, the events of the request go there with the reason, and the sink continues; otherwise the \
      pipeline ends with an error. Each batch has an `Idempotency-Key` that stays the same when it is repeated, and, with \
      a state directory, where the events have names that tell them apart (docs/reliability.md), after a crash.

      A request that must be repeated delays all that have not started. After the pause the oldest one is tried \
      alone; once the server has accepted it, two may be under way, and one more after each further response, up to \
      `maxConcurrent`. The log says when requests start to fail and when the server responds again. While more than \
      `queue` events or 16 MiB wait, beside those of the requests under way, the pipeline reads no further input.

      With `urls`, a failed request goes to the next server at once, and the one that failed gets none for 10s, or as \
      `circuitBreaker` says. If no server takes requests, events wait until the first one may be tried again.

      If the URL or a header has templates, a request has only events for which they are the same: each URL has a batch of its own, with its own \
      `count`, `bytes` and `every`, at most `batch.open` at a time. Their order is kept per URL. Event data is encoded for its place in the URL, as in the source `http`; an event that would leave its place goes to the \
      errors output.

      `body` is what goes into the body for an event, an expression or a mapping of expressions; `encode` encodes its value. \
      URL, headers and the errors output have the event itself. Waiting requests are created again after a restart, so `meta.time`, not `now`, is the time of an event. `envelope` makes one body of what `body` made of all events of a request, \
      `events` (as JSON has them), and `encode` encodes that. If it fails, the batch is halved until the event that causes it is alone, which goes to \
      the errors output. `request` is what an envelope, the URL and the headers may call the request by: `key`, 32 hexadecimal digits that stay the \
      same when it is repeated, `time`, the time of its first attempt, and `number`, counted from 1 since the start.

      `answer` decides the meaning of an answer whose status is not enough: `"ok"`, `"retry"`, `"refuse"` (an event is bad, as after 400), `"fail"` \
      (the configuration is wrong, as after 401), or `"partial"` (see `partial`). Where it is null, empty or fails, the status decides.

      `partial` sees the answer as `response` (`status`, `headers` in small letters, `body` as JSON or text) and the \
      number of events of the request as `count`. Its value is a list: either a verdict for each event, in their order: \
      `"ok"` or null, `"retry"`, or the reason of a refusal; or of maps `{ index, retry, reason }` for those that were not taken, \
      counted from 0. Refused events go to the errors output, the ones to be retried are sent again in a request of their own. If \
      the expression fails or the list does not fit, it is not clear which events were taken, and all go to the errors output.

      With `compress`, bodies of 1 KiB (`least`) and more are compressed, with `Content-Encoding`; the content type stays. The \
      status 415 means that the server does not support the format, which is a wrong configuration as above. A \
      request counts as under way while its body is being compressed, so `maxConcurrent: 2` compresses one while \
      another is being sent. Repeated bodies are not compressed again.
      """,
    parameters: [
      .init(
        "url", \.url, primary: true, variables: requestVariables,
        "The URL, http or https. Templates may fill the part after the host; this or `urls` is required."),
      .init("urls", \.urls, "Several servers in place of `url`, without templates."),
      .init("balance", \.balance, applies: .with("urls"), "Which server a request goes to."),
      .init("method", \.method, "The method."),
      .init("headers", \.headers, variables: requestVariables, "Further headers."),
      .init("encode", \.encode, "How events are encoded as bytes."),
      .init("body", \.body, "What goes into the body for an event; by default the event."),
      .init(
        "envelope", \.envelope, variables: [("events", .list(.dyn))] + requestVariables,
        "The body of a request, made of the values of its events; by default they are in it in the form of `batch.form`."
      ),
      .init("batch", \.batch, "How many events one request has."),
      .init("compress", \.compress, "How bodies of 1 KiB and more are compressed; by default they are not."),
      .init("retry", \.retry, variables: responseVariables, "How failed requests are repeated."),
      .init(
        "circuitBreaker", \.circuitBreaker,
        "When a server gets no request for a while, instead of the pauses of `retry`. With `urls`, by default: after one failure, for 10s."
      ),
      .init(
        "answer", \.answer, variables: responseVariables,
        "What an answer means: `ok`, `retry`, `refuse`, `fail` or `partial`; null or an empty text: the meaning of its status."
      ),
      .init(
        "partial", \.partial, variables: responseVariables,
        "Which events of a request the server has taken, from its answer with the status 2xx; by default all."),
      .init("auth", \.auth, "How to authenticate."),
      .init(
        "tls", \.tls,
        applies: .any([
          .begins("url", ["https:"]), .begins("urls", ["https:"]), .begins("auth.oauth2.tokenURL", ["https:"]),
        ]), "Certificates."),
      .init(
        "timeout", \.timeout, range: 1_000_000...Int64.max,
        "How long a request may take, from its start to the last byte of the response."),
      .init(
        "connectTimeout", \.connectTimeout, range: 1_000_000...Int64.max,
        "How long name resolution and connecting may take, TLS included; at most `timeout`."),
      .init(
        "maxConcurrent", \.maxConcurrent, range: 1...1000,
        "How many requests may be under way at the same time. With more than one, their order is not kept."),
      .init("queue", \.queue, range: 1...10_000_000, "How many events may wait."),
      .init("proxy", \.proxy, "A proxy, http://HOST:PORT; the environment's is not used."),
      .init(
        "allowPrivate", \.allowPrivate,
        "Whether a host name may resolve to a private address. Literal addresses are always allowed."),
    ],
    examples: [
      .snippet(
        "a hundred at a time",
        "http: { url: 'http://127.0.0.1:8080/events', encode: ndjson, batch: { count: 100, every: 1s } }"),
      .snippet(
        "eight requests at once, where the order does not matter",
        "http: { url: 'http://127.0.0.1:8080/events', batch: 100, maxConcurrent: 8 }"),
      .snippet(
        "to a store of AWS's kind",
        """
        http:
          url: https://example.execute-api.eu-central-1.amazonaws.com/events
          auth: { awsSigV4: { region: eu-central-1, service: execute-api, accessKey: "${secret:key}", secretKey: "${secret:secret}" } }
        """),
      .snippet(
        "two servers, the second if the first one fails",
        "http: { urls: ['http://10.0.0.1:8080/events', 'http://10.0.0.2:8080/events'], circuitBreaker: { failures: 3, pause: 1m } }"
      ),
      .snippet(
        "an index for each day and customer",
        "http: { url: 'http://127.0.0.1:9200/{{ event.customer }}-{{ formatTime(now, \"%F\") }}/_doc' }"),
      .snippet(
        "in bulk, where the answer has a status for each event",
        """
        http:
          url: http://127.0.0.1:8080/bulk
          batch: { count: 500, form: array }
          partial: 'response.body.items.map(i, i.status < 300 ? "ok" : i.status == 429 ? "retry" : string(i.error))'
        """),
      .snippet(
        "a form, made of fields of the event",
        """
        http:
          url: http://127.0.0.1:8080/notify
          body: { user: event.user, text: "'order ' + string(event.id)" }
          encode: form
        """),
      .snippet(
        "points of InfluxDB",
        """
        http:
          url: http://127.0.0.1:8086/write?db=plant
          body: { measurement: "'heat'", tags: { room: event.room }, fields: { celsius: double(event.celsius) }, timestamp: meta.time }
          encode: influx
          batch: 1000
        """),
      .snippet(
        "one document of all events of a request, which the URL names",
        """
        http:
          url: http://127.0.0.1:8080/orders/{{ formatTime(request.time, '%F') }}/{{ request.key }}
          method: PUT
          body: { id: event.id, total: event.total }
          envelope: { orders: events, count: size(events) }
          batch: 100
        """),
      .snippet(
        "answers whose body has the result",
        """
        http:
          url: http://127.0.0.1:8080/rpc
          answer: "response.body.error.code == 'busy' ? 'retry' : response.body.error.code == 'denied' ? 'fail' : 'refuse'"
          retry: { after: response.body.error.wait }
        """),
      .snippet(
        "compressed, quickly rather than well",
        "http: { url: 'http://127.0.0.1:8080/events', batch: 1000, compress: { format: gzip, level: 1 } }"),
    ],
    edges: EdgeCases(
      empty: "No request is made.",
      error: """
        Requests with the status 408, 425, 429 or 5xx, and broken connections, are repeated. A single event with the \
        status 400, 413 or 422 goes to the errors output. Any other status ends the pipeline unless the errors \
        output has a reader. If libcurl is not installed, the pipeline ends.
        """,
      completion: "Waiting events are sent first, as long as `retry` allows.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: """
      Up to `queue` events or 16 MiB, whichever is reached first, and those of `maxConcurrent` requests, in memory.
      """,
    persistence: .position(version: 1),
    knownAs: ["Vector http", "Benthos http_client", "Logstash http"],
    useCases: [
      .init(.writing, "send events to a web service", "http: { url: \"http://127.0.0.1:8080/ingest\" }"),
      .init(
        .writing, "send events in batches", "http: { url: \"http://127.0.0.1:8080/ingest\", batch: { count: 500 } }"),
      .init(
        .writing, "send several requests at once", "http: { url: \"http://127.0.0.1:8080/ingest\", maxConcurrent: 8 }"),
      .init(
        .writing, "send events to one of several servers",
        "http: { urls: [\"http://10.0.0.1/ingest\", \"http://10.0.0.2/ingest\"], balance: roundRobin }"),
      .init(
        .writing, "send each event to a URL of its own",
        "http: { url: \"http://127.0.0.1:8080/users/{{ event.user }}\" }"),
      .init(
        .writing, "send a form", "http: { url: \"http://127.0.0.1:8080/in\", encode: form, body: { text: event.text } }"
      ),
      .init(
        .writing, "choose the body of a request",
        "http: { url: \"http://127.0.0.1:8080/in\", batch: 100, body: event.order, envelope: { orders: events } }"),
      .init(
        .writing, "send compressed requests",
        "http: { url: \"http://127.0.0.1:8080/ingest\", batch: 500, compress: gzip }"),
    ],
    seeAlso: ["reply"])

  package func validate(_ context: inout DecodingContext) {
    context.requireOne("url", url.isGiven, or: "urls", !urls.isEmpty)
    for url in urls + (url.isGiven ? [url] : []) { URLConfinement.validate(url, &context) }
    validateServers(&context)
    URLConfinement.validate(proxy: proxy, &context)
    headers.validateHeaders(isRequest: true, hasAuth: auth != nil, &context)
    tls.validate(at: "tls", &context)
    if retry.delay > retry.maxDelay {
      context.badValue(
        at: context.location(of: "retry.delay"),
        "'delay' of 'retry' is \(retry.delay), longer than 'maxDelay', which is \(retry.maxDelay)",
        .conflictingParameters,
        help: "Give 'maxDelay' a value of at least \(retry.delay)")
    }
    if batch.form == .array, ![.json, .ndjson].contains(encode.options.format) {
      context.badValue(
        at: context.location(of: "batch.form"),
        "'form: array' makes JSON arrays, and 'encode: \(encode.options.format.rawValue)' makes no JSON",
        .conflictingParameters, help: "Use 'encode: json', or 'form: lines'")
    }
    validateBodies(&context)
    validateCompression(&context)
  }

  private func validateBodies(_ context: inout DecodingContext) {
    let format = encode.options.format
    if envelope.isGiven, batch.form == .array || format == .csv {
      context.badValue(
        at: context.location(of: "envelope"),
        "'envelope' makes the whole body, so \(format == .csv ? "'encode: csv'" : "'form: array'") has nothing to join",
        .conflictingParameters,
        help: format == .csv ? "Use another format" : "Leave 'form' out; 'envelope: events' makes the same array")
    }
    if format == .form, batch.count > 1, !envelope.isGiven {
      context.badValue(
        at: context.location(of: "batch.count"), "a form is one event, and a request may have \(batch.count)",
        .conflictingParameters, help: "Leave 'batch' out, or make one form of several events with 'envelope'")
    }
  }

  private func validateServers(_ context: inout DecodingContext) {
    guard !urls.isEmpty else { return }
    for template in urls + headers.entries.map(\.value) where !template.isConstant {
      context.badValue(
        at: template.location ?? context.location,
        "with 'urls' all events go to the same servers with the same headers, so these cannot hold {{ }}",
        help: "Use 'url' for a URL that depends on the event")
    }
  }

  private var targets: [TemplateParameter] { [url] + headers.entries.map(\.value) }

  /// Whether the URL or a header depends on the event, or on the time of its arrival.
  var hasTargets: Bool { targets.contains { !$0.variables.isSubset(of: [RequestVariable.name, "env"]) } }

  /// Whether the URL or a header depends on the request.
  var namesRequests: Bool { targets.contains { $0.variables.contains(RequestVariable.name) } }

  /// Whether more of a response is needed than its beginning, which messages show.
  var readsAnswers: Bool { partial.isGiven || answer.isGiven || retry.after.isGiven }

  /// A server as messages show it: scheme, host and port. The path may contain a secret.
  func shownServer(_ index: Int) -> String {
    let template = urls.isEmpty ? url : urls.indices.contains(index) ? urls[index] : TemplateParameter()
    guard let url = template.template?.literalPrefix else { return "the server" }
    var slashes = 0
    let origin = url.utf8.prefix { byte in
      if byte == UInt8(ascii: "/") { slashes += 1 }
      return slashes < 3 && byte != UInt8(ascii: "?")
    }
    return String(decoding: origin, as: UTF8.self)
  }

  private func validateCompression(_ context: inout DecodingContext) {
    guard let choice = compress.choice else { return }
    if !choice.format.levels.contains(choice.level) {
      context.badValue(
        at: context.location(of: "compress.level"),
        """
        'level' of 'compress' is \(choice.level), and \(choice.format) supports 1 to \
        \(choice.format.levels.upperBound)
        """)
    }
    if let header = headers.entries.first(where: { $0.name.lowercased() == "content-encoding" }) {
      context.badValue(
        at: header.location, "'compress' sets the header Content-Encoding, which 'headers' sets, too",
        .conflictingParameters, help: "Leave the header out")
    }
  }

  package var sendsRequests: Bool { true }
  package var sendsTo: [TargetAddress] {
    ([url] + urls).compactMap { TargetAddress($0, method: method.rawValue) }
  }
  package var namesDeliveries: Bool { true }
  package var confirmation: SinkConfirmation { .receiver }
  /// Nil with an envelope: the envelope is encoded, not the value of an event.
  package var encoding: EncodeParameter? { envelope.isGiven ? nil : encode }
  package var sentValue: MappingParameter? { body.isGiven ? body : nil }

  package var threads: String? {
    """
    encoded on the pipeline thread, \(compress.choice == nil ? "" : "compressed by a thread of its own, ")sent by \
    the thread of all HTTP requests
    """
      + (maxConcurrent > 1 ? ", up to \(maxConcurrent) at once in no order" : ", one after the other")
  }

}
