import Glibc
import PipelineRuntime
import Transport

/// Notifies the service manager: the protocol of sd_notify(3), datagrams to a Unix socket.
struct Notify {
  private let descriptor: Int32
  private let address: [UInt8]
  /// The watchdog interval of the service manager in microseconds; nil: no watchdog.
  let watchdogMicroseconds: Int64?

  /// Reads the variables and removes them, so that no child process uses them. Nil: there is no service manager. Called
  /// before any other thread is started.
  init?() {
    ActivatedSockets.adopt(
      pid: ProcessEnvironment["LISTEN_PID"], count: ProcessEnvironment["LISTEN_FDS"],
      names: ProcessEnvironment["LISTEN_FDNAMES"])
    let path = ProcessEnvironment["NOTIFY_SOCKET"]
    let watchdog = ProcessEnvironment["WATCHDOG_USEC"].flatMap { Int64($0) }
    let watched = ProcessEnvironment["WATCHDOG_PID"].flatMap { Int32($0) }
    for name in [
      "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
    ] {
      unsetenv(name)
    }
    guard let path, let first = path.utf8.first,
      first == UInt8(ascii: "/") || first == UInt8(ascii: "@")
    else { return nil }
    var address = Array(path.utf8)
    guard address.count < 108 else { return nil }
    // An abstract name starts with a zero byte and has no terminator.
    if first == UInt8(ascii: "@") { address[0] = 0 }
    self.address = address
    descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    if descriptor < 0 { return nil }
    let isMeant = watched == nil || watched == getpid()
    watchdogMicroseconds = isMeant ? watchdog.flatMap { $0 > 0 ? $0 : nil } : nil
  }

  /// Sends `VARIABLE=value` lines. Failures are ignored, and a message that does not fit into the socket is dropped.
  func send(_ state: String) {
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: address) }
    let length = MemoryLayout<sa_family_t>.size + address.count
    let bytes = Array(state.utf8)
    _ = withUnsafePointer(to: &name) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        sendto(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT), $0, socklen_t(length))
      }
    }
  }
}
