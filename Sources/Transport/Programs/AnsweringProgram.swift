import Glibc
import PipelineCore
import Synchronization

extension LocalPrograms {
  package func converse(
    _ call: ProgramCall, maxLine: Int, _ receive: @escaping @Sendable (ProgramPart) -> Void
  ) -> any ProgramDialogue {
    let dialogue = AnsweringProgram(call, maxLine: maxLine, receive)
    dialogue.start()
    return dialogue
  }
}

/// A program with a thread that writes lines to it and reads those that it answers.
private final class AnsweringProgram: ProgramDialogue, Sendable {
  private struct Orders {
    var waiting: [UInt8] = []
    var isClosing = false
    var isCancelled = false
  }

  private let call: ProgramCall
  private let maxLine: Int
  private let receive: @Sendable (ProgramPart) -> Void
  private let orders = Mutex(Orders())
  private let awake = try? WakeEvent()

  private static let second: Int64 = 1_000_000_000
  /// How long it may go on after the end of its input, and after SIGTERM.
  private static let patience = 5 * second

  init(_ call: ProgramCall, maxLine: Int, _ receive: @escaping @Sendable (ProgramPart) -> Void) {
    self.call = call
    self.maxLine = maxLine
    self.receive = receive
  }

  func start() {
    do throws(PosixError) {
      _ = try OwnThread("rxd exec", stackBytes: 256 << 10) { [self] in run() }
    } catch {
      receive(.ended(.failure(ProgramFailure(.timeout, "cannot be started: \(error.message)"))))
    }
  }

  func write(_ bytes: [UInt8]) {
    orders.withLock { $0.waiting += bytes }
    awake?.wake()
  }

  func close() {
    orders.withLock { $0.isClosing = true }
    awake?.wake()
  }

  func cancel() {
    orders.withLock {
      $0.isCancelled = true
      $0.waiting = []
    }
    awake?.wake()
  }

  private var isCancelled: Bool { orders.withLock(\.isCancelled) }

  private func tell(_ part: ProgramPart) { if !isCancelled { receive(part) } }

  private func run() {
    do throws(ProgramFailure) {
      var child = try ChildProgram(call, at: try ChildProgram.path(of: call))
      serve(&child)
    } catch {
      tell(.ended(.failure(error)))
    }
  }

  private func serve(_ child: inout ChildProgram) {
    var pending: [UInt8] = []
    var written = 0
    var line: [UInt8] = []
    var errors = ErrorLines()
    var signals: [(at: Int64, signal: Int32)] = []
    var failure: ProgramFailure?
    let log: (Services.Level, String) -> Void = { level, text in self.tell(.said(level, text)) }
    while true {
      awake?.clear()
      let (isClosing, isCancelled) = orders.withLock { orders in
        if pending.isEmpty { swap(&pending, &orders.waiting) }
        return (orders.isClosing && orders.waiting.isEmpty, orders.isCancelled)
      }
      var now = monotonicNow()
      errors.flush(now, log)
      if isCancelled, signals.isEmpty {
        child.closeInput()
        child.signal(SIGTERM)
        signals = [(now &+ Self.patience, SIGKILL)]
      } else if isClosing, pending.isEmpty, child.input >= 0 {
        child.closeInput()
        signals = [(now &+ Self.patience, SIGTERM), (now &+ 2 * Self.patience, SIGKILL)]
      }
      while let next = signals.first, next.at <= now {
        signals.removeFirst()
        child.signal(next.signal)
      }
      if let status = child.status() {
        while child.output >= 0, failure == nil, read(&child, &line, &failure) {}
        while child.errors >= 0, child.readErrors(&errors, log) {}
        errors.end(now, log)
        let result = ProgramResult(status: status, errors: errors.last)
        return tell(.ended(failure.map { .failure($0) } ?? .success(result)))
      }
      if child.input >= 0, !pending.isEmpty { write(&child, &pending, &written) }
      var polls = [
        pollfd(fd: isCancelled ? -1 : awake?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
        pollfd(fd: child.ending, events: Int16(POLLIN), revents: 0),
        pollfd(fd: pending.isEmpty ? -1 : child.input, events: Int16(POLLOUT), revents: 0),
        pollfd(fd: child.output, events: Int16(POLLIN), revents: 0),
        pollfd(fd: child.errors, events: Int16(POLLIN), revents: 0),
      ]
      now = monotonicNow()
      var next = signals.first?.at ?? .max
      if let due = errors.due { next = min(next, due) }
      if child.ending < 0 { next = min(next, now + Self.second / 100) }
      _ = poll(&polls, 5, next == .max ? -1 : Int32(clamping: max(0, (next - now + 999_999) / 1_000_000)))
      if polls[3].revents != 0 {
        _ = read(&child, &line, &failure)
        if failure != nil, signals.isEmpty {
          child.signal(SIGKILL)
          signals = [(monotonicNow() &+ Self.patience, SIGKILL)]
        }
      }
      if polls[4].revents != 0 { _ = child.readErrors(&errors, log) }
    }
  }

  private func write(_ child: inout ChildProgram, _ pending: inout [UInt8], _ written: inout Int) {
    let count = pending.withUnsafeBytes { Glibc.write(child.input, $0.baseAddress! + written, $0.count - written) }
    if count > 0 {
      written += count
    } else if count < 0, errno != EAGAIN, errno != EINTR {
      // It reads no more, so the remaining lines stay unanswered.
      written = pending.count
      child.closeInput()
    }
    if written == pending.count { (pending, written) = ([], 0) }
  }

  /// Whether there may be more at once.
  private func read(_ child: inout ChildProgram, _ line: inout [UInt8], _ failure: inout ProgramFailure?) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    let count = Glibc.read(child.output, &buffer, buffer.count)
    guard count > 0 else {
      if count == 0 || errno != EAGAIN && errno != EINTR { child.closeOutput() }
      return false
    }
    var rest = buffer[..<count]
    while failure == nil, let end = rest.firstIndex(of: 0x0A) {
      line += rest[..<end]
      rest = rest[(end + 1)...]
      if line.count > maxLine { break }
      tell(.line(line))
      line = []
    }
    if failure == nil {
      line += rest
      if line.count > maxLine {
        failure = ProgramFailure(.outputTooLong, "has written a line of more than \(maxLine) bytes")
        line = []
      }
    }
    return true
  }
}
