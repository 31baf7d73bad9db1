import NIOCore
import NIOHTTP1
import PipelineCore
import Synchronization

/// One client's connection: puts requests together, hands them over one at a time, writes answers in
/// order, cuts what takes too long. Used on its event loop only, but for `drain` and `cut`.
final class ServerConnection: ChannelInboundHandler, @unchecked Sendable {
  typealias InboundIn = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart

  private enum Phase {
    /// Waiting for a head.
    case head
    case body
    /// Somebody is to answer.
    case answering
    case writing
    /// The last answer has been written; what still comes is thrown away.
    case closing
  }

  private let server: HTTPServer
  private let channel: any Channel
  private let handler: @Sendable (ServerRequest) -> Void
  private var context: ChannelHandlerContext?
  private var phase = Phase.head
  private var isFirst = true
  private var closesAfterAnswer = false
  private var request: HTTPRequestHead?
  private var body: [UInt8] = []
  /// Bytes of the body so far, kept or not.
  private var received = 0
  /// What to answer at the end of the request, whatever its body.
  private var verdict: ServerAnswer?
  private var exchange: ServerExchange?
  private var deadline = NIODeadline.distantFuture
  private var timer: Scheduled<Void>?
  private var timerDeadline = NIODeadline.distantFuture

  init(
    _ server: HTTPServer, _ channel: any Channel,
    _ handler: @escaping @Sendable (ServerRequest) -> Void
  ) {
    self.server = server
    self.channel = channel
    self.handler = handler
  }

  // MARK: - From outside

  /// Closes as soon as no answer is due.
  func drain() {
    channel.eventLoop.execute { [self] in
      closesAfterAnswer = true
      if phase == .head { context?.close(promise: nil) }
    }
  }

  func cut() { channel.close(promise: nil) }

  // MARK: - Events

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    server.state.withLock { $0.connections[ObjectIdentifier(self)] = self }
    limit(server.options.headerTimeout)
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    timer?.cancel()
    timer = nil
    exchange?.abandon()
    exchange = nil
    self.context = nil
    server.state.withLock { $0.connections[ObjectIdentifier(self)] = nil }
    server.state.notify()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard phase != .closing else { return }
    switch unwrapInboundIn(data) {
    case .head(let head): receive(head, context)
    case .body(let bytes): receive(bytes)
    case .end: receiveEnd()
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if case ChannelEvent.inputClosed = event {
      switch phase {
      case .head, .body, .closing: context.close(promise: nil)
      case .answering, .writing: closesAfterAnswer = true
      }
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard phase != .closing, let error = error as? HTTPParserError else {
      return context.close(promise: nil)
    }
    switch phase {
    case .head, .body:
      closesAfterAnswer = true
      write(error == .headerOverflow ? .requestHeaderFieldsTooLarge : .badRequest)
    case .answering, .writing, .closing: closesAfterAnswer = true
    }
  }

  // MARK: - A request

  private func receive(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
    request = head
    body = []
    received = 0
    verdict = nil
    phase = .body
    limit(server.options.bodyTimeout)
    guard let length = Self.bodyLength(head) else { return refuse(.badRequest) }
    if let refusal = server.options.rules.refusal(ofBytes: length) { return refuse(refusal) }
    closesAfterAnswer = closesAfterAnswer || !head.isKeepAlive || head.headers.contains(name: "upgrade")
    let path = head.uri.prefix { $0 != "?" }
    verdict = server.options.rules.refusal(ofPath: path, method: head.method.rawValue)
    if head.version.minor > 0,
      head.headers[canonicalForm: "expect"].contains(where: { HTTPSyntax.same(String($0), "100-continue") })
    {
      if let verdict { return refuse(verdict) }
      let proceed = HTTPResponseHead(version: .http1_1, status: .continue)
      context.writeAndFlush(wrapOutboundOut(.head(proceed)), promise: nil)
    }
  }

  /// The length that the head declares, 0 if it is chunked or has none; nil if two readers could
  /// disagree on where the message ends, or it is not HTTP/1.
  private static func bodyLength(_ head: HTTPRequestHead) -> Int? {
    let encodings = head.headers["transfer-encoding"]
    let lengths = head.headers["content-length"]
    let hosts = head.headers["host"]
    guard head.version.major == 1, head.version.minor <= 1, head.method != .CONNECT else { return nil }
    guard hosts.count == 1 || hosts.isEmpty && head.version.minor == 0 else { return nil }
    guard head.uri.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
    if !encodings.isEmpty {
      guard encodings.count == 1, HTTPSyntax.same(encodings[0], "chunked"), lengths.isEmpty,
        head.version.minor == 1
      else { return nil }
      return 0
    }
    if lengths.isEmpty { return 0 }
    guard lengths.count == 1, !lengths[0].isEmpty,
      lengths[0].utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
    else { return nil }
    return Int(lengths[0]) ?? .max
  }

  private func receive(_ bytes: ByteBuffer) {
    guard phase == .body else { return }
    received += bytes.readableBytes
    if let refusal = server.options.rules.refusal(ofBytes: received) { return refuse(refusal) }
    if verdict == nil { body.append(contentsOf: bytes.readableBytesView) }
  }

  private func receiveEnd() {
    guard phase == .body, let head = request else { return }
    if let verdict { return write(verdict) }
    phase = .answering
    limit(server.options.rules.replyTimeout)
    let exchange = ServerExchange(self, channel.eventLoop)
    self.exchange = exchange
    let path = head.uri.prefix { $0 != "?" }
    handler(
      ServerRequest(
        method: head.method.rawValue, target: head.uri, path: String(path),
        query: Self.query(head.uri.dropFirst(path.count + 1)),
        headers: head.headers.map { HTTPHeader($0.name, $0.value) }, body: body,
        peer: channel.remoteAddress.map { "\($0.ipAddress ?? "?"):\($0.port ?? 0)" } ?? "?",
        reply: ServerReply(exchange), exchange: exchange))
    body = []
  }

  /// Name and value pairs of a form-encoded text.
  static func query(_ text: Substring) -> [(name: String, value: String)] {
    text.utf8.split(separator: UInt8(ascii: "&")).map { pair in
      let equals = pair.firstIndex(of: UInt8(ascii: "="))
      let value = equals.map { pair[pair.index(after: $0)...] }
      return (decoded(pair[..<(equals ?? pair.endIndex)]), value.map { decoded($0) } ?? "")
    }
  }

  private static func decoded(_ text: Substring.UTF8View) -> String {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "+") {
        bytes.append(32)
      } else if byte == UInt8(ascii: "%"), rest.count >= 2,
        let high = hex(rest.first), let low = hex(rest.dropFirst().first)
      {
        bytes.append(high << 4 | low)
        rest = rest.dropFirst(2)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func hex(_ byte: UInt8?) -> UInt8? {
    switch byte {
    case .some(let byte) where byte &- 48 < 10: byte &- 48
    case .some(let byte) where (byte | 0x20) &- 97 < 6: (byte | 0x20) &- 87
    default: nil
    }
  }

  // MARK: - Answers

  /// Answers the request that is coming in before its end, and closes after that.
  private func refuse(_ status: HTTPResponseStatus) {
    closesAfterAnswer = true
    write(status)
  }

  private func refuse(_ answer: ServerAnswer) {
    closesAfterAnswer = true
    write(answer)
  }

  private func write(_ answer: ServerAnswer) {
    write(HTTPResponseStatus(statusCode: answer.status), answer.headers, answer.body)
  }

  /// The answer of whoever was asked; ignored if the exchange is over.
  func answer(
    _ exchange: ServerExchange, status: Int, headers: [(name: String, value: String)],
    body: [UInt8]
  ) {
    guard self.exchange === exchange, phase == .answering else { return }
    write(HTTPResponseStatus(statusCode: status), headers, body)
  }

  private func write(
    _ status: HTTPResponseStatus, _ headers: [(name: String, value: String)] = [],
    _ body: [UInt8] = []
  ) {
    guard let context else { return }
    exchange?.abandon()
    exchange = nil
    phase = .writing
    limit(server.options.writeTimeout)
    var fields = HTTPHeaders()
    fields.reserveCapacity(headers.count + 2)
    for (name, value) in headers
    where HTTPSyntax.isToken(name) && HTTPSyntax.isFieldValue(value) && !HTTPSyntax.isFraming(name) {
      fields.add(name: name, value: value)
    }
    let hasBody = status.mayHaveResponseBody
    if hasBody { fields.add(name: "Content-Length", value: "\(body.count)") }
    if closesAfterAnswer {
      fields.add(name: "Connection", value: "close")
    } else if request?.version.minor == 0 {
      fields.add(name: "Connection", value: "keep-alive")
    }
    let version = HTTPVersion.http1_1
    let head = HTTPResponseHead(version: version, status: status, headers: fields)
    context.write(wrapOutboundOut(.head(head)), promise: nil)
    if hasBody, !body.isEmpty, request?.method != .HEAD {
      context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: body)))), promise: nil)
    }
    let written = context.eventLoop.makePromise(of: Void.self)
    written.futureResult.whenComplete { [self] result in
      switch result {
      case .success: answered()
      case .failure: self.context?.close(promise: nil)
      }
    }
    context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: written)
  }

  private func answered() {
    guard phase == .writing else { return }
    request = nil
    isFirst = false
    if closesAfterAnswer { return linger() }
    phase = .head
    limit(server.options.idleTimeout)
  }

  /// Says that nothing more comes, and waits a little for the client to hear it: closing at once,
  /// with bytes unread, would reset the connection and destroy the answer on its way.
  private func linger() {
    phase = .closing
    limit(.seconds(1))
    context?.close(mode: .output, promise: nil)
  }

  // MARK: - Time

  /// The present phase may take so long from now.
  private func limit(_ span: TimeSpan) {
    deadline = .now() + .nanoseconds(max(span.nanoseconds, 1_000_000))
    // A timer that fires earlier than needed sets itself again.
    if timer == nil || timerDeadline > deadline { schedule() }
  }

  private func schedule() {
    timer?.cancel()
    timerDeadline = deadline
    timer = channel.eventLoop.scheduleTask(deadline: deadline) { [self] in
      timer = nil
      if deadline > .now() { schedule() } else { expired() }
    }
  }

  private func expired() {
    guard let context else { return }
    switch phase {
    case .head where isFirst && !closesAfterAnswer:
      // No request is known, so this goes around the handlers that pair answers with requests.
      closesAfterAnswer = true
      let text = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
      guard
        let encoder = try? context.pipeline.syncOperations.context(
          handlerType: HTTPResponseEncoder.self)
      else { return context.close(promise: nil) }
      encoder.writeAndFlush(NIOAny(ByteBuffer(string: text)), promise: nil)
      linger()
    case .body: refuse(.requestTimeout)
    case .answering:
      exchange?.timeOut()
      write(ServerAnswer.timedOut)
    case .head, .writing, .closing: context.close(promise: nil)
    }
  }
}

/// Whether one request has been answered; shared by the connection and whoever answers.
final class ServerExchange: Sendable {
  private struct State {
    var connection: ServerConnection?
    var isTimedOut = false
  }
  private let state: Mutex<State>
  private let eventLoop: any EventLoop

  init(_ connection: ServerConnection, _ eventLoop: any EventLoop) {
    state = Mutex(State(connection: connection))
    self.eventLoop = eventLoop
  }

  var isTimedOut: Bool { state.withLock(\.isTimedOut) }

  /// The server has answered in place of whoever was asked.
  func timeOut() { state.withLock { $0.isTimedOut = true } }

  /// Whether this was the first answer, and somebody is still there to hear it.
  func answer(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    guard let connection = state.withLock({ $0.connection.take() }) else { return false }
    eventLoop.execute { connection.answer(self, status: status, headers: headers, body: body) }
    return true
  }

  /// Nobody waits any more.
  func abandon() { state.withLock { $0.connection = nil } }
}

/// What a request's receiver answers with.
private final class ServerReply: ReplyTarget {
  private let exchange: ServerExchange

  init(_ exchange: ServerExchange) { self.exchange = exchange }

  deinit {
    let answer = ServerAnswer.abandoned
    _ = exchange.answer(status: answer.status, headers: answer.headers, body: answer.body)
  }

  @discardableResult
  func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    exchange.answer(status: ServerAnswer.status(for: status), headers: headers, body: body)
  }
}
