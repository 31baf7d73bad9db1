import CLinux
import Glibc
import PipelineCore

/// A started program with pipes as its standard streams, in its own process group.
///
/// It inherits no other descriptor of this process, gains no privileges, and dies with the thread that has started it.
/// Used by that thread only, which waits for all of its events in one function, ``wait(wakenBy:writes:until:)``.
package struct ChildProgram: ~Copyable {
  /// The process; it leads its process group.
  package let process: pid_t
  /// This process's ends of the streams, non-blocking; -1: closed.
  package private(set) var input: Int32
  package private(set) var output: Int32
  package private(set) var errors: Int32
  /// Readable when the process has ended; -1: the system has no `pidfd_open`.
  package let ending: Int32
  /// The signals still to send, each with its time on the monotonic clock.
  private var signals: [(at: Int64, signal: Int32)] = []
  /// Whether one of these signals was sent.
  package private(set) var wasSignalled = false

  /// The time between SIGTERM and SIGKILL.
  package static let patience = TimeSpan.seconds(5)

  /// Starts a program.
  ///
  /// - Parameters:
  ///   - path: The path of the program; `PATH` is not searched.
  ///   - environment: All its variables.
  ///   - memory: Limit of private writable memory, in bytes. For this and the other limits, 0 means no limit.
  ///   - cpu: Seconds of processor time.
  ///   - files: Open descriptors.
  ///   - processes: Processes of its user.
  package init(
    _ path: String, _ arguments: [String], environment: [String: String], directory: String?, memory: Int = 0,
    cpu: Int = 0, files: Int = 0, processes: Int = 0
  ) throws(PosixError) {
    var limits = rx_limits(
      memory: UInt64(max(0, memory)), cpu: UInt64(max(0, cpu)), files: UInt64(max(0, files)),
      processes: UInt64(max(0, processes)))
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

  /// Hands over this process's end of standard output; the receiver closes it.
  package mutating func takeOutput() -> Int32 {
    defer { output = -1 }
    return output
  }

  // MARK: Waiting

  /// The operations that would not block.
  package struct Ready: OptionSet, Sendable {
    package let rawValue: Int
    package init(rawValue: Int) { self.rawValue = rawValue }
    /// The owner was woken.
    package static let woken = Self(rawValue: 1)
    package static let input = Self(rawValue: 2)
    package static let output = Self(rawValue: 4)
    package static let errors = Self(rawValue: 8)
    /// The program may have ended (``ChildProgram/status()``).
    package static let end = Self(rawValue: 16)
  }

  /// Sends the signals that are due, and waits for one of its streams, its end, or a wake.
  ///
  /// - Parameters:
  ///   - wake: Readable when its owner has something to do; -1: never.
  ///   - writes: Whether to wait for room in the program's input.
  ///   - due: The latest time of return, on the monotonic clock.
  package mutating func wait(wakenBy wake: Int32, writes: Bool, until due: Int64) -> Ready {
    let now = monotonicNow()
    sendSignals(now)
    var next = min(due, signals.first?.at ?? .max)
    if ending < 0 { next = min(next, now &+ TimeSpan.milliseconds(10).nanoseconds) }
    var polls = [
      pollfd(fd: wake, events: Int16(POLLIN), revents: 0),
      pollfd(fd: writes ? input : -1, events: Int16(POLLOUT), revents: 0),
      pollfd(fd: output, events: Int16(POLLIN), revents: 0),
      pollfd(fd: errors, events: Int16(POLLIN), revents: 0),
      pollfd(fd: ending, events: Int16(POLLIN), revents: 0),
    ]
    let wait = next == .max ? -1 : Int32(clamping: max(0, (next &- now &+ 999_999) / 1_000_000))
    let isAny = poll(&polls, nfds_t(polls.count), wait) > 0
    var ready: Ready = ending < 0 ? .end : []
    guard isAny else { return ready }
    if polls[0].revents != 0 { ready.insert(.woken) }
    if polls[1].revents != 0 { ready.insert(.input) }
    if polls[2].revents != 0 { ready.insert(.output) }
    if polls[3].revents != 0 { ready.insert(.errors) }
    if polls[4].revents != 0 { ready.insert(.end) }
    return ready
  }

  // MARK: Its streams

  package mutating func closeInput() { Self.close(&input) }

  private static func close(_ descriptor: inout Int32) {
    if descriptor >= 0 { Glibc.close(descriptor) }
    descriptor = -1
  }

  /// Writes as many of the bytes after the first `written` as the pipe accepts at once. Returns the total number of
  /// written bytes; nil: the program has stopped reading.
  package borrowing func write(_ bytes: [UInt8], from written: Int) -> Int? {
    write(bytes[written...])
  }

  /// The same for a slice: returns the end of the written bytes, an index of the slice.
  package borrowing func write(_ bytes: ArraySlice<UInt8>) -> Int? {
    guard !bytes.isEmpty else { return bytes.startIndex }
    let count = bytes.withUnsafeBytes { bytes in
      uninterrupted { Glibc.write(input, bytes.baseAddress, bytes.count) }
    }
    if count < 0 { return errno == EAGAIN ? bytes.startIndex : nil }
    return bytes.startIndex + count
  }

  package enum Stream { case output, errors }

  /// Reads the available bytes of a stream, as far as there is room; nil: none are available. A stream that has ended is closed.
  package mutating func read(_ stream: Stream, into room: UnsafeMutableRawBufferPointer) -> Int? {
    let descriptor = stream == .output ? output : errors
    guard descriptor >= 0 else { return nil }
    let count = uninterrupted { Glibc.read(descriptor, room.baseAddress, room.count) }
    if count > 0 { return count }
    if count == 0 || errno != EAGAIN {
      if stream == .output { Self.close(&output) } else { Self.close(&errors) }
    }
    return nil
  }

  /// The same, up to 64 KiB.
  package mutating func read(_ stream: Stream) -> [UInt8]? {
    withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 1) { room in
      read(stream, into: room).map { Array(room[..<$0]) }
    }
  }

  /// Reads the available lines of standard error. Returns whether any bytes were read.
  package mutating func readErrors(_ errors: inout ErrorLines, _ log: (Services.Level, String) -> Void) -> Bool {
    guard let bytes = read(.errors) else { return false }
    errors.take(bytes[...], monotonicNow(), log)
    return true
  }

  // MARK: Its end

  /// Sends a signal to the program's process group.
  package borrowing func signal(_ signal: Int32) { Glibc.kill(-process, signal) }

  /// Ends the program: SIGTERM, and SIGKILL if it does not exit. The earliest requested end applies; a signal is not sent twice.
  ///
  /// - Parameters:
  ///   - rest: How long the program may run before SIGTERM.
  ///   - patience: The time between the two signals.
  package mutating func end(in rest: TimeSpan = .zero, patience: TimeSpan = Self.patience) {
    let now = monotonicNow()
    let at = now &+ rest.nanoseconds
    guard !wasSignalled, signals.first.map({ at < $0.at }) ?? true else { return }
    signals = [(at, SIGTERM), (at &+ patience.nanoseconds, SIGKILL)]
    sendSignals(now)
  }

  /// Kills it.
  package mutating func kill() {
    signals = []
    wasSignalled = true
    signal(SIGKILL)
  }

  private mutating func sendSignals(_ now: Int64) {
    while let next = signals.first, next.at <= now {
      signals.removeFirst()
      wasSignalled = true
      signal(next.signal)
    }
  }

  /// The status of `waitpid` if the program has ended; the rest of its process group is then killed.
  package borrowing func status() -> Int32? {
    // No other process group can have this number before the process is reaped.
    if ending >= 0 {
      var one = pollfd(fd: ending, events: Int16(POLLIN), revents: 0)
      guard poll(&one, 1, 0) > 0 else { return nil }
      signal(SIGKILL)
    }
    var status: Int32 = 0
    return rx_has_ended(process, &status) != 0 ? status : nil
  }

  /// Kills the program, waits for its end and returns its status.
  package consuming func destroy() -> Int32 {
    signal(SIGKILL)
    var status: Int32 = 0
    _ = uninterrupted { Int(waitpid(process, &status, 0)) }
    return status
  }
}

/// How a process ended, from the status of `waitpid`.
package func describeEnd(_ status: Int32) -> String {
  let signal = status & 0x7F
  return signal == 0 ? "exited with \(status >> 8 & 0xFF)" : "was ended by signal \(signal)"
}

extension ChildProgram {
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
        "cannot be started: its arguments and variables have \(size) bytes, more than the system accepts (\(PosixError.text(error.code)))"
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
    // A relative path is relative to the program's working directory.
    if found.hasPrefix("/") || call.options.directory == nil, access(found, X_OK) != 0 {
      throw ProgramFailure(.start, "cannot be started: \(PosixError.text(errno))")
    }
    return found
  }
}

extension ProgramResult {
  /// The result for a status of `waitpid`.
  init(status: Int32, output: [UInt8] = [], errors: [UInt8]) {
    let signal = Int(status & 0x7F)
    self.init(
      exit: signal == 0 ? Int(status >> 8 & 0xFF) : nil, signal: signal == 0 ? nil : signal, output: output,
      errors: errors)
  }
}
