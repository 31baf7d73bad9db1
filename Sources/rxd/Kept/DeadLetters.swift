import Glibc
import PipelineCore
import Synchronization
import Transport

/// Counts the dead letters of the process, by pipeline and outcome. Thread-safe.
final class DeadLetterCounts: Sendable {
  /// The outcome of a dead letter.
  enum Fate: String, CaseIterable {
    /// Stored in the state directory, for `rxd deadletters`.
    case kept
    /// Written only to the log, which shows the first few of a kind and counts the others.
    case logged
    /// Stored, then removed to make room for newer ones.
    case dropped
  }
  private let counts = Mutex<[String: [Fate: UInt64]]>([:])

  func add(_ count: Int, _ fate: Fate, of pipeline: String) {
    counts.withLock { $0[pipeline, default: [:]][fate, default: 0] &+= UInt64(clamping: count) }
  }

  func of(_ pipeline: String) -> [(name: String, count: UInt64)] {
    let counted = counts.withLock { $0[pipeline] ?? [:] }
    return Fate.allCases.map { ($0.rawValue, counted[$0] ?? 0) }
  }
}

/// Stores rejected events that nothing reads: in a file for each pipeline in the state directory; in the log if there
/// is no state directory, or while the file cannot be written.
final class DeadLetters: Sendable {
  static let folder = "dead-letters"
  /// The maximum size of a file in bytes; as much again may be in `NAME.ndjson.1`.
  static let bound = 16 << 20

  private let log: LogWriter
  /// Holds the directory's lock as long as dead letters may come.
  private let state: StateDirectory?
  private let files: LineFiles?
  let counts = DeadLetterCounts()

  init(_ state: StateDirectory?, log: LogWriter) throws(StateDirectory.Refusal) {
    self.log = log
    self.state = state
    guard let state else {
      files = nil
      return
    }
    let folder = try state.folder(Self.folder)
    files = LineFiles(in: folder, bound: Self.bound) { [counts] in Self.report($0, in: folder.name, log, counts) }
  }

  var areKept: Bool { files != nil }

  /// Writes the dead letters of one pipeline. Never waits for a file.
  func writer(_ pipeline: String) -> @Sendable (UnsafeRawBufferPointer) -> Void {
    let (log, counts, files) = (log, counts, files)
    return { letter in
      if files?.offer(Self.line(letter, of: pipeline), to: Self.file(pipeline)) == true { return }
      counts.add(1, .logged, of: pipeline)
      log.reject(letter, of: pipeline)
    }
  }

  /// Writes queued dead letters for at most `limit`.
  func close(within limit: TimeSpan) { files?.close(within: limit) }

  private static func file(_ pipeline: String) -> String { "\(pipeline).ndjson" }

  /// The line of a dead letter, which is an object; the time and the pipeline come before its own members.
  private static func line(_ letter: UnsafeRawBufferPointer, of pipeline: String) -> [UInt8] {
    let line = OutputBuffer(capacity: letter.count + 128)
    line.append("{\"time\":\"")
    LogWriter.appendTimestamp(to: line)
    line.append("\",\"pipeline\":\"\(pipeline)\",")
    line.append(UnsafeRawBufferPointer(rebasing: letter.dropFirst()))
    line.append(0x0A)
    return Array(line.bytes)
  }

  private static func report(
    _ report: LineFiles.Report, in folder: String, _ log: LogWriter, _ counts: DeadLetterCounts
  ) {
    switch report {
    case .written(let name, let lines, let dropped):
      let pipeline = String(name.dropLast(".ndjson".count))
      let what = lines == 1 ? "1 rejected event is" : "\(lines) rejected events are"
      log.write(.warning, pipeline, "\(what) in \(folder)/\(name)")
      counts.add(lines, .kept, of: pipeline)
      if dropped > 0 {
        counts.add(dropped, .dropped, of: pipeline)
        log.write(
          .warning, pipeline, "the oldest \(dropped) rejected events were dropped, because \(folder)/\(name) was full")
      }
    case .failed(let name, let lines, let error):
      let pipeline = String(name.dropLast(".ndjson".count))
      log.write(.error, pipeline, "\(error.message); rejected events are logged here instead")
      counts.add(lines.count, .logged, of: pipeline)
      for line in lines {
        line.withUnsafeBytes { log.reject(UnsafeRawBufferPointer(rebasing: $0.dropLast()), of: pipeline) }
      }
    }
  }
}
