import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The directories of plugins.
enum PluginDirectories {
  /// The given directories, or else the installation's, `lib/rxd/plugins` next to `bin`, as absolute paths.
  static func directories(_ given: [String]) -> [String] {
    if !given.isEmpty { return given.map(absolute) }
    if let variable = ProcessEnvironment["RXD_PLUGIN_DIR"] {
      return variable.split(separator: ":").map { absolute(String($0)) }
    }
    return InstalledProgram.prefix.map { [$0 + "/lib/rxd/plugins"] } ?? []
  }

  static func absolute(_ path: String) -> String {
    guard !path.hasPrefix("/"), let here = Glob.currentDirectory else { return path }
    return here + "/" + path
  }
}
