import PipelineCore
import Synchronization
import Transport

extension WebSocketSource {
  /// Messages cannot be received again: at a stop those already received are sent first, and a reload leaves unread
  /// messages to the next version.
  final class Node: DecodingSource {
    /// Why the source takes no new connections.
    private enum Ending { case drain, suspend }

    private let parameters: WebSocketSource
    private let sessionOptions: WebSocketSession.Options
    private var decoder: (any EventDecoder)?
    private lazy var frame = makeFrame()
    /// The connections by number. A client has one, besides those of the previous version.
    private var peers: [Int: ConnectedWebSocket] = [:]
    private var last = 0
    /// The number of the client's own connection.
    private var current: Int?
    private var server: HTTPServer?
    private var attempt: (any Cancellable)?
    private lazy var session = SourceSession(of: self, Attempts(parameters.reconnect, most: parameters.maxReconnect)) {
      [unowned self] _ in
      connect()
    } close: { [unowned self] in
      attempt?.cancel()
      attempt = nil
    }
    private var ending: Ending?
    /// Connections that the next version may continue.
    private var parked: [ConnectedWebSocket] = []
    private var settings: KeptWebSockets.Settings?
    /// The number of connections that were aborted at the end.
    private var cut = 0
    /// The number of messages received, counted by the network thread. `taken`: the number of messages that turns have
    /// taken.
    private let arrived = Arrivals()
    private var taken = 0
    private var counts = PipelineStatistics.Connections()
    private lazy var closings = OncePerSecond { [services = execution.services, label] in
      services.log(.warning, label, $0)
    }
    private lazy var label = execution.plan.steps[nodeContext.step.number].label

    private final class Arrivals: Sendable {
      private let counted = Atomic(0)
      var count: Int { counted.load(ordering: .acquiring) }
      func add() { counted.add(1, ordering: .acquiringAndReleasing) }
    }

    init(_ parameters: WebSocketSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      var session = parameters.session
      session.memory = nodeContext.execution.services.memory
      sessionOptions = session
      super.init(nodeContext, downstream: downstream)
    }

    override var connections: PipelineStatistics.Connections? {
      var counts = counts
      counts.open = peers.count
      counts.refused = server?.counts.refused ?? counts.refused
      return counts
    }

    private func log(_ level: Services.Level, _ text: String) { execution.services.log(level, label, text) }

    private func fail(_ message: String) {
      finish(failing: SignalFailure(.source, message, at: nodeContext.location))
    }

    /// The options of the server with its certificate; nil if the certificate cannot be used, and the source has then
    /// failed.
    private func servingOptions(_ serving: WebSocketServing) -> HTTPServer.Options? {
      do throws(SocketFailure) {
        return try serving.options.encrypted(by: serving.tls, execution.services, label)
      } catch {
        fail(error.message)
        return nil
      }
    }

    override func dryRun() {
      guard let serving = parameters.socket.serving else {
        if let fault = parameters.socket.clientFault { fail(fault) }
        return
      }
      guard let options = servingOptions(serving) else { return }
      do throws(HTTPServerFailure) { try HTTPServer.reserve(options) } catch { fail(error.message) }
    }

    override var isEndless: Bool { true }

    override func begin() {
      decoder = makeDecoder(parameters.decode.options.ofMessages)
      guard decoder != nil else { return }
      if let serving = parameters.socket.serving {
        serve(serving)
      } else if let fault = parameters.socket.clientFault {
        fail(fault)
      } else {
        execution.whenBegun { [self] in session.connect() }
      }
    }
    override func resume() { begin() }

    // MARK: Server

    private func serve(_ serving: WebSocketServing) {
      guard let options = servingOptions(serving) else { return }
      let server = HTTPServer(options: options)
      let (executor, services, label, node) = (executor, execution.services, label, Weak(self))
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handler: { request in
          executor.post {
            if let node = node.object { node.accept(request, serving) } else { request.reply.reply(.stopped) }
          }
        }
        self.server = server
        log(.info, "listening on \(options.host):\(port)")
        execution.whenBegun { [self] in if !isClosed { adopt(under: .server(serving, sessionOptions)) } }
      } catch {
        fail(error.message)
      }
    }

    private func accept(_ request: ServerRequest, _ serving: WebSocketServing) {
      guard server != nil, !isClosed else {
        request.reply.reply(.stopped)
        return
      }
      last += 1
      let number = last
      let session = WebSocketSession(isServer: true, sessionOptions, listener(number))
      peers[number] = ConnectedWebSocket(session, of: request)
      if serving.accept(request, session) { counts.opened &+= 1 } else { peers[number] = nil }
    }

    // MARK: Client

    private func connect() {
      guard !isClosed, ending == nil else { return }
      frame.loadNothing()
      let template = RequestTemplate(
        method: "GET", url: parameters.socket.url, headers: parameters.socket.headers, body: parameters.send)
      let request: HTTPRequest
      switch template.render(frame) {
      case .failure(let failure):
        return finish(failing: failure)
      case .success(let rendered): request = rendered
      }
      guard let target = WebSocketClient.Target(request.url) else {
        return fail("'\(request.shownURL)' is not a WebSocket URL")
      }
      var options = parameters.socket.client
      options.headers = request.headers
      adopt(under: .client(url: request.url, first: request.body, options, sessionOptions))
      guard current == nil else { return self.session.opened() }
      last += 1
      let number = last
      current = number
      let session = WebSocketSession(isServer: false, sessionOptions, listener(number, first: request.body))
      peers[number] = ConnectedWebSocket(session)
      let (executor, node) = (executor, Weak(self))
      let (services, label) = (execution.services, label)
      attempt = WebSocketClient.connect(target, options, session, by: services.http) { warning in
        services.log(.warning, label, warning)
      } failed: { failure in
        executor.post { node.object?.failed(failure, number) }
      }
    }

    private func failed(_ failure: WebSocketClient.Failure, _ number: Int) {
      guard peers.removeValue(forKey: number) != nil, !isClosed else { return }
      attempt = nil
      current = nil
      counts.broken &+= 1
      if ending != nil { return endIfDone() }
      if failure.isFinal {
        let details = failure.status.map { [SignalFailure.Detail("status", Int64($0))] }
        return finish(
          failing: SignalFailure(.source, failure.message, at: nodeContext.location, details: details ?? []))
      }
      session.lost(failure.message, after: failure.pause)
    }

    // MARK: Messages

    private func listener(_ number: Int, first: [UInt8]? = nil) -> WebSocketSession.Listener {
      let (executor, node, arrived) = (executor, Weak(self), arrived)
      return WebSocketSession.Listener { session in
        if let first { _ = session.send(isText: true, first) }
        executor.post { node.object?.opened(number) }
      } message: { session, message in
        arrived.add()
        executor.postBatch {
          node.object?.take(message, number)
          session.handled(message.bytes.count)
        }
      } ended: { _, end in
        executor.postBatch { node.object?.ended(number, end) }
      }
    }

    private func opened(_ number: Int) {
      guard number == current, !isClosed else { return }
      attempt = nil
      counts.opened &+= 1
      session.opened()
    }

    private func ended(_ number: Int, _ end: WebSocketSession.End) {
      guard peers.removeValue(forKey: number) != nil, !isClosed else { return }
      if !end.isClean || end.isCut { counts.broken &+= 1 }
      if end.isCut { cut += 1 }
      if ending != nil { return endIfDone() }
      if number == current {
        current = nil
        guard end.hasMoved else { return session.lost(end.message) }
        log(.info, "\(end.message): connecting to that")
        session.connect()
      } else if !end.isClean {
        closings.write("a connection is over: \(end.message)")
      }
    }

    private func take(_ message: WebSocketMessage, _ number: Int) {
      guard let decoder, let peer = peers[number], !isClosed else { return }
      taken += 1
      var members: [(key: Value, value: Value)] = [
        (arena.string("type"), arena.string(message.isText ? "text" : "binary"))
      ]
      if let address = peer.peer {
        members.append((arena.string("peer"), arena.string(address)))
        var query: [(key: Value, value: Value)] = []
        for pair in peer.query where !query.contains(where: { $0.key.rawBytes.elementsEqual(pair.name.utf8) }) {
          query.append((arena.string(pair.name), arena.string(pair.value)))
        }
        members.append((arena.string("query"), arena.map(query)))
      }
      if let subject = peer.subject { members.append((arena.string("subject"), arena.string(subject))) }
      let origin = Origin(
        source: origin.source, path: peer.path, receivedAt: executor.wallTime, fields: OwnedValue(arena.map(members)),
        reply: origin.reply, identity: origin.identity)
      arena.keep(origin)
      decoder.reset()
      take(Slab(message.bytes), offset: 0, isLast: true, by: decoder, origin: origin)
    }

    // MARK: The version before

    /// The key under which its connections are kept for the next version.
    private var keptKey: String {
      guard let address = parameters.listens else {
        return "client \(execution.plan.name) \(label)"
      }
      return "server \(address.canonicalAddress) \(parameters.socket.path)"
    }

    /// Continues the connections of the previous version, or only takes their received messages.
    private func adopt(under settings: KeptWebSockets.Settings) {
      self.settings = settings
      for kept in KeptWebSockets.take(keptKey, settings) {
        last += 1
        let number = last
        peers[number] = kept.socket
        let goesOn = kept.goesOn && (server != nil || current == nil)
        if goesOn, server == nil { current = number }
        kept.socket.session.goOn(listener(number), at: server)
        if !goesOn { kept.socket.session.close(1001, "the pipeline has changed") }
      }
    }

    // MARK: The end

    override func suspend() {
      super.suspend()
      if ending == nil { execution.hold() }
      end(.suspend)
    }

    override func drain() { end(.drain) }

    /// Accepts no new connections, and sends all messages of the open ones.
    private func end(_ how: Ending) {
      guard ending == nil else { return }
      ending = how
      session.end()
      stopServing(handsOver: how == .suspend)
      let (executor, node) = (executor, Weak(self))
      for (number, peer) in peers {
        if how == .suspend, KeptWebSockets.isKeeping {
          // The connection is parked after its received messages were posted.
          peer.session.park { parking in executor.postBatch { node.object?.parked(number, parking) } }
        } else {
          peer.session.close(1001, "the pipeline stops") {
            executor.postBatch { node.object?.parked(number, .neverBegan) }
          }
        }
      }
      endIfDone()
    }

    private func parked(_ number: Int, _ parking: WebSocketSession.Parking) {
      guard !isClosed, parking != .ends, let peer = peers.removeValue(forKey: number) else { return }
      if parking == .parked { parked.append(peer) }
      endIfDone()
    }

    private func endIfDone() {
      guard peers.isEmpty, !isClosed, let ending else { return }
      if cut > 0 {
        log(
          .warning,
          "\(cut) connection\(cut == 1 ? "" : "s") did not end within \(sessionOptions.closeTimeout): messages on the way are lost"
        )
        cut = 0
      }
      if ending == .drain { return super.drain() }
      keep()
      endHold()
    }

    private var isHoldOver = false
    private func endHold() {
      guard ending == .suspend, !isHoldOver else { return }
      isHoldOver = true
      execution.release()
    }

    /// Leaves connections to the next version.
    private func keep() {
      if let settings, !parked.isEmpty { KeptWebSockets.keep(keptKey, settings, parked) }
      parked = []
    }

    override func stop() {
      session.end()
      if ending == .suspend, KeptWebSockets.isKeeping {
        parked += peers.values
      } else {
        for peer in peers.values { peer.session.close(1001, "the pipeline stops") }
      }
      peers = [:]
      keep()
      stopServing(handsOver: ending == .suspend || !execution.hasBegun)
      let lost = arrived.count - taken
      if ending != nil, lost > 0 {
        log(.warning, "\(lost) received message\(lost == 1 ? " was" : "s were") not processed: lost")
      }
      endHold()
    }

    private func stopServing(handsOver: Bool) {
      guard let server else { return }
      counts.refused = server.counts.refused
      self.server = nil
      // This must be longer than a connection may take to end.
      server.end(of: execution, handsOver: handsOver, within: .seconds(6))
    }
  }
}
