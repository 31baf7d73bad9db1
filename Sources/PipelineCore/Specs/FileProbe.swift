/// Checks the files that a pipeline file names. The core itself does not read the file system.
package struct FileProbe: Sendable {
  /// Why the file with this path cannot be read, a clause without a full stop; nil: it can be.
  package var problem: @Sendable (_ path: String) -> String?
  /// The absolute form of a path, with links resolved as far as the path exists.
  package var resolve: @Sendable (_ path: String) -> String
  /// Whether the directory certainly does not exist.
  package var isMissingDirectory: @Sendable (_ path: String) -> Bool
  /// Whether the file certainly does not exist, although a source needs it.
  package var isMissingFile: @Sendable (_ path: String) -> Bool

  package init(
    problem: @escaping @Sendable (_ path: String) -> String? = { _ in nil },
    resolve: @escaping @Sendable (_ path: String) -> String = { normal($0) },
    isMissingDirectory: @escaping @Sendable (_ path: String) -> Bool = { _ in false },
    isMissingFile: @escaping @Sendable (_ path: String) -> Bool = { _ in false }
  ) {
    self.problem = problem
    self.resolve = resolve
    self.isMissingDirectory = isMissingDirectory
    self.isMissingFile = isMissingFile
  }

  /// Assumes that every file is readable and every directory exists; resolves paths by their text alone.
  package static let none = FileProbe()

  /// A path without `.`, `..` and doubled slashes, by its text alone.
  package static func normal(_ path: String) -> String {
    var parts: [Substring] = []
    for part in path.split(separator: "/") where part != "." {
      if part == "..", let last = parts.last, last != ".." { parts.removeLast() } else { parts.append(part) }
    }
    return (path.utf8.first == UInt8(ascii: "/") ? "/" : "") + parts.joined(separator: "/")
  }
}
