import Glibc
import PipelineCore

extension FileWriter.Target {
  /// Finds out whether a writer could open the target now. Opens and makes nothing.
  package func check() throws(PosixError) {
    switch self {
    case .descriptor: break
    case .append(let path, _):
      guard let status = FileDescriptor.Status(path: path) else { return try Self.checkDirectory(of: path, "open") }
      guard status.kind != .directory, status.kind != .socket, status.kind != .blockDevice else {
        throw PosixError("write to", path, code: EINVAL, detail: "it is \(status.kind.rawValue)")
      }
      guard faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 else { throw PosixError("open", path) }
    case .below(let tree, _, _): try tree.check()
    case .replace(let path, _): try Self.checkDirectory(of: path, "replace")
    }
  }

  private static func checkDirectory(of path: String, _ operation: String) throws(PosixError) {
    guard faccessat(AT_FDCWD, splitPath(path).directory, W_OK | X_OK, AT_EACCESS) == 0 else {
      throw PosixError(operation, path)
    }
  }
}
