import NIOCore

/// The TLS layer of one connection, between its channel and the HTTP handler. Used on the event loop of the channel.
final class ChannelTLS: ChannelDuplexHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let session: TLSSession
  private let isServer: Bool
  private let failed: @Sendable (String) -> Void
  private var isEstablished = false
  /// Whether the connection is over.
  private var isOver = false
  /// The subject of the peer's certificate; nil: the peer has sent none.
  private(set) var subject: String?

  /// The maximum size of a TLS record.
  private static let record = 16 << 10

  /// - Parameter failed: Called with the reason if the handshake fails or the connection breaks.
  init(_ session: TLSSession, isServer: Bool, failed: @escaping @Sendable (String) -> Void) {
    self.session = session
    self.isServer = isServer
    self.failed = failed
  }

  /// As a client, later handlers are notified of the connection only after the handshake.
  func channelActive(context: ChannelHandlerContext) {
    if isServer { context.fireChannelActive() } else { shakeHands(context) }
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !isOver else { return }
    let bytes = unwrapInboundIn(data)
    guard bytes.withUnsafeReadableBytes({ session.feed($0) }) else {
      return fail(context, "there is no memory for a TLS connection")
    }
    if !isEstablished { shakeHands(context) }
    if isEstablished { passOn(context) }
  }

  private func shakeHands(_ context: ChannelHandlerContext) {
    let outcome = session.handshake()
    flush(context)
    switch outcome {
    case .done:
      isEstablished = true
      subject = session.peerSubject
      if !isServer { context.fireChannelActive() }
    case .wantsRead, .wantsWrite: break
    case .closed: fail(context, "it was closed during the TLS handshake")
    case .failed(let reason): fail(context, reason)
    }
  }

  /// Passes on the decrypted bytes.
  private func passOn(_ context: ChannelHandlerContext) {
    while !isOver {
      var buffer = context.channel.allocator.buffer(capacity: Self.record)
      var outcome = TLSSession.Outcome.nothing
      buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: Self.record) { space in
        outcome = session.read(UnsafeMutableRawBufferPointer(rebasing: space.prefix(Self.record)))
        if case .bytes(let count) = outcome { return count }
        return 0
      }
      switch outcome {
      case .bytes: context.fireChannelRead(wrapInboundOut(buffer))
      case .nothing: return flush(context)
      case .ended(nil):
        // The client has closed its sending side, but may still read.
        return context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
      case .ended(let reason?): return fail(context, reason)
      }
    }
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard isEstablished, !isOver else {
      // A client that has not shaken hands cannot read an answer.
      promise?.fail(ChannelError.ioOnClosedChannel)
      return context.close(promise: nil)
    }
    let bytes = unwrapOutboundIn(data)
    var reason: String?
    bytes.withUnsafeReadableBytes { bytes in
      var at = 0
      while at < bytes.count, reason == nil {
        switch session.write(UnsafeRawBufferPointer(rebasing: bytes[at...])) {
        case .bytes(let count): at += count
        // Cannot happen: output goes to memory, which never blocks.
        case .nothing: reason = "TLS cannot write"
        case .ended(let why): reason = why ?? "the client has ended the connection"
        }
      }
    }
    if let reason {
      promise?.fail(ChannelError.ioOnClosedChannel)
      return fail(context, reason)
    }
    guard let encrypted = drain(context) else {
      promise?.succeed()
      return
    }
    context.write(wrapOutboundOut(encrypted), promise: promise)
  }

  func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    if mode != .input, isEstablished, !isOver {
      session.sayGoodbye()
      flush(context)
    }
    if mode == .all { isOver = true }
    context.close(mode: mode, promise: promise)
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    isOver = true
    session.close()
  }

  private func fail(_ context: ChannelHandlerContext, _ reason: String) {
    guard !isOver else { return }
    isOver = true
    failed(reason)
    context.close(promise: nil)
  }

  /// The encrypted bytes to be sent; nil: there are none.
  private func drain(_ context: ChannelHandlerContext) -> ByteBuffer? {
    var buffer = context.channel.allocator.buffer(capacity: Self.record)
    while buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: Self.record, { session.drain(into: $0) }) > 0 {}
    return buffer.readableBytes > 0 ? buffer : nil
  }

  private func flush(_ context: ChannelHandlerContext) {
    if let buffer = drain(context) { context.writeAndFlush(wrapOutboundOut(buffer), promise: nil) }
  }
}
