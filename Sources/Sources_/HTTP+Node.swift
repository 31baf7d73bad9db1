import PipelineCore
import Transport

extension HTTP {
  final class Node: PolledSource {
    private let parameters: HTTP
    private var options = HTTPOptions()
    private let requests = HTTPConnections()
    private lazy var frame = makeFrame()
    /// The number of pages received in the current poll.
    private var pagesOfPoll = 0
    /// The call that follows the response being sent.
    private var next: Next?
    private var goesOn = false

    /// A request that was made.
    private struct Asked {
      var url: String
      /// The URL for messages and events, without secrets.
      var shownURL: String
      var page: PollPosition.Page?
    }

    /// The call that follows a response.
    private struct Next {
      var position: PollPosition
      /// Why no further page is requested; nil if one is, or none is expected.
      var failure: SignalFailure?
      var origin: Origin
    }

    private static let longestPause = TimeSpan.seconds(3600)
    private static let longestCursor = 4096

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
      options.connections = requests
      options.maxResponseBytes = parameters.maxResponse.bytes
      options.auth = parameters.auth?.value ?? .none
      options.tls = parameters.tls.value
      options.proxy = parameters.proxy
      options.acceptCompressed = parameters.acceptCompressed
      options.allowPrivate = parameters.allowPrivate
    }

    override var connections: PipelineStatistics.Connections? { .init(requests) }

    override func dryRun() {
      if let fault = execution.services.http.fault {
        endPipeline(because: SignalFailure(.source, fault.message, at: nodeContext.location))
      }
    }

    // MARK: Requests

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
        turnToPage(&request)
        if parameters.conditional { validators(of: request.url)?.add(to: &request) }
        let executor = executor
        let node = Weak(self)
        let asked = Asked(url: request.url, shownURL: request.shownURL, page: position.page)
        return execution.services.http.send(request) { result in
          let answer = Answer(result)
          executor.post {
            if let result = answer.take() { node.object?.answered(result, asked) }
          }
        }
      }
    }

    /// Adds the cursor and the page number to the URL.
    private func turnToPage(_ request: inout HTTPRequest) {
      if case .url(let url)? = position.page {
        // The server may have put a secret of the file into its link.
        if request.maskedURL != nil, let end = PageAddress.Origin(url)?.end {
          request.maskedURL = String(decoding: url.utf8.prefix(end), as: UTF8.self) + "/\(LocatedText.mask)"
        }
        request.url = url
        return
      }
      var added: [(name: String, value: String)] = []
      if let cursor = parameters.cursor, let value = position.cursor ?? cursor.start {
        added.append((cursor.parameter, value))
      }
      if let pages = parameters.pages {
        switch position.page {
        case .cursor(let value): added.append((pages.parameter ?? "", value))
        case .number(let number): added.append((pages.page ?? "", String(number)))
        default: if let page = pages.page { added.append((page, String(pages.from))) }
        }
      }
      for (name, value) in added {
        request.url = PageAddress.adding(name, value, to: request.url)
        request.maskedURL = request.maskedURL.map { PageAddress.adding(name, value, to: $0) }
      }
    }

    /// A response on its way into the turn. A long body must not be copied, so no other owner may retain it.
    private final class Answer: @unchecked Sendable {
      private var result: Result<HTTPResponse, HTTPFailure>?
      init(_ result: Result<HTTPResponse, HTTPFailure>) { self.result = result }
      func take() -> Result<HTTPResponse, HTTPFailure>? {
        defer { result = nil }
        return result
      }
    }

    // MARK: Answers

    /// How the body of a response is decoded.
    private func decoding(of response: HTTPResponse) -> DecoderOptions {
      parameters.charset.reading(
        parameters.decode.options, maxLine: parameters.maxResponse, type: response.header("content-type")
      ) { name in
        execution.services.log(
          .warning, execution.plan.steps[nodeContext.step.number].label,
          "the answer's charset '\(Printable.cut(name))' is not known here; it is read as UTF-8")
      }
    }

    private func answered(_ result: consuming Result<HTTPResponse, HTTPFailure>, _ asked: Asked) {
      guard take() else { return }
      switch consume result {
      case .failure(let failure):
        let reason = SignalFailure(.source, failure.message, at: nodeContext.location)
        if failure.kind == .unavailable { return endPipeline(because: reason) }
        pollIsOver()
        failed(.pollFailed, reason, from: makeOrigin(nil, asked))
        endFailed()
      case .success(var response) where (200..<300).contains(response.status):
        pause(after: response)
        let origin = makeOrigin(response, asked)
        next = follow(response, asked, origin)
        let body = response.body
        response.body = []
        sendBody(body, decoding(of: response), origin)
      case .success(let response)
      where response.status == 304 && parameters.conditional
        && (position.page == nil || validators(of: asked.url) != nil):
        pause(after: response)
        next = behindUnchanged(asked)
        end()
      case .success(let response): refused(response, asked)
      }
    }

    private func validators(of url: String) -> PollPosition.Validators? {
      guard parameters.conditional else { return nil }
      return parameters.pages == nil ? position.validators : position.knownPage(at: url)?.validators
    }

    /// The call after a page that has not changed: later pages may have.
    private func behindUnchanged(_ asked: Asked) -> Next? {
      guard parameters.pages != nil, let known = position.knownPage(at: asked.url) else { return nil }
      var position = position
      position.pages += 1
      position.add(known)
      position.page = known.next
      if position.page == nil { position.finishPages() }
      return Next(position: position, origin: makeOrigin(nil, asked))
    }

    private func pause(after response: HTTPResponse) {
      guard
        let pause = ServerPause.after(response, wallTime: executor.wallTime, longest: Self.longestPause),
        // A signal that ends with this response makes no later call.
        parameters.every != nil || parameters.pages != nil
      else { return }
      pauseCalls(for: pause)
    }

    private func refused(_ response: HTTPResponse, _ asked: Asked) {
      pause(after: response)
      var message = "\(parameters.method.rawValue) \(Self.shown(asked.shownURL)) answered \(response.status)"
      let isForGood = (400..<500).contains(response.status) && ![408, 425, 429].contains(response.status)
      if isForGood, position.page != nil, parameters.every != nil, !hasPause {
        position.restartPages()
        message += "; the next poll begins at the first page"
      }
      pollIsOver()
      let reason = SignalFailure(
        .source, message, at: nodeContext.location, details: [.init("status", Int64(response.status))])
      failed(.pollFailed, reason, response.body, from: makeOrigin(response, asked))
      endFailed(continues: position.page != nil)
    }

    private func makeOrigin(_ response: HTTPResponse?, _ asked: Asked) -> Origin {
      var fields = OwnedValue()
      if let response {
        let status = (key: Value.literal("status"), value: Value.int(response.status))
        let page = (key: Value.literal("page"), value: Value.int(position.pages + 1))
        fields = OwnedValue(arena.map(parameters.pages == nil ? [status] : [status, page]))
      }
      return Origin(
        source: origin.source, path: Self.shown(asked.shownURL), receivedAt: executor.wallTime, fields: fields,
        reply: origin.reply, identity: origin.identity)
    }

    /// A URL for messages: without the query, which may contain keys.
    static func shown(_ url: String) -> String {
      String(decoding: url.utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }, as: UTF8.self)
    }

    // MARK: Pages

    override var hasMore: Bool { goesOn }

    private func pollIsOver() {
      pagesOfPoll = 0
      goesOn = false
    }

    override func answerSent() {
      guard let next else { return pollIsOver() }
      self.next = nil
      position = next.position
      pagesOfPoll += 1
      goesOn = position.page != nil
      if let failure = next.failure {
        pollIsOver()
        failed(.pollFailed, failure, from: next.origin)
      } else if goesOn, let most = parameters.pages?.max, pagesOfPoll >= most {
        pollIsOver()
        if parameters.every == nil {
          finish(
            failing: SignalFailure(
              .source, "the answer has more than \(most) pages: raise 'max' of 'pages'", at: nodeContext.location))
        }
      }
    }

    /// The call for the page after this one; nil if there is none and no position is kept.
    private func follow(_ response: HTTPResponse, _ asked: Asked, _ origin: Origin) -> Next? {
      guard parameters.pages != nil || parameters.cursor != nil || parameters.conditional else { return nil }
      let validators = parameters.conditional ? PollPosition.Validators(response, of: asked.url) : nil
      var position = position
      position.pages += 1
      if position.page == nil {
        position.pages = 1
        position.newValidators = validators
      }
      // Without a body, neither a cursor nor a next page can be read.
      guard parameters.pages != nil || parameters.cursor != nil, !response.body.isEmpty else {
        if parameters.pages != nil, let validators { position.add(.init(validators: validators)) }
        position.finishPages()
        return Next(position: position, origin: origin)
      }
      let failure = response.body.withUnsafeBytes { body -> SignalFailure? in
        do throws(SignalFailure) {
          load(response, body, position)
          if let cursor = try newCursor() { position.newCursor = cursor }
          position.page = try nextPage(position, asked)
          if parameters.pages != nil, let validators {
            position.add(.init(validators: validators, next: position.page))
          }
          return nil
        } catch {
          return error
        }
      }
      if failure != nil {
        position = self.position
        position.restartPages()
      } else if position.page == nil {
        position.finishPages()
      }
      return Next(position: position, failure: failure, origin: origin)
    }

    /// Sets the variables of expressions about a response.
    private func load(_ response: HTTPResponse, _ body: UnsafeRawBufferPointer, _ position: PollPosition) {
      frame.loadNothing()
      let isJSON = parameters.decode.options.format == .json
      let document =
        isJSON ? execution.json.parse(body, into: arena) : arena.string(String(decoding: body, as: UTF8.self))
      frame.set(0, ResponseVariable.value(response, body: document, page: position.pages, in: arena))
      frame.set(1, PageAddress.next(response.headers).map { arena.string($0) } ?? .null)
      let cursor = position.newCursor ?? position.cursor ?? parameters.cursor?.start
      frame.set(2, cursor.map { arena.string($0) } ?? .null)
    }

    private func newCursor() throws(SignalFailure) -> String? {
      guard let cursor = parameters.cursor else { return nil }
      return try text(cursor.from, "from", "cursor")
    }

    private func nextPage(_ position: PollPosition, _ asked: Asked) throws(SignalFailure) -> PollPosition.Page? {
      guard let pages = parameters.pages else { return nil }
      if let until = pages.until.program {
        switch until.evaluateBool(frame.frame) {
        case .yes: return nil
        case .no: break
        case .failed: throw failure(pages.until, frame.frame.lastError, "'until' of 'pages' failed")
        }
      }
      if pages.page != nil {
        guard case .number(let number)? = asked.page else { return .number(pages.from + pages.step) }
        return .number(number + pages.step)
      }
      if pages.cursor.isGiven {
        guard let text = try text(pages.cursor, "cursor", "pages"), !text.isEmpty else { return nil }
        if asked.page == .cursor(text) {
          throw SignalFailure(.source, "'cursor' of 'pages' leads to the same page again", at: pages.cursor.location)
        }
        return .cursor(text)
      }
      guard let reference = try text(pages.next, "next", "pages"), !reference.isEmpty else { return nil }
      switch PageAddress.resolve(reference, against: asked.url) {
      case .failure(let refusal):
        throw SignalFailure(.source, "the link to the next page \(refusal.reason)", at: pages.next.location)
      case .success(asked.url):
        throw SignalFailure(.source, "the link to the next page leads to the same page again", at: pages.next.location)
      case .success(let url): return .url(url)
      }
    }

    /// The text of an expression's value; nil for null or an absent optional.
    private func text(
      _ expression: ExpressionParameter, _ name: String, _ whose: String
    ) throws(SignalFailure) -> String? {
      guard let program = expression.program else { return nil }
      var value = program.evaluate(frame.frame)
      if value.is(.optional) { value = value.wrapped ?? .null }
      if value.isNull { return nil }
      guard !value.isError, let text = frame.text(of: value), text.utf8.count <= Self.longestCursor else {
        throw failure(
          expression, value,
          "'\(name)' of '\(whose)' is \(value.isError || value.isAnyMap || value.isAnyList ? "no text or number" : "longer than \(Self.longestCursor) bytes")"
        )
      }
      return text
    }

    private func failure(_ expression: ExpressionParameter, _ value: Value, _ message: String) -> SignalFailure {
      guard value.isError, let program = expression.program else {
        return SignalFailure(.expression, message, at: expression.location)
      }
      return SignalFailure(.expression, program.failureMessage(value, frame.frame), at: expression.location)
    }

    // MARK: State

    /// The key under which the cursor is saved: the URL without its query, and the parameter.
    private lazy var cursorKey: String? = makeCursorKey()

    private func makeCursorKey() -> String? {
      guard let cursor = parameters.cursor else { return nil }
      let buffer = OutputBuffer(capacity: 64)
      frame.loadNothing()
      guard parameters.url.renderShown(frame, into: buffer) == nil else { return nil }
      return "\(Self.shown(String(decoding: buffer.bytes, as: UTF8.self)))?\(cursor.parameter)"
    }

    override var hasPosition: Bool { parameters.cursor != nil }

    override func save(_ state: inout StateWriter) {
      super.save(&state)
      state.write(cursorKey)
      savePosition(&state)
      savedPosition(state).savePages(to: &state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try super.restore(&state)
      var key: String?
      if state.version > 1 {
        key = try state.read()
        try restorePosition(&state)
      }
      if state.version > 2 {
        var known = position
        try known.restorePages(from: &state)
        goOn(from: known)
      }
      guard state.hasOtherParameters else { return }
      var kept = PollPosition()
      if key != nil, key == cursorKey { kept.cursor = position.cursor }
      beginAnew(from: kept)
    }
  }
}
