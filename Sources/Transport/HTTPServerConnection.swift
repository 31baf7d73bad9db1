import Glibc
import NIOCore
import PipelineCore
import Synchronization

/// One client's connection: assembles requests, passes them on one at a time, writes answers in order, and enforces the
/// time limits. Used on its event loop only, except for `drain` and `cut`.
final class ServerConnection: ChannelDuplexHandler, @unchecked Sendable {
  typealias InboundIn = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Phase {
    /// Waiting for a head.
    case head
    case body
    /// Waiting for an answer.
    case answering
    case writing
    /// An answer that comes bit by bit is under way; input is discarded.
    case streaming
    /// The last answer has been written; further input is discarded.
    case closing
  }

  private let server: HTTPServer
  private let channel: any Channel
  private let round: ServingRound
  private let peer: String
  /// Encrypts it; nil: nothing does.
  private let tls: ServerTLS?
  @exclusivity(unchecked) private var context: ChannelHandlerContext?
  /// The socket, while the channel is active; -1 without one, and where bytes must go through the channel.
  @exclusivity(unchecked) private var socket: Int32 = -1
  /// The writes that the channel has not completed: later bytes must go through the channel too.
  @exclusivity(unchecked) private var writesOfChannel = 0
  @exclusivity(unchecked) private var reader: HTTPRequestReader
  @exclusivity(unchecked) private var phase = Phase.head
  @exclusivity(unchecked) private var isFirst = true
  @exclusivity(unchecked) private var closesAfterAnswer = false
  /// The client has closed its side.
  @exclusivity(unchecked) private var isInputClosed = false
  /// Bytes that belong to no part of a request yet: a piece of a head, or requests that came before the answer to an
  /// earlier one. Counted against the budget.
  @exclusivity(unchecked) private var pending: [UInt8] = []
  @exclusivity(unchecked) private var isConsuming = false
  /// The channel wants to read, but `pending` comes first.
  @exclusivity(unchecked) private var isReadHeld = false
  @exclusivity(unchecked) private var request: RequestHead?
  /// Accounts for the memory of the request.
  @exclusivity(unchecked) private var charge: ByteCharge?
  @exclusivity(unchecked) private var body = Slab.empty
  /// Whether the time limit of the present body runs.
  @exclusivity(unchecked) private var isBodyLimited = false
  /// Bytes of the body so far, including discarded ones.
  @exclusivity(unchecked) private var received = 0
  @exclusivity(unchecked) private var coding: Decompressor.Format?
  /// The answer at the end of the request, whatever its body.
  @exclusivity(unchecked) private var verdict: ServerAnswer?
  @exclusivity(unchecked) private var exchange: ServerExchange?
  @exclusivity(unchecked) private var stream: ResponseStream?
  /// The parts of the stream are chunks, and an empty one ends it.
  @exclusivity(unchecked) private var isChunking = false
  /// The deadline for an answer.
  @exclusivity(unchecked) private var answerDeadline = NIODeadline.distantFuture
  @exclusivity(unchecked) private var deadline = NIODeadline.distantFuture
  @exclusivity(unchecked) private var timer: Scheduled<Void>?
  @exclusivity(unchecked) private var timerDeadline = NIODeadline.distantFuture

  init(_ server: HTTPServer, _ channel: any Channel, _ round: ServingRound, tls: ServerTLS?) {
    self.server = server
    self.tls = tls
    self.channel = channel
    self.round = round
    peer = channel.remoteAddress.map { "\($0.ipAddress ?? "?"):\($0.port ?? 0)" } ?? "?"
    reader = HTTPRequestReader(
      maxHeadBytes: server.options.maxHeaderBytes, maxLines: server.options.maxHeaderLines)
  }

  // MARK: - From outside

  /// Closes as soon as no answer is due.
  func drain() {
    channel.eventLoop.execute { [self] in
      closesAfterAnswer = true
      switch phase {
      case .head: context?.close(promise: nil)
      // A client that stalls here must not hold up the end.
      case .body: limit(until: min(deadline, .now() + Self.lastBodyTime))
      case .answering, .writing, .streaming, .closing: break
      }
    }
  }

  /// How long a body may still take when the server stops.
  private static let lastBodyTime = TimeAmount.seconds(2)

  func cut() { channel.close(promise: nil) }

  // MARK: - Events

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    let operations = context.pipeline.syncOperations
    if tls == nil {
      socket = (try? operations.withUnsafeTransportIfAvailable { (socket: NIOBSDSocket.Handle) in socket }) ?? -1
    }
    server.state.withLock {
      $0.connections[ObjectIdentifier(self)] = self
      $0.counts.opened += 1
    }
    limit(server.options.headerTimeout)
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    timer?.cancel()
    timer = nil
    cancelExchange()
    stream?.disconnect()
    stream = nil
    letGo()
    setPending([])
    self.context = nil
    server.state.withLock { $0.connections[ObjectIdentifier(self)] = nil }
    server.state.notify()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard phase != .closing, phase != .streaming else { return }
    let bytes = unwrapInboundIn(data)
    if pending.isEmpty {
      bytes.withUnsafeReadableBytes { received in
        let used = consume(received)
        if used < received.count, phase != .closing { setPending(Array(received[used...])) }
      }
    } else {
      setPending(pending + bytes.readableBytesView)
      consumePending()
    }
  }

  /// While a request waits for its answer, no further input is read.
  func read(context: ChannelHandlerContext) {
    if pending.isEmpty || phase == .head || phase == .body || phase == .closing || phase == .streaming {
      context.read()
    } else {
      isReadHeld = true
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard case ChannelEvent.inputClosed = event else { return context.fireUserInboundEventTriggered(event) }
    isInputClosed = true
    switch phase {
    case .head, .body, .closing, .streaming: context.close(promise: nil)
    case .writing: break
    case .answering:
      // The client has left, or only reads from now on. If the pipeline does not take the request soon, it is dropped.
      let soon = NIODeadline.now() + .nanoseconds(server.options.halfClosedTimeout.nanoseconds)
      if soon < deadline { limit(until: soon) }
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

  // MARK: - Bytes

  /// Parses requests until one must be answered first; returns the number of consumed bytes.
  private func consume(_ bytes: UnsafeRawBufferPointer) -> Int {
    isConsuming = true
    defer { isConsuming = false }
    var at = 0
    while phase == .head || phase == .body {
      let (used, part) = reader.next(UnsafeRawBufferPointer(rebasing: bytes[at...]))
      at += used
      switch part {
      case .more:
        // A body that arrived with its head needs no limit.
        if phase == .body, !isBodyLimited {
          isBodyLimited = true
          limit(server.options.bodyTimeout)
        }
        return at
      case .head(let head): receive(head)
      case .body(let bytes): receive(bytes)
      case .end: receiveEnd()
      case .refused(let status): refuse(ServerAnswer(status))
      }
    }
    return at
  }

  private func consumePending() {
    guard !isConsuming, !pending.isEmpty, phase == .head || phase == .body else { return }
    let bytes = pending
    let used = bytes.withUnsafeBytes { consume($0) }
    setPending(phase == .closing ? [] : Array(bytes[used...]))
  }

  private func setPending(_ bytes: [UInt8]) {
    server.budget.giveBack(pending.count)
    pending = []
    guard server.budget.take(bytes.count) else {
      // The start of the next request is unknown.
      closesAfterAnswer = true
      if phase == .head || phase == .body { write(.overloaded) }
      return
    }
    pending = bytes
  }

  // MARK: - A request

  private func receive(_ head: RequestHead) {
    request = head
    received = 0
    verdict = nil
    coding = nil
    phase = .body
    isBodyLimited = false
    closesAfterAnswer = closesAfterAnswer || !head.isKeptAlive
    if head.length > round.maxBodyBytes, let refusal = round.options.rules.refusal(ofBytes: head.length) {
      return refuse(refusal)
    }
    verdict =
      round.options.rules.refusal(ofPath: head[head.path], method: head[head.method])
      ?? (head.isCoded ? takeCoding(head) : nil) ?? admit(head)
    guard head.expectsContinue else { return }
    if let verdict { return refuse(verdict) }
    round.output.clear()
    round.output.append("HTTP/1.1 100 Continue\r\n\r\n")
    send(round.output.bytes, nil)
  }

  /// Checks whether there is room for the request and the pipeline takes requests; charges the head. Returns the answer
  /// otherwise.
  private func admit(_ head: RequestHead) -> ServerAnswer? {
    guard !server.queue.isStalled, server.budget.hasRoom(for: head.length) else { return .overloaded }
    let charge = ByteCharge(server.budget)
    guard charge.grow(by: head.byteCount) else { return .overloaded }
    self.charge = charge
    return nil
  }

  /// Reads the content coding; returns the answer if it is not supported.
  private func takeCoding(_ head: RequestHead) -> ServerAnswer? {
    let names = head.fields.filter { head.matches($0, "content-encoding") }.map { head.text($0.value) }
    guard let name = names.first else { return nil }
    switch names.count == 1 ? Decompressor.Coding(name) : .unknown {
    case .none: break
    case .compressed(let format): coding = format
    case .unknown: return .unknownCoding
    }
    return nil
  }

  private func receive(_ bytes: UnsafeRawBufferPointer) {
    received += bytes.count
    if received > round.maxBodyBytes, let refusal = round.options.rules.refusal(ofBytes: received) {
      return refuse(refusal)
    }
    guard verdict == nil, let request else { return }
    if received > body.capacity {
      // No more than announced; without an announcement, twice as much each time.
      let wanted = max(
        min(request.length, 64 << 10), received,
        min(2 * body.capacity, round.maxBodyBytes), 1 << 10)
      let room = request.isChunked ? wanted : min(wanted, request.length)
      guard let charge, charge.grow(by: room - body.capacity) else {
        letGo()
        verdict = .overloaded
        return
      }
      let larger = Slab(capacity: room)
      larger.charge = charge
      larger.append(body.bytes)
      body = larger
    }
    body.append(bytes)
  }

  private func receiveEnd() {
    guard phase == .body, let head = request else { return }
    if let verdict { return write(verdict) }
    phase = .answering
    let now = NIODeadline.now()
    answerDeadline = now + .nanoseconds(round.replyTimeout)
    limit(until: min(answerDeadline, now + .nanoseconds(round.queueTimeout)))
    let exchange = ServerExchange(self, round)
    self.exchange = exchange
    let request = ServerRequest(
      head: head, body: body, peer: peer, reply: ServerReply(exchange), exchange: exchange, charge: charge,
      coding: coding, subject: tls?.subject)
    letGo()
    round.pass(request)
  }

  /// Releases the memory of the request to its receiver, or to nobody.
  private func letGo() {
    body = .empty
    charge = nil
  }

  // MARK: - Answers

  /// Answers an incomplete request and closes afterwards.
  private func refuse(_ answer: ServerAnswer) {
    closesAfterAnswer = true
    write(answer)
  }

  private func write(_ answer: ServerAnswer) { write(answer.status, answer.headers, answer.body) }

  /// Takes the answer to an exchange; ignored if the exchange is over.
  func answer(
    _ exchange: ServerExchange, status: Int, headers: [(name: String, value: String)],
    body: [UInt8]
  ) {
    guard self.exchange === exchange, phase == .answering else { return }
    write(status, headers, body)
  }

  private func cancelExchange() {
    guard let exchange else { return }
    exchange.disconnect()
    if let number = exchange.number, !exchange.isTaken { _ = server.queue.withdraw(number) }
    self.exchange = nil
  }

  private func write(_ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8]) {
    guard context != nil else { return }
    cancelExchange()
    letGo()
    phase = .writing
    var connection: String?
    if closesAfterAnswer {
      connection = "close"
    } else if request?.isOld == true {
      connection = "keep-alive"
    }
    let head = request
    request = nil
    let done: (Result<Void, any Error>) -> Void = { [self] result in
      switch result {
      case .success: answered()
      case .failure: self.context?.close(promise: nil)
      }
    }
    let isSent: Bool
    if headers.isEmpty, body.isEmpty, connection == nil {
      isSent = round.plain(status).withUnsafeBytes { send($0, done) }
    } else {
      let output = round.output
      output.clear()
      let isBodyLeftOut = head?.isForHeadersOnly ?? false
      Self.write(status, headers, body, isBodyLeftOut: isBodyLeftOut, connection: connection, to: output)
      isSent = send(output.bytes, done)
      // The memory of a large answer is not kept.
      if output.count > ServingRound.keptOutput { output.clear(keeping: ServingRound.keptOutput) }
    }
    if isSent {
      answered()
    } else if phase == .writing {
      // The channel may have sent the rest meanwhile, and the next request may be under way.
      limit(server.options.writeTimeout)
    }
  }

  /// Writes an answer. Invalid headers, and those that the transport writes itself, are left out.
  static func write(
    _ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8], isBodyLeftOut: Bool = false,
    connection: String?, coding: String? = nil, to buffer: OutputBuffer
  ) {
    buffer.append("HTTP/1.1 ")
    buffer.append(String(status))
    buffer.append(" ")
    buffer.append(HTTPSyntax.reason(status))
    buffer.append("\r\n")
    for (name, value) in headers
    where HTTPHeader.isToken(name) && HTTPSyntax.isFieldValue(value) && !HTTPHeader.isFraming(name) {
      buffer.append(name)
      buffer.append(": ")
      buffer.append(value)
      buffer.append("\r\n")
    }
    let hasBody = status >= 200 && status != 204 && status != 304
    if let coding {
      if !coding.isEmpty { buffer.append("Transfer-Encoding: \(coding)\r\n") }
    } else if hasBody {
      buffer.append("Content-Length: ")
      buffer.append(String(body.count))
      buffer.append("\r\n")
    }
    if let connection {
      buffer.append("Connection: ")
      buffer.append(connection)
      buffer.append("\r\n")
    }
    buffer.append("\r\n")
    if hasBody, !isBodyLeftOut { buffer.append(body) }
  }

  /// Sends as much as the socket takes at once, past the channel, which would cost about as much again, and leaves the
  /// rest to the channel. True: all has been sent; otherwise `done` is called later.
  @discardableResult
  private func send(_ bytes: UnsafeRawBufferPointer, _ done: ((Result<Void, any Error>) -> Void)?) -> Bool {
    guard let context, let base = bytes.baseAddress else { return true }
    var sent = 0
    // An active channel still has its socket.
    if writesOfChannel == 0, socket >= 0, channel.isActive {
      sent = max(Glibc.send(socket, base, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)), 0)
    }
    if sent == bytes.count { return true }
    // The channel will also find out that the socket is closed.
    let rest = ByteBuffer(bytes: UnsafeRawBufferPointer(rebasing: bytes[sent...]))
    let written = context.eventLoop.makePromise(of: Void.self)
    writesOfChannel += 1
    written.futureResult.assumeIsolated().whenComplete { [self] result in
      writesOfChannel -= 1
      done?(result)
    }
    context.writeAndFlush(wrapOutboundOut(rest), promise: written)
    return false
  }

  // MARK: - Answers bit by bit

  /// Begins the answer to an exchange; ignored if the exchange is over.
  func begin(
    _ stream: ResponseStream, _ exchange: ServerExchange, status: Int, headers: [(name: String, value: String)]
  ) {
    guard self.exchange === exchange, phase == .answering, context != nil else { return stream.disconnect() }
    cancelExchange()
    letGo()
    setPending([])
    isChunking = request?.isOld != true
    request = nil
    phase = .streaming
    closesAfterAnswer = true
    timer?.cancel()
    timer = nil
    self.stream = stream
    let output = round.output
    output.clear()
    Self.write(
      status, headers, [], isBodyLeftOut: true, connection: "close", coding: isChunking ? "chunked" : "", to: output)
    if send(output.bytes, { [self] in wrote($0) }) { writeStream() }
    if isReadHeld {
      isReadHeld = false
      context?.read()
    }
  }

  private func wrote(_ result: Result<Void, any Error>) {
    switch result {
    case .success: writeStream()
    case .failure: context?.close(promise: nil)
    }
  }

  /// Writes what the stream has, unless the client has not taken the last part yet.
  func writeStream() {
    // What the client does not read would wait for ever.
    if let stream, stream.isAborted { return channel.close(promise: nil) }
    while let stream, phase == .streaming, writesOfChannel == 0 {
      let output = round.output
      output.clear()
      switch stream.next() {
      case .nothing: return
      case .bytes(let bytes):
        if isChunking { output.append(String(bytes.count, radix: 16) + "\r\n") }
        output.append(bytes)
        if isChunking { output.append("\r\n") }
        let isSent = send(output.bytes) { [self] in wrote($0) }
        if output.count > ServingRound.keptOutput { output.clear(keeping: ServingRound.keptOutput) }
        if !isSent { return }
      case .end:
        self.stream = nil
        if isChunking { output.append("0\r\n\r\n") }
        phase = .writing
        let isSent = send(output.bytes) { [self] result in
          if case .success = result { answered() } else { context?.close(promise: nil) }
        }
        stream.disconnect()
        if isSent { answered() } else { limit(server.options.writeTimeout) }
      }
    }
  }

  private func answered() {
    guard phase == .writing else { return }
    isFirst = false
    if closesAfterAnswer { return linger() }
    phase = .head
    limit(server.options.idleTimeout)
    // The caller continues by itself.
    if isConsuming { return }
    consumePending()
    if isInputClosed, phase == .head || phase == .body { context?.close(promise: nil) }
    if isReadHeld, phase == .head || phase == .body || pending.isEmpty {
      isReadHeld = false
      context?.read()
    }
  }

  /// Ends the output and waits a little for the client to read it: closing at once, with bytes unread, would reset the
  /// connection and destroy the answer on its way.
  private func linger() {
    phase = .closing
    limit(.seconds(1))
    setPending([])
    guard let context else { return }
    if isInputClosed { return context.close(promise: nil) }
    context.close(mode: .output, promise: nil)
    if isReadHeld {
      isReadHeld = false
      context.read()
    }
  }

  // MARK: - Time

  /// Limits the present phase.
  private func limit(_ span: TimeSpan) {
    limit(until: (round.instant ?? .now()) + .nanoseconds(max(span.nanoseconds, 1_000_000)))
  }

  private func limit(until instant: NIODeadline) {
    deadline = instant
    // A timer that fires too early is set again.
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
      closesAfterAnswer = true
      write(ServerAnswer(408))
    case .body: refuse(ServerAnswer(408))
    case .answering: answerExpired()
    case .streaming: break
    case .head, .writing, .closing: context.close(promise: nil)
    }
  }

  /// A request has waited too long for the pipeline, or for its answer.
  private func answerExpired() {
    guard let exchange else { return }
    if answerDeadline <= .now() {
      if let number = exchange.number { _ = server.queue.withdraw(number, isOverdue: true) }
      write(.timedOut)
    } else if let number = exchange.number, server.queue.withdraw(number, isOverdue: !isInputClosed) {
      write(.overloaded)
    } else {
      // The pipeline has taken the request.
      limit(until: answerDeadline)
    }
  }
}

/// Whether one request has been answered; shared by the connection and the answering side.
final class ServerExchange: @unchecked Sendable {
  private let connection: Mutex<ServerConnection?>
  private let round: ServingRound
  /// The number in the server's queue; nil: never queued. Used on the network thread.
  @exclusivity(unchecked) var number: UInt64?
  private let taken = Atomic(false)
  /// Whether the pipeline has taken the request out of the queue.
  var isTaken: Bool { taken.load(ordering: .relaxed) }
  func take() { taken.store(true, ordering: .relaxed) }

  init(_ connection: ServerConnection, _ round: ServingRound) {
    self.connection = Mutex(connection)
    self.round = round
  }

  /// Whether this was the first answer and the client is still connected.
  func answer(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    guard let connection = connection.withLock({ $0.take() }) else { return false }
    round.answer(
      ServingRound.Answer(connection: connection, exchange: self, status: status, headers: headers, body: body))
    return true
  }

  /// Nil: the request has been answered, or the client has left.
  func stream(
    status: Int, headers: [(name: String, value: String)], closed: @escaping @Sendable () -> Void
  ) -> ResponseStream? {
    guard let connection = connection.withLock({ $0.take() }) else { return nil }
    let round = round
    let stream = ResponseStream(schedule: { _ in round.inLoop { connection.writeStream() } }, closed: closed)
    round.inLoop { [self] in connection.begin(stream, self, status: status, headers: headers) }
    return stream
  }

  /// The client has disconnected.
  func disconnect() { connection.withLock { $0 = nil } }
}

/// Answers for the receiver of a request.
private final class ServerReply: ReplyTarget {
  private let exchange: ServerExchange

  init(_ exchange: ServerExchange) { self.exchange = exchange }

  deinit {
    let answer = ServerAnswer.dropped
    _ = exchange.answer(status: answer.status, headers: answer.headers, body: answer.body)
  }

  @discardableResult
  func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    exchange.answer(status: ServerAnswer.status(for: status), headers: headers, body: body)
  }
}
