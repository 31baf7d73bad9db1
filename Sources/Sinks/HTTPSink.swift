import DequeModule
public import PipelineCore
import Transport

/// `http`: requests that carry events.
public struct HTTPSink: SinkComponent {
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
    static var fields: [RecordField<Batch>] {
      [
        .init("count", \.count, primary: true, range: 1...100_000, "The most events of one request."),
        .init("bytes", \.bytes, "The largest body."),
        .init(
          "every", \.every, range: 0...Int64.max,
          "How long an event may wait for others to go with it."),
        .init("form", \.form, "How the body is made of several events."),
      ]
    }
  }

  struct RetryPolicy: RecordParameter {
    /// Nil: for ever.
    var attempts: Int?
    var delay = TimeSpan.milliseconds(100)
    var maxDelay = TimeSpan.seconds(30)
    static var fields: [RecordField<RetryPolicy>] {
      [
        .init(
          "attempts", \.attempts, primary: true, range: 1...1_000_000,
          "How many attempts in all; for ever if left out."),
        .init(
          "delay", \.delay, range: 1_000_000...Int64.max,
          "The pause before the second attempt; it doubles, and a random part of it is waited."),
        .init("maxDelay", \.maxDelay, range: 1_000_000...Int64.max, "The longest pause."),
      ]
    }
  }

  var url = TemplateParameter()
  var method = Method.post
  var headers = Table<TemplateParameter>()
  var encode = EncodeParameter(.json)
  var batch = Batch()
  var retry = RetryPolicy()
  var auth: HTTPAuth?
  var tls = TLSParameter()
  var timeout = TimeSpan.seconds(30)
  var queue = 10_000
  var allowPrivate = false

  public init() {}

  public static let spec = ComponentSpec<HTTPSink>(
    "http",
    summary: "Sends events to a URL, one or several a request, and repeats what failed.",
    details: """
      One request is under way at a time, so the order is kept. Answers decide: 2xx settles the events; \
      429, 5xx and broken connections are repeated, as `Retry-After` asks, at most ten minutes later, \
      otherwise after growing pauses; 400 and 422 mean that an event is bad: a batch is halved until the \
      bad one is alone, which is a dead letter; 413 halves the batch for good. Other answers \
      (401, 403, 404 ...) mean that the setting is wrong, and end the pipeline with an error. Each batch \
      carries an `Idempotency-Key` that stays the same when it is repeated. While more than `queue` \
      events wait, the pipeline reads no further input.
      """,
    parameters: [
      .init("url", \.url, primary: true, required: true, "The URL, http or https, without templates."),
      .init("method", \.method, "The method."),
      .init("headers", \.headers, "Further headers, without templates."),
      .init("encode", \.encode, "How events become bytes."),
      .init("batch", \.batch, "How many events go together."),
      .init("retry", \.retry, "How failed requests are repeated."),
      .init("auth", \.auth, "How to authenticate."),
      .init("tls", \.tls, "Certificates."),
      .init("timeout", \.timeout, range: 1_000_000...Int64.max, "How long a request may take."),
      .init("queue", \.queue, range: 1...10_000_000, "How many events may wait."),
      .init(
        "allowPrivate", \.allowPrivate,
        "Whether a host name may lead to a private address. Addresses that are written out always may."),
    ],
    examples: [
      .snippet(
        "a hundred at a time",
        "http: { url: 'http://127.0.0.1:8080/events', encode: ndjson, batch: { count: 100, every: 1s } }")
    ],
    edges: EdgeCases(
      empty: "No request is made.",
      error: "Answers 429, 5xx and broken connections are repeated; other answers end the pipeline.",
      completion: "What waits is sent first.", disposal: "What waits is sent within the time limit for stopping."),
    rivals: ["Vector http", "Benthos http_client", "Logstash http"],
    wants: [
      .init(.writing, "send events to a web service", "http: { url: \"http://127.0.0.1:8080/ingest\" }"),
      .init(
        .writing, "send events in batches", "http: { url: \"http://127.0.0.1:8080/ingest\", batch: { count: 500 } }"),
    ],
    seeAlso: ["reply"])

  public func validate(_ context: inout DecodingContext) {
    URLConfinement.validate(url, &context)
    for template in [url] + headers.entries.map(\.value) where !template.isConstant {
      context.badValue(
        at: template.location ?? context.location,
        "the 'http' sink sends all events to one URL with the same headers, so these cannot hold {{ }}")
    }
    if batch.form == .array, ![.json, .ndjson].contains(encode.options.format) {
      context.badValue(
        at: context.location,
        "'form: array' makes JSON arrays, and 'encode: \(encode.options.format.rawValue)' makes no JSON",
        .conflictingParameters, help: "Use 'encode: json', or 'form: lines'")
    }
  }

  public var threads: String? { "encoded in the turns, sent by the thread of all HTTP requests" }

  public func makeSink(_ seat: Seat) -> RunningSink { Node(self, seat) }

  /// An event on its way: its bytes, and itself in case it is refused.
  private struct Item {
    var body: [UInt8]
    var event: OwnedEvent
    /// What waits for it to be delivered. Given up without a word if the sink ends before.
    var settlement: Settlement?
  }

  private struct Request {
    var items: [Item]
    var key: String
    var attempts = 0
  }

  final class Node: RunningSink, TimerTarget {
    private let parameters: HTTPSink
    private let encoder: any EventEncoder
    /// Each request begins with the header that its format has.
    private let hasHeader: Bool
    private var options = HTTPOptions()
    private var waiting = Deque<Item>()
    private var waitingBytes = 0
    /// What must go before anything that waits: parts of a batch that was halved.
    private var pending = Deque<Request>()
    private var current: Request?
    private var exchange: (any Cancellable)?
    private var timer = Wake.none
    private var isBatchDue = false
    private var isFinishing = false
    private var isOver = false
    private var isCongested = false
    /// What `413` has taught.
    private var largest: Int
    private let buffer = OutputBuffer()

    private static let flush = 1
    private static let again = 2
    private static let longestRetryAfter: Int64 = 600

    init(_ parameters: HTTPSink, _ seat: Seat) {
      self.parameters = parameters
      var encode = parameters.encode
      hasHeader = encode.options.format == .csv && encode.options.csv.header
      encode.options.csv.header = false
      encoder = encode.makeEncoder()
      largest = parameters.batch.count
      options.timeout = parameters.timeout
      options.maxResponseBytes = 4096
      options.cutsResponse = true
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.allowPrivate = parameters.allowPrivate
      super.init(seat)
    }

    override func receive(_ event: Event) {
      guard !isOver else { return }
      buffer.clear()
      if let failure = encoder.append(event.value, to: buffer) {
        reject(event, "the event cannot be written: \(failure)")
        return
      }
      let item = Item(body: Array(buffer.bytes), event: OwnedEvent(event), settlement: executor.settlement)
      item.settlement?.hold()
      waiting.append(item)
      waitingBytes += item.body.count
      updatePressure()
    }

    override func turnEnded() {
      guard !isOver, current == nil else { return }
      sendNext()
    }

    private func updatePressure() {
      let over = waiting.count > parameters.queue || waitingBytes > 16 << 20
      if over, !isCongested {
        isCongested = true
        executor.congest(.output)
      } else if isCongested, waiting.count <= parameters.queue / 2, waitingBytes <= 8 << 20 {
        isCongested = false
        executor.decongest(.output)
      }
    }

    private func sendNext() {
      guard current == nil, !isOver else { return }
      if let next = pending.popFirst() {
        send(next)
        return
      }
      guard !waiting.isEmpty else {
        if isFinishing { over() }
        return
      }
      let isFull = waiting.count >= largest || waitingBytes >= parameters.batch.bytes.bytes
      guard isFull || isBatchDue || isFinishing || parameters.batch.every == .zero || largest == 1 else {
        if !timer.isSet {
          timer = executor.schedule(at: executor.now + parameters.batch.every, self, Self.flush)
        }
        return
      }
      isBatchDue = false
      if timer.isSet {
        executor.unschedule(timer)
        timer = .none
      }
      var items: [Item] = []
      var bytes = 0
      while items.count < largest, let first = waiting.first {
        if !items.isEmpty, bytes + first.body.count > parameters.batch.bytes.bytes { break }
        bytes += first.body.count
        items.append(waiting.removeFirst())
      }
      waitingBytes -= bytes
      updatePressure()
      send(Request(items: items, key: newKey()))
    }

    /// Hexadecimal, 128 bits.
    private func newKey() -> String {
      let digits = Array("0123456789abcdef".utf8)
      var text: [UInt8] = []
      for _ in 0..<2 {
        let number = execution.services.random()
        for shift in stride(from: 60, through: 0, by: -4) { text.append(digits[Int(number >> UInt64(shift) & 15)]) }
      }
      return String(decoding: text, as: UTF8.self)
    }

    private func body(of request: Request) -> [UInt8] {
      guard parameters.batch.form == .array else {
        buffer.clear()
        if hasHeader { encoder.appendHeader(to: buffer) }
        for item in request.items { buffer.append(item.body) }
        return Array(buffer.bytes)
      }
      var body: [UInt8] = [UInt8(ascii: "[")]
      for (index, item) in request.items.enumerated() {
        if index > 0 { body.append(UInt8(ascii: ",")) }
        body += item.body.last == 0x0A ? item.body.dropLast() : item.body[...]
      }
      body.append(UInt8(ascii: "]"))
      return body
    }

    private func send(_ request: Request) {
      var request = request
      request.attempts += 1
      current = request
      let frame = makeFrame()
      frame.loadNothing()
      let template = RequestTemplate(
        method: parameters.method.rawValue, url: parameters.url, headers: parameters.headers,
        body: TemplateParameter())
      switch template.render(frame) {
      case .failure(let failure): stop(with: failure)
      case .success(var message):
        message.options = options
        message.body = body(of: request)
        let type = parameters.batch.form == .array ? "application/json" : "\(encoder.mediaType)"
        if !message.headers.contains(where: { $0.name.lowercased() == "content-type" }) {
          message.headers.append(HTTPHeader("Content-Type", type))
        }
        message.headers.append(HTTPHeader("Idempotency-Key", request.key))
        let executor = executor
        let node = Weak(self)
        exchange = execution.services.http.send(message) { result in
          executor.post { node.object?.answered(result) }
        }
      }
    }

    private func answered(_ result: Result<HTTPResponse, HTTPFailure>) {
      guard !isOver, let request = current, exchange != nil else { return }
      exchange = nil
      switch result {
      case .failure(let failure):
        switch failure.kind {
        case .badRequest, .forbidden, .redirect:
          stop(with: SignalFailure(.sink, failure.message, at: seat.location))
        default: again(request, failure.message, after: nil)
        }
      case .success(let response):
        let text = "\(parameters.method.rawValue) answered \(response.status)"
        switch response.status {
        case 200..<300:
          countSent(request.items.count)
          for item in request.items { item.settlement?.release() }
          settled()
        case 429, 500, 502, 503, 504, 408, 425:
          again(request, text, after: retryAfter(response))
        case 413 where request.items.count > 1:
          largest = max(1, request.items.count / 2)
          halve(request)
        case 400, 413, 422:
          if request.items.count > 1 {
            halve(request)
          } else {
            refuse(request, response)
          }
        case 500...:
          again(request, text, after: retryAfter(response))
        default:
          stop(
            with: SignalFailure(
              .sink, "\(text), which no other event will change: check the URL and 'auth'",
              at: seat.location, details: [.init("status", Int64(response.status))]))
        }
      }
    }

    private func settled() {
      current = nil
      sendNext()
    }

    private func halve(_ request: Request) {
      let middle = request.items.count / 2
      pending.prepend(Request(items: Array(request.items[middle...]), key: newKey()))
      pending.prepend(Request(items: Array(request.items[..<middle]), key: newKey()))
      settled()
    }

    private func refuse(_ request: Request, _ response: HTTPResponse) {
      let answer = String(decoding: response.body.prefix(4096), as: UTF8.self)
      for item in request.items {
        item.event.keep(in: executor.arena)
        reject(
          item.event.event,
          "the server refused the event with \(response.status)\(answer.isEmpty ? "" : ": \(answer)")")
        item.settlement?.release()
      }
      settled()
    }

    private func again(_ request: Request, _ reason: String, after: TimeSpan?) {
      if let limit = parameters.retry.attempts, request.attempts >= limit {
        stop(
          with: SignalFailure(
            .sink, "\(reason); gave up after \(request.attempts) attempts", at: seat.location))
        return
      }
      var pause = parameters.retry.delay
      for _ in 1..<min(request.attempts, 40) where pause < parameters.retry.maxDelay {
        pause = pause.scaled(by: 2)
      }
      pause = min(pause, parameters.retry.maxDelay)
      let share = Double(execution.services.random() >> 11) / Double(1 << 53)
      let wait = after ?? pause.scaled(by: 0.5 + share / 2)
      if request.attempts == 1 {
        execution.services.log(
          .warning, execution.plan.steps[seat.step.number].label, "\(reason); trying again")
      }
      timer = executor.schedule(at: executor.now + wait, self, Self.again)
    }

    /// Whole seconds or a date (RFC 9110, 10.2.3). Nonsense is not followed, nor is what would mean no pause at
    /// all.
    private func retryAfter(_ response: HTTPResponse) -> TimeSpan? {
      guard let text = response.header("retry-after") else { return nil }
      let now = executor.wallTime / 1_000_000_000
      let seconds = Int64(text) ?? HTTPDate.seconds(text)?.subtractingReportingOverflow(now).partialValue
      guard let seconds, seconds > 0 else { return nil }
      return .seconds(min(seconds, Self.longestRetryAfter))
    }

    func woke(_ token: Int) {
      timer = .none
      guard !isOver else { return }
      if token == Self.again, let request = current {
        send(request)
      } else if token == Self.flush {
        isBatchDue = true
        sendNext()
      }
    }

    override func finish() {
      isFinishing = true
      sendNext()
    }

    private func stop(with failure: SignalFailure) {
      abandon()
      fail(because: failure)
    }

    private func over() {
      abandon()
      drained()
    }

    override func abandon() {
      guard !isOver else { return }
      isOver = true
      if timer.isSet {
        executor.unschedule(timer)
        timer = .none
      }
      exchange?.cancel()
      exchange = nil
      if isCongested {
        isCongested = false
        executor.decongest(.output)
      }
    }
  }
}
