import CPlugin
import Glibc
import PipelineCore
import Synchronization
import Transport

/// The specs of plugins that are known without loading or starting them, by the digest of their files.
enum SpecStore {
  /// The document of a plugin.
  struct Entry {
    var document: [UInt8]
    /// The digest of its files and of those that the spec names, when it did; nil: the spec names none.
    var whole: String?
  }
  private static let known = Mutex<[String: Entry]>([:])
  /// The files that specs name, by the plugin's own file.
  private static let uses = Mutex<[String: [String]]>([:])

  /// The document of the plugin for this digest; nil: unknown. A file that others may have written is not trusted.
  static func entry(_ file: PluginFile, _ digest: String) -> Entry? {
    if let known = known.withLock({ $0[digest] }) { return known }
    for path in paths(file, digest) {
      guard let bytes = PluginFile.contents(path), let found = parse(bytes, digest) else { continue }
      known.withLock { $0[digest] = found }
      return found
    }
    return nil
  }

  /// Stores a spec for later runs, if there is a directory for it.
  static func keep(_ entry: Entry, _ digest: String) {
    known.withLock { $0[digest] = entry }
    guard let directory = directory, makeDirectories(directory) else { return }
    try? write(entry, digest, to: "\(directory)/\(digest).json")
  }

  /// Notes which files the spec of a plugin names.
  static func note(_ uses: [String], of file: PluginFile) { self.uses.withLock { $0[file.ownFile] = uses } }

  /// All files of a plugin, as far as its spec has been read.
  static func files(of file: PluginFile) -> [String] {
    file.files + (uses.withLock { $0[file.ownFile] } ?? []).filter { !file.uses.contains($0) }
  }

  /// The file next to the plugin, for packages: `NAME.so.spec`.
  static func fileBeside(_ file: PluginFile) -> String { file.ownFile + ".spec" }

  /// The content of a file of the store.
  static func content(_ entry: Entry, _ digest: String) -> [UInt8] {
    // The document may span several lines: between JSON values line breaks are white space.
    let whole = entry.whole.map { "\"whole\":\"\($0)\"," } ?? ""
    return Array("{\"digest\":\"\(digest)\",\(whole)\"spec\":".utf8) + entry.document + Array("}\n".utf8)
  }

  static func write(_ entry: Entry, _ digest: String, to path: String) throws(PosixError) {
    let bytes = content(entry, digest)
    let result = bytes.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes)
        return nil
      } catch { return error }
    }
    if let result { throw result }
  }

  private static func parse(_ bytes: [UInt8], _ digest: String) -> Entry? {
    let arena = Arena()
    let root = bytes.withUnsafeBytes { HostTable.json(rxd_text($0), arena) }
    guard root["digest"].text == digest else { return nil }
    let (spec, whole) = (root["spec"], root["whole"])
    guard spec.is(.jsonMap) else { return nil }
    return Entry(document: Array(spec.rawBytes), whole: whole.is(.string) ? whole.text : nil)
  }

  private static func paths(_ file: PluginFile, _ digest: String) -> [String] {
    [fileBeside(file)] + (directory.map { ["\($0)/\(digest).json"] } ?? [])
  }

  /// The directory of kept specs: the service manager's cache directory, or the user's.
  static var directory: String? {
    func variable(_ name: String) -> String? {
      guard let value = getenv(name) else { return nil }
      let text = String(cString: value)
      return text.isEmpty ? nil : text
    }
    if let path = variable("CACHE_DIRECTORY") { return path.split(separator: ":").first.map { "\($0)/plugins" } }
    if let path = variable("XDG_CACHE_HOME"), path.hasPrefix("/") { return "\(path)/rxd/plugins" }
    return variable("HOME").map { "\($0)/.cache/rxd/plugins" }
  }

  private static func makeDirectories(_ path: String) -> Bool {
    var end = path.startIndex
    while end < path.endIndex {
      end = path[path.index(after: end)...].firstIndex(of: "/") ?? path.endIndex
      let part = String(path[..<end])
      if mkdir(part, 0o700) != 0, errno != EEXIST { return false }
    }
    return true
  }
}
