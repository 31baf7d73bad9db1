import CLinux
import Glibc
import NIOCore
import PipelineCore

/// An option of a socket, with its level and its name. If the system refuses an option, the owner of the connection
/// logs that and uses the connection without it.
struct SocketOption: Sendable {
  let name: String
  let level: Int32
  let number: Int32
  var value: Int32 = 1

  /// Small answers are sent at once, not with the next ones.
  static let noDelay = SocketOption(name: "TCP_NODELAY", level: Int32(IPPROTO_TCP), number: TCP_NODELAY)
  /// Allows listening on the address while connections of an earlier listener are still ending.
  static let reuseAddress = SocketOption(name: "SO_REUSEADDR", level: SOL_SOCKET, number: SO_REUSEADDR)
  /// Datagrams come with the number of datagrams that were dropped for lack of room.
  static let countDrops = SocketOption(name: "SO_RXQ_OVFL", level: SOL_SOCKET, number: SO_RXQ_OVFL)
  /// Datagrams come with the process and the user of their sender.
  static let passCredentials = SocketOption(name: "SO_PASSCRED", level: SOL_SOCKET, number: SO_PASSCRED)

  /// TCP probes a peer that has been silent for 60 seconds; the connection is over after four unanswered probes.
  static let keepAlive = [
    SocketOption(name: "SO_KEEPALIVE", level: SOL_SOCKET, number: SO_KEEPALIVE),
    SocketOption(name: "TCP_KEEPIDLE", level: Int32(IPPROTO_TCP), number: TCP_KEEPIDLE, value: 60),
    SocketOption(name: "TCP_KEEPINTVL", level: Int32(IPPROTO_TCP), number: TCP_KEEPINTVL, value: 15),
    SocketOption(name: "TCP_KEEPCNT", level: Int32(IPPROTO_TCP), number: TCP_KEEPCNT, value: 4),
  ]

  /// Sets the option. If the system refuses, returns a sentence without a full stop that names the option.
  func set(_ descriptor: Int32) -> String? {
    guard rx_set_option(descriptor, level, number, value) != 0 else { return nil }
    return "the socket option \(name) cannot be set: \(PosixError.text(errno))"
  }

  /// Sets several, and reports each that the system refuses.
  static func set(_ options: [SocketOption], _ descriptor: Int32, _ report: (String) -> Void) {
    for option in options {
      if let fault = option.set(descriptor) { report(fault) }
    }
  }

  /// Sets options of a channel's socket. Called on its event loop.
  static func set(_ options: [SocketOption], _ channel: any Channel, _ report: (String) -> Void) {
    let operations = channel.pipeline.syncOperations
    _ = try? operations.withUnsafeTransportIfAvailable { (socket: NIOBSDSocket.Handle) in set(options, socket, report) }
  }
}
