import CLinux
import Glibc
import NIOCore
import NIOPosix
import PipelineCore
import Synchronization

/// The one thread of all servers and WebSocket connections, made when the first of them needs it; there is no other way to it than by this type.
///
/// The network library ends the process where the system refuses what its thread needs at the start, or a socket that is handed to it. So both are
/// asked for first, and a refusal is an error.
enum NetworkLoop {
  private static let made = Mutex<MultiThreadedEventLoopGroup?>(nil)

  /// The thread, which is made if there is none yet.
  static func loop() throws(PosixError) -> any EventLoop {
    try made.withLock { made throws(PosixError) in
      if let made { return made.any() }
      // An instance of epoll that waits for an event and a timer, and a descriptor to spare.
      let held = try [WakeEvent(), WakeEvent()]
      let timer = rx_clock_watch()
      if timer < 0 { throw PosixError("create", "a timer") }
      defer { close(timer) }
      try watch([held[0].descriptor, timer])
      withExtendedLifetime(held) {}
      // A thread that does nothing, where the system has one.
      try OwnThread("rxd network") {}.join()
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
      made = group
      return group.any()
    }
  }

  /// Runs the body soon on the network thread. While there is none, nothing has used what belongs to it: another thread runs the body then, or the
  /// caller's if the system has no thread.
  static func execute(_ body: @escaping @Sendable () -> Void) {
    if let made = made.withLock({ $0 }) { return made.any().execute(body) }
    do throws(PosixError) { _ = try OwnThread("rxd refused", body) } catch { body() }
  }

  /// Throws if a new socket could not be waited for.
  static func check() throws(PosixError) {
    let any = try WakeEvent()
    try watch([any.descriptor])
  }

  /// Throws if the socket could not be waited for.
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
