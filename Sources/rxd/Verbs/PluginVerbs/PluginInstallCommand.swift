import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PluginHost
import Transport

/// The plugin directory that a verb changes, and the process that it tells.
struct PluginPlaceOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "The plugin directory; default is the first of RXD_PLUGIN_DIR, or else that of the installation.",
      valueName: "dir"),
    completion: .directory)
  var pluginDir: String?

  @Flag(
    help: """
      Have the running rxd read its files again, and keep the change only if it succeeds: otherwise the version before is brought back.
      """)
  var reload = false

  @OptionGroup var control: ControlOptions

  func directory() throws -> String {
    if let directory = PluginDirectories.directories(pluginDir.map { [$0] } ?? []).first { return directory }
    Console.printError("there is no plugin directory\n  Name one with --plugin-dir")
    throw ExitStatus.usage
  }

  /// The running process, if it is to be told; throws before anything is changed if none answers.
  func process() throws -> ControlClient? { reload ? try control.client() : nil }

  /// Has the process read its files again; after a failure undoes the change. Without a process, the version before stays set aside.
  func finish(_ change: PluginInstallation, _ process: ControlClient?) throws {
    guard let process else { return }
    let answer: ControlClient.Answer
    do throws(ControlClient.Failure) {
      answer = try process.ask("POST", "/reload?wait=true&format=text&colors=false", within: .seconds(60))
    } catch {
      try Packages.reporting { () throws(PackageFault) in try change.undo() }
      Console.printError("\(error.message)\n  The plugin is as it was before")
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
    guard answer.status == 200 || answer.status == 202 else {
      try Packages.reporting { () throws(PackageFault) in try change.undo() }
      Console.note(String(decoding: answer.body, as: UTF8.self))
      Console.printError("rxd does not run with the change\n  The plugin is as it was before")
      throw answer.status == 422 ? ExitStatus.configuration : ExitStatus.failure
    }
    change.keep()
    Console.write(answer.body)
  }
}

/// `rxd plugin install WHAT`
struct PluginInstall: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "install", abstract: "Installs a package of 'rxd plugin pack' into the plugin directory.",
    discussion: """
      WHAT is the path or the URL of a package, or the name of a plugin in the index. Its signature (WHAT.minisig, of minisign) must be by a \
      trusted key; then its digests, its contract and its functions are checked. The exit status is 1 if anything of it is not right; nothing has changed then.

      The directory's plugins.lock has what was installed, with digests: a file that is changed later is not loaded, and --locked installs the \
      same packages elsewhere. The version before is kept for 'rxd plugin rollback' until the next change or until --reload has succeeded.
      """)

  @Argument(help: ArgumentHelp("A package or a name.", valueName: "what"), completion: .file())
  var what: String?

  @Option(
    name: .customLong("version"), help: ArgumentHelp("The versions to choose from, as '>=1.2 <2'.", valueName: "range"))
  var range: String?

  @Option(
    help: ArgumentHelp("The index: a file or a URL. (RXD_PLUGIN_INDEX)", valueName: "index"), completion: .file())
  var index: String?

  @Option(
    help: ArgumentHelp(
      "A trusted public key of minisign, as a file or as its text; may be repeated. Default are the files *.pub in the directory \(trusted). (RXD_PLUGIN_KEYS)",
      valueName: "key"), completion: .file())
  var key: [String] = []

  @Flag(help: "Install a package without a signature.")
  var unsigned = false

  @Option(
    help: ArgumentHelp(
      "Install what this plugins.lock lists, from where it came, with the same digests.", valueName: "file"),
    completion: .file())
  var locked: String?

  @OptionGroup var place: PluginPlaceOptions

  private static let trusted = "/etc/rxd/plugin-keys"

  func validate() throws {
    if (what == nil) == (locked == nil) { throw ValidationError("Name a package, or a lock with --locked.") }
    if let range, VersionRange(range) == nil {
      throw ValidationError("'\(range)' is not a range of versions: write one such as '>=1.2' or '>=1.2 <2'.")
    }
  }

  /// What is to be installed.
  private struct Wanted {
    var source: String
    /// The digest that an index or a lock says.
    var sha256: String?
    /// Whether the digest is trusted as a signature is: the lock is this user's.
    var isTrusted = false
  }

  func run() throws {
    let directory = try place.directory()
    let process = try place.process()
    let keys = try Packages.reporting { () throws(PackageFault) in try self.keys() }
    for wanted in try Packages.reporting({ () throws(PackageFault) in try self.wanted() }) {
      let change = try Packages.reporting { () throws(PackageFault) in try install(wanted, keys, into: directory) }
      try place.finish(change, process)
    }
  }

  private func wanted() throws(PackageFault) -> [Wanted] {
    if let locked {
      let lock = try PluginLock(path: PluginDirectories.absolute(locked))
      if lock.entries.isEmpty { throw PackageFault("'\(locked)' does not exist, or lists no plugin") }
      return lock.entries.map { Wanted(source: $0.source, sha256: $0.sha256, isTrusted: true) }
    }
    let what = what ?? ""
    if Packages.isURL(what) || what.contains("/") || access(what, F_OK) == 0 {
      return [Wanted(source: Packages.isURL(what) ? what : PluginDirectories.absolute(what))]
    }
    let (place, list) = try Packages.index(index)
    let entry = try list.newest(what, range.flatMap(VersionRange.init))
    let beside = Packages.beside(place, entry.file)
    return [
      Wanted(source: Packages.isURL(beside) ? beside : PluginDirectories.absolute(beside), sha256: entry.sha256)
    ]
  }

  private func keys() throws(PackageFault) -> [PluginKey] {
    var found: [PluginKey] = []
    for key in key {
      if key.hasPrefix("RW"), !key.contains("/"), access(key, F_OK) != 0 {
        found.append(try PluginKey(key, from: "the key of --key"))
      } else {
        found.append(try PluginKey(Self.trustedText(PluginDirectories.absolute(key)), from: key))
      }
    }
    guard key.isEmpty else { return found }
    let directory = ProcessEnvironment["RXD_PLUGIN_KEYS"] ?? Self.trusted
    guard let names = try? directoryEntries(directory) else { return [] }
    for name in names.map(\.name).sorted() where name.hasSuffix(".pub") {
      let path = "\(directory)/\(name)"
      found.append(try PluginKey(Self.trustedText(path), from: path))
    }
    return found
  }

  /// The content of a file that nobody else can have written.
  private static func trustedText(_ path: String) throws(PackageFault) -> String {
    let file: TrustedFile
    do throws(TrustedFile.Refusal) { file = try TrustedFile(path) } catch { throw PackageFault(error.message) }
    guard let bytes = file.contents(most: 64 << 10) else { throw PackageFault("'\(path)' cannot be read") }
    return String(decoding: bytes, as: UTF8.self)
  }

  private func install(
    _ wanted: Wanted, _ keys: [PluginKey], into directory: String
  ) throws(PackageFault) -> PluginInstallation {
    let name = String(wanted.source.split(separator: "/").last ?? "")
    guard let bytes = try Packages.fetch(wanted.source, most: PluginPackage.mostBytes) else {
      throw PackageFault("there is no package '\(Printable.cut(wanted.source))'")
    }
    // Before anything in it is read, it is known from whom it is.
    let signer = try signer(of: bytes, wanted, keys)
    let package = try PluginPackage(wanted.source, bytes)
    if let sha256 = wanted.sha256, sha256 != package.sha256 {
      throw PackageFault(
        "'\(name)' has the digest \(package.sha256), not \(sha256)",
        help: wanted.isTrusted
          ? "It is not what was installed where the lock was made" : "The index and the package do not belong together")
    }
    if let range, let wantedRange = VersionRange(range), !wantedRange.contains(package.manifest.version) {
      throw PackageFault("'\(name)' has version \(package.manifest.version), which is not \(range)")
    }
    let manifest = package.manifest
    let change = try PluginInstallation.install(
      package, package.contents(bytes), from: wanted.source, key: signer, into: directory)
    do throws(PackageFault) { try Self.check(manifest, in: directory) } catch {
      try change.undo()
      throw error
    }
    let was = change.before.map { $0.version == manifest.version ? " (again)" : " in place of \($0.version)" } ?? ""
    Console.print("installed \(manifest.name) \(manifest.version)\(was) in \(directory)")
    return change
  }

  /// The number of the key that signed a package; nil: it needs no signature.
  private func signer(of bytes: [UInt8], _ wanted: Wanted, _ keys: [PluginKey]) throws(PackageFault) -> String? {
    let name = String(wanted.source.split(separator: "/").last ?? "")
    if wanted.isTrusted { return nil }
    guard let text = try Packages.fetch(wanted.source + ".minisig", most: 64 << 10) else {
      if unsigned { return nil }
      throw PackageFault(
        "'\(Printable.cut(name))' is not signed: there is no '\(Printable.cut(name)).minisig' beside it",
        help: "Ask its author for a signature, or install it with --unsigned if you know where it comes from")
    }
    let signature = try PluginSignature(String(decoding: text, as: UTF8.self), of: name + ".minisig")
    return try signature.check(bytes, by: keys, of: name).name
  }

  /// Loads or starts the installed plugin, and compares its functions with its spec.
  private static func check(_ manifest: PluginManifest, in directory: String) throws(PackageFault) {
    let file = PluginFile(path: "\(directory)/\(manifest.main)", directory: directory + "/")
    let plugins = LocalPlugins(asks: true, directories: [directory]) { level, message in
      Console.printError("\(file.label): \(message)")
    }
    // Its files have been written just now, with the digests of the manifest.
    switch plugins.load(file) {
    case .failure(let fault):
      throw PackageFault("\(manifest.name) \(manifest.version) cannot be used: \(fault.message)", help: fault.help)
    case .success(let plugin):
      guard plugin.spec.name == manifest.name, plugin.spec.version == manifest.version else {
        throw PackageFault(
          "the package says that it is \(manifest.name) \(manifest.version), and its plugin says \(plugin.spec.name) \(plugin.spec.version)"
        )
      }
      if let problem = plugin.problems().first {
        throw PackageFault("\(manifest.name) \(manifest.version): \(problem)")
      }
    }
  }
}

/// `rxd plugin remove NAME`
struct PluginRemove: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove", abstract: "Removes a plugin that 'rxd plugin install' has installed.",
    discussion: "Its files are kept for 'rxd plugin rollback' until the next change or until --reload has succeeded.")

  @Argument(help: ArgumentHelp("The name of the plugin.", valueName: "name"))
  var name: String
  @OptionGroup var place: PluginPlaceOptions

  func run() throws {
    let directory = try place.directory()
    let process = try place.process()
    let change = try Packages.reporting { () throws(PackageFault) in
      try PluginInstallation.remove(name, from: directory)
    }
    Console.print("removed \(name) \(change.before?.version ?? "") from \(directory)")
    try place.finish(change, process)
  }
}

/// `rxd plugin rollback NAME`
struct PluginRollback: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rollback", abstract: "Brings back the version of a plugin before the last change.")

  @Argument(help: ArgumentHelp("The name of the plugin.", valueName: "name"))
  var name: String
  @Option(
    help: ArgumentHelp(
      "The plugin directory; default is the first of RXD_PLUGIN_DIR, or else that of the installation.",
      valueName: "dir"),
    completion: .directory)
  var pluginDir: String?

  func run() throws {
    guard let directory = PluginDirectories.directories(pluginDir.map { [$0] } ?? []).first else {
      Console.printError("there is no plugin directory\n  Name one with --plugin-dir")
      throw ExitStatus.usage
    }
    let change = try Packages.reporting { () throws(PackageFault) in
      try PluginInstallation.rollBack(name, in: directory)
    }
    Console.print(
      "\(name) is \(change.before?.version ?? "") again in \(directory); 'rxd reload' has a running rxd use it")
  }
}
