import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd check --fix` for one file: makes the replacements that its diagnostics propose.
struct FileFixes {
  let front: PipelineLoader
  private(set) var loaded: PipelineLoader.Loaded
  /// The changed lines, each group under its location.
  private(set) var difference = ""
  private(set) var count = 0

  /// A file with more is left for another run.
  private static let limit = 1_000

  init(_ loaded: PipelineLoader.Loaded, _ front: PipelineLoader) {
    self.front = front
    self.loaded = loaded
  }

  /// Makes one replacement after the other, because each may bring forth further errors, or end them: a file that is no YAML has one error. A
  /// replacement after which the file still has the error is undone.
  mutating func make() {
    var useless: Set<String> = []
    while count < Self.limit, let source = loaded.source,
      let (diagnostic, fix) = next(in: source, except: useless)
    {
      let edit = TextEdit(offset: fix.location.offset, length: fix.location.length, fix.replacement)
      var bytes = source.bytes
      bytes.replaceSubrange(edit.offset..<edit.offset + edit.length, with: edit.replacement.utf8)
      let fresh = front.compile(loaded.path, SourceText(name: source.name, bytes: bytes))
      if Self.helps(diagnostic, loaded.diagnostics, fresh.diagnostics) {
        difference += [edit].difference(of: source)
        loaded = fresh
        count += 1
      } else {
        useless.insert(Self.name(diagnostic))
      }
    }
  }

  /// The first diagnostic with a single fix, one of several would be a guess.
  private func next(in source: SourceText, except useless: Set<String>) -> (Diagnostic, Diagnostic.FixIt)? {
    for diagnostic in loaded.diagnostics where diagnostic.fixIts.count == 1 {
      let fix = diagnostic.fixIts[0]
      let end = fix.location.offset + fix.location.length
      if fix.location.text.name == source.name, end <= source.bytes.count, !useless.contains(Self.name(diagnostic)) {
        return (diagnostic, fix)
      }
    }
    return nil
  }

  private static func name(_ diagnostic: Diagnostic) -> String {
    "\(diagnostic.location.map { "\($0)" } ?? "") \(diagnostic.code.name) \(diagnostic.message)"
  }

  /// Whether the error is gone; the fix of a warning must not make an error.
  private static func helps(_ diagnostic: Diagnostic, _ before: [Diagnostic], _ after: [Diagnostic]) -> Bool {
    func same(_ all: [Diagnostic]) -> Int {
      all.count { $0.code == diagnostic.code && $0.message == diagnostic.message }
    }
    func errors(_ all: [Diagnostic]) -> Int { all.count { $0.severity == .error } }
    return same(after) < same(before) && (diagnostic.severity == .error || errors(after) <= errors(before))
  }

  /// Writes the file, if anything has changed.
  func write() throws {
    guard count > 0, let source = loaded.source else { return }
    try Self.replace(loaded.path, with: source.bytes)
  }

  /// Writes a file of the user anew, with its present permissions, following links.
  static func replace(_ path: String, with bytes: [UInt8]) throws {
    var status = stat()
    let mode = stat(path, &status) == 0 ? status.st_mode & 0o7777 : 0o644
    var target = path
    if let real = realpath(path, nil) {
      target = String(cString: real)
      free(real)
    }
    let text = OutputBuffer()
    bytes.withUnsafeBytes { text.append($0) }
    do throws(PosixError) {
      try replaceFile(target, with: text.bytes, permissions: mode)
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
  }
}
