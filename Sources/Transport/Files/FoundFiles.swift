import Glibc

/// The paths and patterns by which files are found, and how symbolic links on the way to the files are treated.
///
/// Links after the first wildcard of a pattern are followed according to the policy; those of the directory before it,
/// which the user has written, always are.
package struct FoundFiles: Sendable {
  private let paths: [String]
  private let patterns: [(text: String, base: String)]
  private let links: LinkPolicy

  package init(by paths: [String], _ links: LinkPolicy) {
    self.paths = paths
    self.links = links
    patterns = paths.map { ($0, Glob.constantDirectory($0)) }
  }

  /// The directory below which links are followed according to the policy; nil: the path is given, so all are followed.
  private func base(of path: String) -> String? {
    if links == .never { return splitPath(path).directory }
    if paths.contains(path) { return nil }
    return patterns.first { Glob.matches($0.text, path) }?.base ?? splitPath(path).directory
  }

  /// Opens a regular file that is one of the paths, or matches one of them as a pattern. The directory of any other path
  /// is used as it is.
  package func open(_ path: String) throws(PosixError) -> FileDescriptor {
    guard let base = base(of: path) else { return try FileDescriptor.openForReading(path) }
    return try FileDescriptor.openForReading(path, below: base, links)
  }

  /// Why the path leads through a link that must not be followed; nil: it does not, or cannot be opened for another
  /// reason. ``open(_:)`` looks again.
  package func refusedLink(onWayTo path: String) -> PosixError? {
    guard links != .always, let base = base(of: path) else { return nil }
    var status = stat()
    // Between the base and the path are no further names, so one look suffices.
    if splitPath(path).directory == base, fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0,
      status.st_mode & S_IFMT == S_IFREG
    {
      return nil
    }
    do throws(PosixError) {
      _ = try FileDescriptor.openForReading(path, below: base, links)
      return nil
    } catch {
      return error.isRefusedLink ? error : nil
    }
  }
}
