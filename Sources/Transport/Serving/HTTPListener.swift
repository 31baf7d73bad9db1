import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// Listens on one address for the servers there, and finds the server of each request. The connections belong to the
/// listener, so ending one server leaves the connections of the others alone.
///
/// A server that is handed over in a reload is remembered until the reload is over: requests for it wait for the next
/// server of their path, and the listener and its connections stay open even if it has no server meanwhile. A server
/// that ended in another way is remembered until the next reload, as long as its listener is open: requests for it are
/// answered 503, as by a program that is stopping, and not 404.
final class HTTPListener: @unchecked Sendable {
  /// The listeners that servers can share, by address. The lock is held while servers are added and removed, and never taken on the network thread.
  private static let shared = Mutex<[String: HTTPListener]>([:])

  /// The destination of a request.
  enum Way {
    case server(HTTPServer)
    /// The server is being replaced: the request waits for the next one, at most this long.
    case held(TimeSpan)
    case answer(ServerAnswer)
  }

  /// The paths and methods that a server serves, and its certificate.
  private struct Served {
    let scope: ServingRules.Scope
    let files: TLSServing.Files?

    init(_ server: HTTPServer) { (scope, files) = (server.scope, server.files) }

    func isCovered(by other: Served) -> Bool { scope.isCovered(by: other.scope) && files == other.files }
  }

  private let address: String
  private let port: Int
  private let loop: any EventLoop
  let round: ServingRound
  /// Bounds the memory of connections that have no server yet: pieces of their first heads.
  let budget = ByteBudget(limit: 16 << 20)
  /// The listening socket; used while `shared` is held.
  private var channel: (any Channel)?

  // The rest is used on the network thread.

  /// The newest first.
  private var servers: [HTTPServer] = []
  /// Servers that are handed over, the newest first.
  private var held: [HTTPServer] = []
  /// The paths and methods of servers that have ended, the newest first, at most `mostEnded`.
  private var ended: [Served] = []
  private static let mostEnded = 64
  private var connections: [ObjectIdentifier: ServerConnection] = [:]
  /// Whether the listening socket is closed: no request is served any more.
  private(set) var isClosed = false

  private init(_ options: HTTPServer.Options) throws(HTTPServerFailure) {
    do throws(PosixError) {
      loop = try NetworkLoop.loop()
      try NetworkLoop.check()
    } catch {
      throw HTTPServerFailure(kind: .other, message: "cannot listen on \(options.canonicalAddress): \(error.message)")
    }
    address = options.address
    port = options.port
    round = ServingRound(loop)
  }

  // MARK: - Servers, not on the network thread

  /// Adds a server to the listener of its address, which is opened if there is none; returns the port.
  static func add(_ server: HTTPServer) throws(HTTPServerFailure) -> Int {
    _ = endsHolding
    let options = server.options
    guard options.isShared, options.port != 0 else {
      let listener = try HTTPListener(options)
      return try listener.open(server)
    }
    let address = options.canonicalAddress
    return try shared.withLock { listeners throws(HTTPServerFailure) in
      if let listener = listeners[address] {
        try listener.join(server)
        return options.port
      }
      let listener = try HTTPListener(options)
      let port = try listener.open(server)
      listeners[address] = listener
      return port
    }
  }

  /// Adds a server on a Unix socket that is already listening; the caller keeps the descriptor.
  static func add(_ server: HTTPServer, on socket: Int32) throws(HTTPServerFailure) {
    let own = fcntl(socket, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else {
      throw HTTPServerFailure(kind: .other, message: "cannot serve a socket: \(PosixError.text(errno))")
    }
    let listener: HTTPListener
    do throws(HTTPServerFailure) { listener = try HTTPListener(server.options) } catch {
      Glibc.close(own)
      throw error
    }
    _ = try listener.listen(server, isTCP: false) { try listener.adopt(own, $0) }
  }

  private func open(_ server: HTTPServer) throws(HTTPServerFailure) -> Int {
    let options = server.options
    return try listen(server, isTCP: true) { bootstrap in
      if let kept = KeptListeners.take(options.address) { return try adopt(kept, bootstrap) }
      return try bootstrap.bind(host: options.host, port: options.port).wait()
    }
  }

  /// Takes over a listening socket.
  private func adopt(_ socket: Int32, _ bootstrap: ServerBootstrap) throws -> any Channel {
    do throws(PosixError) { try NetworkLoop.check(socket) } catch {
      Glibc.close(socket)
      throw IOError(errnoCode: error.code, reason: error.message)
    }
    return try bootstrap.withBoundSocket(socket).wait()
  }

  private func listen(
    _ server: HTTPServer, isTCP: Bool, _ open: (ServerBootstrap) throws -> any Channel
  ) throws(HTTPServerFailure) -> Int {
    let pause = server.options.acceptPause
    do {
      try inLoop { $0.install(server) }
      let channel = try open(
        ServerBootstrap(group: loop)
          .serverChannelOption(.backlog, value: 256)
          .serverChannelInitializer { [self] channel in
            channel.eventLoop.makeCompletedFuture {
              if isTCP { SocketOption.set([.reuseAddress], channel) { faults.write($0) } }
              try channel.pipeline.syncOperations.addHandler(AcceptGate(pause) { notice in self.tell(notice) })
            }
          }
          .childChannelOption(.allowRemoteHalfClosure, value: true)
          .childChannelInitializer { [self] channel in
            channel.eventLoop.makeCompletedFuture { try begin(channel, isTCP: isTCP) }
          })
      self.channel = channel
      server.state.withLock { $0.listener = self }
      KeptListeners.begins("\(port)")
      return channel.localAddress?.port ?? port
    } catch {
      try? inLoop { $0.servers.removeAll { $0 === server } }
      throw server.options.failure(error)
    }
  }

  /// Adds a server to an open listener. Conflicts that `rxd check` reports are refused here, too. In a reload the old
  /// server of a path may still be there; requests go to the new one.
  private func join(_ server: HTTPServer) throws(HTTPServerFailure) {
    let isReloading = KeptListeners.isKeeping
    let failure: HTTPServerFailure? = answer { listener in
      let conflict = isReloading ? nil : listener.servers.lazy.compactMap { server.options.conflict($0.options) }.first
      if let conflict { return conflict }
      listener.install(server)
      return nil
    }
    if let failure { throw failure }
    server.state.withLock { $0.listener = self }
  }

  /// Removes a server; the address is free after the last one.
  func remove(_ server: HTTPServer, handsOver: Bool) {
    Self.shared.withLock { listeners in
      // The next server cannot find a port that the system has chosen.
      let keeps = handsOver && KeptListeners.isKeeping && listeners[server.options.canonicalAddress] === self
      answer { listener in
        server.isServing = false
        server.state.withLock { $0.isHandedOver = keeps }
        listener.servers.removeAll { $0 === server }
        if keeps {
          listener.held.insert(server, at: 0)
        } else {
          listener.remember(Served(server))
          listener.wake()
        }
      }
      close(unlessUsed: &listeners)
    }
  }

  private static let endsHolding: Void = KeptListeners.atEnds { endHolding() }

  /// The reload is over: paths that no new server has taken over are no longer served.
  private static func endHolding() {
    shared.withLock { listeners in
      for listener in listeners.values {
        listener.answer { listener in
          listener.held = []
          listener.ended = []
          listener.wake()
        }
        listener.close(unlessUsed: &listeners)
      }
    }
  }

  private func close(unlessUsed listeners: inout [String: HTTPListener]) {
    let isUsed = answer { !$0.servers.isEmpty || !$0.held.isEmpty }
    guard !isUsed, let channel else { return }
    self.channel = nil
    if let address = listeners.first(where: { $0.value === self })?.key { listeners[address] = nil }
    _ = try? channel.close().wait()
    answer { listener in
      listener.isClosed = true
      for connection in listener.connections.values { connection.drain() }
    }
    KeptListeners.ends("\(port)")
  }

  private func inLoop(_ body: @escaping @Sendable (HTTPListener) throws -> Void) throws {
    try loop.submit { [self] in try body(self) }.wait()
  }

  private func answer<Result: Sendable>(_ body: @escaping @Sendable (HTTPListener) -> Result) -> Result {
    let result = Mutex<Result?>(nil)
    _ = try? loop.submit { [self] in
      let value = body(self)
      result.withLock { $0 = value }
    }.wait()
    guard let value = result.withLock({ $0 }) else { preconditionFailure("the network thread has ended") }
    return value
  }

  // MARK: - On the network thread

  private func install(_ server: HTTPServer) {
    server.isServing = true
    servers.insert(server, at: 0)
    // The new server replaces old ones whose paths and methods it covers.
    held.removeAll { Served($0).isCovered(by: Served(server)) }
    ended.removeAll { $0.isCovered(by: Served(server)) }
    wake()
  }

  private func remember(_ served: Served) {
    ended.removeAll { $0.isCovered(by: served) }
    ended.insert(served, at: 0)
    if ended.count > Self.mostEnded { ended.removeLast() }
  }

  /// Directs waiting requests again.
  private func wake() { for connection in connections.values { connection.goOn() } }

  private func tell(_ notice: HTTPServer.Notice) { for server in servers { server.notify(notice) } }

  /// Reports options that connections lack, and why connections were closed before their first request.
  private lazy var faults = OncePerSecond { [weak self] in self?.tell(.fault($0)) }

  /// Sets up a new connection. If that fails, reports why and throws, which closes the connection.
  private func begin(_ channel: any Channel, isTCP: Bool) throws {
    if isTCP { SocketOption.set(options?.socketOptions ?? [.noDelay], channel) { faults.write($0) } }
    do {
      try configure(channel)
    } catch is Refused {
      throw ChannelError.ioOnClosedChannel
    } catch {
      let reason = (error as? SocketFailure)?.message ?? HTTPSyntax.printable("\(error)")
      faults.write("a connection cannot be set up and is closed: \(reason)")
      throw error
    }
  }

  /// The connection exceeds the limit, which is counted, or the listener is closed.
  private struct Refused: Error {}

  /// The largest limits of all servers here: before its head is read, a request may be for any server.
  var maxHeaderBytes: Int { servers.map(\.options.maxHeaderBytes).max() ?? 64 << 10 }
  var maxHeaderLines: Int { servers.map(\.options.maxHeaderLines).max() ?? 100 }

  /// The time limits of connections that are at no server.
  var limits: HTTPServer.Limits { (servers.first ?? held.first)?.limits ?? HTTPServer.Limits() }

  /// The options for decisions that belong to no single server; nil: there is no server at the moment.
  var options: HTTPServer.Options? { servers.first?.options ?? held.first?.options }

  private func configure(_ channel: any Channel) throws {
    let pipeline = channel.pipeline.syncOperations
    let only = servers.count == 1 && held.isEmpty ? servers.first : nil
    let most = (servers + held).reduce(0) { $0 &+ $1.options.rules.maxConnections }
    let isFull = connections.count >= most && !IdleConnections.makeRoom(among: Array(connections.values))
    if isFull { servers.last?.countRefused() }
    guard let serving = servers.first?.options.tls ?? (servers.isEmpty ? held.first?.options.tls : nil) else {
      if isFull || isClosed { return try pipeline.addHandler(BusyHandler(.busy)) }
      return try pipeline.addHandler(ServerConnection(self, channel, tls: nil, files: nil, at: only))
    }
    // Closes without an answer, which would first cost a handshake.
    if isFull || isClosed { throw Refused() }
    let tls = ChannelTLS(try serving.sessionApart(), isServer: true) { [self] reason in
      servers.first?.options.tlsFailed(reason)
    }
    try pipeline.addHandler(tls)
    try pipeline.addHandler(ServerConnection(self, channel, tls: tls, files: serving.files, at: only))
  }

  func opened(_ connection: ServerConnection) { connections[ObjectIdentifier(connection)] = connection }
  func closed(_ connection: ServerConnection) { connections[ObjectIdentifier(connection)] = nil }

  /// The server for a request: one with exactly its path comes before one for all paths, and a newer one before an older one.
  /// - Parameter files: The certificate files of the connection: servers with others are left out.
  func way(path: UnsafeRawBufferPointer, method: UnsafeRawBufferPointer, _ files: TLSServing.Files?) -> Way {
    if isClosed { return .answer(.stopped) }
    if servers.count == 1, held.isEmpty, ended.isEmpty, servers[0].files == files {
      let only = servers[0]
      return only.scope.refusal(ofPath: path, method: method).map(Way.answer) ?? .server(only)
    }
    func takes(_ scope: ServingRules.Scope, _ known: TLSServing.Files?) -> Bool {
      known == files && scope.refusal(ofPath: path, method: method) == nil
    }
    func serves(_ server: HTTPServer) -> Bool { takes(server.scope, server.files) }
    if let server = best(servers, where: serves) { return .server(server) }
    if let server = best(held, where: serves) { return .held(server.options.rules.queueTimeout) }
    let ofPath = servers.filter { $0.scope.serves(path: path) }
    let same = ofPath.filter { $0.files == files }
    // The servers of the path have another certificate now than the connection: the client must open a new one.
    if same.isEmpty, !ofPath.isEmpty { return .answer(ServerAnswer(421, [(name: "Connection", value: "close")])) }
    if ended.contains(where: { takes($0.scope, $0.files) }) { return .answer(.stopped) }
    if !same.isEmpty { return .answer(.notAllowed(same.flatMap { $0.scope.methods ?? [] })) }
    return .answer(ServerAnswer(404))
  }

  private func best(_ servers: [HTTPServer], where serves: (HTTPServer) -> Bool) -> HTTPServer? {
    var found: HTTPServer?
    for server in servers where serves(server) {
      if server.scope.path != nil { return server }
      if found == nil { found = server }
    }
    return found
  }
}
