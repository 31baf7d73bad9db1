import Glibc
import NIOCore
import PipelineCore
import Synchronization

/// One client's connection: assembles requests, passes them on one at a time, writes answers in order, and enforces the
/// time limits. Used on its event loop only, except for `part` and `cut`.
final class ServerConnection: ChannelDuplexHandler, @unchecked Sendable {
  typealias InboundIn = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Phase {
    /// Waiting for a head.
    case head
    case body
    /// The server for this request is being replaced; the next one gets the request.
    case held
    /// Waiting for an answer.
    case answering
    case writing
    /// An answer is being streamed; input is discarded, or belongs to another protocol after an upgrade.
    case streaming
    /// The last answer has been written; further input is discarded.
    case closing
  }

  private let listener: HTTPListener
  /// The server of the last request.
  @exclusivity(unchecked) private var server: HTTPServer?
  private let channel: any Channel
  private let round: ServingRound
  private let peer: String
  /// Encrypts the connection; nil: it is not encrypted.
  private let tls: ChannelTLS?
  /// The files of the certificate that the connection uses.
  private let files: TLSServing.Files?
  @exclusivity(unchecked) private var context: ChannelHandlerContext?
  /// The socket, while the channel is active; -1 without one, and where bytes must go through the channel.
  @exclusivity(unchecked) private var socket: Int32 = -1
  /// The number of writes that the channel has not completed: later bytes must go through the channel too.
  @exclusivity(unchecked) private var writesOfChannel = 0
  @exclusivity(unchecked) private var reader: HTTPRequestReader
  @exclusivity(unchecked) private var phase = Phase.head
  @exclusivity(unchecked) private var isFirst = true
  /// Whether any request of this connection got past the checks of its head, credentials included.
  @exclusivity(unchecked) private(set) var isKnown = false
  /// The time of its last answer.
  @exclusivity(unchecked) private(set) var idleSince = NIODeadline.now()
  @exclusivity(unchecked) private var closesAfterAnswer = false
  /// Whether the client has closed its side of the connection.
  @exclusivity(unchecked) private var isInputClosed = false
  /// Bytes that have not been parsed: a piece of a head, or requests that came before the answer to an earlier one.
  /// Counted against the budget.
  @exclusivity(unchecked) private var pending: [UInt8] = []
  /// The budget that `pending` is counted against.
  @exclusivity(unchecked) private var pendingBudget: ByteBudget
  @exclusivity(unchecked) private var isConsuming = false
  /// Whether the channel wants to read, but must wait, because `pending` comes first or a speaker has no room.
  @exclusivity(unchecked) private var isReadHeld = false
  @exclusivity(unchecked) private var request: RequestHead?
  /// Accounts for the memory of the request.
  @exclusivity(unchecked) private var charge: ByteCharge?
  @exclusivity(unchecked) private var body = IncomingBody()
  /// Whether the time limit of the current body has been set.
  @exclusivity(unchecked) private var isBodyLimited = false
  /// Bytes of the body so far, including discarded ones.
  @exclusivity(unchecked) private var received = 0
  @exclusivity(unchecked) private var coding: Decompressor.Format?
  /// The maximum size of the body in bytes.
  @exclusivity(unchecked) private var mostBytes = 0
  /// Whether the request is complete and waits for the server that replaces its own.
  @exclusivity(unchecked) private var isComplete = false
  /// The answer to send at the end of the request, whatever its body.
  @exclusivity(unchecked) private var verdict: ServerAnswer?
  @exclusivity(unchecked) private var exchange: ServerExchange?
  @exclusivity(unchecked) private var stream: ResponseStream?
  /// Handles the connection's bytes after an upgrade.
  @exclusivity(unchecked) private var speaker: (any UpgradedSpeaker)?
  /// Whether the stream is sent in chunks, ended by an empty one.
  @exclusivity(unchecked) private var isChunking = false
  /// The deadline for an answer.
  @exclusivity(unchecked) private var answerDeadline = NIODeadline.distantFuture
  /// Limits the current phase.
  private let timer: PhaseTimer

  /// - Parameter server: The only server of the address; nil: the first request determines the server.
  init(
    _ listener: HTTPListener, _ channel: any Channel, tls: ChannelTLS?, files: TLSServing.Files?, at server: HTTPServer?
  ) {
    self.listener = listener
    self.server = server
    self.tls = tls
    self.files = files
    self.channel = channel
    round = listener.round
    timer = PhaseTimer(channel.eventLoop)
    pendingBudget = server?.budget ?? listener.budget
    peer = channel.remoteAddress.map { "\($0.ipAddress ?? "?"):\($0.port ?? 0)" } ?? "?"
    reader = HTTPRequestReader(
      maxHeadBytes: listener.maxHeaderBytes, maxLines: listener.maxHeaderLines)
  }

  // MARK: - From outside

  /// Leaves a stopped server as soon as no answer from it is due. If another server follows (`handsOver`), a partly
  /// received request goes to that one.
  func part(from leaving: HTTPServer, handsOver: Bool) {
    channel.eventLoop.execute { [self] in
      guard server === leaving else { return }
      switch phase {
      case .head, .held: leave()
      case .body where handsOver, .writing where handsOver, .closing where handsOver: leave()
      // A client that stalls here must not delay the server's end.
      case .body: timer.shorten(to: .now() + Self.lastBodyTime)
      case .answering, .writing, .streaming, .closing: break
      }
    }
  }

  /// Leaves a server whose pipeline has ended and so cannot answer any more.
  func refuse(by leaving: HTTPServer) {
    channel.eventLoop.execute { [self] in
      guard server === leaving else { return }
      switch phase {
      case .body: refuse(.stopped)
      case .answering: write(.stopped)
      case .head, .held: leave()
      case .writing, .closing, .streaming: break
      }
    }
  }

  /// Leaves the stopped server of a request whose answer comes from the next version of its pipeline, which has its
  /// events.
  func part(from leaving: ServerExchange) {
    channel.eventLoop.execute { [self] in
      if exchange === leaving, let server, !server.isServing { leave() }
    }
  }

  /// The pipeline did not take a request before its server stopped: the next server gets it.
  func takeBack(_ waiting: ServerRequest) {
    channel.eventLoop.execute { [self] in
      guard let exchange, exchange === waiting.exchange, phase == .answering else { return }
      exchange.disconnect()
      self.exchange = nil
      request = waiting.head
      body = IncomingBody(waiting.body)
      charge = waiting.charge
      coding = waiting.coding
      passAgain()
    }
  }

  /// The listener has closed: closes as soon as no answer is due.
  func drain() {
    closesAfterAnswer = true
    switch phase {
    case .head: context?.close(promise: nil)
    case .held: refuse(.stopped)
    case .body: timer.shorten(to: .now() + Self.lastBodyTime)
    case .answering, .writing, .streaming, .closing: break
    }
  }

  /// The servers of the address have changed: a request that waits for one is directed again.
  func goOn() {
    guard phase == .held, let request else { return }
    if isComplete { return passAgain() }
    phase = .body
    direct(request)
    guard phase == .body else { return }
    limit(bodyTimeout)
    consumePending(always: true)
    resumeReading()
  }

  /// How long a body may still take when the server stops.
  private static let lastBodyTime = TimeAmount.seconds(2)

  func cut() { channel.close(promise: nil) }

  /// Whether nothing is lost if the connection is closed: it waits for a request, or sends a refusal that any client
  /// could get.
  var mayMakeRoom: Bool {
    guard server?.options.makesRoom ?? true else { return false }
    return switch phase {
    case .head: true
    case .writing, .closing: !isKnown
    case .body, .held, .answering, .streaming: false
    }
  }

  /// Closes the connection to make room for another.
  func makeRoom() {
    leave()
    listener.closed(self)
    channel.close(promise: nil)
  }

  // MARK: - Events

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    let operations = context.pipeline.syncOperations
    if tls == nil {
      socket = (try? operations.withUnsafeTransportIfAvailable { (socket: NIOBSDSocket.Handle) in socket }) ?? -1
    }
    listener.opened(self)
    // Beyond the server's limit, the first request is answered with 503.
    if let server, !server.admit(self) { (self.server, pendingBudget) = (nil, listener.budget) }
    limit(options?.headerTimeout ?? .seconds(10))
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    timer.cancel()
    cancelExchange()
    stream?.disconnect()
    stream = nil
    speaker?.disconnected()
    speaker = nil
    releaseRequest()
    setPending([])
    self.context = nil
    leave()
    listener.closed(self)
  }

  // MARK: - Servers

  private var options: HTTPServer.Options? { server?.options ?? listener.options }
  private var bodyTimeout: TimeSpan { options?.bodyTimeout ?? .seconds(30) }

  /// Moves to the server of a request; false: that server has too many connections.
  private func enter(_ next: HTTPServer) -> Bool {
    if server === next { return true }
    guard next.admit(self) || IdleConnections.makeRoom(among: next.connections) && next.admit(self) else {
      return false
    }
    server?.leave(self)
    server = next
    move(to: next.budget)
    return true
  }

  private func leave() {
    server?.leave(self)
    server = nil
    move(to: listener.budget)
  }

  private func move(to budget: ByteBudget) {
    pendingBudget.release(pending.count)
    pendingBudget = budget
    // Bytes that have been accepted are never refused.
    budget.force(pending.count)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    if phase == .streaming, let speaker {
      return unwrapInboundIn(data).withUnsafeReadableBytes { speaker.received($0) }
    }
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

  /// No input is read while a request waits for its answer, or while the protocol of an upgrade has no room for it.
  func read(context: ChannelHandlerContext) {
    if phase == .streaming, let speaker, !speaker.wantsMore {
      isReadHeld = true
    } else if pending.isEmpty || phase == .head || phase == .body || phase == .closing || phase == .streaming {
      context.read()
    } else {
      isReadHeld = true
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard case ChannelEvent.inputClosed = event else { return context.fireUserInboundEventTriggered(event) }
    isInputClosed = true
    switch phase {
    case .head, .body, .held, .closing, .streaming: context.close(promise: nil)
    case .writing: break
    case .answering:
      // The client has left, or only reads from now on. If the pipeline does not take the request soon, it is dropped.
      timer.shorten(to: .now() + .nanoseconds((options?.halfClosedTimeout ?? .seconds(1)).nanoseconds))
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
        // A body that arrives together with its head needs no time limit.
        if phase == .body, !isBodyLimited {
          isBodyLimited = true
          limit(bodyTimeout)
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

  /// - Parameter always: Parses even if no bytes are pending: the body may already have ended.
  private func consumePending(always: Bool = false) {
    guard !isConsuming, always || !pending.isEmpty, phase == .head || phase == .body else { return }
    let bytes = pending
    let used = bytes.withUnsafeBytes { consume($0) }
    setPending(phase == .closing ? [] : Array(bytes[used...]))
  }

  private func setPending(_ bytes: [UInt8]) {
    pendingBudget.release(pending.count)
    pending = []
    guard pendingBudget.take(bytes.count) else {
      // The bytes are dropped, so the start of the next request is unknown.
      closesAfterAnswer = true
      if phase == .head || phase == .body { write(.overloaded) }
      return
    }
    pending = bytes
  }

  // MARK: - A request

  private func receive(_ head: RequestHead) {
    request = head
    isComplete = false
    received = 0
    verdict = nil
    coding = nil
    phase = .body
    isBodyLimited = false
    closesAfterAnswer = closesAfterAnswer || !head.isKeptAlive
    direct(head)
  }

  /// Finds the server of a request, and the answer that needs no body, if there is one.
  private func direct(_ head: RequestHead) {
    switch listener.way(path: head[head.path], method: head[head.method], files) {
    case .server(let next):
      guard enter(next) else { return refuse(.busy) }
      mostBytes = next.options.rules.maxBodyBytes
      if let refusal = next.refusal(of: head) {
        // Nothing of its body is read.
        if head.length > 0 || head.isChunked { return refuse(refusal) }
        verdict = refusal
        break
      }
      isKnown = true
      if let refusal = next.options.rules.refusal(ofBytes: head.length) { return refuse(refusal) }
      let content = head.isCoded ? head.contentCoding : .none
      if case .compressed(let format) = content { coding = format }
      charge = content == .unknown ? nil : next.charge(head)
      if charge == nil { verdict = content == .unknown ? .unknownCoding : .overloaded }
    case .held(let time):
      leave()
      phase = .held
      return limit(time)
    case .answer(let answer):
      mostBytes = options?.rules.maxBodyBytes ?? ServingRules().maxBodyBytes
      if let refusal = (options?.rules ?? ServingRules()).refusal(ofBytes: head.length) { return refuse(refusal) }
      if answer.status == 421 { closesAfterAnswer = true }
      verdict = answer
    }
    guard head.expectsContinue else { return }
    if let verdict { return refuse(verdict) }
    round.output.clear()
    round.output.append("HTTP/1.1 100 Continue\r\n\r\n")
    send(round.output.bytes, nil)
  }

  private func receive(_ bytes: UnsafeRawBufferPointer) {
    received += bytes.count
    let most = mostBytes
    if received > most { return refuse(ServerAnswer(413)) }
    guard verdict == nil, let request else { return }
    guard body.append(bytes, of: request, most: most, charge) else {
      releaseRequest()
      verdict = .overloaded
      return
    }
  }

  private func receiveEnd() {
    guard phase == .body, let head = request else { return }
    if let verdict { return write(verdict) }
    guard let server else { return passAgain() }
    if !server.isServing { return server.isHandedOver ? passAgain() : write(.stopped) }
    pass(head, to: server)
  }

  /// Finds the next server of a complete request.
  private func passAgain() {
    guard let head = request else { return }
    isComplete = true
    switch listener.way(path: head[head.path], method: head[head.method], files) {
    case .server(let next):
      guard enter(next) else { return write(.busy) }
      // Credentials and names may have changed with the server.
      if let refusal = next.refusal(of: head) { return write(refusal) }
      if body.count > next.options.rules.maxBodyBytes { return write(ServerAnswer(413)) }
      pass(head, to: next)
    case .held(let time):
      leave()
      phase = .held
      limit(time)
    case .answer(let answer): write(answer)
    }
  }

  private func pass(_ head: RequestHead, to server: HTTPServer) {
    isComplete = false
    phase = .answering
    let now = NIODeadline.now()
    answerDeadline = now + .nanoseconds(server.replyTimeout)
    limit(until: min(answerDeadline, now + .nanoseconds(server.queueTimeout)))
    let exchange = ServerExchange(self, round, server.options.memory)
    self.exchange = exchange
    let request = ServerRequest(
      head: head, body: body.slab, peer: peer, reply: ServerReply(exchange), exchange: exchange, charge: charge,
      coding: coding, subject: tls?.subject)
    releaseRequest()
    server.pass(request, round)
  }

  /// Releases the connection's hold on the request's memory; its receiver, if any, owns it.
  private func releaseRequest() {
    body = IncomingBody()
    charge = nil
  }

  // MARK: - Answers

  /// Answers an incomplete request and closes afterwards.
  private func refuse(_ answer: ServerAnswer) {
    closesAfterAnswer = true
    write(answer)
  }

  private func write(_ answer: ServerAnswer) { write(answer.status, answer.headers, answer.body) }

  /// Sends the answer to an exchange; ignored if the exchange is over.
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
    if let number = exchange.number, !exchange.isTaken { _ = server?.queue.withdraw(number) }
    self.exchange = nil
  }

  private func write(_ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8]) {
    guard context != nil else { return }
    cancelExchange()
    releaseRequest()
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
      AnswerText.write(status, headers, body, isBodyLeftOut: isBodyLeftOut, connection: connection, to: output)
      isSent = send(output.bytes, done)
      round.trimOutput()
    }
    if isSent {
      answered()
    } else if phase == .writing {
      // The channel may have sent the rest meanwhile, and the next request may be under way.
      limit(options?.writeTimeout ?? .seconds(30))
    }
  }

  /// Writes to the socket directly as much as it takes at once, and leaves the rest to the channel, which would about
  /// double the cost. True: all has been sent; otherwise `done` is called later.
  @discardableResult
  private func send(_ bytes: UnsafeRawBufferPointer, _ done: ((Result<Void, any Error>) -> Void)?) -> Bool {
    guard let context, let base = bytes.baseAddress else { return true }
    var sent = 0
    // An active channel still has its socket.
    if writesOfChannel == 0, socket >= 0, channel.isActive {
      sent = max(Glibc.send(socket, base, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)), 0)
    }
    if sent == bytes.count { return true }
    // If the socket is closed, the channel's write reports that.
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

  // MARK: - Streamed answers

  /// Begins the answer to an exchange; ignored if the exchange is over.
  /// - Parameter speaker: The handler of the protocol to upgrade to, with that protocol's name; it takes over the
  ///   connection.
  func begin(
    _ stream: ResponseStream, _ exchange: ServerExchange, status: Int, headers: [(name: String, value: String)],
    speaker: (name: String, any UpgradedSpeaker)? = nil
  ) {
    guard self.exchange === exchange, phase == .answering, context != nil else {
      speaker?.1.disconnected()
      return stream.disconnect()
    }
    cancelExchange()
    releaseRequest()
    let rest = pending
    setPending([])
    isChunking = request?.isOld != true && speaker == nil
    request = nil
    phase = .streaming
    closesAfterAnswer = true
    timer.cancel()
    self.stream = stream
    self.speaker = speaker?.1
    let output = round.output
    output.clear()
    AnswerText.write(
      status, headers, [], isBodyLeftOut: true, connection: speaker == nil ? "close" : "Upgrade",
      coding: isChunking ? "chunked" : "", upgrade: speaker?.name, to: output)
    if send(output.bytes, { [self] in wrote($0) }) { writeStream() }
    if let speaker = speaker?.1 {
      speaker.begins(
        UpgradedLink(channel.eventLoop, stream) { [self] in
          readMore()
        } server: { [self] in
          server
        } move: { [self] next in
          guard let next else { return leave() }
          if !enter(next) { channel.close(promise: nil) }
        } close: { [self] in
          channel.close(promise: nil)
        })
      if !rest.isEmpty { rest.withUnsafeBytes { speaker.received($0) } }
    }
    readMore()
  }

  private func readMore() {
    guard isReadHeld, speaker?.wantsMore ?? true else { return }
    isReadHeld = false
    context?.read()
  }

  private func wrote(_ result: Result<Void, any Error>) {
    switch result {
    case .success: writeStream()
    case .failure: context?.close(promise: nil)
    }
  }

  /// Writes the waiting bytes of the stream, unless an earlier write is still under way.
  func writeStream() {
    // The client may never read the rest.
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
        round.trimOutput()
        if !isSent { return }
      case .end:
        self.stream = nil
        if isChunking { output.append("0\r\n\r\n") }
        phase = .writing
        let isSent = send(output.bytes) { [self] result in
          if case .success = result { answered() } else { context?.close(promise: nil) }
        }
        stream.disconnect()
        if isSent { answered() } else { limit(options?.writeTimeout ?? .seconds(30)) }
      }
    }
  }

  private func answered() {
    guard phase == .writing else { return }
    isFirst = false
    idleSince = round.instant ?? .now()
    if closesAfterAnswer { return linger() }
    phase = .head
    if let server, !server.isServing { leave() }
    limit(options?.idleTimeout ?? .seconds(60))
    // `consume` is the caller and continues with the next request itself.
    if isConsuming { return }
    consumePending()
    if isInputClosed, phase == .head || phase == .body { context?.close(promise: nil) }
    resumeReading()
  }

  private func resumeReading() {
    guard isReadHeld, phase == .head || phase == .body || pending.isEmpty else { return }
    isReadHeld = false
    context?.read()
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

  /// Limits the current phase.
  private func limit(_ span: TimeSpan) {
    limit(until: (round.instant ?? .now()) + .nanoseconds(max(span.nanoseconds, 1_000_000)))
  }

  private func limit(until instant: NIODeadline) { timer.limit(until: instant) { [self] in expired() } }

  private func expired() {
    guard let context else { return }
    switch phase {
    case .head where isFirst && !closesAfterAnswer:
      closesAfterAnswer = true
      write(ServerAnswer(408))
    case .body: refuse(ServerAnswer(408))
    case .held: refuse(.overloaded)
    case .answering: answerExpired()
    case .streaming: break
    case .head, .writing, .closing: context.close(promise: nil)
    }
  }

  /// The time limit of a request that waits for the pipeline, or for its answer, has passed.
  private func answerExpired() {
    guard let exchange else { return }
    if answerDeadline <= .now() {
      if let number = exchange.number { _ = server?.queue.withdraw(number, isOverdue: true) }
      write(.timedOut)
    } else if let number = exchange.number, server?.queue.withdraw(number, isOverdue: !isInputClosed) == true {
      write(.overloaded)
    } else {
      // The pipeline has taken the request: waits for its answer.
      limit(until: answerDeadline)
    }
  }
}
