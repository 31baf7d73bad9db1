import Glibc
import PipelineCore
import PipelineRuntime

/// The directories of plugins.
enum PluginDirectories {
  /// The given directories, or else the installation's, `lib/rxd/plugins` next to `bin`, as absolute paths.
  static func directories(_ given: [String]) -> [String] {
    if !given.isEmpty { return given.map(absolute) }
    if let variable = ProcessEnvironment["RXD_PLUGIN_DIR"] {
      return variable.split(separator: ":").map { absolute(String($0)) }
    }
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let count = readlink("/proc/self/exe", &buffer, Int(PATH_MAX))
    guard count > 0 else { return [] }
    let program = String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    guard program.hasSuffix("/bin/rxd") else { return [] }
    return [String(program.dropLast("/bin/rxd".count)) + "/lib/rxd/plugins"]
  }

  static func absolute(_ path: String) -> String {
    guard !path.hasPrefix("/"), let here = getcwd(nil, 0) else { return path }
    defer { free(here) }
    return String(cString: here) + "/" + path
  }
}
