import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// A request that has come in whole.
public final class ServerRequest: Sendable {
  let head: RequestHead
  /// As it came, in its content coding.
  public let body: Slab
  /// Address and port of the client.
  public let peer: String
  /// Answers. Letting go of it without an answer answers 503.
  public let reply: any ReplyTarget
  let exchange: ServerExchange
  /// Counts what is held of it.
  let charge: ByteCharge?
  /// How the body is compressed, if it is.
  public let coding: Decompressor.Format?

  init(
    head: RequestHead, body: Slab, peer: String, reply: any ReplyTarget, exchange: ServerExchange,
    charge: ByteCharge?, coding: Decompressor.Format?
  ) {
    self.head = head
    self.body = body
    self.peer = peer
    self.reply = reply
    self.exchange = exchange
    self.charge = charge
    self.coding = coding
  }

  public var method: String { head.text(head.method) }
  /// As it stood in the request line.
  public var target: String { head.text(head.target) }
  /// The target up to the `?`, not decoded.
  public var path: String { head.text(head.path) }
  /// Names and values after the `?`, decoded, in their order; bytes that are not UTF-8 are replaced.
  public var query: [(name: String, value: String)] {
    guard head.path.upperBound < head.target.upperBound else { return [] }
    return FormText.pairs(head[(head.path.upperBound + 1)..<head.target.upperBound])
  }
  public var headers: [HTTPHeader] { head.fields.map { HTTPHeader(head.text($0.name), head.text($0.value)) } }
  /// The value of the first header of that name, which is in lower case.
  public func header(_ name: StaticString) -> String? { head.value(of: name) }
}

/// Why a server cannot start.
public struct HTTPServerFailure: Error, Sendable, Equatable {
  public enum Kind: String, Sendable {
    case addressInUse
    /// The host is no address of this machine, or none at all.
    case noSuchAddress
    case notPermitted
    case other
  }
  public var kind: Kind
  /// One sentence without a full stop that names host and port.
  public var message: String
}

/// Takes HTTP/1.1 requests on one address. All servers of the process share one thread, which starts
/// with the first of them.
///
/// What its connections hold (requests that are coming in, and those that wait for the pipeline or are in its turn) is
/// bounded by `ServingRules.maxBufferedBytes`.
public final class HTTPServer: Sendable {
  public struct Options: Sendable {
    public var host = "127.0.0.1"
    /// 0 lets the system choose.
    public var port = 0
    /// What it decides by itself.
    public var rules = ServingRules()
    /// Bytes of the head of a request.
    public var maxHeaderBytes = 64 << 10
    public var maxHeaderLines = 100
    /// From connecting to the end of the first head.
    public var headerTimeout: TimeSpan = .seconds(10)
    /// From the end of the head to the end of the body.
    public var bodyTimeout: TimeSpan = .seconds(30)
    /// From an answer to the end of the next head.
    public var idleTimeout: TimeSpan = .seconds(60)
    /// How long a client may take for an answer.
    public var writeTimeout: TimeSpan = .seconds(30)
    /// How long a request waits for the pipeline whose client sends nothing more: it has left, or will only read.
    public var halfClosedTimeout: TimeSpan = .seconds(1)
    /// Between two attempts to take a connection when there are no descriptors or no memory for it.
    public var acceptPause: TimeSpan = .milliseconds(250)
    public init() {}
  }

  /// What whoever runs it may want to know.
  public enum Notice: Sendable, Equatable {
    /// Connections cannot be taken now, and why; they wait, and it is tried again.
    case acceptPaused(String)
    /// Connections are taken again.
    case acceptResumed
  }

  public let options: Options
  /// Requests that wait for the pipeline, if the handler adds them.
  public let queue = RequestQueue()
  let budget: ByteBudget

  struct State {
    var listener: (any Channel)?
    var connections: [ObjectIdentifier: ServerConnection] = [:]
    var stopping = false
  }

  let state = Guarded(State())

  public init(options: Options = Options()) {
    self.options = options
    budget = ByteBudget(limit: options.rules.maxBufferedBytes)
  }

  /// Bytes of requests that are held now.
  public var bufferedBytes: Int { budget.held }

  /// One thread for all servers of the process, made when the first one starts.
  private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

  /// Listens. `handler`, `handOver` and `notify` are called on the network thread and must be quick.
  /// - Parameters:
  ///   - handOver: called after `handler`, once for all requests that came in the same round of the network thread, or for
  ///     the first so many of them: what wakes another thread belongs here.
  ///   - handler: called for each request.
  /// - Returns: the port.
  public func start(
    notify: @escaping @Sendable (Notice) -> Void = { _ in }, handOver: @escaping @Sendable () -> Void = {},
    handler: @escaping @Sendable (ServerRequest) -> Void
  ) throws(HTTPServerFailure) -> Int {
    let pause = options.acceptPause
    // There is one loop, so it is that of all connections.
    let round = ServingRound(Self.group.any(), handler, handOver)
    let bootstrap = ServerBootstrap(group: Self.group)
      .serverChannelOption(.backlog, value: 256)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(AcceptGate(pause, notify))
        }
      }
      .childChannelOption(.socketOption(.tcp_nodelay), value: 1)
      .childChannelOption(.allowRemoteHalfClosure, value: true)
      .childChannelInitializer { [self] channel in
        channel.eventLoop.makeCompletedFuture { try configure(channel, round) }
      }
    do {
      let listener = try bootstrap.bind(host: options.host, port: options.port).wait()
      state.withLock {
        $0.listener = listener
        $0.stopping = false
      }
      return listener.localAddress?.port ?? options.port
    } catch {
      throw failure(error)
    }
  }

  /// Takes no more connections; the port is free when this returns. Not on the network thread.
  public func stopListening() {
    let listener = state.withLock { state in
      state.stopping = true
      return state.listener.take()
    }
    try? listener?.close().wait()
  }

  /// Stops listening, closes idle connections, lets answers that are due finish for so long, then
  /// closes everything. Not on the network thread.
  public func stop(within limit: TimeSpan = .seconds(5)) {
    stopListening()
    let connections = state.withLock { Array($0.connections.values) }
    for connection in connections { connection.drain() }
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    let none: (inout State) -> Bool? = { $0.connections.isEmpty ? true : nil }
    if state.wait(until: overflow ? nil : deadline, none) == nil {
      for connection in state.withLock({ Array($0.connections.values) }) { connection.cut() }
    }
  }

  private func configure(_ channel: any Channel, _ round: ServingRound) throws {
    let pipeline = channel.pipeline.syncOperations
    let refusal = state.withLock { $0.stopping ? .busy : options.rules.refusal(besides: $0.connections.count) }
    if let refusal { return try pipeline.addHandler(BusyHandler(refusal)) }
    try pipeline.addHandler(ServerConnection(self, channel, round))
  }

  private func failure(_ error: any Error) -> HTTPServerFailure {
    let host = HTTPSyntax.printable(options.host)
    let place = "\(host):\(options.port)"
    guard let error = error as? IOError else {
      return HTTPServerFailure(
        kind: .noSuchAddress, message: "cannot listen on \(place): \(host) cannot be resolved")
    }
    return switch error.errnoCode {
    case EADDRINUSE:
      HTTPServerFailure(
        kind: .addressInUse,
        message: "cannot listen on \(place): another program listens there; choose another port")
    case EACCES, EPERM:
      HTTPServerFailure(
        kind: .notPermitted,
        message: "cannot listen on \(place): ports below 1024 are not for this user")
    case EADDRNOTAVAIL:
      HTTPServerFailure(
        kind: .noSuchAddress,
        message: "cannot listen on \(place): \(host) is no address of this machine")
    default:
      HTTPServerFailure(
        kind: .other, message: "cannot listen on \(place): \(PosixError.text(error.errnoCode))")
    }
  }
}

/// What the connections of a server have in common: it passes their requests on and brings their answers, those of one
/// round of the network thread together. Used on that thread, but for `answer`.
final class ServingRound: @unchecked Sendable {
  /// What one request is answered.
  struct Answer {
    var connection: ServerConnection
    var exchange: ServerExchange
    var status: Int
    var headers: [(name: String, value: String)]
    var body: [UInt8]
  }

  private let loop: any EventLoop
  private let handler: @Sendable (ServerRequest) -> Void
  private let handOver: @Sendable () -> Void
  /// Requests that have come in this round of the loop.
  private var count = 0
  private let answers = Mutex<[Answer]>([])
  /// Answers that are being written; empty otherwise.
  private var due: [Answer] = []
  /// Where answers are put together.
  let output = OutputBuffer()
  /// Bytes of memory that are kept for the next answer.
  static let keptOutput = 64 << 10
  /// Whoever takes requests in begins with so many while the others are still being read.
  private static let enough = 32

  init(
    _ loop: any EventLoop, _ handler: @escaping @Sendable (ServerRequest) -> Void,
    _ handOver: @escaping @Sendable () -> Void
  ) {
    self.loop = loop
    self.handler = handler
    self.handOver = handOver
  }

  /// Passes a request on. The loop runs what it is given here when it has dealt with all connections that were ready.
  func pass(_ request: ServerRequest) {
    handler(request)
    count += 1
    if count == 1 {
      loop.execute { [self] in
        count = 0
        handOver()
      }
    } else if count.isMultiple(of: Self.enough) {
      handOver()
    }
  }

  /// Brings an answer to its connection. From any thread.
  func answer(_ answer: Answer) {
    let isFirst = answers.withLock { answers in
      answers.append(answer)
      return answers.count == 1
    }
    guard isFirst else { return }
    loop.execute { [self] in
      answers.withLock { swap(&$0, &due) }
      for one in due {
        one.connection.answer(one.exchange, status: one.status, headers: one.headers, body: one.body)
      }
      due.removeAll(keepingCapacity: due.capacity <= 4096)
    }
  }
}

/// Holds back `accept` for a while where the system has no descriptor or no memory for a connection: the listener stays
/// ready, so the loop would call it again and again. Connections wait in the backlog meanwhile. Reports the first failure
/// and the first success after it.
private final class AcceptGate: ChannelDuplexHandler {
  typealias InboundIn = any Channel
  typealias InboundOut = any Channel
  typealias OutboundIn = Never

  private let pause: TimeSpan
  private let notify: @Sendable (HTTPServer.Notice) -> Void
  /// `accept` is not called before the pause is over.
  private var isPaused = false
  /// No connection has been taken since the last failure.
  private var isShort = false

  init(_ pause: TimeSpan, _ notify: @escaping @Sendable (HTTPServer.Notice) -> Void) {
    self.pause = pause
    self.notify = notify
  }

  func read(context: ChannelHandlerContext) {
    if !isPaused { context.read() }
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    if isShort {
      isShort = false
      notify(.acceptResumed)
    }
    context.fireChannelRead(data)
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) else {
      return context.fireErrorCaught(error)
    }
    if !isShort {
      isShort = true
      notify(.acceptPaused(PosixError.text(error.errnoCode)))
    }
    guard !isPaused else { return }
    isPaused = true
    let handler = NIOLoopBound((self, context), eventLoop: context.eventLoop)
    context.eventLoop.scheduleTask(in: .nanoseconds(max(pause.nanoseconds, 1_000_000))) {
      let (gate, context) = handler.value
      gate.isPaused = false
      context.read()
    }
  }
}

/// Answers whoever connects, and closes: there are too many connections.
private final class BusyHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let answer: ServerAnswer

  init(_ answer: ServerAnswer) { self.answer = answer }

  func channelActive(context: ChannelHandlerContext) {
    let loopBound = NIOLoopBound(context, eventLoop: context.eventLoop)
    let output = OutputBuffer()
    ServerConnection.write(answer.status, answer.headers, [], connection: "close", to: output)
    let buffer = context.channel.allocator.buffer(bytes: output.bytes)
    // Closing at once, with the request unread, would reset the connection and destroy the answer on its way.
    context.writeAndFlush(wrapOutboundOut(buffer)).whenComplete { _ in
      loopBound.value.close(mode: .output, promise: nil)
    }
    context.eventLoop.scheduleTask(in: .seconds(1)) { loopBound.value.close(promise: nil) }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if case ChannelEvent.inputClosed = event {
      context.close(promise: nil)
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }
}
