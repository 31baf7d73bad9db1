import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Storage

/// The state directory, for the verbs that read it.
struct StateDirectoryOptions: ParsableArguments {
  @Option(
    name: .customLong("state-dir"),
    help: ArgumentHelp("The state directory, as 'rxd run' has it. (RXD_STATE_DIR, STATE_DIRECTORY)", valueName: "dir"),
    completion: .directory)
  var stateDirectory: String?

  /// The directory. Throws an error if no directory is named, or it does not exist.
  func folder() throws -> StateFolder { StateFolder(path: try path()) }

  func path(mayBeMissing: Bool = false) throws -> String {
    guard let path = StateDirectory.named(stateDirectory) else {
      throw ValidationError("Name the state directory with --state-dir.")
    }
    var status = stat()
    if !mayBeMissing, stat(path, &status) != 0 {
      Console.printError("there is no state directory \(path)")
      throw ExitStatus.noInput
    }
    return path
  }
}

/// The stores and files of a state directory, without its lock.
struct StateFolder {
  let path: String

  /// The process that uses the directory, `process 4711`; nil: none does.
  var user: String? { StateDirectory.user(of: path) }

  /// The pipelines that have a store, by name.
  func pipelines() throws -> [String] { try names(in: Stores.folder, ending: ".db") }

  /// The pipelines that had a file at the last start or reload, and their sinks that deliver from the directory; nil:
  /// unknown.
  var takers: [String: Set<String>?]? {
    guard let text = try? ExportedState.read("\(path)/\(Stores.folder)/\(Stores.names)") else { return nil }
    var takers: [String: Set<String>?] = [:]
    for line in text.split(separator: UInt8(ascii: "\n")) {
      let fields = line.split(separator: UInt8(ascii: "\t"), omittingEmptySubsequences: false).map {
        String(decoding: $0, as: UTF8.self)
      }
      // A line without a tab is in the format of older versions, which did not record sinks.
      let sinks = Set(fields.dropFirst()).subtracting([""])
      takers.updateValue(fields.count > 1 ? sinks : nil, forKey: fields[0])
    }
    return takers
  }

  /// All files of a pipeline in the directory.
  func allFiles(_ pipeline: String) -> [String] {
    ["", "-wal", "-shm", ".hand"].map { store(pipeline) + $0 }.filter { access($0, F_OK) == 0 } + files(pipeline)
      + keyFiles(pipeline)
  }

  /// The directory with the keys of a pipeline's steps that are on the disk, alongside its store; it need not exist.
  func keys(_ pipeline: String) -> String { DiskStore.directoryOfKeys(besideStore: store(pipeline)) }

  /// The directory of keys and the files in it; empty if there is none.
  func keyFiles(_ pipeline: String) -> [String] {
    let path = keys(pipeline)
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var files = [path]
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != ".", name != ".." { files.append("\(path)/\(name)") }
    }
    return files
  }

  /// The bytes of the files in that directory; nil: there is none.
  func keyBytes(_ pipeline: String) -> Int? {
    let files = keyFiles(pipeline)
    if files.isEmpty { return nil }
    return files.dropFirst().reduce(0) { sum, path in
      var status = stat()
      return stat(path, &status) == 0 ? sum + Int(status.st_size) : sum
    }
  }

  /// The pipelines that have dead-letter files, by name.
  func pipelinesWithFiles() throws -> [String] {
    Array(
      Set(
        try names(in: DeadLetters.folder, ending: ".ndjson") + names(in: DeadLetters.folder, ending: ".ndjson.1"))
    ).sorted()
  }

  private func names(in folder: String, ending: String) throws -> [String] {
    let folder = "\(path)/\(folder)"
    guard let directory = opendir(folder) else {
      if errno == ENOENT { return [] }
      let reason = String(cString: strerror(errno))
      Console.printError("cannot read \(folder): \(reason)")
      throw ExitStatus.inputOutput
    }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name.hasSuffix(ending), name.utf8.count > ending.utf8.count {
        names.append(String(name.dropLast(ending.count)))
      }
    }
    return names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
  }

  func store(_ pipeline: String) -> String { Stores.path(pipeline, in: path) }

  /// The dead-letter files of a pipeline, the older one first.
  func files(_ pipeline: String) -> [String] {
    [".ndjson.1", ".ndjson"].map { "\(path)/\(DeadLetters.folder)/\(pipeline)\($0)" }.filter { access($0, F_OK) == 0 }
  }

  /// Opens the store of a pipeline for reading.
  func read(_ pipeline: String) throws -> StoreReader {
    try checkExistence(pipeline)
    return try Self.exits { () throws(StoreRefusal) in try StoreReader(store(pipeline)) }
  }

  /// Throws if the pipeline has no store.
  func checkExistence(_ pipeline: String) throws {
    guard !pipeline.contains("/"), access(store(pipeline), F_OK) == 0 else {
      let known = try pipelines()
      Console.printError(
        "the state directory \(path) has no pipeline '\(pipeline)'; it has "
          + (known.isEmpty ? "none" : known.joined(separator: ", ")))
      throw ExitStatus.noInput
    }
  }

  /// Runs `body` while this process holds the lock of the directory.
  ///
  /// - Parameter makesStores: Whether to create the directory and its folder of stores if they do not exist.
  static func locked<T>(_ path: String, makesStores: Bool = false, _ body: () throws -> T) throws -> T {
    let lock: StateDirectory
    do throws(StateDirectory.Refusal) {
      lock = try StateDirectory(path)
      if makesStores { _ = try lock.folder(Stores.folder) }
    } catch { throw error.reported(": stop it first") }
    return try withExtendedLifetime(lock) { try body() }
  }

  /// Changes the store of a pipeline.
  func edit<T>(_ pipeline: String, _ body: (StoreEditor) throws -> T) throws -> T {
    let editor = try Self.exits { () throws(StoreRefusal) in try StoreEditor(store(pipeline)) }
    let result: T
    do { result = try body(editor) } catch let refusal as StoreRefusal {
      Console.printError(refusal.message)
      throw ExitStatus.inputOutput
    }
    try Self.exits { () throws(StoreRefusal) in try editor.close() }
    return result
  }

  /// Runs `body`; prints a refusal and ends the verb.
  static func exits<T>(_ body: () throws(StoreRefusal) -> T) throws -> T {
    do throws(StoreRefusal) { return try body() } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
  }

  /// Requires consent to a destructive action: `--yes`, or an answer at a terminal.
  static func confirm(_ question: String, _ yes: Bool) throws {
    if yes { return }
    guard isatty(0) == 1, isatty(2) == 1 else {
      throw ValidationError("\(question) Add --yes to do it.")
    }
    try? Console.ask("\(question) [y/N] ")
    guard let answer = readLine(), ["y", "yes"].contains(answer.lowercased()) else {
      Console.printError("nothing was changed")
      throw ExitStatus.failure
    }
  }
}

/// Text in columns.
struct TextTable {
  private var rows: [[String]] = []
  /// The right-aligned columns.
  var numbers: Set<Int> = []

  init(_ head: String..., numbers: Set<Int> = []) {
    rows = [head]
    self.numbers = numbers
  }

  mutating func add(_ cells: String...) { rows.append(cells.map { Printable.cut($0, limit: 300) }) }

  var text: String {
    let widths = (rows.first ?? []).indices.map { column in rows.map { $0[column].unicodeScalars.count }.max() ?? 0 }
    return rows.map { row in
      var line = ""
      for (column, cell) in row.enumerated() {
        let pad = String(repeating: " ", count: widths[column] - cell.unicodeScalars.count)
        if column > 0 { line += "  " }
        if numbers.contains(column) {
          line += pad + cell
        } else {
          line += column == row.count - 1 ? cell : cell + pad
        }
      }
      return line
    }.joined(separator: "\n")
  }
}

/// Wall-clock times of stores.
enum StoredTime {
  /// RFC 3339 in UTC with milliseconds, as in logs.
  static func text(_ nanoseconds: Int64) -> String {
    let output = OutputBuffer(capacity: 32)
    LogWriter.appendTimestamp(nanoseconds, to: output)
    return String(decoding: output.bytes, as: UTF8.self)
  }
}
