import CLinux
import Glibc
import PipelineCore

/// A started program with pipes as its standard streams, in a process group of its own.
///
/// It has no other descriptor of this process, gains no privileges, and dies with the thread that has started it. Used by that thread only.
package struct ChildProgram: ~Copyable {
  /// The process, which is the leader of its group.
  package let process: pid_t
  /// The other ends of the streams, not blocking; -1: closed.
  package private(set) var input: Int32
  package private(set) var output: Int32
  package private(set) var errors: Int32
  /// Readable when the process has ended; -1: the system has no `pidfd_open`.
  package let ending: Int32

  /// Starts a program.
  ///
  /// - Parameters:
  ///   - path: A path, which is not searched for.
  ///   - environment: All its variables.
  package init(
    _ path: String, _ arguments: [String], environment: [String: String], directory: String?, memory: Int = 0,
    cpu: Int = 0
  ) throws(PosixError) {
    var limits = rx_limits(memory: UInt64(max(0, memory)), cpu: UInt64(max(0, cpu)), files: 0, processes: 0)
    var process: pid_t = 0
    var descriptors: [Int32] = [-1, -1, -1]
    let variables = environment.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
    let code = Self.strings([path] + arguments) { arguments in
      Self.strings(variables) { variables in
        descriptors.withUnsafeMutableBufferPointer {
          rx_start(path, arguments, variables, directory, &limits, &process, $0.baseAddress)
        }
      }
    }
    guard code == 0 else { throw PosixError("start", path, code: code) }
    self.process = process
    input = descriptors[0]
    output = descriptors[1]
    errors = descriptors[2]
    ending = rx_end_watch(process)
  }

  deinit {
    for descriptor in [input, output, errors, ending] where descriptor >= 0 { Glibc.close(descriptor) }
  }

  private static func strings<Result>(
    _ texts: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
  ) -> Result {
    let pointers = texts.map { strdup($0) } + [nil]
    defer { for pointer in pointers { free(pointer) } }
    return pointers.withUnsafeBufferPointer { pointers in pointers.baseAddress.map(body)! }
  }

  package mutating func closeInput() { Self.close(&input) }
  package mutating func closeOutput() { Self.close(&output) }
  package mutating func closeErrors() { Self.close(&errors) }

  private static func close(_ descriptor: inout Int32) {
    if descriptor >= 0 { Glibc.close(descriptor) }
    descriptor = -1
  }

  /// Gives the other end of standard output away; the receiver closes it.
  package mutating func takeOutput() -> Int32 {
    defer { output = -1 }
    return output
  }

  /// Sends a signal to the program and to what it has started in its group.
  package borrowing func signal(_ signal: Int32) { kill(-process, signal) }

  /// The status as `waitpid` gives it, if the program has ended; the rest of its group is killed then.
  package borrowing func status() -> Int32? {
    // Before the process is reaped, no other process group can have its number.
    if ending >= 0 {
      var one = pollfd(fd: ending, events: Int16(POLLIN), revents: 0)
      guard poll(&one, 1, 0) > 0 else { return nil }
      signal(SIGKILL)
    }
    var status: Int32 = 0
    return rx_has_ended(process, &status) != 0 ? status : nil
  }

  /// Starts the program of a call, which is at `path`.
  init(_ call: ProgramCall, at path: String) throws(ProgramFailure) {
    do throws(PosixError) {
      try self.init(
        path, call.arguments, environment: call.options.environment, directory: call.options.directory,
        memory: call.options.memory, cpu: call.options.cpu)
    } catch {
      guard error.code == E2BIG else {
        throw ProgramFailure(.start, "cannot be started: \(PosixError.text(error.code))")
      }
      let size = ([path] + call.arguments + call.options.environment.map { "\($0.key)=\($0.value)" }).reduce(0) {
        $0 + $1.utf8.count
      }
      throw ProgramFailure(
        .arguments,
        "cannot be started: its arguments and variables have \(size) bytes, more than the system takes (\(PosixError.text(error.code)))"
      )
    }
  }

  /// The path of the program of a call: as it is named if it has a `/`, otherwise in the usual directories. Throws if it is nowhere, or cannot
  /// be run.
  package static func path(of call: ProgramCall) throws(ProgramFailure) -> String {
    let name = call.program
    let found =
      name.utf8.contains(UInt8(ascii: "/"))
      ? name : ProgramCall.searchPath.lazy.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
    guard let found else { throw ProgramFailure(.start, "cannot be started: there is no such program") }
    // A relative path is one of the program's directory.
    if found.hasPrefix("/") || call.options.directory == nil, access(found, X_OK) != 0 {
      throw ProgramFailure(.start, "cannot be started: \(PosixError.text(errno))")
    }
    return found
  }

  /// Reads the available part of standard error. Returns whether there may be more at once.
  mutating func readErrors(_ errors: inout ErrorLines, _ log: (Services.Level, String) -> Void) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    let count = Glibc.read(self.errors, &buffer, buffer.count)
    guard count > 0 else {
      if count == 0 || errno != EAGAIN && errno != EINTR { closeErrors() }
      return false
    }
    errors.take(buffer[..<count], monotonicNow(), log)
    return true
  }
}

extension ProgramResult {
  /// That of a status as `waitpid` gives it.
  init(status: Int32, output: [UInt8] = [], errors: [UInt8]) {
    let signal = Int(status & 0x7F)
    self.init(
      exit: signal == 0 ? Int(status >> 8 & 0xFF) : nil, signal: signal == 0 ? nil : signal, output: output,
      errors: errors)
  }
}
