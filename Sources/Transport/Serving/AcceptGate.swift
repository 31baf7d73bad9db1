import NIOCore
import PipelineCore

/// Pauses `accept` while the system has no descriptor or memory for a connection: the listener stays ready, so the loop
/// would call it again and again. Connections wait in the backlog meanwhile. Reports the first failure and the first
/// success after it.
final class AcceptGate: ChannelInboundHandler {
  typealias InboundIn = any Channel
  typealias InboundOut = any Channel

  private let pause: TimeSpan
  private let notify: @Sendable (HTTPServer.Notice) -> Void
  /// Whether `accept` is paused: it is not called before the end of the pause.
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
      // The channel closes itself after such an error.
      let reason = (error as? IOError).map { PosixError.text($0.errnoCode) } ?? HTTPSyntax.printable("\(error)")
      notify(.fault("no more connections are accepted: \(reason)"))
      return context.fireErrorCaught(error)
    }
    if let notice = shortage.failed(error.errnoCode) { notify(notice) }
    guard !isPaused, let options = context.channel.syncOptions else { return }
    isPaused = true
    // The channel still wants to read after the failure: the loop stops watching a ready listener only if automatic
    // reading is off.
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
final class BusyHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let answer: ServerAnswer

  init(_ answer: ServerAnswer) { self.answer = answer }

  func channelActive(context: ChannelHandlerContext) {
    let loopBound = NIOLoopBound(context, eventLoop: context.eventLoop)
    let output = OutputBuffer()
    AnswerText.write(answer.status, answer.headers, [], connection: "close", to: output)
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
