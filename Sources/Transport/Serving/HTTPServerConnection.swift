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

  enum Phase {
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

  let listener: HTTPListener
  /// The server of the last request.
  @exclusivity(unchecked) var server: HTTPServer?
  let channel: any Channel
  let round: ServingRound
  let peer: String
  /// Encrypts the connection; nil: it is not encrypted.
  let tls: ChannelTLS?
  /// The files of the certificate that the connection uses.
  let files: TLSServing.Files?
  @exclusivity(unchecked) var context: ChannelHandlerContext?
  /// The socket, while the channel is active; -1 without one, and where bytes must go through the channel.
  @exclusivity(unchecked) var socket: Int32 = -1
  /// The number of writes that the channel has not completed: later bytes must go through the channel too.
  @exclusivity(unchecked) var writesOfChannel = 0
  @exclusivity(unchecked) var reader: HTTPRequestReader
  @exclusivity(unchecked) var phase = Phase.head
  @exclusivity(unchecked) var isFirst = true
  /// Whether any request of this connection got past the checks of its head, credentials included.
  @exclusivity(unchecked) var isKnown = false
  /// The time of its last answer.
  @exclusivity(unchecked) var idleSince = NIODeadline.now()
  @exclusivity(unchecked) var closesAfterAnswer = false
  /// Whether the client has closed its side of the connection.
  @exclusivity(unchecked) var isInputClosed = false
  /// Bytes that have not been parsed: a piece of a head, or requests that came before the answer to an earlier one.
  /// Counted against the budget.
  @exclusivity(unchecked) var pending: [UInt8] = []
  /// The budget that `pending` is counted against.
  @exclusivity(unchecked) var pendingBudget: ByteBudget
  @exclusivity(unchecked) var isConsuming = false
  /// Whether the channel wants to read, but must wait, because `pending` comes first or a speaker has no room.
  @exclusivity(unchecked) var isReadHeld = false
  /// The request that is being received.
  @exclusivity(unchecked) var incoming = IncomingRequest()
  @exclusivity(unchecked) var exchange: ServerExchange?
  /// The answer that is being streamed; nil: none is.
  @exclusivity(unchecked) var stream: ResponseStream?
  /// Whether the stream is sent in chunks, ended by an empty one.
  @exclusivity(unchecked) var isChunking = false
  /// Handles the connection's bytes after an upgrade.
  @exclusivity(unchecked) var speaker: (any UpgradedSpeaker)?
  /// The deadline for an answer.
  @exclusivity(unchecked) var answerDeadline = NIODeadline.distantFuture
  /// Limits the current phase.
  let timer: PhaseTimer

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

  /// Leaves a stopped server as soon as it owes no answer. If another server follows (`handsOver`), a partly received
  /// request goes to that one.
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
      incoming.takeBack(waiting)
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
    guard phase == .held, let request = incoming.head else { return }
    if incoming.isComplete { return passAgain() }
    phase = .body
    direct(request)
    guard phase == .body else { return }
    limit(limits.body)
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
    timer.expired = { [self] in expired() }
    // Beyond the server's limit, the first request is answered with 503.
    if let server, !server.admit(self) { (self.server, pendingBudget) = (nil, listener.budget) }
    limit(limits.header)
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    timer.cancel()
    timer.expired = nil
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

  var options: HTTPServer.Options? { server?.options ?? listener.options }
  var limits: HTTPServer.Limits { server?.limits ?? listener.limits }

  /// Moves to the server of a request; false: that server has too many connections.
  func enter(_ next: HTTPServer) -> Bool {
    if server === next { return true }
    guard next.admit(self) || IdleConnections.makeRoom(among: next.connections) && next.admit(self) else {
      return false
    }
    server?.leave(self)
    server = next
    move(to: next.budget)
    return true
  }

  func leave() {
    server?.leave(self)
    server = nil
    move(to: listener.budget)
  }

  func move(to budget: ByteBudget) {
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
      timer.shorten(to: .now() + .nanoseconds(limits.halfClosed.nanoseconds))
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

  // MARK: - Bytes

  /// Parses requests until one must be answered first; returns the number of consumed bytes.
  func consume(_ bytes: UnsafeRawBufferPointer) -> Int {
    isConsuming = true
    defer { isConsuming = false }
    var at = 0
    while phase == .head || phase == .body {
      let (used, part) = reader.next(UnsafeRawBufferPointer(rebasing: bytes[at...]))
      at += used
      switch part {
      case .more:
        // A body that arrives together with its head needs no time limit.
        if phase == .body, !incoming.isBodyLimited {
          incoming.isBodyLimited = true
          limit(limits.body)
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
  func consumePending(always: Bool = false) {
    guard !isConsuming, always || !pending.isEmpty, phase == .head || phase == .body else { return }
    let bytes = pending
    let used = bytes.withUnsafeBytes { consume($0) }
    setPending(phase == .closing ? [] : Array(bytes[used...]))
  }

  func setPending(_ bytes: [UInt8]) {
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

  // MARK: - Time

  /// Limits the current phase.
  func limit(_ span: TimeSpan) {
    limit(until: (round.instant ?? .now()) + .nanoseconds(max(span.nanoseconds, 1_000_000)))
  }

  func limit(until instant: NIODeadline) { timer.limit(until: instant) }

  func expired() {
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
  func answerExpired() {
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
