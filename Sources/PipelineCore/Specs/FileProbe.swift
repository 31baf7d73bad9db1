/// How checks of a pipeline file look at the files that it names. The core asks the file system for nothing itself.
public struct FileProbe: Sendable {
  /// Why the file of this path cannot be read, a clause without a full stop; nil: it can be.
  public var problem: @Sendable (_ path: String) -> String?
  /// The absolute form of a path, without links as far as it exists.
  public var resolve: @Sendable (_ path: String) -> String
  /// Whether it is certain that there is no such directory.
  public var isMissingDirectory: @Sendable (_ path: String) -> Bool

  public init(
    problem: @escaping @Sendable (_ path: String) -> String? = { _ in nil },
    resolve: @escaping @Sendable (_ path: String) -> String = { normal($0) },
    isMissingDirectory: @escaping @Sendable (_ path: String) -> Bool = { _ in false }
  ) {
    self.problem = problem
    self.resolve = resolve
    self.isMissingDirectory = isMissingDirectory
  }

  /// Takes every file for readable, every directory for present, and knows paths by their text alone.
  public static let none = FileProbe()

  /// A path without `.`, `..` and doubled slashes, as far as its text tells.
  public static func normal(_ path: String) -> String {
    var parts: [Substring] = []
    for part in path.split(separator: "/") where part != "." {
      if part == "..", let last = parts.last, last != ".." { parts.removeLast() } else { parts.append(part) }
    }
    return (path.utf8.first == UInt8(ascii: "/") ? "/" : "") + parts.joined(separator: "/")
  }
}
