import NIOCore
import PipelineCore

extension ServerConnection {
  // MARK: - A request

  func receive(_ head: RequestHead) {
    incoming.begin(head)
    phase = .body
    closesAfterAnswer = closesAfterAnswer || !head.isKeptAlive
    direct(head)
  }

  /// Finds the server of a request, and the answer that needs no body, if there is one.
  func direct(_ head: RequestHead) {
    switch listener.way(path: head[head.path], method: head[head.method], files) {
    case .server(let next):
      guard enter(next) else { return refuse(.busy) }
      incoming.mostBytes = next.mostBodyBytes
      if let refusal = next.refusal(of: head) {
        // Nothing of its body is read.
        if head.length > 0 || head.isChunked { return refuse(refusal) }
        incoming.verdict = refusal
        break
      }
      isKnown = true
      if head.length > next.mostBodyBytes { return refuse(ServerAnswer(413)) }
      let content = head.isCoded ? head.contentCoding : .none
      if case .compressed(let format) = content { incoming.coding = format }
      incoming.charge = content == .unknown ? nil : next.charge(head)
      if incoming.charge == nil { incoming.verdict = content == .unknown ? .unknownCoding : .overloaded }
    case .held(let time):
      leave()
      phase = .held
      return limit(time)
    case .answer(let answer):
      let rules = options?.rules ?? ServingRules()
      incoming.mostBytes = rules.maxBodyBytes
      if let refusal = rules.refusal(ofBytes: head.length) { return refuse(refusal) }
      if answer.status == 421 { closesAfterAnswer = true }
      incoming.verdict = answer
    }
    guard head.expectsContinue else { return }
    if let verdict = incoming.verdict { return refuse(verdict) }
    round.output.clear()
    round.output.append("HTTP/1.1 100 Continue\r\n\r\n")
    send(round.output.bytes, nil)
  }

  func receive(_ bytes: UnsafeRawBufferPointer) {
    switch incoming.take(bytes) {
    case .taken: break
    case .tooLarge: refuse(ServerAnswer(413))
    case .noRoom:
      releaseRequest()
      incoming.verdict = .overloaded
    }
  }

  func receiveEnd() {
    guard phase == .body, let head = incoming.head else { return }
    if let verdict = incoming.verdict { return write(verdict) }
    guard let server else { return passAgain() }
    if !server.isServing { return server.isHandedOver ? passAgain() : write(.stopped) }
    pass(head, to: server)
  }

  /// Finds the next server of a complete request.
  func passAgain() {
    guard let head = incoming.head else { return }
    incoming.isComplete = true
    switch listener.way(path: head[head.path], method: head[head.method], files) {
    case .server(let next):
      guard enter(next) else { return write(.busy) }
      // Credentials and names may have changed with the server.
      if let refusal = next.refusal(of: head) { return write(refusal) }
      if incoming.body.count > next.mostBodyBytes { return write(ServerAnswer(413)) }
      pass(head, to: next)
    case .held(let time):
      leave()
      phase = .held
      limit(time)
    case .answer(let answer): write(answer)
    }
  }

  func pass(_ head: RequestHead, to server: HTTPServer) {
    incoming.isComplete = false
    phase = .answering
    let now = NIODeadline.now()
    answerDeadline = now + .nanoseconds(server.replyTimeout)
    limit(until: min(answerDeadline, now + .nanoseconds(server.queueTimeout)))
    let exchange = ServerExchange(self, round, server.options.memory)
    self.exchange = exchange
    let request = ServerRequest(
      head: head, body: incoming.body.slab, peer: peer, reply: ServerReply(exchange), exchange: exchange,
      charge: incoming.charge,
      coding: incoming.coding, subject: tls?.subject)
    releaseRequest()
    server.pass(request, round)
  }

  /// Releases the connection's hold on the request's memory; its receiver, if any, owns it.
  func releaseRequest() {
    incoming.release()
  }
}
