import CDigest
import Glibc
import PipelineCore
import Synchronization
import Transport

/// What `rxd plugin install` has put into a plugin directory: the document `plugins.lock` in it, by which files are known to be those that were
/// installed, and the same packages are installed elsewhere.
package struct PluginLock: Sendable {
  package struct File: Sendable, Equatable {
    package var name: String
    package var sha256: String
  }

  /// An installed package.
  package struct Entry: Sendable {
    package var name: String
    package var version: String
    package var machine: String
    /// The digest of the archive.
    package var sha256: String
    /// The path or the URL from which it came.
    package var source: String
    /// The number of the key that signed it; nil: it was not signed.
    package var key: String?
    package var files: [File]
  }
  private static let format = 1
  private static let compared = Mutex<Set<String>>([])
  package static let fileName = "plugins.lock"
  private static let mostBytes = 16 << 20

  /// By name.
  package private(set) var entries: [Entry] = []
  /// The versions whose files are kept aside, for a way back.
  private var aside: [Entry] = []

  package init() {}

  /// Reads the lock of a plugin directory; it is empty if there is none.
  package init(directory: String) throws(PackageFault) { try self.init(path: pathIn(directory, Self.fileName)) }

  /// Reads a lock; it is empty if there is no such file.
  package init(path: String) throws(PackageFault) {
    guard access(path, F_OK) == 0 else {
      self.init()
      return
    }
    let file: TrustedFile
    do throws(TrustedFile.Refusal) { file = try TrustedFile(path) } catch { throw PackageFault(error.message) }
    guard let bytes = file.contents(most: Self.mostBytes) else { throw PackageFault("'\(path)' cannot be read") }
    try self.init(bytes, from: path)
  }

  init(_ bytes: [UInt8], from path: String) throws(PackageFault) {
    var diagnostics = Diagnostics()
    let root = YAMLReader.read(SourceText(name: path, bytes: bytes), into: &diagnostics)
    guard let items = root?["plugins"]?.items, root?["format"]?.int == Int64(Self.format) else {
      throw PackageFault(
        "'\(path)' is not a list of installed plugins: \(diagnostics.all.first?.message ?? "its format is not \(Self.format)")",
        help: "Remove it, and install the plugins again")
    }
    entries = try Self.entries(items, path)
    aside = try Self.entries(root?["before"]?.items ?? [], path)
  }

  private static func entries(_ items: [YAMLNode], _ path: String) throws(PackageFault) -> [Entry] {
    var entries: [Entry] = []
    for item in items {
      guard let name = item["name"]?.string, let version = item["version"]?.string,
        let machine = item["machine"]?.string, let sha256 = item["sha256"]?.string, PackageFile.isDigest(sha256),
        let source = item["source"]?.string, let files = item["files"]?.items
      else { throw PackageFault("'\(path)' has an incomplete entry in line \(item.location.line)") }
      var found: [File] = []
      for file in files {
        guard let name = file["name"]?.string, PackageFile.isName(name), let sha256 = file["sha256"]?.string else {
          throw PackageFault("'\(path)' has an incomplete file in line \(file.location.line)")
        }
        found.append(File(name: name, sha256: sha256))
      }
      entries.append(
        Entry(
          name: name, version: version, machine: machine, sha256: sha256, source: source, key: item["key"]?.string,
          files: found))
    }
    return entries
  }

  package subscript(name: String) -> Entry? { entries.first { $0.name == name } }

  /// The version whose files are kept aside; nil: there is none.
  package func before(_ name: String) -> Entry? { aside.first { $0.name == name } }

  mutating func set(_ name: String, _ entry: Entry?, before: Entry?) {
    entries.removeAll { $0.name == name }
    aside.removeAll { $0.name == name }
    if let entry { entries.append(entry) }
    if let before { aside.append(before) }
    entries.sort { $0.name < $1.name }
    aside.sort { $0.name < $1.name }
  }

  package var document: JSONText {
    var members: [(String, JSONText)] = [
      ("format", .int(Self.format)), ("plugins", .array(entries.map(Self.document))),
    ]
    if !aside.isEmpty { members.append(("before", .array(aside.map(Self.document)))) }
    return .object(members)
  }

  private static func document(_ entry: Entry) -> JSONText {
    var members: [(String, JSONText)] = [
      ("name", .string(entry.name)), ("version", .string(entry.version)), ("machine", .string(entry.machine)),
      ("sha256", .string(entry.sha256)), ("source", .string(entry.source)),
    ]
    if let key = entry.key { members.append(("key", .string(key))) }
    members.append(
      ("files", .array(entry.files.map { .object([("name", .string($0.name)), ("sha256", .string($0.sha256))]) })))
    return .object(members)
  }

  /// Writes it into a plugin directory, or removes it if nothing is in it.
  func write(to directory: String) throws(PackageFault) {
    if entries.isEmpty, aside.isEmpty {
      unlink(pathIn(directory, Self.fileName))
      return
    }
    try PackageFile.write(
      Array((document.text + "\n").utf8), to: pathIn(directory, Self.fileName), 0o644)
  }

  /// How an installed file differs from the one that was installed, as a sentence; nil: it is the same, or the lock does not list it.
  func refusal(of path: String, in directory: String) -> String? {
    let name = splitName(path)
    guard let entry = entries.first(where: { $0.files.contains { $0.name == name } }) else { return nil }
    for file in entry.files {
      let path = pathIn(directory, file.name)
      guard let bytes = PluginFile.contents(path) else {
        return "the file '\(path)' of \(entry.name) \(entry.version) is missing or cannot be read"
      }
      // Many pipeline files use one plugin: a content is compared once.
      let content = "\(bytes.withUnsafeBytes { rx_xxh3($0.baseAddress, $0.count) })-\(bytes.count)-\(file.sha256)"
      if Self.compared.withLock({ $0.contains(content) }) { continue }
      guard let digest = try? sha256(bytes) else { return nil }
      if digest == file.sha256 {
        Self.compared.withLock { _ = $0.insert(content) }
      } else {
        return
          "'\(path)' is not the file of \(entry.name) \(entry.version) that was installed: its digest is not that of \(Self.fileName)"
      }
    }
    return nil
  }
}
