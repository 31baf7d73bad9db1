import CPlugin
import Glibc
import PipelineCore
import Synchronization
import Transport

/// What is known of plugins without loading or starting them: by the digest of their files.
enum SpecStore {
  private static let known = Mutex<[String: [UInt8]]>([:])

  /// The spec that the plugin handed over when it had this digest; nil: it is not known.
  static func document(_ file: PluginFile, _ digest: String) -> [UInt8]? {
    if let known = known.withLock({ $0[digest] }) { return known }
    for path in places(file, digest) {
      guard let bytes = PluginFile.contents(path), let found = parse(bytes, digest) else { continue }
      known.withLock { $0[digest] = found }
      return found
    }
    return nil
  }

  /// Keeps a spec for later runs, where there is a directory for it.
  static func keep(_ document: [UInt8], _ digest: String) {
    known.withLock { $0[digest] = document }
    guard let directory = directory, makeDirectories(directory) else { return }
    try? write(document, digest, to: "\(directory)/\(digest).json")
  }

  /// The file beside the plugin, for packages: `NAME.so.spec`.
  static func fileBeside(_ file: PluginFile) -> String { file.ownFile + ".spec" }

  static func write(_ document: [UInt8], _ digest: String, to path: String) throws(PosixError) {
    // The spec may be written over several lines; as JSON text it has none of its own.
    var bytes = Array("{\"digest\":\"\(digest)\",\"spec\":".utf8)
    bytes += document
    bytes += Array("}\n".utf8)
    let result = bytes.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes)
        return nil
      } catch { return error }
    }
    if let result { throw result }
  }

  private static func parse(_ bytes: [UInt8], _ digest: String) -> [UInt8]? {
    let arena = Arena()
    let root = bytes.withUnsafeBytes { HostTable.json(rxd_text($0), arena) }
    guard root["digest"].text == digest else { return nil }
    let spec = root["spec"]
    return spec.is(.jsonMap) ? Array(spec.rawBytes) : nil
  }

  private static func places(_ file: PluginFile, _ digest: String) -> [String] {
    [fileBeside(file)] + (directory.map { ["\($0)/\(digest).json"] } ?? [])
  }

  /// Where specs are kept: the service manager's cache directory, or the user's.
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
