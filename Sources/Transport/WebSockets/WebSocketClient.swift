import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// Connects to WebSocket servers.
package enum WebSocketClient {
  package struct Target: Sendable {
    /// A name or an address without brackets.
    package var host: String
    package var port: Int
    package var isSecure: Bool
    /// Path and query.
    package var path: String

    /// The target of a `ws` or `wss` URL; nil for any other text.
    package init?(_ url: String) {
      let bytes = Array(url.utf8)
      guard let colon = url.utf8.firstIndex(of: UInt8(ascii: ":")) else { return nil }
      let scheme = url[..<colon].lowercased()
      guard scheme == "ws" || scheme == "wss" else { return nil }
      isSecure = scheme == "wss"
      guard bytes.dropFirst(scheme.utf8.count).starts(with: "://".utf8) else { return nil }
      let behind = bytes[(scheme.utf8.count + 3)...].prefix { $0 != UInt8(ascii: "#") }
      let authority = behind.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") }
      let rest = behind[authority.endIndex...]
      path = (rest.first == UInt8(ascii: "/") ? "" : "/") + String(decoding: rest, as: UTF8.self)
      let close = authority.first == UInt8(ascii: "[") ? authority.firstIndex(of: UInt8(ascii: "]")) : nil
      let mark = authority[(close ?? authority.startIndex)...].firstIndex(of: UInt8(ascii: ":"))
      let name = authority[..<(mark ?? authority.endIndex)].filter {
        $0 != UInt8(ascii: "[") && $0 != UInt8(ascii: "]")
      }
      host = String(decoding: name, as: UTF8.self)
      guard !host.isEmpty else { return nil }
      guard let mark, mark + 1 < authority.endIndex else {
        port = isSecure ? 443 : 80
        return
      }
      guard let number = Int(String(decoding: authority[(mark + 1)...], as: UTF8.self)), (1...65_535).contains(number)
      else { return nil }
      port = number
    }

    /// The target of a proxy's URL, `http://HOST:PORT`; nil for any other text.
    init?(proxy: String) {
      guard proxy.lowercased().hasPrefix("http://"), var target = Target("ws" + proxy.dropFirst(4)) else { return nil }
      target.path = "/"
      self = target
    }

    /// `HOST:PORT`, for messages.
    package var text: String { "\(shownHost):\(port)" }
    private var shownHost: String { host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host }
    var authority: String { port == (isSecure ? 443 : 80) ? shownHost : text }
  }

  package struct Options: Sendable, Equatable {
    package var headers: [HTTPHeader] = []
    /// The subprotocols to offer, the preferred one first.
    package var subprotocols: [String] = []
    /// Credentials, certificates, the proxy, the allowed addresses and the time limit for connecting, as for requests.
    package var http = HTTPOptions()
    package var names = NameLookup()
    package init() {}
  }

  /// The reason why there is no WebSocket.
  package struct Failure: Error, Sendable {
    /// One sentence without a full stop.
    package var message: String
    /// The status of the answer to the handshake, if it was not 101.
    package var status: Int?
    /// The pause that the server asks for.
    package var pause: TimeSpan?
    /// Whether further attempts would fail as well.
    package var isFinal = false

    init(_ message: String, isFinal: Bool = false) {
      self.message = message
      self.isFinal = isFinal
    }

    init(_ message: String, _ response: HTTPResponse) {
      self.message = message
      status = response.status
      isFinal = ![408, 425, 429].contains(response.status) && response.status < 500
      pause = ServerPause.after(response, wallTime: Int64(time(nil)) &* 1_000_000_000, longest: .seconds(3600))
    }

    init(_ failure: HTTPFailure) {
      message = failure.message
      isFinal = [.forbidden, .unavailable, .badRequest].contains(failure.kind)
    }
  }

  /// Connects. If the session cannot become ready, calls `failed` with the reason; once it is ready, the session
  /// reports its own end.
  /// - Parameters:
  ///   - http: Fetches access tokens.
  ///   - progress: Called with the total number of bytes that the system has accepted; like `failed` and `warned`, on
  ///     the network thread.
  ///   - warned: Called if the system refuses an option of the connection.
  /// - Returns: Cancels the attempt; has no effect once the session is ready.
  package static func connect(
    _ target: Target, _ options: Options, _ session: WebSocketSession, by http: any HTTPClient,
    progress: @escaping @Sendable (Int) -> Void = { _ in }, warned: @escaping @Sendable (String) -> Void,
    failed: @escaping @Sendable (Failure) -> Void
  ) -> any Cancellable {
    let attempt = Attempt { failure in NetworkLoop.execute { failed(failure) } }
    let loop: any EventLoop
    do throws(PosixError) { loop = try NetworkLoop.loop() } catch {
      attempt.fail(Failure(error.message, isFinal: false))
      return attempt
    }
    let way = Way(
      loop: loop, target: target, options: options, session: session, attempt: attempt, progress: progress,
      warned: warned)
    switch options.http.auth {
    case .none: dial(way, nil)
    case .basic(let user, let password):
      let text = WebSocketHandshake.base64(Array("\(user):\(password.revealed)".utf8))
      dial(way, HTTPHeader("Authorization", "Basic \(text)", isSecret: true))
    case .bearer(let token): dial(way, bearer(token))
    case .oauth2: dial(way, by: http, insteadOf: nil)
    case .awsSigV4(let credentials):
      let parts = target.path.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
      guard
        let signed = AWSSignature.headers(
          credentials, method: "GET", host: target.authority, path: String(parts[0]),
          query: parts.count > 1 ? String(parts[1]) : "", headers: options.headers, body: [], at: Int64(time(nil)))
      else {
        attempt.fail(Failure(WebSocketHandshake.needsLibrary, isFinal: true))
        break
      }
      var way = way
      way.options.headers += signed.filter { !HTTPSyntax.same($0.name, "authorization") }
      dial(way, signed.first { HTTPSyntax.same($0.name, "authorization") })
    }
    return attempt
  }

  private static func bearer(_ token: Secret) -> HTTPHeader {
    HTTPHeader("Authorization", "Bearer \(token.revealed)", isSecret: true)
  }

  /// An attempt to connect.
  struct Way: Sendable {
    let loop: any EventLoop
    var target: Target
    var options: Options
    var session: WebSocketSession
    var attempt: Attempt
    var progress: @Sendable (Int) -> Void
    var warned: @Sendable (String) -> Void
  }

  /// Fetches an access token first; if the server refuses it, fetches another one, once.
  private static func dial(_ way: Way, by http: any HTTPClient, insteadOf refused: Secret?) {
    let call = http.accessToken(way.options.http, insteadOf: refused) { result in
      switch result {
      case .failure(let failure): way.attempt.fail(Failure(failure))
      case .success(let token):
        let again: @Sendable () -> Void = { dial(way, by: http, insteadOf: token) }
        dial(way, bearer(token), unauthorized: refused == nil ? again : nil)
      }
    }
    way.attempt.waits(for: call)
  }

  /// - Parameter unauthorized: Called instead of `failed` after the answer 401.
  private static func dial(
    _ way: Way, _ authorization: HTTPHeader?, unauthorized: (@Sendable () -> Void)? = nil
  ) {
    let (target, options, attempt) = (way.target, way.options.http, way.attempt)
    let context: TLSContext?
    do throws(SocketFailure) {
      context = target.isSecure ? try TLSContext(asking: options.tls) : nil
    } catch {
      return attempt.fail(Failure(error.message, isFinal: true))
    }
    let proxy = options.proxy.flatMap { Target(proxy: $0) }
    let mayBePrivate = options.allowPrivate || proxy != nil || AddressPolicy.maySayPrivate(host: target.host)
    let peer = proxy ?? target
    let time = max(options.connectTimeout.nanoseconds, 1_000_000)
    let bootstrap = ClientBootstrap(group: way.loop)
      .connectTimeout(.nanoseconds(time))
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          SocketOption.set([.noDelay] + SocketOption.keepAlive, channel, way.warned)
          let pipeline = channel.pipeline.syncOperations
          let connection = ClientConnection(channel, way, authorization, unauthorized, time)
          try pipeline.addHandler(AddressGuard(peer, mayBePrivate: mayBePrivate) { connection.connected() })
          if proxy != nil {
            try pipeline.addHandler(ProxyTunnel(to: target, by: peer) { attempt.fail(Failure($0)) })
          }
          if let context {
            let tls = ChannelTLS(
              try TLSSession(apart: context, isServer: false, host: options.tls.verify ? target.host : nil),
              isServer: false
            ) { attempt.fail(Failure("\(target.text): \($0)")) }
            try pipeline.addHandler(tls)
          }
          try pipeline.addHandler(connection)
        }
      }
    bootstrap.connect(host: peer.host, port: peer.port).whenComplete { result in
      switch result {
      case .success(let channel):
        let session = way.session
        if let address = channel.remoteAddress, let text = SocketPeer.text(address) {
          let watch = way.options.names.watch(peer.host, peer.port, isDatagram: false) { [weak session] in
            session?.leave()
          }
          session.watches(watch, text)
        }
        attempt.follows(channel)
      case .failure(let error): attempt.fail(failure(error, peer, isProxy: proxy != nil))
      }
    }
  }

  private static func failure(_ error: any Error, _ target: Target, isProxy: Bool) -> Failure {
    if let error = error as? NIOConnectionError {
      let refused = error.connectionErrors.compactMap { $0.error as? AddressGuard.Refusal }
      if let first = refused.first, refused.count == error.connectionErrors.count {
        return Failure(first.message, isFinal: true)
      }
    }
    if let refusal = error as? AddressGuard.Refusal { return Failure(refusal.message, isFinal: true) }
    return Failure(reason(error, target, isProxy ? "the proxy " : ""))
  }

  private static func reason(_ error: any Error, _ target: Target, _ what: String) -> String {
    switch error {
    case let error as IOError: "cannot connect to \(what)\(target.text): \(PosixError.text(error.errnoCode))"
    case let error as NIOConnectionError:
      if let first = error.connectionErrors.first?.error {
        reason(first, target, what)
      } else {
        "cannot connect to \(what)\(target.text): the host cannot be resolved"
      }
    case ChannelError.connectTimeout: "cannot connect to \(what)\(target.text) in time"
    case let error as SocketFailure: "cannot connect to \(what)\(target.text): \(error.message)"
    default: "cannot connect to \(what)\(target.text): \(HTTPSyntax.printable("\(error)"))"
    }
  }

  /// A connection that is not a WebSocket yet.
  final class Attempt: Cancellable {
    private struct State {
      var channel: (any Channel)?
      /// The request for an access token.
      var call: (any Cancellable)?
      var isOver = false
    }
    private let state = Mutex(State())
    private let failed: @Sendable (Failure) -> Void

    init(_ failed: @escaping @Sendable (Failure) -> Void) { self.failed = failed }

    func waits(for call: any Cancellable) {
      let isOver = state.withLock { state in
        if !state.isOver { state.call = call }
        return state.isOver
      }
      if isOver { call.cancel() }
    }

    /// The connection has ended, but the attempt continues.
    func leaves() { state.withLock { $0.channel = nil } }

    func follows(_ channel: any Channel) {
      let isOver = state.withLock { state in
        if !state.isOver { state.channel = channel }
        return state.isOver
      }
      // Closes a connection that was made after the attempt was cancelled; one that has become a session is no longer
      // the attempt's.
      if isOver, !hasSucceeded { channel.close(promise: nil) }
    }

    private let success = Atomic<Bool>(false)
    private var hasSucceeded: Bool { success.load(ordering: .acquiring) }

    /// Ends the attempt with success; false: it had already ended.
    func succeed() -> Bool {
      let isFirst = finish() != nil
      if isFirst { success.store(true, ordering: .releasing) }
      return isFirst
    }

    /// Ends the attempt and returns its connection, if any; nil: the attempt had already ended.
    private func finish() -> (any Channel)?? {
      let (channel, call) = state.withLock { state -> ((any Channel)??, (any Cancellable)?) in
        guard !state.isOver else { return (.none, nil) }
        state.isOver = true
        return (.some(state.channel.take()), state.call.take())
      }
      call?.cancel()
      return channel
    }

    func fail(_ failure: Failure) {
      guard let channel = finish() else { return }
      channel?.close(promise: nil)
      failed(failure)
    }

    func cancel() {
      guard let channel = finish() else { return }
      channel?.close(promise: nil)
    }
  }
}

/// The client's side of one connection: the handshake, then the bytes of the session. Used on its event loop.
final class ClientConnection: ChannelInboundHandler, @unchecked Sendable {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let channel: any Channel
  private let way: WebSocketClient.Way
  private var target: WebSocketClient.Target { way.target }
  private var session: WebSocketSession { way.session }
  private let authorization: HTTPHeader?
  private let unauthorized: (@Sendable () -> Void)?
  private let time: Int64
  private var context: ChannelHandlerContext?
  private var timer: Scheduled<Void>?
  private var head: [UInt8] = []
  private var key = ""
  private var stream: ResponseStream?
  private var isOpen = false
  /// Whether the TCP connection is established; until then, another address of the same name may be tried.
  private var isConnected = false
  /// Whether the attempt continues with another connection.
  private var isLeft = false
  private var isWriting = false
  private var written = 0
  private var isReadHeld = false

  private static let maxHeadBytes = 64 << 10

  init(
    _ channel: any Channel, _ way: WebSocketClient.Way, _ authorization: HTTPHeader?,
    _ unauthorized: (@Sendable () -> Void)?, _ time: Int64
  ) {
    self.channel = channel
    self.way = way
    self.authorization = authorization
    self.unauthorized = unauthorized
    self.time = time
  }

  func handlerAdded(context: ChannelHandlerContext) { self.context = context }

  /// The TCP connection is established; the proxy's tunnel and TLS may still have to be.
  func connected() {
    isConnected = true
    timer = channel.eventLoop.scheduleTask(in: .nanoseconds(time)) { [weak self] in
      guard let self, !isOpen else { return }
      fail("\(target.text) has not answered the opening handshake in time")
    }
  }

  func channelActive(context: ChannelHandlerContext) {
    key = WebSocketHandshake.base64((0..<16).map { _ in UInt8.random(in: 0 ... .max) })
    let output = OutputBuffer()
    let headers = way.options.headers + [authorization].compactMap { $0 }
    output.append("GET \(target.path) HTTP/1.1\r\n")
    if !headers.contains(where: { HTTPSyntax.same($0.name, "host") }) {
      output.append("Host: \(target.authority)\r\n")
    }
    output.append(
      "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n")
    if !way.options.subprotocols.isEmpty {
      output.append("Sec-WebSocket-Protocol: \(way.options.subprotocols.joined(separator: ", "))\r\n")
    }
    for header in headers { output.append("\(header.name): \(header.value)\r\n") }
    output.append("\r\n")
    context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: output.bytes)), promise: nil)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let bytes = unwrapInboundIn(data)
    if isOpen { return bytes.withUnsafeReadableBytes { session.received($0) } }
    head += bytes.readableBytesView
    let end: [UInt8] = [13, 10, 13, 10]
    guard let found = head.firstRange(of: end) else {
      if head.count > Self.maxHeadBytes { fail("\(target.text) answers with a head of more than 64 KiB") }
      return
    }
    let lines = Array(head[..<found.lowerBound])
    let rest = Array(head[found.upperBound...])
    head = []
    guard let response = Self.response(lines) else { return fail("\(target.text) does not answer with HTTP") }
    open(response, rest)
  }

  private func fail(_ message: String, isFinal: Bool = false) {
    fail(WebSocketClient.Failure(message, isFinal: isFinal))
  }

  private func fail(_ failure: WebSocketClient.Failure) {
    if !isLeft { way.attempt.fail(failure) }
    context?.close(promise: nil)
  }

  /// Parses status and headers; nil: the bytes are not the head of a response.
  static func response(_ head: [UInt8], mayBeOld: Bool = false) -> HTTPResponse? {
    var lines = String(decoding: head, as: UTF8.self).components(separatedByCRLF: ())
    let first = lines.removeFirst().split(separator: " ", maxSplits: 2)
    guard first.count >= 2, first[0] == "HTTP/1.1" || mayBeOld && first[0] == "HTTP/1.0", first[1].utf8.count == 3,
      let status = Int(first[1])
    else {
      return nil
    }
    var response = HTTPResponse(status: status)
    for line in lines {
      guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")), HTTPHeader.isToken(String(line[..<colon])) else {
        return nil
      }
      var value = line[line.utf8.index(after: colon)...].utf8
      while let first = value.first, first == 0x20 || first == 0x09 { value = value.dropFirst() }
      while let last = value.last, last == 0x20 || last == 0x09 { value = value.dropLast() }
      response.headers.append(HTTPHeader(String(line[..<colon]), String(value) ?? ""))
    }
    return response
  }

  private func open(_ response: HTTPResponse, _ rest: [UInt8]) {
    if response.status == 401, let unauthorized {
      isLeft = true
      way.attempt.leaves()
      context?.close(promise: nil)
      return unauthorized()
    }
    guard response.status == 101 else {
      return fail(
        WebSocketClient.Failure("\(target.text) answered \(response.status) to the opening handshake", response))
    }
    func list(_ name: String) -> String {
      response.headers.filter { HTTPSyntax.same($0.name, name) }.map(\.value).joined(separator: ",")
    }
    guard WebSocketHandshake.lists(list("Upgrade"), "websocket"),
      WebSocketHandshake.lists(list("Connection"), "upgrade")
    else { return fail("\(target.text) answers with another protocol") }
    guard let accept = WebSocketHandshake.accept(key) else {
      return fail(WebSocketHandshake.needsLibrary, isFinal: true)
    }
    guard list("Sec-WebSocket-Accept") == accept else {
      return fail("\(target.text) answers with a wrong Sec-WebSocket-Accept")
    }
    guard list("Sec-WebSocket-Extensions").isEmpty else {
      return fail("\(target.text) asks for an extension that was not offered")
    }
    let chosen = list("Sec-WebSocket-Protocol")
    guard chosen.isEmpty || way.options.subprotocols.contains(chosen) else {
      return fail("\(target.text) chose the subprotocol '\(HTTPSyntax.printable(chosen))', which was not offered")
    }
    if chosen.isEmpty, !way.options.subprotocols.isEmpty {
      return fail("\(target.text) supports none of the offered subprotocols", isFinal: true)
    }
    guard way.attempt.succeed() else {
      context?.close(promise: nil)
      return
    }
    timer?.cancel()
    isOpen = true
    let stream = ResponseStream(
      room: session.options.sendingRoom,
      schedule: { [weak self] _ in
        guard let self else { return }
        channel.eventLoop.execute { self.write() }
      }, closed: {})
    self.stream = stream
    session.begins(
      UpgradedLink(channel.eventLoop, stream) { [weak self] in
        self?.readMore()
      } close: { [channel] in
        channel.close(promise: nil)
      })
    if !rest.isEmpty { rest.withUnsafeBytes { session.received($0) } }
  }

  private func write() {
    while let stream, !isWriting, let context {
      switch stream.next() {
      case .nothing: return
      case .bytes(let bytes):
        isWriting = true
        let written = context.eventLoop.makePromise(of: Void.self)
        written.futureResult.assumeIsolated().whenComplete { [self] result in
          isWriting = false
          guard case .success = result else { return channel.close(promise: nil) }
          self.written &+= bytes.count
          way.progress(self.written)
          write()
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: written)
      case .end:
        self.stream = nil
        return context.close(promise: nil)
      }
    }
  }

  private func readMore() {
    guard isReadHeld, session.wantsMore else { return }
    isReadHeld = false
    try? channel.syncOptions?.setOption(.autoRead, value: true)
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    // Nothing more is read until there is room.
    if isOpen, !isReadHeld, !session.wantsMore {
      isReadHeld = true
      try? context.channel.syncOptions?.setOption(.autoRead, value: false)
    }
    context.fireChannelReadComplete()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

  func channelInactive(context: ChannelHandlerContext) {
    context.fireChannelInactive()
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    timer?.cancel()
    self.context = nil
    stream?.disconnect()
    stream = nil
    if isOpen {
      session.disconnected()
    } else if isConnected {
      fail("\(target.text) has closed the connection")
    }
  }
}

extension String {
  /// The lines, separated by CR LF.
  fileprivate func components(separatedByCRLF: Void) -> [String] {
    var lines: [String] = []
    var line: [UInt8] = []
    for byte in utf8 {
      if byte == 0x0A {
        if line.last == 0x0D { line.removeLast() }
        lines.append(String(decoding: line, as: UTF8.self))
        line = []
      } else {
        line.append(byte)
      }
    }
    lines.append(String(decoding: line, as: UTF8.self))
    return lines
  }
}

extension SocketPeer {
  /// The address in the form in which names are resolved, to compare the two; nil: it is not a network address.
  static func text(_ address: SocketAddress) -> String? {
    guard let host = address.ipAddress, let port = address.port else { return nil }
    return host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}
