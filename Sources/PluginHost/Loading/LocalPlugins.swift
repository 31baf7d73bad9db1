import Glibc
import PipelineCore

/// The plugins of this machine: those that pipeline files name, and those of the plugin directories.
package struct LocalPlugins: PluginProvider {
  /// Whether plugins whose spec is unknown are loaded or started to get it, as running a pipeline requires; otherwise
  /// no plugin is started.
  package var asks: Bool
  /// Every shared library and executable in them is a plugin.
  package var directories: [String]
  /// Receives what a program writes while it is asked for its spec, and what pure functions log: these are opened once for all pipelines.
  package var log: @Sendable (Services.Level, String) -> Void

  package init(
    asks: Bool, directories: [String], log: @escaping @Sendable (Services.Level, String) -> Void = { _, _ in }
  ) {
    self.asks = asks
    self.directories = directories
    self.log = log
  }

  package func offers(for file: PipelineFile, into diagnostics: inout Diagnostics) -> PluginOffers {
    var offered = PluginOffers()
    var present: [LoadedPlugin] = []
    for (found, result) in loadInstalled() {
      switch result {
      case .success(let plugin):
        present.append(plugin)
        offered.add(plugin.offers(at: nil, log))
      case .failure(let fault):
        diagnostics.report(
          Diagnostic(
            .unusablePlugin, "the plugin '\(Printable.cut(found.path))' cannot be used: \(fault.message)", at: nil,
            help: fault.help))
      }
    }
    guard !file.plugins.isEmpty else { return offered }
    let path = file.source.name
    let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? ""
    for entry in file.plugins {
      guard let declaration = PluginDeclaration.read(entry, in: directory, into: &diagnostics) else { continue }
      guard let file = declaration.file else {
        if let problem = declaration.problem(among: present) { diagnostics.report(problem) }
        continue
      }
      switch load(file) {
      case .success(let plugin):
        if let problem = declaration.problem(of: plugin) { diagnostics.report(problem) }
        offered.add(plugin.offers(at: declaration.location, log))
      case .failure(let fault):
        var fault = fault
        if access(file.ownFile, F_OK) != 0 {
          fault.help = "A relative path is resolved against the directory of the pipeline file"
        } else if fault.isUnknown {
          fault.help = "Run 'rxd plugin check \(Printable.cut(path))' once; it starts the plugin and keeps its spec"
        }
        diagnostics.report(
          Diagnostic(
            .pluginFailed,
            "the plugin '\(Printable.cut(entry.name.value))' cannot be used: \(fault.message)",
            at: declaration.location,
            help: fault.help))
        diagnostics.report(contentsOf: fault.diagnostics)
      }
    }
    return offered
  }

  package func files(of file: PipelineFile) -> [String] {
    var unread = Diagnostics()
    return (installed() + named(by: file, into: &unread)).flatMap(SpecStore.files)
  }

  /// The plugins that a pipeline file names. Reports errors in the declarations.
  package func named(by file: PipelineFile, into diagnostics: inout Diagnostics) -> [PluginFile] {
    let path = file.source.name
    let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? ""
    return file.plugins.compactMap { PluginDeclaration.read($0, in: directory, into: &diagnostics)?.file }
  }

  /// The files of the plugin directories, by name.
  package func installed() -> [PluginFile] {
    directories.flatMap { directory -> [PluginFile] in
      guard let stream = opendir(directory) else { return [] }
      defer { closedir(stream) }
      var names: [String] = []
      while let entry = readdir(stream) {
        let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
          String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        guard !name.hasPrefix("."), !name.hasSuffix(".spec") else { continue }
        var status = stat()
        let path = "\(directory)/\(name)"
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
        if name.hasSuffix(".so") || status.st_mode & 0o111 != 0 { names.append(name) }
      }
      return names.sorted().map { PluginFile(path: "\(directory)/\($0)", directory: "\(directory)/") }
    }
  }

  /// Loads the plugins of the plugin directories, whose files must be those that were installed.
  package func loadInstalled() -> [(PluginFile, Result<LoadedPlugin, Fault>)] {
    // Each directory's lock is read once.
    var locks: [String: Result<PluginLock, Fault>] = [:]
    return installed().map { file in
      let directory = file.directory.hasSuffix("/") ? String(file.directory.dropLast()) : file.directory
      let lock = locks[directory] ?? Self.lock(of: directory)
      locks[directory] = lock
      return (
        file,
        lock.flatMap { lock in
          guard let refusal = lock.refusal(of: file.ownFile, in: directory) else { return load(file) }
          return .failure(Fault(message: refusal, help: "Install the plugin again with 'rxd plugin install'"))
        }
      )
    }
  }

  private static func lock(of directory: String) -> Result<PluginLock, Fault> {
    do throws(PackageFault) { return .success(try PluginLock(directory: directory)) } catch {
      return .failure(Fault(message: error.message, help: error.help))
    }
  }

  /// The reason why a plugin cannot be used.
  package struct Fault: Error {
    package var message: String
    package var help: String?
    /// Whether it has never been asked for its spec.
    var isUnknown = false
    /// The errors in its spec.
    package var diagnostics: [Diagnostic] = []
  }

  package func load(_ file: PluginFile) -> Result<LoadedPlugin, Fault> {
    if let refusal = file.refusal() { return .failure(Fault(message: refusal)) }
    guard let digest = file.digest() else { return .failure(Fault(message: "'\(file.ownFile)' cannot be read")) }
    let kept = SpecStore.entry(file, digest)
    if let kept {
      let result = read(kept.document, file, digest)
      guard case .success(let plugin) = result, plugin.digest != kept.whole ?? digest else { return result }
      // One of the files that the spec names has changed, so the spec may have changed, too.
    }
    guard asks else {
      return .failure(
        Fault(
          message: kept == nil
            ? "its components are not known yet, and checking starts no plugin"
            : "a file that it uses has changed since it listed its components, and checking starts no plugin",
          help: "Run 'rxd plugin check \(Printable.cut(file.ownFile))' once; it starts the plugin and keeps its spec",
          isUnknown: true))
    }
    return ask(file, digest)
  }

  /// Loads or starts a plugin and asks for its spec. `digest`: of the file.
  package func ask(_ file: PluginFile, _ digest: String) -> Result<LoadedPlugin, Fault> {
    do throws(PluginFault) {
      guard file.form == .native else { return keep(read(try ProcessPlugin.ask(file, log), file, digest), digest) }
      let isFresh = !NativeLibrary.isLoaded(file, digest: digest)
      let result = read(try NativeLibrary.load(file, digest: digest).document, file, digest)
      guard case .success(let plugin) = result, plugin.digest != digest else { return keep(result, digest) }
      if isFresh {
        NativeLibrary.note(file, digest: digest, as: plugin.digest)
        return keep(result, digest)
      }
      // If the loaded library may have read older versions of its files, it is loaded again, or the load fails.
      return keep(read(try NativeLibrary.load(file, digest: plugin.digest).document, file, digest), digest)
    } catch {
      return .failure(Fault(message: error.message))
    }
  }

  private func keep(_ result: Result<LoadedPlugin, Fault>, _ digest: String) -> Result<LoadedPlugin, Fault> {
    if case .success(let plugin) = result { SpecStore.keep(plugin.entry, digest) }
    return result
  }

  private func read(_ document: [UInt8], _ file: PluginFile, _ digest: String) -> Result<LoadedPlugin, Fault> {
    var diagnostics = Diagnostics()
    let source = SourceText(name: "\(file.ownFile) (spec)", bytes: document)
    guard let spec = PluginSpecReader.read(source, into: &diagnostics) else {
      return .failure(
        Fault(
          message: "its spec does not follow the contract",
          help: "docs/plugin-contract.md describes specs",
          diagnostics: diagnostics.all))
    }
    if file.form != .native, let called = spec.components.first(where: \.kind.isCalled) {
      return .failure(
        Fault(
          message:
            "the \(called.kind.rawValue) '\(called.name)' is a pure function, which only shared libraries can offer",
          help: "Offer an operator instead: a call cannot wait for a program"))
    }
    let whole = file.using(spec)
    SpecStore.note(Array(whole.uses.dropFirst(file.uses.count)), of: file)
    guard !spec.uses.isEmpty else {
      return .success(LoadedPlugin(file: file, spec: spec, digest: digest, ownDigest: digest))
    }
    if let refusal = whole.refusal() { return .failure(Fault(message: refusal)) }
    guard let all = whole.digest() else { return .failure(Fault(message: "a file that it uses cannot be read")) }
    return .success(LoadedPlugin(file: whole, spec: spec, digest: all, ownDigest: digest))
  }
}

/// A plugin whose spec is known.
package struct LoadedPlugin: Sendable {
  /// Includes the files that the spec names.
  package let file: PluginFile
  package let spec: PluginSpec
  /// Digest of all files of the plugin.
  package let digest: String
  /// Digest without the files that the spec names: the key under which the spec is stored.
  let ownDigest: String

  /// The entry for the store of specs.
  var entry: SpecStore.Entry {
    SpecStore.Entry(document: spec.document, whole: spec.uses.isEmpty ? nil : digest)
  }

  /// - Parameters:
  ///   - location: Where the pipeline file names it.
  ///   - log: Receives what pure functions log.
  package func offers(
    at location: SourceLocation?, _ log: @escaping @Sendable (Services.Level, String) -> Void = { _, _ in }
  ) -> PluginOffers {
    let maker: any PluginMaker =
      file.form == .native ? NativePlugin(file, digest, spec.name, log) : ProcessPlugin(file, spec.document)
    var offers = PluginOffers()
    for component in spec.components {
      if component.kind.isCalled {
        let function = PluginFunction(component, of: spec.name, at: location, digest: digest) { component, arguments in
          do throws(PluginFault) {
            let opening = PluginOpening(step: component.name, parameters: arguments)
            return .success(try maker.openRow(of: component, opening, PluginMeter()))
          } catch { return .failure(.init(error.message, at: error.path)) }
        }
        offers.called.append(function)
        continue
      }
      let entry: CatalogueEntry =
        switch component.kind {
        case .source: CatalogueEntry(plugin: { PluginSource(BoundPlugin(component, maker)) })
        case .sink: CatalogueEntry(plugin: { PluginSink(BoundPlugin(component, maker)) })
        default:
          switch component.form {
          case .row where component.finishes:
            CatalogueEntry(pluginRow: { PluginFinishingRow(PluginRow(component, maker)) })
          case .row: CatalogueEntry(pluginRow: { PluginRow(component, maker) })
          case .stream: CatalogueEntry(plugin: { PluginOperator(BoundPlugin(component, maker)) })
          }
        }
      offers.components.append(OfferedComponent(entry, plugin: spec.name, location: location, digest: digest))
    }
    return offers
  }

  /// Mismatches between the plugin's functions and its spec, one sentence each; for native plugins.
  package func problems() -> [String] {
    guard file.form == .native else { return [] }
    do throws(PluginFault) {
      let library = try NativeLibrary.load(file, digest: digest)
      return spec.components.compactMap { library.problem($0) }
    } catch { return [error.message] }
  }
}

/// A native plugin, which is loaded when it is first used.
final class NativePlugin: PluginMaker {
  let file: PluginFile
  private let digest: String
  /// The name of the plugin.
  private let name: String
  private let log: @Sendable (Services.Level, String) -> Void

  init(
    _ file: PluginFile, _ digest: String, _ name: String, _ log: @escaping @Sendable (Services.Level, String) -> Void
  ) {
    self.file = file
    self.digest = digest
    self.name = name
    self.log = log
  }

  func check(_ spec: PluginComponentSpec) throws(PluginFault) {
    if let refusal = file.refusal() { throw PluginFault(refusal) }
    if let problem = try NativeLibrary.load(file, digest: digest).problem(spec) { throw PluginFault(problem) }
  }

  func makeInstance(
    of spec: PluginComponentSpec, _ services: PluginServices, _ receiver: any PluginReceiver
  ) -> any PluginInstance {
    let (file, digest) = (file, digest)
    return NativeInstance(services, receiver) { opening throws(PluginFault) in
      try NativeLibrary.load(file, digest: digest).open(spec, opening, services.said, services.meter)
    }
  }

  func makeSource(
    of spec: PluginComponentSpec, _ services: PluginServices, _ queue: InputQueue
  ) -> any PluginSourceInstance {
    let (file, digest) = (file, digest)
    return NativeSource(services, queue) { opening throws(PluginFault) in
      try NativeLibrary.load(file, digest: digest).open(spec, opening, services.said, services.meter)
    }
  }

  func openRow(
    of spec: PluginComponentSpec, _ opening: PluginOpening, _ meter: PluginMeter
  ) throws(PluginFault) -> any PluginRowFunction {
    let (log, subject) = (log, "the \(spec.kind.rawValue) '\(spec.name)' of the plugin '\(name)'")
    let said = PluginLog({ log($0, "\(subject): \($1)") }, meter)
    return try NativeRow(try NativeLibrary.load(file, digest: digest).open(spec, opening, said, meter))
  }
}

extension LoadedPlugin {
  /// Writes the spec next to the plugin file, for packages.
  package func writeSpec() throws {
    try SpecStore.write(entry, ownDigest, to: SpecStore.fileBeside(file))
  }
}

extension LocalPlugins {
  /// Waits until every plugin has ended, within the time that the contract allows: programs have 1 s before SIGTERM,
  /// and 5 s before they are killed. Returns how many have not.
  package static func waitForEnds() -> Int { PluginLife.wait(11_000_000_000) }
}

extension PluginDeclaration {
  /// The error if the plugin has a version that the file does not accept.
  func problem(of plugin: LoadedPlugin) -> Diagnostic? {
    guard let version, !version.range.contains(plugin.spec.version) else { return nil }
    return Diagnostic(
      .pluginFailed,
      "the plugin '\(Printable.cut(name))' has version \(plugin.spec.version), which is not \(version.range.text)",
      at: version.location,
      help:
        "'rxd plugin install \(plugin.spec.name) --version \"\(version.range.text)\"' installs one, if the index has it"
    )
  }

  /// The error if no plugin directory has the plugin, or it has a version that the file does not accept.
  func problem(among present: [LoadedPlugin]) -> Diagnostic? {
    if let plugin = present.first(where: { $0.spec.name == name }) { return problem(of: plugin) }
    return Diagnostic(
      .pluginFailed, "no plugin directory has a plugin '\(Printable.cut(name))'", at: location,
      help: "'rxd plugin install \(Printable.cut(name))' installs it, if the index has it; 'path' names its file")
  }
}
