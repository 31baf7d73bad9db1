import Glibc
import PipelineCore
import Synchronization
import Transport

/// Standard error as the output of the log: a logging thread never waits for the reader.
///
/// A line is written at once if standard error accepts it. Otherwise it waits in a bounded buffer, and a thread writes
/// it as soon as there is room. Lines that do not fit into the buffer are dropped and counted; a line in their place
/// gives the number.
final class LogOutput: Sendable {
  /// The maximum number of buffered bytes.
  static let bound = 1 << 20

  private struct State {
    var waiting: [UInt8] = []
    /// How many bytes of `waiting` have been written.
    var written = 0
    var dropped = 0
    /// Whether a thread is writing the buffer.
    var hasThread = false

    var left: Int { waiting.count - written }
  }

  private let state = Mutex(State())
  private let target: Target
  /// Makes the line that reports the number of dropped lines.
  private let note: @Sendable (Int) -> [UInt8]

  init(_ note: @escaping @Sendable (Int) -> [UInt8]) {
    self.note = note
    target = Target(2)
  }

  /// Writes a line, including its line feed. Never waits.
  func put(_ line: UnsafeRawBufferPointer) {
    let mustStart = state.withLock { state in
      if state.left == 0, state.dropped == 0 {
        let count = target.write(line)
        if count == line.count { return false }
        state.waiting = Array(line[count...])
        state.written = 0
      } else if state.left < Self.bound {
        if state.dropped > 0 { noteDropped(&state) }
        state.waiting.append(contentsOf: line)
      } else {
        state.dropped += 1
      }
      defer { state.hasThread = true }
      return !state.hasThread
    }
    if mustStart { startThread() }
  }

  /// Writes the buffer; gives up if nothing is accepted for `patience`.
  func flush(patience: TimeSpan) {
    while write(), target.isWritable(within: patience) {}
  }

  private func noteDropped(_ state: inout State) {
    state.waiting.append(contentsOf: note(state.dropped))
    state.dropped = 0
  }

  /// Writes as much as possible at once; returns whether anything is left.
  private func write() -> Bool {
    state.withLock { state in
      while true {
        if state.left == 0 {
          if state.dropped == 0 { break }
          noteDropped(&state)
        }
        let count = state.waiting.withUnsafeBytes {
          target.write(UnsafeRawBufferPointer(rebasing: $0[state.written...]))
        }
        if count == 0 { break }
        state.written += count
        if state.left == 0 {
          state.waiting = []
          state.written = 0
        } else if state.written >= Self.bound / 4 {
          state.waiting.removeFirst(state.written)
          state.written = 0
        }
      }
      return state.left > 0
    }
  }

  private func startThread() {
    do throws(PosixError) {
      _ = try OwnThread("rxd log", stackBytes: 256 << 10) { [self] in
        while true {
          _ = target.isWritable(within: nil)
          let isDone = state.withLock { state in
            // Under the same lock as the check, so that a new line finds either the thread or an empty buffer.
            guard state.left == 0, state.dropped == 0 else { return false }
            state.hasThread = false
            return true
          }
          if isDone { return }
          _ = write()
        }
      }
    } catch {
      // If no thread could be started, the next line tries again.
      state.withLock { $0.hasThread = false }
    }
  }

  /// A descriptor that can be written without blocking, even if other processes share it in another mode.
  private struct Target: Sendable {
    private let descriptor: Int32
    private let isSocket: Bool
    /// The maximum number of bytes of one write.
    private let most: Int
    /// Whether writing may block, so that there must be room first.
    private let asks: Bool

    init(_ shared: Int32) {
      var status = stat()
      let kind = fstat(shared, &status) == 0 ? status.st_mode & S_IFMT : S_IFREG
      isSocket = kind == S_IFSOCK
      guard kind == S_IFIFO || kind == S_IFCHR && isatty(shared) == 1 else {
        // Writing to a file or the null device does not block.
        descriptor = shared
        most = .max
        asks = false
        return
      }
      // Opens the file again, because the non-blocking mode of its own file description does not affect others.
      let own = open("/proc/self/fd/\(shared)", O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
      descriptor = own < 0 ? shared : own
      // A pipe that is writable has room for PIPE_BUF bytes.
      most = own < 0 ? Int(PIPE_BUF) : .max
      asks = own < 0
    }

    /// Writes as much as possible at once; returns how much. Bytes that can never be read count as written.
    func write(_ bytes: UnsafeRawBufferPointer) -> Int {
      if bytes.count == 0 || asks && !isWritable(within: .zero) { return 0 }
      while true {
        let count =
          isSocket
          ? send(descriptor, bytes.baseAddress, min(bytes.count, most), Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
          : Glibc.write(descriptor, bytes.baseAddress, min(bytes.count, most))
        if count >= 0 { return count }
        if errno == EINTR { continue }
        return errno == EAGAIN ? 0 : bytes.count
      }
    }

    /// Waits until writing is possible, or certain to fail; false: neither has happened within `limit`. Nil waits for
    /// ever.
    func isWritable(within limit: TimeSpan?) -> Bool {
      var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
      let milliseconds = limit.map { Int32(clamping: $0.nanoseconds / 1_000_000) } ?? -1
      while true {
        let count = poll(&entry, 1, milliseconds)
        if count < 0, errno == EINTR { continue }
        return count != 0
      }
    }
  }
}
