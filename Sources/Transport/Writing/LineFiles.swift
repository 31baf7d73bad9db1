import Glibc
import PipelineCore

/// Appends whole lines to bounded files of one directory, on a thread of its own that starts with the first line.
///
/// Queueing never waits: lines beyond the limit are rejected. Lines that cannot be written, because of a full disk or
/// missing permission, are returned; a file never contains part of a line. A file that would exceed the limit is
/// renamed to `NAME.1`, replacing an older one, so the newest lines are kept, between one and two limits of them.
package final class LineFiles: Sendable {
  package enum Report: Sendable {
    /// Lines were added; `dropped`: the number of the oldest lines that were dropped.
    case written(String, lines: Int, dropped: Int)
    /// The lines were not written to any file.
    case failed(String, lines: [[UInt8]], PosixError)
  }

  private struct State {
    var queue: [(name: String, line: [UInt8])] = []
    /// Bytes queued or being written.
    var bytes = 0
    var isStarted = false
    var isClosed = false
    var hasEnded = false
  }

  private let files: Files
  private let queueBytes: Int
  private let state = Guarded(State())

  /// - Parameters:
  ///   - directory: The directory of the files; it must stay open.
  ///   - bound: The largest size of a file in bytes, except for a single larger line.
  ///   - queueBytes: The most waiting bytes, except for a single larger line when nothing waits.
  ///   - report: Called on the writing thread.
  package init(
    in directory: FileDescriptor, bound: Int, queueBytes: Int = 4 << 20, report: @escaping @Sendable (Report) -> Void
  ) {
    files = Files(directory: directory, bound: bound, report: report)
    self.queueBytes = queueBytes
  }

  /// Queues a line, with its line feed; returns whether it was taken.
  package func offer(_ line: [UInt8], to name: String) -> Bool {
    enum Verdict { case refused, taken, first }
    let verdict = state.withLock { state -> Verdict in
      guard !state.isClosed, state.bytes == 0 || state.bytes + line.count <= queueBytes else { return .refused }
      state.queue.append((name, line))
      state.bytes += line.count
      defer { state.isStarted = true }
      return state.isStarted ? .taken : .first
    }
    switch verdict {
    case .refused: return false
    case .taken: state.notify()
    case .first:
      let state = state
      let files = files
      do throws(PosixError) {
        _ = try OwnThread("rxd lines") { Self.run(files, state) }
      } catch {
        // Without a thread, the caller writes.
        let left = state.withLock { state in
          state.isStarted = false
          return Self.take(&state) ?? []
        }
        Self.write(left, files, state)
      }
    }
    return true
  }

  /// Rejects further lines, and returns when the queued ones have been written, or after `limit`.
  package func close(within limit: TimeSpan) {
    let isRunning = state.withLock { state in
      state.isClosed = true
      return state.isStarted
    }
    guard isRunning else { return }
    state.notify()
    _ = state.wait(until: monotonicNow() &+ limit.nanoseconds) { $0.hasEnded ? true : nil }
  }

  deinit {
    state.withLock { $0.isClosed = true }
    state.notify()
  }

  private static func run(_ files: Files, _ state: Guarded<State>) {
    while let lines = state.wait(until: nil, take), !lines.isEmpty { write(lines, files, state) }
    state.withLock { $0.hasEnded = true }
    state.notify()
  }

  private typealias Lines = [(name: String, line: [UInt8])]

  /// The queued lines; empty at the end; nil: none yet.
  private static func take(_ state: inout State) -> Lines? {
    if state.queue.isEmpty { return state.isClosed ? [] : nil }
    defer { state.queue = [] }
    return state.queue
  }

  private static func write(_ lines: Lines, _ files: Files, _ state: Guarded<State>) {
    var batches: [(name: String, lines: [[UInt8]])] = []
    var indexes: [String: Int] = [:]
    for (name, line) in lines {
      if let index = indexes[name] {
        batches[index].lines.append(line)
      } else {
        indexes[name] = batches.count
        batches.append((name, [line]))
      }
    }
    for batch in batches { files.add(batch.lines, to: batch.name) }
    let count = lines.reduce(0) { $0 + $1.line.count }
    state.withLock { $0.bytes -= count }
  }

  /// The file operations; used by one thread at a time.
  private struct Files: Sendable {
    let directory: FileDescriptor
    let bound: Int
    let report: @Sendable (Report) -> Void

    func add(_ lines: [[UInt8]], to name: String) {
      let bytes = Array(lines.joined())
      do throws(PosixError) {
        var file = try open(name)
        let size = try file.status().size
        var dropped = 0
        if size > 0, size + Int64(bytes.count) > bound {
          dropped = try moveAside(name)
          file = try open(name)
        }
        try add(bytes, to: file)
        report(.written(name, lines: lines.count, dropped: dropped))
      } catch {
        report(.failed(name, lines: lines, error))
      }
    }

    private func path(_ name: String) -> String { "\(directory.name)/\(name)" }

    private func open(_ name: String) throws(PosixError) -> FileDescriptor {
      let flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
      let number = uninterrupted { openat(directory.number, name, flags, 0o600) }
      if number < 0 { throw PosixError("open", path(name)) }
      let file = FileDescriptor(number, name: path(name))
      let kind = try file.status().kind
      guard kind == .regular else {
        throw PosixError("write to", file.name, code: EINVAL, detail: "it is \(kind.rawValue)")
      }
      return file
    }

    /// Renames the file; returns how many lines an older one had that was replaced.
    private func moveAside(_ name: String) throws(PosixError) -> Int {
      let older = "\(name).1"
      let dropped = lines(of: older)
      if uninterrupted({ renameat(directory.number, name, directory.number, older) }) != 0 {
        throw PosixError("rename", path(name))
      }
      return dropped
    }

    /// The number of lines in a file; 0: the file is missing or cannot be read.
    private func lines(of name: String) -> Int {
      let number = uninterrupted {
        openat(directory.number, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
      }
      guard number >= 0 else { return 0 }
      let file = FileDescriptor(number, name: path(name))
      var chunk = [UInt8](repeating: 0, count: 64 << 10)
      var lines = 0
      while true {
        let count = uninterrupted { read(file.number, &chunk, chunk.count) }
        guard count > 0 else { return lines }
        for byte in chunk[..<count] where byte == 0x0A { lines += 1 }
      }
    }

    private func add(_ lines: [UInt8], to file: FileDescriptor) throws(PosixError) {
      let size = try file.status().size
      do throws(PosixError) {
        // A crash may have left an incomplete line.
        try file.write(file.endsWithinLine(size: size) ? [10] + lines : lines)
      } catch {
        // No other process writes here, so a partial write lies after the old end.
        _ = uninterrupted { ftruncate(file.number, off_t(size)) }
        throw error
      }
    }
  }
}
