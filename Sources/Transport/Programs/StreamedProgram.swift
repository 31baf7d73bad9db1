import Glibc
import PipelineCore
import Synchronization

/// A program without a time limit; its output is read by another owner, its standard error goes to the log.
package final class StreamedProgram: Sendable {
  private let call: ProgramCall
  private struct Owner {
    var log: @Sendable (Services.Level, String) -> Void
    var ended: @Sendable (ProgramResult) -> Void
    /// The exit result of the program.
    var result: ProgramResult?
  }
  private let owner: Mutex<Owner>

  private struct Orders {
    var signals: [Int32] = []
    var isCancelled = false
  }
  private let orders = Mutex(Orders())
  private let awake = try? WakeEvent()
  /// The result of the start, from the thread.
  private let started = Guarded<Result<FileDescriptor, ProgramFailure>?>(nil)

  /// - Parameters:
  ///   - call: The program to start; its timeout and output limit are ignored.
  ///   - log: Receives lines of standard error, at most 20 a second, on the program's thread.
  ///   - ended: Called once on the program's thread when the program has ended, unless it was cancelled.
  package init(
    _ call: ProgramCall, log: @escaping @Sendable (Services.Level, String) -> Void,
    ended: @escaping @Sendable (ProgramResult) -> Void
  ) {
    self.call = call
    owner = Mutex(Owner(log: log, ended: ended))
  }

  /// Reports to another owner from now on, including an end that has already happened. Reports to the first owner may be repeated.
  package func adopt(
    log: @escaping @Sendable (Services.Level, String) -> Void, ended: @escaping @Sendable (ProgramResult) -> Void
  ) {
    let result = owner.withLock { owner in
      (owner.log, owner.ended) = (log, ended)
      return owner.result
    }
    if let result { ended(result) }
  }

  private func log(_ level: Services.Level, _ text: String) { owner.withLock(\.log)(level, text) }

  /// Starts the program and returns its standard output.
  package func start() throws(ProgramFailure) -> FileDescriptor {
    let path = try ChildProgram.path(of: call)
    do throws(PosixError) {
      _ = try OwnThread("rxd exec", stackBytes: 256 << 10) { [self] in run(path) }
    } catch {
      throw ProgramFailure(.start, "cannot be started: \(error.message)")
    }
    guard let result = started.wait(until: nil, { $0 }) else { throw ProgramFailure(.start, "cannot be started") }
    return try result.get()
  }

  package func signal(_ signal: Int32) {
    orders.withLock { $0.signals.append(signal) }
    awake?.wake()
  }

  /// Ends the program (``ChildProgram/end(in:patience:)``). Sends no notice.
  package func cancel() {
    orders.withLock { $0.isCancelled = true }
    awake?.wake()
  }

  private func say(_ result: Result<FileDescriptor, ProgramFailure>) {
    started.withLock { $0 = result }
    started.notify()
  }

  private func run(_ path: String) {
    do throws(ProgramFailure) {
      var child = try ChildProgram(call, at: path)
      say(.success(FileDescriptor(child.takeOutput(), name: "the output of \(call.program)")))
      wait(&child)
    } catch {
      say(.failure(error))
    }
  }

  private func wait(_ child: inout ChildProgram) {
    var errors = ErrorLines()
    var written = 0
    if call.input.isEmpty { child.closeInput() }
    while true {
      let (signals, isCancelled) = orders.withLock { orders in
        defer { orders.signals = [] }
        return (orders.signals, orders.isCancelled)
      }
      awake?.clear()
      for signal in signals { child.signal(signal) }
      if isCancelled { child.end() }
      errors.flush(monotonicNow(), log)
      if let status = child.status() {
        while child.readErrors(&errors, log) {}
        errors.end(monotonicNow(), log)
        guard !isCancelled else { return }
        let result = ProgramResult(status: status, errors: errors.last)
        let ended = owner.withLock { owner in
          owner.result = result
          return owner.ended
        }
        return ended(result)
      }
      let ready = child.wait(wakenBy: awake?.descriptor ?? -1, writes: true, until: errors.due ?? .max)
      if ready.contains(.input) {
        // The program may have stopped reading.
        written = child.write(call.input, from: written) ?? call.input.count
        if written == call.input.count { child.closeInput() }
      }
      if ready.contains(.errors) { _ = child.readErrors(&errors, log) }
    }
  }
}
