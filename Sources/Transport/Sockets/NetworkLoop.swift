import CLinux
import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// The one thread of all servers and WebSocket connections, started when the first of them needs it. Only this type
/// gives access to it.
///
/// The network library ends the process if the system refuses what its thread needs at the start, or cannot watch a
/// socket that it was given. So both are tried here first, and a refusal is an error.
enum NetworkLoop {
  private static let made = Mutex<MultiThreadedEventLoopGroup?>(nil)

  /// The thread, which is started if there is none yet.
  static func loop() throws(PosixError) -> any EventLoop {
    try made.withLock { made throws(PosixError) in
      if let made { return made.any() }
      // The library's loop needs an epoll instance that watches an event and a timer, and one more descriptor.
      let held = try [WakeEvent(), WakeEvent()]
      let timer = rx_clock_watch()
      if timer < 0 { throw PosixError("create", "a timer") }
      defer { close(timer) }
      try watch([held[0].descriptor, timer])
      withExtendedLifetime(held) {}
      // Fails if the system has no thread to spare.
      try OwnThread("rxd network") {}.join()
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
      made = group
      return group.any()
    }
  }

  /// Runs the body soon on the network thread. Before that thread has been started, nothing that belongs to it is in
  /// use, so a new thread runs the body, or the calling thread if the system refuses one.
  static func execute(_ body: @escaping @Sendable () -> Void) {
    if let made = made.withLock({ $0 }) { return made.any().execute(body) }
    do throws(PosixError) { _ = try OwnThread("rxd refused", body) } catch { body() }
  }

  /// Throws if the system could not watch a further socket.
  static func check() throws(PosixError) {
    let any = try WakeEvent()
    try watch([any.descriptor])
  }

  /// Throws if the system cannot watch this socket.
  static func check(_ socket: Int32) throws(PosixError) { try watch([socket]) }

  private static func watch(_ descriptors: [Int32]) throws(PosixError) {
    let poller = rx_poller()
    if poller < 0 { throw PosixError("create", "an epoll instance") }
    defer { close(poller) }
    for (tag, descriptor) in descriptors.enumerated() where rx_watch(poller, descriptor, UInt64(tag), 1, 0, 1) != 0 {
      throw PosixError("wait for", "a socket")
    }
  }
}
