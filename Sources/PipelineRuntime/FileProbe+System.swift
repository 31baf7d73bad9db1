import Glibc
package import PipelineCore
internal import Transport

extension FileProbe {
  /// The machine's own file system. A device or pipe is not opened.
  package static let system = FileProbe(
    problem: { path in
      do throws(PosixError) {
        _ = try FileDescriptor.openForReading(path, kinds: [.regular])
        return nil
      } catch {
        return error.detail ?? PosixError.text(error.code)
      }
    },
    resolve: { path in
      if let whole = real(path) { return whole }
      let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
      let directory = slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
      let name = slash.map { String(path[path.utf8.index(after: $0)...]) } ?? path
      if let known = real(directory) { return known == "/" ? "/" + name : known + "/" + name }
      return normal(path.utf8.first == UInt8(ascii: "/") ? path : (real(".") ?? "") + "/" + path)
    },
    isMissingDirectory: isMissing, isMissingFile: isMissing)

  @Sendable private static func isMissing(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) != 0 && (errno == ENOENT || errno == ENOTDIR)
  }

  private static func real(_ path: String) -> String? {
    guard let found = realpath(path, nil) else { return nil }
    defer { free(found) }
    return String(cString: found)
  }
}
