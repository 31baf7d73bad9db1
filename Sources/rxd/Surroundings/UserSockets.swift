import Glibc
import PipelineRuntime
import Transport

/// The directories in which a process puts its control socket if no path is given, so that the verbs of the same user
/// find it: `PID.sock` in `$XDG_RUNTIME_DIR/rxd`, or in `/run/rxd-root` for root. Only directories that nobody else can
/// write to or list are used.
///
/// `/run/rxd` belongs to the service manager, which gives that directory to the user of the service and removes it when
/// the service stops.
enum UserSockets {
  static let variable = "XDG_RUNTIME_DIR"
  private static let ending = ".sock"

  /// The directories, the preferred one first.
  private static var directories: [(parent: String, path: String)] {
    var found: [(parent: String, path: String)] = []
    if let runtime = ProcessEnvironment[variable], runtime.hasPrefix("/") {
      found.append((runtime, runtime.hasSuffix("/") ? "\(runtime)rxd" : "\(runtime)/rxd"))
    }
    if geteuid() == 0 { found.append(("/run", "/run/rxd-root")) }
    return found
  }

  /// Why processes of this user have no usual place for a socket; nil: they have one.
  static var absence: String? {
    guard directories.isEmpty else { return nil }
    return "\(variable) is not set"
  }

  /// The path for this process, in a directory that is created if it does not exist; nil: there is no safe directory.
  static func own() -> String? {
    for (parent, path) in directories where isSafe(parent) {
      if mkdir(path, 0o700) != 0, errno != EEXIST { continue }
      guard isSafe(path, isPrivate: true) else { continue }
      sweep(path)
      return "\(path)/\(getpid())\(ending)"
    }
    return nil
  }

  /// The sockets at which a process listens, in the order of process ids.
  static func live() -> [String] {
    directories.filter { isSafe($0.path, isPrivate: true) }.flatMap { sockets(in: $0.path) }.map(\.path).filter(isLive)
  }

  /// Whether a process listens at `path`, and this process may connect.
  static func isLive(_ path: String) -> Bool {
    do throws(PosixError) { _ = try LocalSocket.connect(to: path) } catch { return error.code == EAGAIN }
    return true
  }

  /// Removes the sockets of processes that ended without doing so.
  private static func sweep(_ directory: String) {
    for (pid, path) in sockets(in: directory) where kill(pid, 0) != 0 && errno == ESRCH {
      // A process in another PID namespace may still be listening.
      do throws(PosixError) { _ = try LocalSocket.connect(to: path) } catch {
        if error.code == ECONNREFUSED { unlink(path) }
      }
    }
  }

  /// The sockets in a directory whose names are process ids.
  private static func sockets(in directory: String) -> [(pid: pid_t, path: String)] {
    var found: [(pid: pid_t, path: String)] = []
    for entry in (try? directoryEntries(directory)) ?? [] where entry.name.hasSuffix(ending) {
      guard let pid = pid_t(entry.name.dropLast(ending.count)), pid > 0 else { continue }
      found.append((pid, "\(directory)/\(entry.name)"))
    }
    return found.sorted { $0.pid < $1.pid }
  }

  /// Whether `path` is a directory of this user, not a link, that nobody else may write to or, with `isPrivate`, list.
  private static func isSafe(_ path: String, isPrivate: Bool = false) -> Bool {
    let number = uninterrupted { open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) }
    guard number >= 0 else { return false }
    let directory = FileDescriptor(number, name: path)
    var status = stat()
    return fstat(number, &status) == 0 && status.st_uid == geteuid()
      && TrustedFile.problem(of: directory.number, named: path) == nil && (!isPrivate || status.st_mode & 0o077 == 0)
  }
}
