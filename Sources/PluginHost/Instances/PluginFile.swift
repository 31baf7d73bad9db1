import CDigest
import Glibc
import PipelineCore
import Transport

/// A plugin as a pipeline file or the plugin directory names it.
package struct PluginFile: Sendable, Hashable {
  /// A shared library, or a program with its arguments.
  package enum Form: Sendable, Hashable {
    case native
    /// `isInterpreter`: the program belongs to the system, and its first argument that is a file is the plugin.
    case program(arguments: [String], isInterpreter: Bool = false)
  }

  /// The path of the library, or of the program.
  package var path: String
  package var form: Form
  package var settings = ProcessSettings()
  /// Further files of the plugin, such as a module that it loads: they count for trust and for the digest.
  package var uses: [String] = []
  /// The working directory of a program, against which relative paths are resolved; ends with `/`, or is empty for that of rxd.
  package var directory: String

  package init(path: String, form: Form, directory: String, settings: ProcessSettings = ProcessSettings()) {
    self.path = path
    self.form = form
    self.directory = directory
    self.settings = settings
  }

  /// Decided by the name: libraries end in `.so`.
  package init(path: String, directory: String) {
    self.init(
      path: path, form: path.hasSuffix(".so") ? .native : .program(arguments: []), directory: directory)
  }

  /// For messages: the last part of the path of the library or the program or, for an interpreter, of its first argument that is a path.
  package var label: String {
    let path = ownFile
    return String(path.split(separator: "/").last ?? Substring(path))
  }

  /// The first argument that names a file, as of an interpreter.
  private func script(_ arguments: [String]) -> String? {
    arguments.first { !$0.hasPrefix("-") && access(absolutePath(of: $0), R_OK) == 0 }.map { absolutePath(of: $0) }
  }

  private func absolutePath(of path: String) -> String { path.hasPrefix("/") ? path : directory + path }

  /// The plugin's files, for trust and digest.
  var files: [String] { [path] + (script.map { [$0] } ?? []) + uses }

  /// The plugin's own file; nil for an interpreter of the system.
  package var ownFile: String { script ?? path }

  /// The same with the files that its spec names.
  func using(_ spec: PluginSpec) -> PluginFile {
    var file = self
    let folder = ownFile.lastIndex(of: "/").map { ownFile[...$0] } ?? ""
    file.uses += spec.uses.map { $0.hasPrefix("/") ? $0 : folder + $0 }
    return file
  }

  /// The script of an interpreter.
  private var script: String? {
    if case .program(let arguments, true) = form { return script(arguments) }
    return nil
  }

  // MARK: Trust

  /// The reason why the plugin must not be used, as a clause; nil if it may. Each of its files must be a ``TrustedFile``.
  package func refusal() -> String? {
    for file in files {
      do throws(TrustedFile.Refusal) { _ = try TrustedFile(file) } catch { return error.message }
    }
    if case .program = form, access(path, X_OK) != 0 {
      return "'\(path)' is not executable: use chmod +x on it, or name its interpreter with 'run'"
    }
    return nil
  }

  // MARK: Digest

  /// The digest of the library file alone, that is, of the loaded code.
  var codeDigest: String? { PluginFile(path: path, form: .native, directory: directory).digest() }

  /// A hash of the contents of its files, 32 hexadecimal digits and the size; nil: one cannot be read.
  package func digest() -> String? {
    var sums: (UInt64, UInt64) = (0, 0)
    var size = 0
    for file in files {
      guard let bytes = Self.contents(file) else { return nil }
      bytes.withUnsafeBytes {
        sums.0 = rx_xxh3_seeded($0.baseAddress, $0.count, sums.0)
        sums.1 = rx_xxh3_seeded($0.baseAddress, $0.count, sums.1 &+ 0x9E37_79B9_7F4A_7C15)
      }
      size += bytes.count
    }
    if case .program(let arguments, _) = form {
      for argument in arguments { sums.0 = argument.utf8.reduce(sums.0) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 } }
    }
    func hex(_ number: UInt64) -> String {
      let digits = String(number, radix: 16)
      return String(repeating: "0", count: 16 - digits.count) + digits
    }
    return hex(sums.0) + hex(sums.1) + "-\(size)"
  }

  /// Nil: it cannot be read, has more than 256 MiB, or is not a ``TrustedFile``.
  static func contents(_ path: String) -> [UInt8]? { (try? TrustedFile(path))?.contents() }
}

/// How a plugin's program is run.
package struct ProcessSettings: Sendable, Hashable {
  /// Environment variables in addition to the common ones.
  package var environment: [String: String] = [:]
  /// The longest time without an answer while inputs wait for one.
  package var timeout = TimeSpan.seconds(10)
  /// Limits: bytes of private writable memory, seconds of processor time, descriptors, processes of the user; 0: none.
  package var memory = 1 << 30
  package var cpu = 0
  package var files = 256
  package var processes = 0

  package init() {}
}
