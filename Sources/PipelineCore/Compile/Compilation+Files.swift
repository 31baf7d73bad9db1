#if canImport(Glibc)
  import Glibc
#endif

/// How components interact through files and standard input.
extension Compilation {
  /// A source that reads a file, or the files of a pattern.
  struct FileReading {
    /// The source, signal, command or sink that contains it.
    var owner: String
    var path: FilePathParameter
  }

  /// Records what a source reads.
  func note(_ source: any SourceComponent, _ context: SignalContext, _ location: SourceLocation) {
    fileReadings += source.readsFiles.filter { !$0.isPlaceholder }.map { FileReading(owner: context.owner, path: $0) }
    if source.readsStandardInput { standardInputs.append(location) }
  }

  func checkFiles(_ sinks: [SinkPlan]) {
    let written = sinks.compactMap { sink -> WrittenFile? in
      guard let path = sink.component.writesFile, !path.isPlaceholder, let location = path.location else { return nil }
      return WrittenFile(
        sink: sink.name, path: path,
        resolved: path.fixedDirectory == nil ? files.resolve(path.text) : resolvedPattern(path.text), location: location
      )
    }
    for file in written {
      let directory = file.path.fixedDirectory ?? Self.directory(of: file.path.text)
      guard files.isMissingDirectory(directory) else { continue }
      diagnostics.report(
        Diagnostic(
          .missingDirectory, "\(file.path.shown) lies in a directory that does not exist", at: file.location,
          help: file.path.fixedDirectory == nil
            ? "Make the directory before the pipeline starts: a file is made where it is missing, a directory is not"
            : "Make the directory before the pipeline starts: only directories behind the first {{ }} are made")
      )
    }
    refuseFileCycles(written)
    if standardInputs.count > 1, let first = standardInputs.first {
      for other in standardInputs.dropFirst() {
        diagnostics.report(
          Diagnostic(
            .sharedStandardInput, "another source already reads standard input", at: other,
            notes: [.init("this one", at: first)],
            help: "Name one source that reads it, and refer to it with 'from' wherever its events are wanted"))
      }
    }
  }

  private struct WrittenFile {
    var sink: String
    var path: FilePathParameter
    var resolved: String
    var location: SourceLocation
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// Reports sinks whose output a source of the same pipeline reads back: events would circulate for ever.
  private func refuseFileCycles(_ written: [WrittenFile]) {
    guard !written.isEmpty, !fileReadings.isEmpty else { return }
    let byReader = Dictionary(grouping: readings, by: \.reader)
    let byOwner = Dictionary(grouping: fileReadings, by: \.owner)
    let patterns = fileReadings.map { resolvedPattern($0.path.text) }
    let patternOf = Dictionary(zip(fileReadings.map(\.path.text), patterns), uniquingKeysWith: { $1 })
    var reported: Set<String> = []
    for file in written where !reported.contains(file.sink) {
      // The sinks reached so far, also through files of other sinks; each with the sources on the way.
      var waiting: [(name: String, way: [FileReading], sinks: [String])] = [(file.sink, [], [])]
      var seen: Set<String> = [file.sink]
      var found: (way: [FileReading], sinks: [String])?
      while found == nil, let next = waiting.first {
        waiting.removeFirst()
        for reading in byOwner[next.name] ?? [] {
          guard let pattern = patternOf[reading.path.text] else { continue }
          for other in written where Self.mayMatch(pattern, other) {
            if other.sink == file.sink { found = (next.way + [reading], next.sinks) }
            if seen.insert(other.sink).inserted {
              waiting.append((other.sink, next.way + [reading], next.sinks + [other.sink]))
            }
          }
        }
        for reading in byReader[next.name] ?? [] where seen.insert(reading.name).inserted {
          waiting.append((reading.name, next.way, next.sinks))
        }
      }
      guard let found else { continue }
      reported.formUnion(found.sinks)
      // Whether an expression ever gives that name is not known.
      let isSure = written.allSatisfy {
        $0.path.fixedDirectory == nil || $0.sink != file.sink && !found.sinks.contains($0.sink)
      }
      diagnostics.report(
        Diagnostic(
          isSure ? .cycle : .possibleFileCycle,
          "the sink '\(file.sink)' \(isSure ? "writes" : "may write") a file that its own events are read from",
          at: file.location,
          notes: found.way.map { .init("'\($0.owner)' reads \($0.path.shown) here", at: $0.path.location) },
          help: "Every event would come back to it for ever: write somewhere else, or narrow the pattern"))
    }
  }

  /// The absolute form of a pattern; its wildcards stay unchanged.
  private func resolvedPattern(_ pattern: String) -> String {
    let wildcards = Array("*?[".utf8)
    guard let first = pattern.utf8.firstIndex(where: { wildcards.contains($0) }) else { return files.resolve(pattern) }
    let slash = pattern.utf8[..<first].lastIndex(of: UInt8(ascii: "/"))
    let directory = slash.map { $0 == pattern.startIndex ? "/" : String(pattern[..<$0]) } ?? "."
    let rest = slash.map { String(pattern[pattern.utf8.index(after: $0)...]) } ?? pattern
    let resolved = files.resolve(directory)
    if resolved.isEmpty { return rest }
    return resolved == "/" ? "/" + rest : resolved + "/" + rest
  }

  private static func mayMatch(_ pattern: String, _ file: WrittenFile) -> Bool {
    matches(pattern, file.resolved) || file.path.fixedDirectory != nil && matches(file.resolved, pattern)
  }

  private static func matches(_ pattern: String, _ path: String) -> Bool {
    pattern == path || fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD) == 0
  }
}

extension Diagnostic.Code {
  public static let missingDirectory = Diagnostic.Code(
    "RX336", "The directory of a file that a sink writes does not exist.", severity: .warning)
  public static let sharedStandardInput = Diagnostic.Code(
    "RX337", "One source of a process can read standard input.", severity: .warning)
  public static let sharedName = Diagnostic.Code(
    "RX338", "Pipelines that run together have a name each.", severity: .warning)
  public static let pathTemplate = Diagnostic.Code(
    "RX350", "A path with {{ }} begins with a directory, and names a file below it.")
  public static let possibleFileCycle = Diagnostic.Code(
    "RX351", "A sink may write a file that its own events are read from.", severity: .warning)
  static let files: [Diagnostic.Code] = [
    .missingDirectory, .sharedStandardInput, .sharedName, .pathTemplate, .possibleFileCycle,
  ]
}
