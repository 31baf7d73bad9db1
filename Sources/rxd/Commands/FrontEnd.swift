import Glibc
import PipelineCore
import Sinks
import Sources_
import Synchronization
import Transport

extension Catalogue {
  /// Everything that is built in.
  static let builtIn = Catalogue.sources.adding(.operators).adding(.commands).adding(.sinks)
}

extension Printable {
  /// Between quotes, fit for a terminal.
  static func quote(_ text: String) -> String { "'\(cut(text, limit: 300))'" }
}

/// Turns files into plans: read, interpolate, parse, compile. `check` is this; `run` adds the launch.
struct FrontEnd {
  /// Where values of `${...}` come from.
  struct Inputs: Sendable {
    /// False: nothing is read from the environment, placeholders stand for what has no default.
    var readsEnvironment = true
    /// Variables from `--env-file`; those of the process come first.
    var variables: [String: [UInt8]] = [:]
    /// Variables that come before all others: those of a test.
    var overrides: [String: String] = [:]
    /// Where `${secret:NAME}` looks, beside the credentials directory.
    var secretDirectories: [String] = []
  }

  /// One file after the front end. There is a plan exactly if there are no errors.
  struct Result {
    /// As it was named on the command line.
    var path: String
    var source: SourceText?
    var file: PipelineFile?
    var plan: Plan?
    var diagnostics: [Diagnostic] = []
    /// Stands for what the file says, without what is put in: see ``PipelineCore/YAMLNode/pipelineMeaning``.
    var meaning: UInt64 = 0
    /// Stands for the variables and secrets that were put in; equal within a process if they are.
    var values = 0
    /// The file could not be opened, so the exit status is another.
    var isUnreadable = false

    var hasErrors: Bool { diagnostics.contains { $0.severity == .error } }
    var hasWarnings: Bool { diagnostics.contains { $0.severity == .warning } }
  }

  var inputs = Inputs()
  private let compiler: PipelineCompiler
  private let files: FileProbe

  /// `checksFiles`: whether the directories that sinks write to are there matters, because the pipelines are to run here, or
  /// are checked for it.
  init(_ inputs: Inputs = Inputs(), checksFiles: Bool = false) {
    self.inputs = inputs
    var environment: [String: String] = [:]
    if inputs.readsEnvironment {
      environment = inputs.variables.mapValues { String(decoding: $0, as: UTF8.self) }
      environment.merge(ProcessEnvironment.variables) { $1 }
    }
    environment.merge(inputs.overrides) { $1 }
    compiler = PipelineCompiler(.builtIn, environment: environment)
    var files = inputs.readsEnvironment ? FileProbe.system : .none
    if !checksFiles { files.isMissingDirectory = { _ in false } }
    self.files = files
  }

  /// Warns of names, and of standard input, that several of the files would have.
  private func reportSharing(in results: inout [Result]) {
    var named: [String: Located<String>] = [:]
    var reader: (name: String, location: SourceLocation)?
    for index in results.indices {
      guard let plan = results[index].plan, let name = results[index].file?.name else { continue }
      if let other = named[name.value] {
        results[index].diagnostics.append(
          Diagnostic(
            .sharedName, "another of these pipelines is also called \(Printable.quote(name.value))", at: name.location,
            notes: [.init("this one", at: other.location)],
            help: "Give one of them another 'name': the log and the dead letters identify pipelines by name"))
      } else {
        named[name.value] = name
      }
      guard let location = plan.standardInput else { continue }
      if results[index].path == "-" {
        results[index].diagnostics.append(
          Diagnostic(
            .sharedStandardInput,
            "the pipeline file itself is read from standard input, so this source cannot read it",
            at: location, help: "Give the pipeline file by its path"))
      } else if let reader {
        results[index].diagnostics.append(
          Diagnostic(
            .sharedStandardInput,
            "the pipeline \(Printable.quote(reader.name)) also reads standard input, and only one can",
            at: location,
            notes: [.init("it does so here", at: reader.location)], help: "Run them as separate processes"))
      } else {
        reader = (plan.name, location)
      }
    }
  }

  func load(_ path: String) -> Result {
    do throws(PosixError) {
      return compile(path, try Self.read(path))
    } catch {
      return Result(
        path: path,
        diagnostics: [Diagnostic(.unreadableFile, error.message, at: nil, help: Self.help(error))],
        isUnreadable: true)
    }
  }

  /// The files that one process is to run together: what only one of them can have is an error in the later one.
  func load(_ paths: [String]) -> [Result] {
    var results: [Result] = []
    for path in paths {
      var result = load(path)
      if let plan = result.plan {
        var diagnostics = Diagnostics()
        plan.reportSharedAddresses(beside: results.compactMap(\.plan), into: &diagnostics)
        result.diagnostics += diagnostics.all
        if diagnostics.hasErrors { result.plan = nil }
      }
      results.append(result)
    }
    reportSharing(in: &results)
    return results
  }

  func compile(_ path: String, _ source: SourceText) -> Result {
    var result = Result(path: path, source: source)
    var diagnostics = Diagnostics()
    if let root = YAMLReader.read(source, into: &diagnostics) {
      result.meaning = root.pipelineMeaning
      let used = UsedValues()
      let interpolation =
        inputs.readsEnvironment || !inputs.overrides.isEmpty ? Self.interpolation(inputs, used) : .noEnvironment
      let node = interpolation.apply(to: root, into: &diagnostics)
      let file = PipelineFileParser.parse(node, into: &diagnostics)
      result.file = file
      var compiler = compiler
      compiler.schemas = Self.schemas(beside: path, used)
      compiler.files = files
      let plan = compiler.compile(file, into: &diagnostics)
      result.values = used.hash
      if !diagnostics.hasErrors { result.plan = plan }
    }
    result.diagnostics = diagnostics.all
    return result
  }

  /// The tests of a file; what is wrong with them is told in `diagnostics`.
  func tests(of loaded: Result, into diagnostics: inout Diagnostics) -> [PipelineTest] {
    guard let plan = loaded.plan, let file = loaded.file, let source = loaded.source else { return [] }
    return PipelineTestReader.read(file.tests, of: plan, into: &diagnostics) { environment, found in
      var inputs = inputs
      inputs.overrides = environment
      let own = FrontEnd(inputs).compile(loaded.path, source)
      found.report(contentsOf: own.diagnostics)
      return own.plan
    }
  }

  // MARK: Files

  /// Reads a file whole, at most one byte more than a pipeline file may have; `-` is standard input.
  static func read(_ path: String) throws(PosixError) -> SourceText {
    let limit = YAMLLimits.standard.fileBytes + 1
    if path == "-" || path == "/dev/stdin" {
      return SourceText(name: "<stdin>", bytes: try drain(.standardInput, limit: limit))
    }
    // A shell's <(command) is a pipe under /dev/fd; any other pipe could keep us waiting for ever.
    let isShellPipe = path.hasPrefix("/dev/fd/") || path.hasPrefix("/proc/self/fd/")
    let file = try FileDescriptor.openForReading(path, kinds: isShellPipe ? [.regular, .fifo] : [.regular])
    return SourceText(name: path, bytes: try drain(file, limit: limit))
  }

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

  /// Schema files beside a pipeline file; those of standard input count from the working directory.
  private static func schemas(beside path: String, _ used: UsedValues) -> SchemaFiles {
    let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? ""
    return SchemaFiles { name in
      let place = name.hasPrefix("/") ? name : directory + name
      do throws(PosixError) {
        let text = try read(place)
        _ = used.note(place, .found(text.bytes))
        return .found(name: place, bytes: text.bytes)
      } catch {
        return .refused("cannot be read: \(PosixError.text(error.code))")
      }
    }
  }

  // MARK: The environment

  private static func interpolation(_ inputs: Inputs, _ used: UsedValues) -> Interpolation {
    Interpolation(
      variable: { name in
        var value = inputs.overrides[name].map { Array($0.utf8) }
        if value == nil, inputs.readsEnvironment {
          value = ProcessEnvironment.bytes(name) ?? inputs.variables[name]
        }
        return used.note(name, value.map { .found($0) } ?? .missing)
      },
      secret: { name in used.note(name, Self.secret(name, inputs)) })
  }

  /// Remembers what was looked up, as a number that tells nothing of the values.
  private final class UsedValues: Sendable {
    private let hasher = Mutex(Hasher())

    var hash: Int { hasher.withLock { $0.finalize() } }

    func note(_ name: String, _ found: Interpolation.Lookup) -> Interpolation.Lookup {
      hasher.withLock {
        $0.combine(name)
        if case .found(let bytes) = found { $0.combine(bytes) }
      }
      return found
    }
  }

  /// Secrets are files: systemd's credentials first, then the directories given, then /run/secrets.
  private static func secret(_ name: String, _ inputs: Inputs) -> Interpolation.Lookup {
    var places: [(directory: String, isPrivate: Bool)] = []
    if let credentials = ProcessEnvironment["CREDENTIALS_DIRECTORY"], !credentials.isEmpty {
      places.append((credentials, true))
    }
    places += inputs.secretDirectories.map { ($0, false) }
    // Container runtimes mount it for this container alone, with modes of their own choice.
    places.append(("/run/secrets", true))
    for place in places {
      let path = "\(place.directory)/\(name)"
      var status = stat()
      guard stat(path, &status) == 0 else { continue }
      if !place.isPrivate, status.st_mode & 0o007 != 0 {
        return .refused("can be read by every user of the machine; use chmod o= on its file")
      }
      do throws(PosixError) {
        let file = try FileDescriptor.openForReading(path)
        var bytes = try drain(file, limit: (64 << 10) + 1)
        if bytes.count > 64 << 10 { return .refused("has more than 64 KiB") }
        if bytes.last == 0x0A { bytes.removeLast() }
        if bytes.last == 0x0D { bytes.removeLast() }
        SecretMask.process.note(bytes)
        return .found(bytes)
      } catch {
        return .refused("cannot be read: \(PosixError.text(error.code))")
      }
    }
    return .missing
  }

  /// Reads `NAME=value` lines: blank lines and those that begin with # are skipped, `export` and one
  /// pair of quotes around the value are taken off.
  static func readVariables(_ path: String) throws(PosixError) -> [String: [UInt8]] {
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
