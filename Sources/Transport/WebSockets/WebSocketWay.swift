import Glibc
import NIOCore
import PipelineCore

/// Refuses connections to forbidden addresses before they are made. The addresses that a name resolves to are checked,
/// not the name.
final class AddressGuard: ChannelDuplexHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundIn = ByteBuffer

  struct Refusal: Error {
    var message: String
  }

  private let target: WebSocketClient.Target
  private let mayBePrivate: Bool
  private let connected: () -> Void

  /// - Parameter connected: Called when the connection is established, before any later handler is notified.
  init(_ target: WebSocketClient.Target, mayBePrivate: Bool, connected: @escaping () -> Void) {
    self.target = target
    self.mayBePrivate = mayBePrivate
    self.connected = connected
  }

  func channelActive(context: ChannelHandlerContext) {
    connected()
    context.fireChannelActive()
  }

  func connect(context: ChannelHandlerContext, to address: SocketAddress, promise: EventLoopPromise<Void>?) {
    let bytes: [UInt8] =
      switch address {
      case .v4(let address): withUnsafeBytes(of: address.address.sin_addr) { Array($0) }
      case .v6(let address): withUnsafeBytes(of: address.address.sin6_addr) { Array($0) }
      case .unixDomainSocket: []
      }
    if let reason = AddressPolicy.refusal(
      of: bytes, host: target.host, port: "\(target.port)", mayBePrivate: mayBePrivate)
    {
      promise?.fail(Refusal(message: reason))
      return
    }
    context.connect(to: address, promise: promise)
  }
}

/// Asks a proxy for a connection to the target (CONNECT, RFC 9110, 9.3.6), then lets everything through.
final class ProxyTunnel: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let target: WebSocketClient.Target
  private let proxy: WebSocketClient.Target
  private let failed: @Sendable (String) -> Void
  private var head: [UInt8] = []
  private var isOpen = false
  private static let maxHeadBytes = 16 << 10

  /// - Parameter failed: Called with the reason if the tunnel cannot be set up; on the network thread.
  init(
    to target: WebSocketClient.Target, by proxy: WebSocketClient.Target, failed: @escaping @Sendable (String) -> Void
  ) {
    self.target = target
    self.proxy = proxy
    self.failed = failed
  }

  func channelActive(context: ChannelHandlerContext) {
    let request = "CONNECT \(target.text) HTTP/1.1\r\nHost: \(target.text)\r\n\r\n"
    context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: request)), promise: nil)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !isOpen else { return context.fireChannelRead(data) }
    head += unwrapInboundIn(data).readableBytesView
    guard let end = head.firstRange(of: [13, 10, 13, 10]) else {
      if head.count > Self.maxHeadBytes {
        fail(context, "the proxy \(proxy.text) answers with a head of more than 16 KiB")
      }
      return
    }
    guard let response = ClientConnection.response(Array(head[..<end.lowerBound]), mayBeOld: true) else {
      return fail(context, "the proxy \(proxy.text) does not answer with HTTP")
    }
    guard (200..<300).contains(response.status) else {
      return fail(context, "the proxy \(proxy.text) answered \(response.status) to CONNECT \(target.text)")
    }
    let rest = head[end.upperBound...]
    isOpen = true
    context.fireChannelActive()
    if !rest.isEmpty { context.fireChannelRead(wrapInboundOut(ByteBuffer(bytes: rest))) }
    head = []
  }

  private func fail(_ context: ChannelHandlerContext, _ reason: String) {
    failed(reason)
    context.close(promise: nil)
  }
}
