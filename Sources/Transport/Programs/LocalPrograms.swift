import Glibc
import PipelineCore

/// Runs programs on this machine, each with its own thread that waits for it.
package final class LocalPrograms: ProgramRunner {
  private let memory: MemoryBudget?

  /// - Parameter memory: The memory of the process, in which outputs count; nil: they do not.
  package init(memory: MemoryBudget? = nil) { self.memory = memory }

  package func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable {
    let run = ProgramRun(call, memory, completion)
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
  private let memory: MemoryBudget?
  private let completion: @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  private let cancelled = try? WakeEvent()

  // Used on the thread only, like the following properties.
  private var written = 0
  private var output: [UInt8] = []
  private var charge: MemoryCharge?
  private var errors: [UInt8] = []
  /// The reason for ending the program; nil: it is not being ended.
  private var failure: ProgramFailure?

  private static let errorLimit = 4096

  init(
    _ call: ProgramCall, _ memory: MemoryBudget?,
    _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) {
    self.call = call
    self.memory = memory
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
    var isEnding = false
    while true {
      if isCancelled || failure != nil {
        isEnding = true
        child.end()
      }
      if let status = child.status() {
        // Reads the rest of its output, without waiting for a child that keeps the pipe open.
        while readOutput(&child) {}
        while readErrors(&child) {}
        return end(failure.map { .failure($0) } ?? .success(result(status)))
      }
      let ready = child.wait(
        wakenBy: isEnding ? -1 : cancelled?.descriptor ?? -1, writes: true, until: isEnding ? .max : deadline)
      if ready.contains(.input) { write(&child) }
      if ready.contains(.output) { _ = readOutput(&child) }
      if ready.contains(.errors) { _ = readErrors(&child) }
      if !isEnding, failure == nil, monotonicNow() >= deadline { failure = .late(after: call.options.timeout) }
    }
  }

  private func write(_ child: inout ChildProgram) {
    // The program may have stopped reading.
    written = child.write(call.input, from: written) ?? call.input.count
    if written == call.input.count { child.closeInput() }
  }

  /// Returns whether any bytes were read.
  private func readOutput(_ child: inout ChildProgram) -> Bool {
    guard let bytes = child.read(.output) else { return false }
    guard failure == nil else { return true }
    if output.count + bytes.count > call.options.maxOutput {
      output = []
      charge = nil
      failure = ProgramFailure(.outputTooLong, "has written more than \(call.options.maxOutput) bytes")
    } else {
      output += bytes
      if charge == nil, let memory { charge = MemoryCharge(0, of: memory) }
      charge?.set(output.count)
    }
    return true
  }

  private func readErrors(_ child: inout ChildProgram) -> Bool {
    guard let bytes = child.read(.errors) else { return false }
    errors += bytes
    if errors.count > Self.errorLimit { errors.removeFirst(errors.count - Self.errorLimit) }
    return true
  }

  private func result(_ status: Int32) -> ProgramResult {
    var result = ProgramResult(status: status, output: output, errors: errors)
    result.charge = charge
    charge = nil
    return result
  }
}
