import Glibc
import PipelineCore
import Transport

/// The package of a plugin: an archive (tar, gzip) of `manifest.json` and the files that it names, without directories. GNU tar writes and reads it;
/// nothing of it is written to the disk before its name, its size and its digest are known to be right.
package struct PluginPackage: Sendable {
  /// The path of the archive.
  package let path: String
  package let manifest: PluginManifest
  /// SHA-256 of the archive, in hexadecimal digits.
  package let sha256: String
  package let size: Int

  /// The maximum size of an archive in bytes.
  package static let mostBytes = 512 << 20

  // MARK: Reading

  /// Reads the manifest of an archive, which anyone may have made, and compares the names of its files.
  /// - Parameter bytes: Its content.
  package init(_ path: String, _ bytes: [UInt8]) throws(PackageFault) {
    self.path = path
    let name = splitName(path)
    size = bytes.count
    sha256 = try PluginHost.sha256(bytes)
    guard bytes.starts(with: [0x1F, 0x8B]) else {
      throw PackageFault("'\(name)' is not a package", help: "'rxd plugin pack' makes packages")
    }
    let members = try Tar.run(["--list", "--gzip"], input: bytes, most: 1 << 20, of: name)
    let names = members.split(separator: 0x0A).map { String(decoding: $0, as: UTF8.self) }
    guard names.first == PluginManifest.fileName else {
      throw PackageFault("'\(name)' is not a package: its first file is not \(PluginManifest.fileName)")
    }
    let document = try Tar.extract(PluginManifest.fileName, from: bytes, most: PluginManifest.mostBytes, of: name)
    manifest = try PluginManifest.read(document, of: name)
    let known = Set(manifest.files.map(\.name) + [PluginManifest.fileName])
    if let other = names.first(where: { !known.contains($0) }) {
      throw PackageFault("'\(name)' has the file '\(Printable.cut(other))', which its manifest does not name")
    }
    guard names.count == known.count else {
      throw PackageFault("'\(name)' does not have each file of its manifest once")
    }
  }

  /// The content of each file, in the order of the manifest.
  /// - Parameter bytes: The content of the archive.
  package func contents(_ bytes: [UInt8]) throws(PackageFault) -> [[UInt8]] {
    var all: [[UInt8]] = []
    for file in manifest.files {
      let content = try Tar.extract(file.name, from: bytes, most: file.size, of: splitName(path))
      guard content.count == file.size, try PluginHost.sha256(content) == file.sha256 else {
        throw PackageFault("the file '\(file.name)' of '\(splitName(path))' has another digest than its manifest says")
      }
      all.append(content)
    }
    return all
  }

  // MARK: Writing

  /// A file to pack.
  package struct Member {
    package var name: String
    package var content: [UInt8]
    package var isExecutable: Bool

    package init(name: String, content: [UInt8], isExecutable: Bool) {
      self.name = name
      self.content = content
      self.isExecutable = isExecutable
    }
  }

  /// Packs a plugin whose spec is known, and further files, such as a licence. The same files give the same bytes.
  /// - Returns: The package, at NAME-VERSION-MACHINE.rxdplugin in the directory.
  package static func make(
    of plugin: LoadedPlugin, licence: String?, besides others: [Member], in directory: String
  ) throws(PackageFault) -> PluginPackage {
    let (members, machine) = try members(of: plugin)
    var manifest = PluginManifest(
      of: plugin.spec, machine: machine, main: splitName(plugin.file.ownFile), licence: licence)
    guard PackageFile.isName(manifest.name), PackageFile.isName(manifest.version) else {
      throw PackageFault(
        "'\(Printable.cut(manifest.version))' cannot be the version of a package: it is a part of its file's name",
        help: "Versions have letters, digits, '.', '-', '_' and '+'")
    }
    let all = members + others
    for (index, member) in all.enumerated() {
      guard PackageFile.isName(member.name), member.name != PluginManifest.fileName else {
        throw PackageFault("'\(Printable.cut(member.name))' cannot be the name of a file in a package")
      }
      guard !all[..<index].contains(where: { $0.name == member.name }) else {
        throw PackageFault("two files of the package would be '\(member.name)'")
      }
      manifest.files.append(
        PluginManifest.File(
          name: member.name, size: member.content.count, isExecutable: member.isExecutable,
          sha256: try PluginHost.sha256(member.content)))
    }
    let scratch: ScratchDirectory
    do throws(ContractBreach) { scratch = try ScratchDirectory(copying: nil) } catch {
      throw PackageFault("there is no directory for temporary files: \(error.came)", help: error.help)
    }
    try PackageFile.write(
      Array((manifest.document.text + "\n").utf8), to: "\(scratch.path)/\(PluginManifest.fileName)", 0o644)
    for member in all {
      try PackageFile.write(member.content, to: "\(scratch.path)/\(member.name)", member.isExecutable ? 0o755 : 0o644)
    }
    let path = pathIn(directory, manifest.archive)
    // Neither the user nor the time of packing is in the archive.
    let bytes = try Tar.run(
      [
        "--create", "--gzip", "--format=ustar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
        "--directory=\(scratch.path)", PluginManifest.fileName,
      ] + all.map(\.name), most: mostBytes, of: manifest.archive)
    try PackageFile.write(bytes, to: path, 0o644)
    return try PluginPackage(path, bytes)
  }

  /// The files of the plugin, and the machine for which they are built.
  private static func members(of plugin: LoadedPlugin) throws(PackageFault) -> ([Member], String) {
    let file = plugin.file
    var paths: [String]
    switch file.form {
    case .native: paths = [file.path]
    case .program(let arguments, let isInterpreter):
      guard !isInterpreter, arguments.isEmpty else {
        throw PackageFault(
          "a package has a program that runs by itself, not an interpreter with arguments",
          help: "Begin the script with a line such as '#!/usr/bin/env python3', and make it executable")
      }
      paths = [file.path]
    }
    let folder = file.ownFile.lastIndex(of: "/").map { String(file.ownFile[...$0]) } ?? ""
    for used in file.uses {
      guard used.hasPrefix(folder), !used.dropFirst(folder.count).contains("/") else {
        throw PackageFault(
          "the plugin uses '\(Printable.cut(used))', which is not beside its file",
          help: "A package has no directories: files that it uses lie beside it, or come from the system")
      }
      paths.append(used)
    }
    var isMachineCode = false
    var found: [Member] = []
    for path in paths {
      guard let content = PluginFile.contents(path) else { throw PackageFault("'\(path)' cannot be read") }
      isMachineCode = isMachineCode || content.starts(with: [0x7F, 0x45, 0x4C, 0x46])
      found.append(Member(name: splitName(path), content: content, isExecutable: access(path, X_OK) == 0))
    }
    found.append(
      Member(
        name: splitName(SpecStore.fileBeside(file)), content: SpecStore.content(plugin.entry, plugin.ownDigest),
        isExecutable: false))
    return (found, isMachineCode ? PluginManifest.thisMachine : "any")
  }
}

/// GNU tar, which every system has that packages are made and installed on.
private enum Tar {
  /// The longest time for one call.
  private static let limit = TimeSpan.seconds(120)

  static func extract(_ name: String, from archive: [UInt8], most: Int, of label: String) throws(PackageFault)
    -> [UInt8]
  {
    try run(["--extract", "--gzip", "--to-stdout", "--no-wildcards", name], input: archive, most: most, of: label)
  }

  /// What tar prints. Throws if it fails, or prints more than `most` bytes.
  static func run(_ arguments: [String], input: [UInt8] = [], most: Int, of label: String) throws(PackageFault)
    -> [UInt8]
  {
    var call = ProgramCall("tar", arguments)
    call.input = input
    call.options.timeout = limit
    call.options.maxOutput = most
    call.options.environment = ["LC_ALL": "C", "PATH": ProgramCall.searchPath.joined(separator: ":")]
    let answer = Guarded<Result<ProgramResult, ProgramFailure>?>(nil)
    let run = LocalPrograms().run(call) { result in
      answer.withLock { $0 = result }
      answer.notify()
    }
    let result = withExtendedLifetime(run) { answer.wait(until: nil) { $0 } }
    switch result {
    case .success(let ended) where ended.exit == 0: return ended.output
    case .success(let ended):
      let said = String(decoding: ended.errors, as: UTF8.self).split(separator: "\n").first.map { ": \($0)" } ?? ""
      throw PackageFault("'\(label)' is damaged\(Printable.cut(said))")
    case .failure(let failure) where failure.kind == .outputTooLong:
      throw PackageFault("'\(label)' has a file that is larger than its manifest says")
    case .failure(let failure):
      throw PackageFault("tar \(failure.message)", help: "Packages need GNU tar and gzip")
    case nil: throw PackageFault("tar has not answered")
    }
  }
}
