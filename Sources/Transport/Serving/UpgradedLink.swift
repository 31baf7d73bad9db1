import NIOCore
import PipelineCore

/// The handler of another protocol on a connection. Called on the network thread.
protocol UpgradedSpeaker: AnyObject, Sendable {
  /// The connection is ready. Called before the others.
  func begins(_ link: UpgradedLink)
  func received(_ bytes: UnsafeRawBufferPointer)
  /// Whether there is room for more bytes. After returning false, call ``UpgradedLink/resume()`` when there is.
  var wantsMore: Bool { get }
  /// Ends the connection because its unfinished message occupies memory that others need.
  func giveUpUnfinished()
  /// The connection is gone. Called once, even if the connection never became ready.
  func disconnected()
}

/// A connection that speaks another protocol. Callable from any thread, unless noted.
final class UpgradedLink: Sendable {
  let loop: any EventLoop
  /// The bytes to send.
  let stream: ResponseStream
  private let readMore: @Sendable () -> Void
  /// Closes the connection at once. Call on the network thread.
  let close: @Sendable () -> Void
  /// Moves the connection to another server; nil: to none. Call on the network thread.
  let move: @Sendable (HTTPServer?) -> Void
  /// The server that the connection belongs to; nil: none, or this side is the client. Call on the network thread.
  let server: @Sendable () -> HTTPServer?

  init(
    _ loop: any EventLoop, _ stream: ResponseStream, readMore: @escaping @Sendable () -> Void,
    server: @escaping @Sendable () -> HTTPServer? = { nil },
    move: @escaping @Sendable (HTTPServer?) -> Void = { _ in }, close: @escaping @Sendable () -> Void
  ) {
    self.server = server
    self.move = move
    self.loop = loop
    self.stream = stream
    self.readMore = readMore
    self.close = close
  }

  /// Resumes reading: there is room for more bytes again.
  func resume() { loop.execute(readMore) }

  func inLoop(_ work: @escaping @Sendable () -> Void) { loop.inEventLoop ? work() : loop.execute(work) }
}
