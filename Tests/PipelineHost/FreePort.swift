import Glibc
import Transport

/// A free port of the loopback address, reserved until the tests end. The program under test can still listen there:
/// servers set SO_REUSEADDR, as this does.
package struct FreePort {
  package let number: Int
  private let descriptor: Int32

  package init() throws {
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = in_addr_t(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let descriptor = descriptor
    let code = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) != 0 ? -1 : getsockname(descriptor, $0, &length)
      }
    }
    guard descriptor >= 0, code == 0 else { throw PosixError("bind", "a port") }
    number = Int(UInt16(bigEndian: address.sin_port))
  }

  /// Listens on the port, so that nobody else can.
  package func listen() throws {
    guard Glibc.listen(descriptor, 1) == 0 else { throw PosixError("listen on", "a port") }
  }
}
