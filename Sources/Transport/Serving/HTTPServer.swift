import CLinux
import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// The reason why a server cannot start.
package struct HTTPServerFailure: Error, Sendable, Equatable {
  package enum Kind: String, Sendable {
    case addressInUse
    /// The host is not an address of this machine, or not an address at all.
    case noSuchAddress
    case notPermitted
    case other
  }
  package var kind: Kind
  /// One sentence without a full stop that names host and port.
  package var message: String
}

/// One component's server for HTTP/1.1: its rules, its queue, its memory and the handler of its requests. Servers at
/// the same address share an ``HTTPListener`` and its connections; each request goes to the server of its path and
/// method. One thread serves all servers of the process; it starts with the first of them.
///
/// `ServingRules.maxBufferedBytes` bounds the memory of its requests and WebSocket messages, from their first byte
/// until the pipeline has handled them. `ServingRules.maxConnections` bounds the connections at this server: a
/// connection is at the server of its last request; before its first request, at the only server of the address, if
/// there is only one.
package final class HTTPServer: @unchecked Sendable {
  package struct Options: Sendable {
    package var host = "127.0.0.1"
    /// 0: the system chooses.
    package var port = 0
    /// Whether other servers of the process may be at the same address, each with its own paths.
    package var isShared = false
    /// The rules for accepting and refusing requests.
    package var rules = ServingRules()
    /// The certificate; nil: connections are not encrypted.
    package var tls: TLSServing?
    /// Called on the network thread with the reason when a connection fails because of TLS.
    package var tlsFailed: @Sendable (String) -> Void = { _ in }
    /// The memory budget of the process, against which requests, messages and answers are counted; nil: they are not.
    package var memory: MemoryBudget?
    /// The maximum size of a request's head in bytes.
    package var maxHeaderBytes = 64 << 10
    package var maxHeaderLines = 100
    package var limits = Limits()
    /// The options of connections over TCP.
    var socketOptions = [SocketOption.noDelay]
    /// Whether an idle connection is closed for a new one beyond ``ServingRules/maxConnections``.
    package var makesRoom = false
    /// Replaces `rules.auth`: returns the answer to a client that the request's head does not admit, nil to admit it.
    /// Called on the network thread.
    package var authorize: (@Sendable (ServerRequestHead) -> ServerAnswer?)?
    /// The pause before `accept` is called again after it failed for lack of descriptors or memory.
    package var acceptPause = AcceptShortage.pause
    package init() {}
  }

  /// The time limits of a connection.
  package struct Limits: Sendable {
    /// The time from the connection to the end of the first head.
    package var header: TimeSpan = .seconds(10)
    /// The time from the end of the head to the end of the body.
    package var body: TimeSpan = .seconds(30)
    /// The time from an answer to the end of the next head.
    package var idle: TimeSpan = .seconds(60)
    /// The time in which a client must read an answer.
    package var write: TimeSpan = .seconds(30)
    /// How long a request waits for the pipeline after its client has closed its side of the connection: the client may
    /// have left, or may only read from now on.
    package var halfClosed: TimeSpan = .seconds(1)
  }

  package typealias Notice = AcceptShortage.Notice

  package let options: Options
  /// The requests that wait for the pipeline, if the handler adds them.
  package let queue = RequestQueue()
  private let access: PageAccess
  let budget: ByteBudget
  let replyTimeout: Int64
  let queueTimeout: Int64
  // Copies of options that each request needs: a call of a method of the options copies all of them.
  let limits: Limits
  let scope: ServingRules.Scope
  let files: TLSServing.Files?
  let mostBodyBytes: Int
  private let asksForAuth: Bool

  struct State {
    /// The connections that this server handles.
    var connections: [ObjectIdentifier: ServerConnection] = [:]
    var listener: HTTPListener?
    /// Whether requests wait for the next server of the path.
    var isHandedOver = false
    /// When ``stop(within:)`` stops waiting for answers, in nanoseconds on the monotonic clock.
    var deadline = Int64.max
    var counts = PipelineStatistics.Connections()
  }

  let state = Guarded(State())
  /// Set before serving starts.
  private var service = Service()
  /// False for a Unix socket, which no web page can reach. Set before serving starts.
  private var isOnTCP = true
  /// Whether requests may be passed to this server; used on the network thread.
  var isServing = false
  /// WebSocket messages that have been received in part; used on the network thread.
  var unfinished = UnfinishedMessages<ObjectIdentifier>()
  /// The sessions that receive these messages.
  var holders: [ObjectIdentifier: any UpgradedSpeaker] = [:]
  /// The number of requests in this round of the loop; used on the network thread.
  private var count = 0
  /// The receiver is woken after this many requests, while the rest of the round is still being read.
  private static let enough = 32

  struct Service {
    var notify: @Sendable (Notice) -> Void = { _ in }
    var handOver: @Sendable () -> Void = {}
    var handler: @Sendable (ServerRequest) -> Void = { _ in }
  }

  package init(options: Options = Options()) {
    var options = options
    options.rules.access.isLocal = HostSyntax.isLoopback(options.host)
    self.options = options
    access = options.rules.access
    budget = ByteBudget(limit: options.rules.maxBufferedBytes, of: options.memory)
    limits = options.limits
    scope = options.rules.scope
    files = options.tls?.files
    mostBodyBytes = options.rules.maxBodyBytes
    asksForAuth = options.rules.asksForAuth
    replyTimeout = max(options.rules.replyTimeout.nanoseconds, 1_000_000)
    queueTimeout = max(options.rules.queueTimeout.nanoseconds, 1_000_000)
  }

  /// The bytes of requests in memory.
  package var bufferedBytes: Int { budget.held }

  /// Starts serving. `handler`, `handOver` and `notify` are called on the network thread and must be quick.
  /// - Parameters:
  ///   - handOver: Called after `handler`, once for all requests of one round of the network thread, and earlier if
  ///     they are many: wake other threads here.
  ///   - handler: Called for each request.
  /// - Returns: The port.
  package func start(
    notify: @escaping @Sendable (Notice) -> Void = { _ in }, handOver: @escaping @Sendable () -> Void = {},
    handler: @escaping @Sendable (ServerRequest) -> Void
  ) throws(HTTPServerFailure) -> Int {
    service = Service(notify: notify, handOver: handOver, handler: handler)
    return try HTTPListener.add(self)
  }

  /// Starts serving on a Unix socket that is already listening. The caller keeps the descriptor.
  /// - Parameter handler: As for ``start(notify:handOver:handler:)``.
  package func start(
    on socket: Int32, notify: @escaping @Sendable (Notice) -> Void,
    handler: @escaping @Sendable (ServerRequest) -> Void
  ) throws(HTTPServerFailure) {
    service = Service(notify: notify, handler: handler)
    isOnTCP = false
    try HTTPListener.add(self, on: socket)
  }

  /// The counts of its connections.
  package var counts: PipelineStatistics.Connections {
    state.withLock { state in
      var counts = state.counts
      counts.open = state.connections.count
      return counts
    }
  }

  /// Stops serving requests. If no other server is at the address, the address is free when this returns. Not on the
  /// network thread.
  /// - Parameter handsOver: In a reload, requests wait for the next server of the path, until the reload is over.
  package func stopListening(handsOver: Bool = false) {
    let listener = state.withLock { $0.listener.take() }
    listener?.remove(self, handsOver: handsOver)
  }

  /// Closes the queue. Requests that the pipeline has not taken go to the next server if this one is handed over;
  /// otherwise they are answered 503.
  package func closeQueue() {
    let handsOver = isHandedOver
    for request in queue.close() {
      if handsOver { request.exchange.takeBack(request) } else { request.reply.reply(.stopped) }
    }
  }

  /// Answers 503 to all waiting requests, because their pipeline has ended, and makes ``stop(within:)`` return soon.
  package func refuseRemaining() {
    let waiting = state.withLock { state in
      state.deadline = min(state.deadline, monotonicNow() &+ Self.lastWords)
      return Array(state.connections.values)
    }
    for connection in waiting { connection.refuse(by: self) }
    state.notify()
  }

  /// How long the clients of a pipeline that has ended may take to read their answers, in nanoseconds.
  private static let lastWords: Int64 = 500_000_000

  /// Whether requests wait for the next server of the path.
  var isHandedOver: Bool { state.withLock(\.isHandedOver) }

  /// Stops serving and waits at most `limit` for answers that are due; unfinished connections are then closed. Idle
  /// connections stay open for other servers of the address. Not on the network thread.
  package func stop(within limit: TimeSpan = .seconds(5)) {
    stopListening()
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    let (parting, handsOver) = state.withLock { state in
      state.deadline = min(state.deadline, overflow ? .max : deadline)
      return (Array(state.connections.values), state.isHandedOver)
    }
    for connection in parting { connection.part(from: self, handsOver: handsOver) }
    var isEmpty: Bool?
    repeat {
      let deadline = state.withLock(\.deadline)
      // False: the deadline was brought forward.
      isEmpty = state.wait(until: deadline == .max ? nil : deadline) { state in
        state.connections.isEmpty ? true : state.deadline < deadline ? false : nil
      }
    } while isEmpty == false
    if isEmpty == nil {
      for connection in state.withLock({ Array($0.connections.values) }) { connection.cut() }
    }
  }

  // MARK: - Called by its listener, on the network thread

  func notify(_ notice: Notice) { service.notify(notice) }

  /// Passes a request on. The loop runs the posted task after it has handled all ready connections.
  func pass(_ request: ServerRequest, _ round: ServingRound) {
    service.handler(request)
    count += 1
    if count == 1 {
      round.inLoop { [self] in
        count = 0
        service.handOver()
      }
    } else if count.isMultiple(of: Self.enough) {
      service.handOver()
    }
  }

  /// Charges the head of a request to the budget; nil: there is no room for it, or the pipeline accepts no requests.
  func charge(_ head: RequestHead) -> ByteCharge? {
    guard !queue.isStalled, budget.hasRoom(for: head.length) else { return nil }
    let charge = ByteCharge(budget)
    return charge.grow(by: head.byteCount) ? charge : nil
  }

  /// The answer to a request that is refused because of its head: an unknown host, a page of another site, no
  /// credentials. Nil: the head gives no reason to refuse it.
  func refusal(of head: RequestHead) -> ServerAnswer? {
    if access.checksHosts || access.checksOrigins, isOnTCP, let refusal = access.refusal(head.pageHeaders) {
      return refusal
    }
    if let authorize = options.authorize { return authorize(ServerRequestHead(head)) }
    guard asksForAuth else { return nil }
    return options.rules.refusal(ofAuthorization: head.value(of: "authorization"))
  }

  /// The connections at this server; empty unless the server makes room.
  var connections: [ServerConnection] {
    options.makesRoom ? state.withLock { Array($0.connections.values) } : []
  }

  /// Admits a connection to this server; false: the server has too many.
  func admit(_ connection: ServerConnection) -> Bool {
    state.withLock { state in
      guard options.rules.refusal(besides: state.connections.count) == nil else {
        state.counts.refused &+= 1
        return false
      }
      state.connections[ObjectIdentifier(connection)] = connection
      state.counts.opened &+= 1
      return true
    }
  }

  func leave(_ connection: ServerConnection) {
    state.withLock { $0.connections[ObjectIdentifier(connection)] = nil }
    state.notify()
  }

  func countRefused() { state.withLock { $0.counts.refused &+= 1 } }
}

extension HTTPServer.Options {
  var address: String { "\(host):\(port)" }
  /// The address in a canonical spelling.
  var canonicalAddress: String { ListenAddress(host: host, port: port).canonicalAddress }

  /// The reason why a server with these options cannot share the address of another; nil: it can.
  func conflict(_ other: HTTPServer.Options) -> HTTPServerFailure? {
    let address = "\(HTTPSyntax.printable(host)):\(port)"
    if tls?.files != other.tls?.files {
      return HTTPServerFailure(
        kind: .addressInUse, message: "cannot listen on \(address): another component listens there with another 'tls'")
    }
    guard let both = rules.scope.conflict(other.rules.scope) else { return nil }
    return HTTPServerFailure(
      kind: .addressInUse, message: "cannot listen on \(address): another component serves \(both) there")
  }

  /// The failure for an error of listening on the address.
  func failure(_ error: any Error) -> HTTPServerFailure {
    let host = HTTPSyntax.printable(self.host)
    let address = "\(host):\(port)"
    guard let error = error as? IOError else {
      return HTTPServerFailure(
        kind: .noSuchAddress, message: "cannot listen on \(address): \(host) cannot be resolved")
    }
    return switch error.errnoCode {
    case EADDRINUSE:
      HTTPServerFailure(
        kind: .addressInUse,
        message: "cannot listen on \(address): another program listens there; choose another port")
    case EACCES, EPERM:
      HTTPServerFailure(
        kind: .notPermitted,
        message: "cannot listen on \(address): ports below 1024 are not for this user")
    case EADDRNOTAVAIL:
      HTTPServerFailure(
        kind: .noSuchAddress,
        message: "cannot listen on \(address): \(host) is not an address of this machine")
    default:
      HTTPServerFailure(
        kind: .other, message: "cannot listen on \(address): \(PosixError.text(error.errnoCode))")
    }
  }
}

extension HTTPServer {
  /// Binds the address for a server that starts soon, while listeners are kept (``KeptListeners/begin()``), so that no
  /// other program can take it until then. No client can connect before the server listens. Does nothing if a server of
  /// this process has the port, because that server may be about to release it.
  package static func reserve(_ options: Options) throws(HTTPServerFailure) {
    guard options.port != 0, !KeptListeners.hasOwn("\(options.port)", options.address) else { return }
    do {
      let address = try SocketAddress.makeAddressResolvingHost(options.host, port: options.port)
      let number = rx_stream_socket(address.protocol.rawValue)
      guard number >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
      defer { close(number) }
      _ = SocketOption.reuseAddress.set(number)
      guard address.withSockAddr({ bind(number, $0, socklen_t($1)) }) == 0 else {
        throw IOError(errnoCode: errno, reason: "bind")
      }
      KeptListeners.keep(options.address, number)
    } catch {
      throw options.failure(error)
    }
  }
}
