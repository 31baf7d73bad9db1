import CLinux
import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// A complete request.
public final class ServerRequest: Sendable {
  let head: RequestHead
  /// The body in its content coding.
  public let body: Slab
  /// Address and port of the client.
  public let peer: String
  /// Answers the request. Releasing it without an answer sends 503.
  public let reply: any ReplyTarget
  let exchange: ServerExchange
  /// Accounts for the memory of the request.
  let charge: ByteCharge?
  /// The compression of the body, if any.
  public let coding: Decompressor.Format?
  /// The subject of the client's certificate; nil: it has shown none.
  public let subject: String?

  init(
    head: RequestHead, body: Slab, peer: String, reply: any ReplyTarget, exchange: ServerExchange,
    charge: ByteCharge?, coding: Decompressor.Format?, subject: String?
  ) {
    self.subject = subject
    self.head = head
    self.body = body
    self.peer = peer
    self.reply = reply
    self.exchange = exchange
    self.charge = charge
    self.coding = coding
  }

  public var method: String { head.text(head.method) }
  /// The method, and the path without decoding, in ASCII; valid as long as the request lives.
  public var methodBytes: UnsafeRawBufferPointer { head[head.method] }
  public var pathBytes: UnsafeRawBufferPointer { head[head.path] }
  /// The target as in the request line.
  public var target: String { head.text(head.target) }
  /// The target up to the `?`, not decoded.
  public var path: String { head.text(head.path) }
  /// Names and values after the `?`, decoded, in their order; bytes that are not UTF-8 are replaced.
  public var query: [(name: String, value: String)] {
    guard head.path.upperBound < head.target.upperBound else { return [] }
    return FormText.pairs(Array(head[(head.path.upperBound + 1)..<head.target.upperBound])[...])
  }
  public var headers: [HTTPHeader] { head.fields.map { HTTPHeader(head.text($0.name), head.text($0.value)) } }
  /// The value of the first header with that name, in lower case.
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

/// Receives HTTP/1.1 requests on one address. All servers of the process share one thread, which starts with the first
/// of them.
///
/// `ServingRules.maxBufferedBytes` bounds the memory of its connections (requests that come in, wait for the pipeline
/// or are in its turn).
public final class HTTPServer: Sendable {
  public struct Options: Sendable {
    public var host = "127.0.0.1"
    /// 0: the system chooses.
    public var port = 0
    /// The decisions of the server itself.
    public var rules = ServingRules()
    /// The certificate; nil: connections are not encrypted.
    public var tls: TLSServing?
    /// Called with the reason when a connection fails because of TLS; on the network thread.
    public var tlsFailed: @Sendable (String) -> Void = { _ in }
    /// The limit of a request's head in bytes.
    public var maxHeaderBytes = 64 << 10
    public var maxHeaderLines = 100
    /// The time from the connection to the end of the first head.
    public var headerTimeout: TimeSpan = .seconds(10)
    /// The time from the end of the head to the end of the body.
    public var bodyTimeout: TimeSpan = .seconds(30)
    /// The time from an answer to the end of the next head.
    public var idleTimeout: TimeSpan = .seconds(60)
    /// The time in which a client must read an answer.
    public var writeTimeout: TimeSpan = .seconds(30)
    /// How long a request waits for the pipeline after its client has closed its side: the client has left, or only
    /// reads.
    public var halfClosedTimeout: TimeSpan = .seconds(1)
    /// The pause between two attempts to accept a connection without free descriptors or memory.
    public var acceptPause = AcceptShortage.pause
    public init() {}
  }

  public typealias Notice = AcceptShortage.Notice

  public let options: Options
  /// The requests that wait for the pipeline, if the handler adds them.
  public let queue = RequestQueue()
  let budget: ByteBudget

  struct State {
    var listener: (any Channel)?
    var connections: [ObjectIdentifier: ServerConnection] = [:]
    var stopping = false
    var counts = PipelineStatistics.Connections()
  }

  let state = Guarded(State())

  public init(options: Options = Options()) {
    self.options = options
    budget = ByteBudget(limit: options.rules.maxBufferedBytes)
  }

  /// The bytes of requests in memory.
  public var bufferedBytes: Int { budget.held }

  /// One thread for all servers of the process, made when the first one starts.
  private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

  /// Starts listening. `handler`, `handOver` and `notify` are called on the network thread and must be quick.
  /// - Parameters:
  ///   - handOver: Called after `handler`, once for all requests of the same round of the network thread, or for the
  ///     first of many: wake other threads here.
  ///   - handler: Called for each request.
  /// - Returns: The port.
  public func start(
    notify: @escaping @Sendable (Notice) -> Void = { _ in }, handOver: @escaping @Sendable () -> Void = {},
    handler: @escaping @Sendable (ServerRequest) -> Void
  ) throws(HTTPServerFailure) -> Int {
    let bootstrap = bootstrap(notify, handOver, handler).childChannelOption(.socketOption(.tcp_nodelay), value: 1)
    return try listen {
      if let kept = KeptListeners.take(address) { return try bootstrap.withBoundSocket(kept).wait() }
      return try bootstrap.bind(host: options.host, port: options.port).wait()
    }
  }

  /// Starts serving a Unix socket that listens already. The descriptor stays the caller's.
  /// - Parameter handler: As for ``start(notify:handOver:handler:)``.
  public func start(on socket: Int32, handler: @escaping @Sendable (ServerRequest) -> Void) throws(HTTPServerFailure) {
    let own = fcntl(socket, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else {
      throw HTTPServerFailure(kind: .other, message: "cannot serve a socket: \(PosixError.text(errno))")
    }
    let bootstrap = bootstrap({ _ in }, {}, handler)
    _ = try listen { try bootstrap.withBoundSocket(own).wait() }
  }

  private func bootstrap(
    _ notify: @escaping @Sendable (Notice) -> Void, _ handOver: @escaping @Sendable () -> Void,
    _ handler: @escaping @Sendable (ServerRequest) -> Void
  ) -> ServerBootstrap {
    let pause = options.acceptPause
    // All connections share the only loop.
    let round = ServingRound(Self.group.any(), options, handler, handOver)
    return ServerBootstrap(group: Self.group)
      .serverChannelOption(.backlog, value: 256)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(AcceptGate(pause, notify))
        }
      }
      .childChannelOption(.allowRemoteHalfClosure, value: true)
      .childChannelInitializer { [self] channel in
        channel.eventLoop.makeCompletedFuture { try configure(channel, round) }
      }
  }

  private func listen(_ open: () throws -> any Channel) throws(HTTPServerFailure) -> Int {
    do {
      let listener = try open()
      state.withLock {
        $0.listener = listener
        $0.stopping = false
      }
      KeptListeners.begins("\(options.port)")
      return listener.localAddress?.port ?? options.port
    } catch {
      throw options.failure(error)
    }
  }

  private var address: String { options.address }

  /// What is counted of its connections.
  public var counts: PipelineStatistics.Connections {
    state.withLock { state in
      var counts = state.counts
      counts.open = state.connections.count
      return counts
    }
  }

  /// Accepts no more connections; the port is free when this returns. Not on the network thread.
  /// - Parameter handsOver: The next server of this address goes on with the listening socket, if there is a reload.
  public func stopListening(handsOver: Bool = false) {
    let listener = state.withLock { state in
      state.stopping = true
      return state.listener.take()
    }
    guard let listener else { return }
    defer { KeptListeners.ends("\(options.port)") }
    let address = address
    // Where the system chooses the port, an address names no socket.
    let keeps = handsOver && options.port != 0
    _ = try? listener.eventLoop.flatSubmit {
      if keeps {
        _ = try? listener.pipeline.syncOperations.withUnsafeTransportIfAvailable { (socket: NIOBSDSocket.Handle) in
          KeptListeners.keep(address, socket)
        }
      }
      return listener.close()
    }.wait()
  }

  /// Stops listening, closes idle connections, waits at most `limit` for answers that are due, then closes everything.
  /// Not on the network thread.
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
    let refusal = state.withLock { state in
      let refusal = state.stopping ? .busy : options.rules.refusal(besides: state.connections.count)
      if refusal != nil { state.counts.refused += 1 }
      return refusal
    }
    guard let serving = options.tls else {
      if let refusal { return try pipeline.addHandler(BusyHandler(refusal)) }
      return try pipeline.addHandler(ServerConnection(self, channel, round, tls: nil))
    }
    // An answer would cost a handshake first.
    if refusal != nil { throw ChannelError.ioOnClosedChannel }
    let tls = ServerTLS(try serving.sessionApart()) { [options] reason in options.tlsFailed(reason) }
    try pipeline.addHandler(tls)
    try pipeline.addHandler(ServerConnection(self, channel, round, tls: tls))
  }

}

extension HTTPServer.Options {
  var address: String { "\(host):\(port)" }

  /// Why the address cannot be listened on.
  fileprivate func failure(_ error: any Error) -> HTTPServerFailure {
    let host = HTTPSyntax.printable(self.host)
    let place = "\(host):\(port)"
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

extension HTTPServer {
  /// Binds the address for a server that starts soon, while listeners are kept (``KeptListeners/begin()``): nobody else gets it until then. Nothing
  /// connects before the server listens. Does nothing if a server of this process has the port, which may be about to leave it.
  public static func reserve(_ options: Options) throws(HTTPServerFailure) {
    guard options.port != 0, !KeptListeners.hasOwn("\(options.port)", options.address) else { return }
    do {
      let address = try SocketAddress.makeAddressResolvingHost(options.host, port: options.port)
      let number = rx_stream_socket(address.protocol.rawValue)
      guard number >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
      defer { close(number) }
      var yes: Int32 = 1
      setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
      guard address.withSockAddr({ bind(number, $0, socklen_t($1)) }) == 0 else {
        throw IOError(errnoCode: errno, reason: "bind")
      }
      KeptListeners.keep(options.address, number)
    } catch {
      throw options.failure(error)
    }
  }
}

/// The common state of a server's connections: passes requests on and collects the answers of one round of the network
/// thread. Used on that thread, except for `answer`.
final class ServingRound: @unchecked Sendable {
  /// The answer to one request.
  struct Answer {
    var connection: ServerConnection
    var exchange: ServerExchange
    var status: Int
    var headers: [(name: String, value: String)]
    var body: [UInt8]
  }

  private let loop: any EventLoop
  /// The options of the server, and the limits that each request needs.
  let options: HTTPServer.Options
  let replyTimeout: Int64
  let queueTimeout: Int64
  let maxBodyBytes: Int
  /// The instant of the answers being written; otherwise nil. One reading of the clock serves all of them.
  @exclusivity(unchecked) private(set) var instant: NIODeadline?
  /// The last answer that consists of a status alone, as sent.
  @exclusivity(unchecked) private var lastPlain: (status: Int, bytes: [UInt8]) = (0, [])
  private let handler: @Sendable (ServerRequest) -> Void
  private let handOver: @Sendable () -> Void
  /// The number of requests in this round of the loop.
  @exclusivity(unchecked) private var count = 0
  private let answers = Mutex<[Answer]>([])
  /// The answers being written; otherwise empty.
  @exclusivity(unchecked) private var due: [Answer] = []
  /// The buffer for answers.
  let output = OutputBuffer()
  /// The memory kept for the next answer, in bytes.
  static let keptOutput = 64 << 10
  /// The receiver starts with this many requests while the others are still being read.
  private static let enough = 32

  init(
    _ loop: any EventLoop, _ options: HTTPServer.Options, _ handler: @escaping @Sendable (ServerRequest) -> Void,
    _ handOver: @escaping @Sendable () -> Void
  ) {
    self.loop = loop
    self.options = options
    replyTimeout = max(options.rules.replyTimeout.nanoseconds, 1_000_000)
    queueTimeout = max(options.rules.queueTimeout.nanoseconds, 1_000_000)
    maxBodyBytes = options.rules.maxBodyBytes
    self.handler = handler
    self.handOver = handOver
  }

  /// The answer that consists of a status alone, for a connection that stays open.
  func plain(_ status: Int) -> [UInt8] {
    if lastPlain.status != status {
      output.clear()
      ServerConnection.write(status, [], [], connection: nil, to: output)
      lastPlain = (status, Array(output.bytes))
    }
    return lastPlain.bytes
  }

  /// Passes a request on. The loop runs the posted task after it has handled all ready connections.
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

  /// Does something on the network thread. Callable from any thread.
  func inLoop(_ work: @escaping @Sendable () -> Void) { loop.execute(work) }

  /// Passes an answer to its connection. Callable from any thread.
  func answer(_ answer: Answer) {
    let isFirst = answers.withLock { answers in
      answers.append(answer)
      return answers.count == 1
    }
    guard isFirst else { return }
    loop.execute { [self] in
      answers.withLock { swap(&$0, &due) }
      instant = .now()
      defer { instant = nil }
      for one in due {
        one.connection.answer(one.exchange, status: one.status, headers: one.headers, body: one.body)
      }
      due.removeAll(keepingCapacity: due.capacity <= 4096)
    }
  }
}

/// Pauses `accept` while the system has no descriptor or memory for a connection: the listener stays ready, so the loop
/// would call it again and again. Connections wait in the backlog meanwhile. Reports the first failure and the first
/// success after it.
private final class AcceptGate: ChannelInboundHandler {
  typealias InboundIn = any Channel
  typealias InboundOut = any Channel

  private let pause: TimeSpan
  private let notify: @Sendable (HTTPServer.Notice) -> Void
  /// `accept` is not called before the end of the pause.
  private var isPaused = false
  private var shortage = AcceptShortage()

  init(_ pause: TimeSpan, _ notify: @escaping @Sendable (HTTPServer.Notice) -> Void) {
    self.pause = pause
    self.notify = notify
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    if let notice = shortage.accepted() { notify(notice) }
    context.fireChannelRead(data)
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard let error = error as? IOError, AcceptShortage.isShortage(error.errnoCode) else {
      return context.fireErrorCaught(error)
    }
    if let notice = shortage.failed(error.errnoCode) { notify(notice) }
    guard !isPaused, let options = context.channel.syncOptions else { return }
    isPaused = true
    // The failed read stays wanted: only without automatic reading the loop lets go of a listener that is ready.
    try? options.setOption(.autoRead, value: false)
    let gate = NIOLoopBound((self, context), eventLoop: context.eventLoop)
    context.eventLoop.scheduleTask(in: .nanoseconds(max(pause.nanoseconds, 1_000_000))) {
      let (gate, context) = gate.value
      gate.isPaused = false
      try? context.channel.syncOptions?.setOption(.autoRead, value: true)
    }
  }
}

/// Answers a connection beyond the limit and closes it.
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
