import Glibc
package import PipelineCore
import Synchronization
package import Transport

/// Turns pipeline files of this machine into plans: reads them, finds the values of `${...}`, and passes both to the
/// ``PipelineCore/FrontEnd``. That is all of `rxd check`; `rxd run` adds the launch.
package struct PipelineLoader {
  /// The sources of `${...}` values.
  package struct Inputs: Sendable {
    /// If false, the environment is not read, and values without a default are replaced by placeholders.
    package var readsEnvironment = true
    /// Variables of `--env-file`; those of the process take precedence.
    package var variables: [String: [UInt8]] = [:]
    /// Variables of a test, which take precedence over all others.
    package var overrides: [String: String] = [:]
    /// Values that replace those in the files, each `PATH=VALUE`.
    package var settings: [String] = []
    /// The signals to print, and the format.
    package var printed: [String] = []
    package var printedFormat = EncoderFormat.ndjson
    /// The directories in which `${secret:NAME}` is looked up, besides the credentials directory.
    package var secretDirectories: [String] = []
    /// Finds the components of plugins.
    package var plugins: any PluginProvider = NoPlugins()

    package init() {}
  }

  /// One loaded file.
  @dynamicMemberLookup package struct Loaded {
    /// The path as given on the command line.
    package var path: String
    package var compiled: FrontEnd.Result
    /// A hash of the secrets, files and plugins that were used, and of the variables that expressions read from `env`;
    /// comparable within one process.
    package var values = 0
    /// Whether the file could not be opened, which has its own exit status.
    package var isUnreadable = false
    /// The other files to which the text refers: schemas, secrets and plugins.
    package var uses: [String] = []

    /// The result for a file that cannot be read.
    package init(unreadable path: String, _ diagnostic: Diagnostic) {
      self.path = path
      compiled = FrontEnd.Result(diagnostics: [diagnostic])
      isUnreadable = true
    }

    init(path: String, _ compiled: FrontEnd.Result, values: Int, uses: [String]) {
      self.path = path
      self.compiled = compiled
      self.values = values
      self.uses = uses
    }

    package subscript<T>(dynamicMember member: WritableKeyPath<FrontEnd.Result, T>) -> T {
      get { compiled[keyPath: member] }
      set { compiled[keyPath: member] = newValue }
    }
    package subscript<T>(dynamicMember member: KeyPath<FrontEnd.Result, T>) -> T { compiled[keyPath: member] }
  }

  package var inputs = Inputs()
  private let front: FrontEnd
  /// `env` in expressions.
  private let environment: [String: String]

  /// - Parameters:
  ///   - checksFiles: Whether to check the directories that sinks write to, because the pipelines run on this machine.
  ///   - acceptsLibraries: Whether files are accepted that exist only to be included by others.
  package init(
    _ inputs: Inputs = Inputs(), catalogue: Catalogue = .builtIn, checksFiles: Bool = false,
    acceptsLibraries: Bool = false
  ) {
    self.inputs = inputs
    var environment: [String: String] = [:]
    if inputs.readsEnvironment {
      environment = inputs.variables.mapValues { String(decoding: $0, as: UTF8.self) }
      environment.merge(ProcessEnvironment.variables) { $1 }
    }
    environment.merge(inputs.overrides) { $1 }
    var files = inputs.readsEnvironment ? FileProbe.system : .none
    if !checksFiles {
      files.isMissingDirectory = { _ in false }
      files.isMissingFile = { _ in false }
    }
    var front = FrontEnd(catalogue, environment: environment, files: files)
    front.plugins = inputs.plugins
    front.overrides = inputs.settings
    front.printed = inputs.printed
    front.printedFormat = inputs.printedFormat
    front.acceptsLibraries = acceptsLibraries
    self.front = front
    self.environment = environment
  }

  package func load(_ path: String) -> Loaded {
    do throws(PosixError) {
      return compile(path, try Self.read(path))
    } catch {
      return Loaded(
        unreadable: path, Diagnostic(.unreadableFile, error.message, at: nil, help: Self.help(error)))
    }
  }

  /// Loads the files that one process runs together.
  package func load(_ paths: [String]) -> [Loaded] {
    var loaded = paths.map { load($0) }
    var results = loaded.map(\.compiled)
    FrontEnd.checkTogether(&results)
    for index in loaded.indices { loaded[index].compiled = results[index] }
    return loaded
  }

  package func compile(_ path: String, _ source: SourceText) -> Loaded {
    let used = UsedValues()
    var front = front
    if inputs.readsEnvironment || !inputs.overrides.isEmpty { front.values = Self.interpolation(inputs, used) }
    front.compiler.schemas = Self.schemas(beside: path, used)
    front.included = Self.included(used)
    let compiled = front.compile(source)
    if let plan = compiled.plan { used.note(plan, environment) }
    var values = Hasher()
    values.combine(used.hash)
    values.combine(compiled.digests.sorted())
    return Loaded(path: path, compiled, values: values.finalize(), uses: used.files + compiled.pluginFiles)
  }

  /// Compiles the same file with other values of some variables.
  package func compile(_ loaded: Loaded, overriding variables: [String: String]) -> Loaded? {
    guard let source = loaded.source else { return nil }
    var inputs = inputs
    inputs.overrides = variables
    return PipelineLoader(inputs, catalogue: front.compiler.catalogue).compile(loaded.path, source)
  }

  // MARK: Files

  /// Reads a whole file, up to one byte more than the limit of a pipeline file; `-` is standard input.
  package static func read(_ path: String) throws(PosixError) -> SourceText {
    let limit = YAMLLimits.standard.fileBytes + 1
    if path == "-" || path == "/dev/stdin" { return try standardInput(limit) }
    // A shell's <(command) is a pipe under /dev/fd; any other pipe could block forever.
    let isShellPipe = path.hasPrefix("/dev/fd/") || path.hasPrefix("/proc/self/fd/")
    let file = try FileDescriptor.openForReading(path, kinds: isShellPipe ? [.regular, .fifo] : [.regular])
    return SourceText(name: path, bytes: try drain(file, limit: limit))
  }

  /// The text of standard input, which can be read only once: a reload compiles the same text again.
  private static func standardInput(_ limit: Int) throws(PosixError) -> SourceText {
    if let known = standardInputText.withLock({ $0 }) { return known }
    let text = SourceText(name: SourceText.standardInputName, bytes: try drain(.standardInput, limit: limit))
    standardInputText.withLock { $0 = text }
    return text
  }

  private static let standardInputText = Mutex<SourceText?>(nil)

  private static func drain(_ file: FileDescriptor, limit: Int) throws(PosixError) -> [UInt8] {
    var bytes: [UInt8] = []
    let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
    defer { chunk.deallocate() }
    while bytes.count < limit {
      let room = UnsafeMutableRawBufferPointer(rebasing: chunk[..<min(chunk.count, limit - bytes.count)])
      guard let count = try file.read(into: room), count > 0 else { break }
      bytes.append(contentsOf: chunk[..<count])
    }
    return bytes
  }

  private static func help(_ error: PosixError) -> String? {
    switch error.code {
    case ENOENT: "check the path; it is relative to the directory that rxd was started in"
    case EACCES: "rxd needs the permission to read it"
    default: nil
    }
  }

  /// The schema files next to a pipeline file; for standard input, in the working directory.
  private static func schemas(beside path: String, _ used: UsedValues) -> SchemaFiles {
    let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? ""
    return SchemaFiles { name in
      let candidate = name.hasPrefix("/") ? name : directory + name
      used.note(file: candidate)
      do throws(PosixError) {
        let text = try read(candidate)
        _ = used.note(candidate, .found(text.bytes))
        return .found(name: candidate, bytes: text.bytes)
      } catch {
        return .refused("cannot be read: \(PosixError.text(error.code))")
      }
    }
  }

  /// The files that pipeline files include. With all links resolved, they must be in the directory of the including
  /// file or below it.
  private static func included(_ used: UsedValues) -> IncludedFiles {
    IncludedFiles { path, including in
      let directory = including.lastIndex(of: "/").map { String(including[...$0]) } ?? ""
      let candidate = directory + path
      used.note(file: candidate)
      guard let folder = realPath(directory.isEmpty ? "." : directory) else {
        return .refused("cannot be read: \(PosixError.text(errno))")
      }
      guard let target = realPath(candidate) else { return .refused("cannot be read: \(PosixError.text(errno))") }
      guard target.hasPrefix(folder.hasSuffix("/") ? folder : folder + "/") else {
        return .refused("is a link that leaves the directory of the file")
      }
      do throws(PosixError) {
        let text = try read(target)
        _ = used.note(candidate, .found(text.bytes))
        // A file has one name in messages, however its path is written.
        let name = directory + target.dropFirst(folder.hasSuffix("/") ? folder.count : folder.count + 1)
        return .found(name: name, bytes: text.bytes)
      } catch {
        // Not opened, because a pipe or a device could block.
        return .refused(
          error.code == EINVAL ? "is not a regular file" : "cannot be read: \(PosixError.text(error.code))")
      }
    }
  }

  private static func realPath(_ path: String) -> String? {
    guard let real = realpath(path, nil) else { return nil }
    defer { free(real) }
    return String(cString: real)
  }

  // MARK: The environment

  private static func interpolation(_ inputs: Inputs, _ used: UsedValues) -> Interpolation {
    Interpolation(
      variable: { name in
        var value = inputs.overrides[name].map { Array($0.utf8) }
        if value == nil, inputs.readsEnvironment {
          value = ProcessEnvironment.bytes(name) ?? inputs.variables[name]
        }
        return value.map { .found($0) } ?? .missing
      },
      secret: { name in used.note(name, Self.secret(name, inputs, used)) })
  }

  /// Records the secrets, schemas and expression variables that were used, as a hash that reveals nothing, and the
  /// files that were looked for.
  private final class UsedValues: Sendable {
    private let hasher = Mutex(Hasher())
    private let names = Mutex<[String]>([])

    var files: [String] { names.withLock { $0 } }

    func note(file: String) { names.withLock { $0.append(file) } }

    var hash: Int { hasher.withLock { $0.finalize() } }

    /// Records the variables that the expressions of a plan read from the environment: the named ones, or all of them
    /// if a name is computed.
    func note(_ plan: Plan, _ environment: [String: String]) {
      let reads = plan.expressions.lazy.flatMap(\.checked.reads).filter { $0.variable == "env" }
      let names = reads.contains { $0.fields.isEmpty } ? Array(environment.keys) : reads.compactMap(\.fields.first)
      hasher.withLock { hasher in
        for name in Set(names).sorted() {
          hasher.combine(name)
          hasher.combine(environment[name])
        }
      }
    }

    func note(_ name: String, _ found: Interpolation.Lookup) -> Interpolation.Lookup {
      hasher.withLock {
        $0.combine(name)
        if case .found(let bytes) = found { $0.combine(bytes) }
      }
      return found
    }
  }

  /// Secrets are files: first systemd's credentials, then the given directories, then /run/secrets.
  private static func secret(_ name: String, _ inputs: Inputs, _ used: UsedValues) -> Interpolation.Lookup {
    var searched: [(directory: String, isPrivate: Bool)] = []
    if let credentials = ProcessEnvironment["CREDENTIALS_DIRECTORY"], !credentials.isEmpty {
      searched.append((credentials, true))
    }
    searched += inputs.secretDirectories.map { ($0, false) }
    // Container runtimes mount this directory for one container only, and set its modes themselves.
    searched.append(("/run/secrets", true))
    for candidate in searched {
      let path = "\(candidate.directory)/\(name)"
      used.note(file: path)
      do throws(PosixError) {
        let file = try FileDescriptor.openForReading(path)
        // Checks the open file, so that the file checked is the file read, even if its path now names another file.
        var status = stat()
        if !candidate.isPrivate, fstat(file.number, &status) == 0 {
          if status.st_mode & 0o007 != 0 {
            return .refused("can be read by every user of the machine; use chmod o= on its file")
          }
          if TrustedFile.isWritableByOthers(file.number) {
            return .refused("can be written by others than its owner; use chmod g-w on its file")
          }
        }
        var bytes = try drain(file, limit: (64 << 10) + 1)
        if bytes.count > 64 << 10 { return .refused("has more than 64 KiB") }
        if bytes.last == 0x0A { bytes.removeLast() }
        if bytes.last == 0x0D { bytes.removeLast() }
        if bytes.isEmpty { return .refused("is empty: its file \(Printable.cut(path)) has no text") }
        SecretMask.process.note(bytes)
        return .found(bytes)
      } catch {
        if [ENOENT, ENOTDIR].contains(error.code) { continue }
        return .refused("cannot be read: \(PosixError.text(error.code))")
      }
    }
    return .missing
  }

  /// Reads `NAME=value` lines: skips blank lines and those that start with #, and removes `export` and one pair of
  /// quotes around the value.
  package static func readVariables(_ path: String) throws(PosixError) -> [String: [UInt8]] {
    let source = try read(path)
    var result: [String: [UInt8]] = [:]
    for number in 1...max(1, source.lineCount) {
      var line = source.bytes[source.lineRange(number)]
      func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
      line = line.drop(while: isBlank)
      if line.starts(with: Array("export ".utf8)) { line = line.dropFirst(7).drop(while: isBlank) }
      guard let first = line.first, first != UInt8(ascii: "#") else { continue }
      guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else {
        throw PosixError(
          "use", path, code: EINVAL, detail: "line \(number) is not NAME=value")
      }
      let name = String(decoding: line[..<equals], as: UTF8.self)
      var value = line[(equals + 1)...]
      while let last = value.last, isBlank(last) { value.removeLast() }
      if value.count >= 2, let quote = value.first, quote == value.last,
        quote == UInt8(ascii: "\"") || quote == UInt8(ascii: "'")
      {
        value = value.dropFirst().dropLast()
      }
      result[name] = Array(value)
    }
    return result
  }
}
