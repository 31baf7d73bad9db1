import Glibc
import PipelineCore

/// Runs programs of this machine, each with a thread of its own that waits for it.
package final class LocalPrograms: ProgramRunner {
  package init() {}

  package func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable {
    let run = ProgramRun(call, completion)
    do throws(PosixError) {
      _ = try OwnThread("rxd exec", stackBytes: 256 << 10) { run.run() }
    } catch {
      completion(.failure(ProgramFailure(.start, "cannot be started: \(error.message)")))
    }
    return run
  }
}

/// One run of a program.
private final class ProgramRun: Cancellable, @unchecked Sendable {
  private let call: ProgramCall
  private let completion: @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  private let cancelled = try? WakeEvent()

  // The rest belongs to the thread.
  private var written = 0
  private var output: [UInt8] = []
  private var errors: [UInt8] = []
  /// Why it is being ended; nil: it is not.
  private var failure: ProgramFailure?
  /// When it gets the next signal, and which, on the monotonic clock.
  private var signals: [(at: Int64, signal: Int32)] = []

  private static let errorLimit = 4096
  private static let second: Int64 = 1_000_000_000
  /// Between SIGTERM and SIGKILL.
  private static let patience = 5 * second

  init(_ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void) {
    self.call = call
    self.completion = completion
  }

  func cancel() { cancelled?.wake() }

  private var isCancelled: Bool { cancelled?.isAwake ?? false }

  func run() {
    do throws(ProgramFailure) {
      var child = try ChildProgram(call, at: try ChildProgram.path(of: call))
      wait(&child)
    } catch {
      end(.failure(error))
    }
  }

  private func end(_ result: Result<ProgramResult, ProgramFailure>) {
    if !isCancelled { completion(result) }
  }

  private func wait(_ child: inout ChildProgram) {
    let deadline = monotonicNow() &+ call.options.timeout.nanoseconds
    if call.input.isEmpty { child.closeInput() }
    while true {
      if isCancelled, signals.isEmpty, failure == nil { kill(&child, because: nil) }
      if let status = child.status() {
        // The rest of its output. A child that keeps the pipe open is not awaited.
        while child.output >= 0, readOutput(&child) {}
        while child.errors >= 0, readErrors(&child) {}
        return end(failure.map { .failure($0) } ?? .success(result(status)))
      }
      let now = monotonicNow()
      if now >= deadline, failure == nil { kill(&child, because: .late(after: call.options.timeout)) }
      while let next = signals.first, next.at <= now {
        signals.removeFirst()
        child.signal(next.signal)
      }
      var polls = [
        pollfd(
          fd: signals.isEmpty && failure == nil ? cancelled?.descriptor ?? -1 : -1, events: Int16(POLLIN), revents: 0),
        pollfd(fd: child.ending, events: Int16(POLLIN), revents: 0),
        pollfd(fd: child.input, events: Int16(POLLOUT), revents: 0),
        pollfd(fd: child.output, events: Int16(POLLIN), revents: 0),
        pollfd(fd: child.errors, events: Int16(POLLIN), revents: 0),
      ]
      var next = failure == nil ? deadline : Int64.max
      if let signal = signals.first { next = min(next, signal.at) }
      if child.ending < 0 { next = min(next, now + Self.second / 100) }
      let wait = next == .max ? -1 : Int32(clamping: max(0, (next - now + 999_999) / 1_000_000))
      _ = poll(&polls, 5, wait)
      if polls[2].revents != 0 { write(&child) }
      if polls[3].revents != 0 { _ = readOutput(&child) }
      if polls[4].revents != 0 { _ = readErrors(&child) }
    }
  }

  private func kill(_ child: inout ChildProgram, because reason: ProgramFailure?) {
    failure = reason
    child.signal(SIGTERM)
    signals = [(monotonicNow() &+ Self.patience, SIGKILL)]
  }

  private func write(_ child: inout ChildProgram) {
    let count = call.input.withUnsafeBytes { Glibc.write(child.input, $0.baseAddress! + written, $0.count - written) }
    if count > 0 {
      written += count
    } else if count < 0, errno != EAGAIN, errno != EINTR {
      // It reads no more.
      written = call.input.count
    }
    if written == call.input.count { child.closeInput() }
  }

  /// Whether there may be more at once.
  private func readOutput(_ child: inout ChildProgram) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    let count = Glibc.read(child.output, &buffer, buffer.count)
    guard count > 0 else {
      if count == 0 || errno != EAGAIN && errno != EINTR { child.closeOutput() }
      return false
    }
    guard failure == nil else { return true }
    if output.count + count > call.options.maxOutput {
      output = []
      kill(
        &child, because: ProgramFailure(.outputTooLong, "has written more than \(call.options.maxOutput) bytes"))
    } else {
      output += buffer[..<count]
    }
    return true
  }

  private func readErrors(_ child: inout ChildProgram) -> Bool {
    var buffer = [UInt8](repeating: 0, count: Self.errorLimit)
    let count = Glibc.read(child.errors, &buffer, buffer.count)
    guard count > 0 else {
      if count == 0 || errno != EAGAIN && errno != EINTR { child.closeErrors() }
      return false
    }
    errors += buffer[..<count]
    if errors.count > Self.errorLimit { errors.removeFirst(errors.count - Self.errorLimit) }
    return true
  }

  private func result(_ status: Int32) -> ProgramResult {
    ProgramResult(status: status, output: output, errors: errors)
  }
}
