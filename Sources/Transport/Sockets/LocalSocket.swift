import CLinux
import Glibc

/// A Unix socket that listens, or that receives datagrams; by default for its user only (mode 0600).
package final class LocalSocket: Sendable {
  /// The reason why there is no socket.
  package enum Refusal: Error {
    /// A process listens on the path.
    case inUse(path: String)
    case failed(PosixError)
  }

  package let path: String
  /// Readable while a connection waits to be accepted.
  package let descriptor: Int32
  /// The identity of the file at the path, so that no other file is removed.
  private let file: (device: dev_t, inode: ino_t)

  /// Takes over a socket that is bound to `path`.
  init(adopting descriptor: Int32, _ path: String) {
    self.path = path
    self.descriptor = descriptor
    var status = stat()
    file = lstat(path, &status) == 0 ? (status.st_dev, status.st_ino) : (0, 0)
  }

  /// Listens on `path`, at most 107 bytes. The socket of a process that has ended is replaced.
  ///
  /// - Parameter mode: Who may connect or send: the permissions of the file.
  package init(
    _ path: String, isDatagram: Bool = false, mode: mode_t = 0o600, backlog: Int32 = 32
  ) throws(Refusal) {
    self.path = path
    // The lock makes checking an old socket, removing it and listening one step for all processes that use it.
    let directory = open(Self.directory(of: path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    defer { if directory >= 0 { close(directory) } }
    // Others hold the lock only for a moment; if one is held longer, listening continues without it.
    if directory >= 0 { _ = FileLock.take(directory, within: .milliseconds(200)) }
    let socket = rx_socket(AF_UNIX, isDatagram ? 1 : 0)
    guard socket >= 0 else { throw .failed(PosixError("make the socket", path)) }
    do throws(Refusal) {
      // Binding gives the file the mode of the unbound socket, so others can never connect before the mode is set.
      guard fchmod(socket, 0o600) == 0 else { throw .failed(PosixError("make the socket", path)) }
      var code = try Self.call(bind, socket, path)
      if code == EADDRINUSE {
        try Self.removeStale(path, isDatagram)
        code = try Self.call(bind, socket, path)
      }
      guard code == 0 else { throw .failed(PosixError("make the socket", path, code: code)) }
      var status = stat()
      // The umask has removed permissions that a wider mode than 0600 needs.
      guard mode == 0o600 || chmod(path, mode) == 0, isDatagram || listen(socket, backlog) == 0,
        lstat(path, &status) == 0
      else { throw .failed(PosixError("listen on the socket", path)) }
      file = (status.st_dev, status.st_ino)
      descriptor = socket
    } catch {
      close(socket)
      throw error
    }
  }

  deinit { close(descriptor) }

  /// Removes the path, unless it now belongs to another file.
  package func remove() {
    var status = stat()
    if lstat(path, &status) == 0, status.st_dev == file.device, status.st_ino == file.inode { unlink(path) }
  }

  /// Connects to the socket at `path`; the connection never blocks.
  package static func connect(to path: String, isDatagram: Bool = false) throws(PosixError) -> FileDescriptor {
    let socket = rx_socket(AF_UNIX, isDatagram ? 1 : 0)
    guard socket >= 0 else { throw PosixError("connect to", path) }
    let connection = FileDescriptor(socket, name: path)
    let code: Int32
    do throws(Refusal) { code = try call(Glibc.connect, socket, path) } catch {
      throw PosixError("connect to", path, code: ENAMETOOLONG)
    }
    guard code == 0 else { throw PosixError("connect to", path, code: code) }
    return connection
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// Removes a socket without a listener.
  private static func removeStale(_ path: String, _ isDatagram: Bool) throws(Refusal) {
    var status = stat()
    guard lstat(path, &status) == 0 else { return }
    guard status.st_mode & S_IFMT == S_IFSOCK else {
      throw .failed(PosixError("make the socket", path, code: EEXIST, detail: "there is a file that is not a socket"))
    }
    switch liveness(path, isDatagram) {
    // A full queue of connections shows a live process, and so does a socket of the other kind.
    case 0, EAGAIN, EPROTOTYPE: throw .inUse(path: path)
    case ECONNREFUSED: break
    case let code: throw .failed(PosixError("connect to", path, code: code))
    }
    if unlink(path) != 0, errno != ENOENT { throw .failed(PosixError("remove", path)) }
  }

  /// The errno of an attempt to connect; 0: a process is listening.
  private static func liveness(_ path: String, _ isDatagram: Bool) -> Int32 {
    do throws(PosixError) { _ = try connect(to: path, isDatagram: isDatagram) } catch { return error.code }
    return 0
  }

  /// Binds or connects; returns 0 or the errno.
  private static func call(
    _ function: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32, _ socket: Int32, _ path: String
  ) throws(Refusal) -> Int32 {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bytes = Array(path.utf8)
    guard bytes.count < MemoryLayout.size(ofValue: address.sun_path), !bytes.contains(0) else {
      throw .failed(PosixError("make the socket", path, code: ENAMETOOLONG, detail: "the path has more than 107 bytes"))
    }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    return withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        var result: Int32
        repeat {
          result = function(socket, address, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 ? 0 : errno
        } while result == EINTR
        return result
      }
    }
  }
}
