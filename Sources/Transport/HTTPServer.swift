import NIOCore
import NIOHTTP1
import NIOPosix
import PipelineCore
import Synchronization

/// A request that has come in whole.
public struct ServerRequest: Sendable {
  public var method: String
  /// As it stood in the request line.
  public var target: String
  /// The target up to the `?`, not decoded.
  public var path: String
  /// Names and values after the `?`, decoded, in their order; bytes that are not UTF-8 are replaced.
  public var query: [(name: String, value: String)]
  public var headers: [HTTPHeader]
  public var body: [UInt8]
  /// Address and port of the client.
  public var peer: String
  /// Answers. Letting go of it without an answer answers 503.
  public var reply: any ReplyTarget
  let exchange: ServerExchange

  /// Whether the client has been told that nobody answered in time. From any thread.
  public var isTimedOut: Bool { exchange.isTimedOut }

  /// The value of the first header of that name, compared without case.
  public func header(_ name: String) -> String? {
    headers.first { HTTPSyntax.same($0.name, name) }?.value
  }
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
public final class HTTPServer: Sendable {
  public struct Options: Sendable {
    public var host = "127.0.0.1"
    /// 0 lets the system choose.
    public var port = 0
    /// What it decides by itself.
    public var rules = ServingRules()
    /// Bytes of names and values, and of the target.
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
    public init() {}
  }

  public let options: Options

  struct State {
    var listener: (any Channel)?
    var connections: [ObjectIdentifier: ServerConnection] = [:]
    var stopping = false
  }

  let state = Guarded(State())

  public init(options: Options = Options()) { self.options = options }

  /// One thread for all servers of the process, made when the first one starts.
  private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

  /// Listens. `handler` is called on the network thread and must be quick.
  /// - Returns: the port.
  public func start(handler: @escaping @Sendable (ServerRequest) -> Void)
    throws(HTTPServerFailure) -> Int
  {
    let bootstrap = ServerBootstrap(group: Self.group)
      .serverChannelOption(.backlog, value: 256)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelOption(.socketOption(.tcp_nodelay), value: 1)
      .childChannelOption(.allowRemoteHalfClosure, value: true)
      .childChannelInitializer { [self] channel in
        channel.eventLoop.makeCompletedFuture { try configure(channel, handler) }
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

  private func configure(
    _ channel: any Channel, _ handler: @escaping @Sendable (ServerRequest) -> Void
  ) throws {
    let pipeline = channel.pipeline.syncOperations
    let refusal = state.withLock { $0.stopping ? .busy : options.rules.refusal(besides: $0.connections.count) }
    if let refusal { return try pipeline.addHandler(BusyHandler(refusal)) }
    var limits = NIOHTTPDecoderLimitConfiguration()
    limits.maxHeaderFieldSize = options.maxHeaderBytes
    limits.maxHeaderListSize = options.maxHeaderBytes
    limits.maxHeaderFieldCount = options.maxHeaderLines
    try pipeline.configureHTTPServerPipeline(
      withPipeliningAssistance: true, withErrorHandling: false, withOutboundHeaderValidation: false,
      withEncoderConfiguration: HTTPResponseEncoder.Configuration(),
      withDecoderLimitConfiguration: limits)
    try pipeline.addHandler(ServerConnection(self, channel, handler))
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

/// Answers whoever connects, and closes: there are too many connections.
private final class BusyHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let answer: ServerAnswer

  init(_ answer: ServerAnswer) { self.answer = answer }

  func channelActive(context: ChannelHandlerContext) {
    let status = HTTPResponseStatus(statusCode: answer.status)
    let text =
      "HTTP/1.1 \(status.code) \(status.reasonPhrase)\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    let loopBound = NIOLoopBound(context, eventLoop: context.eventLoop)
    // Closing at once, with the request unread, would reset the connection and destroy the answer on its way.
    context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: text))).whenComplete { _ in
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
