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

/// A program with a thread that writes lines to it and reads its answers.
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

  /// How long the program may run after the end of its input.
  private static let rest = TimeSpan.seconds(5)

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
    var failure: ProgramFailure?
    let log: (Services.Level, String) -> Void = { level, text in self.tell(.said(level, text)) }
    while true {
      awake?.clear()
      let (isClosing, isCancelled) = orders.withLock { orders in
        if pending.isEmpty { swap(&pending, &orders.waiting) }
        return (orders.isClosing && orders.waiting.isEmpty, orders.isCancelled)
      }
      let now = monotonicNow()
      errors.flush(now, log)
      if isCancelled {
        child.closeInput()
        child.end()
      } else if isClosing, pending.isEmpty, child.input >= 0 {
        child.closeInput()
        child.end(in: Self.rest)
      }
      if let status = child.status() {
        while failure == nil, read(&child, &line, &failure) {}
        while child.readErrors(&errors, log) {}
        errors.end(now, log)
        let result = ProgramResult(status: status, errors: errors.last)
        return tell(.ended(failure.map { .failure($0) } ?? .success(result)))
      }
      if child.input >= 0, !pending.isEmpty { write(&child, &pending, &written) }
      let ready = child.wait(
        wakenBy: isCancelled ? -1 : awake?.descriptor ?? -1, writes: !pending.isEmpty, until: errors.due ?? .max)
      if ready.contains(.output) {
        _ = read(&child, &line, &failure)
        if failure != nil, !child.wasSignalled { child.kill() }
      }
      if ready.contains(.errors) { _ = child.readErrors(&errors, log) }
    }
  }

  private func write(_ child: inout ChildProgram, _ pending: inout [UInt8], _ written: inout Int) {
    if let end = child.write(pending, from: written) {
      written = end
    } else {
      // The program has stopped reading, so the remaining lines stay unanswered.
      written = pending.count
      child.closeInput()
    }
    if written == pending.count { (pending, written) = ([], 0) }
  }

  /// Returns whether any bytes were read.
  private func read(_ child: inout ChildProgram, _ line: inout [UInt8], _ failure: inout ProgramFailure?) -> Bool {
    guard let bytes = child.read(.output) else { return false }
    var rest = bytes[...]
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
