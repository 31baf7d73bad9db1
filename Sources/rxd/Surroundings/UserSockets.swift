import Glibc
import PipelineRuntime
import Transport

/// Where a process has its control socket when no place is given, so that the verbs of the same user find it: `PID.sock` in
/// `$XDG_RUNTIME_DIR/rxd`, or in `/run/rxd` for root. Only directories that nobody else can write to or look into count.
enum UserSockets {
  static let variable = "XDG_RUNTIME_DIR"
  private static let ending = ".sock"

  /// The directories, the preferred one first.
  private static var directories: [(parent: String, path: String)] {
    var found: [(parent: String, path: String)] = []
    if let runtime = ProcessEnvironment[variable], runtime.hasPrefix("/") {
      found.append((runtime, runtime.hasSuffix("/") ? "\(runtime)rxd" : "\(runtime)/rxd"))
    }
    if geteuid() == 0 { found.append(("/run", "/run/rxd")) }
    return found
  }

  /// The path for this process, in a directory that is made if there is none; nil: there is no safe directory.
  static func own() -> String? {
    for (parent, path) in directories where isSafe(parent, mask: 0o022) {
      if mkdir(path, 0o700) != 0, errno != EEXIST { continue }
      guard isSafe(path, mask: 0o077) else { continue }
      sweep(path)
      return "\(path)/\(getpid())\(ending)"
    }
    return nil
  }

  /// The sockets at which a process listens, in the order of process ids.
  static func live() -> [String] {
    directories.filter { isSafe($0.path, mask: 0o077) }.flatMap { sockets(in: $0.path) }.map(\.path).filter(isLive)
  }

  /// Whether a process listens at `path`, and this one may connect.
  static func isLive(_ path: String) -> Bool {
    do throws(PosixError) { _ = try LocalSocket.connect(to: path) } catch { return error.code == EAGAIN }
    return true
  }

  /// Removes the sockets of processes that ended without doing so.
  private static func sweep(_ directory: String) {
    for (pid, path) in sockets(in: directory) where kill(pid, 0) != 0 && errno == ESRCH {
      // A process of another PID namespace may listen all the same.
      do throws(PosixError) { _ = try LocalSocket.connect(to: path) } catch {
        if error.code == ECONNREFUSED { unlink(path) }
      }
    }
  }

  /// The sockets in a directory whose names are process ids. `control.sock` of a service in `/run/rxd` is none of them.
  private static func sockets(in directory: String) -> [(pid: pid_t, path: String)] {
    var found: [(pid: pid_t, path: String)] = []
    for entry in (try? directoryEntries(directory)) ?? [] where entry.name.hasSuffix(ending) {
      guard let pid = pid_t(entry.name.dropLast(ending.count)), pid > 0 else { continue }
      found.append((pid, "\(directory)/\(entry.name)"))
    }
    return found.sorted { $0.pid < $1.pid }
  }

  /// Whether `path` is a directory of this user, no link, in which others have none of the permissions in `mask`.
  private static func isSafe(_ path: String, mask: mode_t) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR && status.st_uid == geteuid()
      && status.st_mode & mask == 0
  }
}
