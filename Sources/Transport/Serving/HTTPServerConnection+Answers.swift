import Glibc
import NIOCore
import PipelineCore

extension ServerConnection {
  // MARK: - Answers

  /// Answers an incomplete request and closes afterwards.
  func refuse(_ answer: ServerAnswer) {
    closesAfterAnswer = true
    write(answer)
  }

  func write(_ answer: ServerAnswer) { write(answer.status, answer.headers, answer.body) }

  /// Sends the answer to an exchange; ignored if the exchange is over.
  func answer(
    _ exchange: ServerExchange, status: Int, headers: [(name: String, value: String)],
    body: [UInt8]
  ) {
    guard self.exchange === exchange, phase == .answering else { return }
    write(status, headers, body)
  }

  func cancelExchange() {
    guard let exchange else { return }
    exchange.disconnect()
    if let number = exchange.number, !exchange.isTaken { _ = server?.queue.withdraw(number) }
    self.exchange = nil
  }

  func write(_ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8]) {
    guard context != nil else { return }
    cancelExchange()
    releaseRequest()
    phase = .writing
    var connection: String?
    if closesAfterAnswer {
      connection = "close"
    } else if incoming.head?.isOld == true {
      connection = "keep-alive"
    }
    let head = incoming.head.take()
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
      limit(limits.write)
    }
  }

  /// Writes as much as possible to the socket directly, and leaves the rest to the channel, which would about double
  /// the cost. True: all has been sent; otherwise `done` is called later.
  @discardableResult
  func send(_ bytes: UnsafeRawBufferPointer, _ done: ((Result<Void, any Error>) -> Void)?) -> Bool {
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
    isChunking = incoming.head?.isOld != true && speaker == nil
    incoming.head = nil
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

  func readMore() {
    guard isReadHeld, speaker?.wantsMore ?? true else { return }
    isReadHeld = false
    context?.read()
  }

  func wrote(_ result: Result<Void, any Error>) {
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
        if isSent { answered() } else { limit(limits.write) }
      }
    }
  }

  func answered() {
    guard phase == .writing else { return }
    isFirst = false
    idleSince = round.instant ?? .now()
    if closesAfterAnswer { return linger() }
    phase = .head
    if let server, !server.isServing { leave() }
    limit(limits.idle)
    // `consume` is the caller and continues with the next request itself.
    if isConsuming { return }
    consumePending()
    if isInputClosed, phase == .head || phase == .body { context?.close(promise: nil) }
    resumeReading()
  }

  func resumeReading() {
    guard isReadHeld, phase == .head || phase == .body || pending.isEmpty else { return }
    isReadHeld = false
    context?.read()
  }

  /// Ends the output and waits a little for the client to read it: closing at once, with bytes unread, would reset the
  /// connection and destroy the answer on its way.
  func linger() {
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
}
