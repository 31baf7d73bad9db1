import Glibc
import PipelineCore

/// What a package has: the document `manifest.json`, the first file of its archive.
package struct PluginManifest: Sendable {
  /// A file of the package.
  package struct File: Sendable, Equatable {
    /// Letters, digits, `.`, `-`, `_` and `+`; it does not begin with a dot.
    package var name: String
    package var size: Int
    package var isExecutable: Bool
    /// 64 hexadecimal digits.
    package var sha256: String
  }

  /// The format of manifests that this version writes, and the newest one that it reads.
  static let format = 1
  /// The name of the document in an archive.
  static let fileName = "manifest.json"
  /// The maximum size of the document, and of one file of a package, in bytes.
  static let mostBytes = 1 << 20
  static let mostFileBytes = 256 << 20

  package var name: String
  package var version: String
  package var summary: String
  /// The contract between rxd and the plugin.
  package var contract: Int
  /// The machine for which it was built, as `uname -m` says; `any`: it has no machine code.
  package var machine: String
  /// The file that is the plugin: a shared library or a program.
  package var main: String
  /// The licence, by its SPDX identifier; nil: unknown.
  package var licence: String?
  package var components: [(kind: String, name: String, summary: String)]
  package var files: [File]

  /// The name of its archive.
  package var archive: String { "\(name)-\(version)-\(machine).rxdplugin" }

  /// The members of the document that an index repeats.
  var described: [(String, JSONText)] {
    var members: [(String, JSONText)] = [
      ("name", .string(name)), ("version", .string(version)), ("summary", .string(summary)),
      ("contract", .int(contract)), ("machine", .string(machine)),
    ]
    if let licence { members.append(("licence", .string(licence))) }
    members.append(
      (
        "components",
        .array(
          components.map {
            .object([("kind", .string($0.kind)), ("name", .string($0.name)), ("summary", .string($0.summary))])
          })
      ))
    return members
  }

  var document: JSONText {
    .object(
      [("format", .int(Self.format))] + described + [
        ("main", .string(main)),
        (
          "files",
          .array(
            files.map {
              .object([
                ("name", .string($0.name)), ("size", .int($0.size)), ("executable", .bool($0.isExecutable)),
                ("sha256", .string($0.sha256)),
              ])
            })
        ),
      ])
  }

  /// Reads the document of an archive, which anyone may have written.
  static func read(_ bytes: [UInt8], of archive: String) throws(PackageFault) -> PluginManifest {
    var diagnostics = Diagnostics()
    guard let root = YAMLReader.read(SourceText(name: fileName, bytes: bytes), into: &diagnostics), root.entries != nil
    else {
      throw PackageFault(
        "'\(archive)' has a malformed \(fileName): \(diagnostics.all.first?.message ?? "not an object")")
    }
    func fault(_ what: String) -> PackageFault { PackageFault("'\(archive)' has a wrong \(fileName): \(what)") }
    if let format = root["format"]?.int, format != Self.format {
      throw PackageFault(
        "'\(archive)' has the format \(format), and this rxd reads \(Self.format)", help: "Use a newer rxd")
    }
    var manifest = try PluginManifest(described: root, fault)
    guard let main = root["main"]?.string, let items = root["files"]?.items else {
      throw fault("it needs 'main' and 'files'")
    }
    manifest.main = main
    for item in items {
      guard let name = item["name"]?.string, PackageFile.isName(name), name != fileName, let size = item["size"]?.int,
        (0...Int64(mostFileBytes)).contains(size), let sha256 = item["sha256"]?.string, PackageFile.isDigest(sha256)
      else { throw fault("a file has no usable name, size or sha256") }
      guard !manifest.files.contains(where: { $0.name == name }) else { throw fault("'\(name)' is in it twice") }
      manifest.files.append(
        File(name: name, size: Int(size), isExecutable: item["executable"]?.bool ?? false, sha256: sha256))
    }
    guard manifest.files.contains(where: { $0.name == main }) else { throw fault("'main' is none of its files") }
    return manifest
  }

  /// Reads the members that an index repeats.
  init(described root: YAMLNode, _ fault: (String) -> PackageFault) throws(PackageFault) {
    guard let name = root["name"]?.string, PackageFile.isName(name), let version = root["version"]?.string,
      PackageFile.isName(version), let machine = root["machine"]?.string, PackageFile.isName(machine),
      let contract = root["contract"]?.int
    else { throw fault("it needs 'name', 'version', 'machine' and 'contract'") }
    self.name = name
    self.version = version
    self.machine = machine
    self.contract = Int(clamping: contract)
    summary = root["summary"]?.string ?? ""
    licence = root["licence"]?.string
    main = ""
    files = []
    components = []
    for item in root["components"]?.items ?? [] {
      guard let kind = item["kind"]?.string, let name = item["name"]?.string else {
        throw fault("a component has no 'kind' or no 'name'")
      }
      components.append((kind, name, item["summary"]?.string ?? ""))
    }
  }

  init(of spec: PluginSpec, machine: String, main: String, licence: String?) {
    name = spec.name
    version = spec.version
    summary = spec.summary
    contract = PluginSpec.contract
    self.machine = machine
    self.main = main
    self.licence = licence
    components = spec.components.map { ($0.kind.rawValue, $0.name, $0.summary) }
    files = []
  }

  /// Why this machine and this version of rxd cannot use the plugin; nil: nothing is known against it.
  package var obstacle: PackageFault? {
    if contract > PluginSpec.contract {
      return PackageFault(
        "\(name) \(version) was written for contract \(contract), and this rxd knows \(PluginSpec.contract)",
        help: "Use a version of rxd that knows it")
    }
    if machine != "any", machine != Self.thisMachine {
      return PackageFault(
        "\(name) \(version) was built for \(machine), and this machine is \(Self.thisMachine)",
        help: "Take its package for \(Self.thisMachine), or build it here")
    }
    return nil
  }

  /// What `uname -m` says.
  static let thisMachine: String = {
    var name = utsname()
    guard uname(&name) == 0 else { return "unknown" }
    return withUnsafeBytes(of: name.machine) { bytes in
      String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
  }()
}
