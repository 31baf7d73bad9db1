import CLinux
import Glibc
import Synchronization

/// The network library ends the process where the system refuses what its thread needs at the start, or a socket that is handed to it. So both are
/// asked for first, and a refusal is an error.
enum NetworkLoop {
  private static let isMade = Mutex(false)

  /// Makes the thread of all servers, if there is none yet.
  static func prepare() throws(PosixError) {
    try isMade.withLock { isMade throws(PosixError) in
      if isMade { return }
      // An instance of epoll that waits for an event and a timer, and a descriptor to spare.
      let held = try [WakeEvent(), WakeEvent()]
      let timer = rx_clock_watch()
      if timer < 0 { throw PosixError("create", "a timer") }
      defer { close(timer) }
      try watch([held[0].descriptor, timer])
      withExtendedLifetime(held) {}
      _ = HTTPListener.group.next()
      isMade = true
    }
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
