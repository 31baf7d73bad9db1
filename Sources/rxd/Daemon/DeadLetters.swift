import Glibc
import PipelineCore
import Transport

/// Stores rejected events without a reader: a file for each pipeline in the state directory; without one, or while the
/// file cannot be written, the log.
final class DeadLetters: Sendable {
  static let folder = "dead-letters"
  /// The limit of a file in bytes; as much again may be in `NAME.ndjson.1`.
  static let bound = 16 << 20

  private let log: LogWriter
  /// Holds the lock as long as dead letters may come.
  private let state: StateDirectory?
  private let files: LineFiles?

  init(_ state: StateDirectory?, log: LogWriter) throws(StateDirectory.Refusal) {
    self.log = log
    self.state = state
    guard let state else {
      files = nil
      return
    }
    let folder = try state.folder(Self.folder)
    files = LineFiles(in: folder, bound: Self.bound) { Self.report($0, in: folder.name, log) }
  }

  var areKept: Bool { files != nil }

  /// Writes the dead letters of one pipeline. Never waits for a file.
  func writer(_ pipeline: String) -> @Sendable (UnsafeRawBufferPointer) -> Void {
    let log = log
    guard let files else { return { log.reject($0) } }
    return { letter in
      if !files.offer(Self.line(letter, of: pipeline), to: Self.file(pipeline)) { log.reject(letter) }
    }
  }

  /// Writes queued dead letters for at most `limit`.
  func close(within limit: TimeSpan) { files?.close(within: limit) }

  private static func file(_ pipeline: String) -> String { "\(pipeline).ndjson" }

  /// A dead letter is an object; the time and the pipeline come before its own members.
  private static func line(_ letter: UnsafeRawBufferPointer, of pipeline: String) -> [UInt8] {
    let line = OutputBuffer(capacity: letter.count + 128)
    line.append("{\"time\":\"")
    LogWriter.appendTimestamp(to: line)
    line.append("\",\"pipeline\":\"\(pipeline)\",")
    line.append(UnsafeRawBufferPointer(rebasing: letter.dropFirst()))
    line.append(0x0A)
    return Array(line.bytes)
  }

  private static func report(_ report: LineFiles.Report, in folder: String, _ log: LogWriter) {
    switch report {
    case .written(let name, let lines, let droppedOlder):
      let pipeline = String(name.dropLast(".ndjson".count))
      let what = lines == 1 ? "1 rejected event is" : "\(lines) rejected events are"
      log.write(.warning, pipeline, "\(what) in \(folder)/\(name)")
      if droppedOlder {
        log.write(.warning, pipeline, "the oldest rejected events were dropped, for \(folder)/\(name) was full")
      }
    case .failed(let name, let lines, let error):
      let pipeline = String(name.dropLast(".ndjson".count))
      log.write(.error, pipeline, "\(error.message); rejected events are logged here instead")
      for line in lines { line.withUnsafeBytes { log.reject(UnsafeRawBufferPointer(rebasing: $0.dropLast())) } }
    }
  }
}
