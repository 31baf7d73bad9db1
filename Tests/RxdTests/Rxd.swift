import CLinux
import Foundation
import PipelineHost
import Testing

/// Runs the built binary as a user would. Waits only for pipes and for the end of the process, each with a time limit
/// after which the test fails.
enum Rxd {
  /// The package's folder.
  static let root = URL(fileURLWithPath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path

  /// The binary named by `RXD`, else the one built with the tests.
  static let binary: String = {
    if let named = ProcessInfo.processInfo.environment["RXD"], !named.isEmpty { return named }
    let products = Bundle.main.bundleURL.deletingLastPathComponent().path
    for folder in [products, Bundle.main.bundleURL.path, root + "/.build/debug"]
    where FileManager.default.isExecutableFile(atPath: folder + "/rxd") {
      return folder + "/rxd"
    }
    return root + "/.build/debug/rxd"
  }()

  /// The default directory for control sockets: tests find no other process of this machine there, and leave no socket behind.
  static let runtime: String = {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("rxd-runtime-\(getpid())").path
    mkdir(path, 0o700)
    atexit { try? FileManager.default.removeItem(atPath: Rxd.runtime) }
    return path
  }()

  struct Outcome {
    var status: Int32
    var output: String
    var errors: String
    var lines: [String] { output.split(separator: "\n").map(String.init) }
  }

  /// Runs to the end.
  static func run(
    _ arguments: String..., input: String = "", environment: [String: String] = [:],
    in folder: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Outcome {
    try run(arguments: arguments, input: input, environment: environment, in: folder, sourceLocation: sourceLocation)
  }

  static func run(
    arguments: [String], input: String = "", environment: [String: String] = [:],
    in folder: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Outcome {
    let process = try RunningRxd(arguments, environment: environment, in: folder)
    // Reads while writing, so that neither side blocks forever.
    let output = Reader(process.output)
    let errors = Reader(process.errors)
    let threads = [output, errors].map { reader in
      let thread = Thread { reader.readAll() }
      thread.start()
      return thread
    }
    process.write(input)
    process.closeInput()
    withExtendedLifetime(threads) {}
    let status = try process.wait()
    return Outcome(status: status, output: output.text(), errors: errors.text())
  }

  /// Runs a verb with this state directory, regardless of the environment of the tests.
  static func run(arguments: [String], state directory: String, input: String = "") throws -> Outcome {
    try run(
      arguments: arguments + ["--state-dir", directory], input: input,
      environment: ["RXD_STATE_DIR": "", "STATE_DIRECTORY": ""])
  }

  private final class Reader: @unchecked Sendable {
    private let descriptor: Int32
    private var bytes: [UInt8] = []
    private let done = DispatchSemaphore(value: 0)
    init(_ descriptor: Int32) { self.descriptor = descriptor }
    func readAll() {
      var chunk = [UInt8](repeating: 0, count: 1 << 16)
      while true {
        let count = read(descriptor, &chunk, chunk.count)
        if count <= 0 { break }
        bytes += chunk[..<count]
      }
      done.signal()
    }
    func text() -> String {
      done.wait()
      return String(decoding: bytes, as: UTF8.self)
    }
  }
}

/// An instant of the monotonic clock, which changes of the wall clock do not affect.
struct Deadline {
  private let end: ContinuousClock.Instant

  init(after seconds: TimeInterval) { end = .now + .seconds(seconds) }

  /// The remaining milliseconds, for `poll`.
  private var left: Int32 {
    let left = ContinuousClock.now.duration(to: end).components
    return Int32(clamping: left.seconds * 1000 + left.attoseconds / 1_000_000_000_000_000)
  }

  var isOver: Bool { left <= 0 }

  /// Waits until `descriptor` is readable; false at the deadline.
  func waits(for descriptor: Int32) -> Bool {
    while true {
      let milliseconds = left
      var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      // If the machine was suspended, the time may be over before any process could run, so this polls once more.
      if poll(&entry, 1, max(milliseconds, 10_000)) > 0 { return true }
      if milliseconds <= 0 { return false }
      // A signal may have interrupted the call.
    }
  }
}

struct TimedOut: Error, CustomStringConvertible {
  var description: String
}

/// A process that runs while the test does something.
final class RunningRxd {
  let pid: pid_t
  let input: Int32
  let output: Int32
  let errors: Int32
  private var isInputOpen = true
  private var status: Int32?
  private var pending: [Int32: [UInt8]] = [:]
  /// The last lines read from both streams.
  private(set) var transcript: [String] = []
  /// The time limit of all waits, in seconds: far more than a loaded machine needs.
  static let limit: TimeInterval = 240

  convenience init(_ arguments: String..., environment: [String: String] = [:], in folder: String? = nil)
    throws
  {
    try self.init(arguments, environment: environment, in: folder)
  }

  /// `limitingMemoryTo`: kibibytes of address space. `running`: another program in place of rxd.
  init(
    _ arguments: [String], environment: [String: String] = [:], in folder: String? = nil,
    limitingMemoryTo limit: Int? = nil, running binary: String = Rxd.binary
  ) throws {
    var pipes: [[Int32]] = []
    for _ in 0..<3 {
      var ends: [Int32] = [0, 0]
      guard rx_pipe(&ends) == 0 else { throw TimedOut(description: "no pipe") }
      pipes.append(ends)
    }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, pipes[0][0], 0)
    posix_spawn_file_actions_adddup2(&actions, pipes[1][1], 1)
    posix_spawn_file_actions_adddup2(&actions, pipes[2][1], 2)
    var variables = ProcessInfo.processInfo.environment
    for name in variables.keys where name.hasPrefix("RXD_") || name == "NOTIFY_SOCKET" {
      variables[name] = nil
    }
    variables["XDG_RUNTIME_DIR"] = Rxd.runtime
    variables.merge(environment) { $1 }
    // `env -C` changes the directory and then executes the program.
    var program = folder == nil ? binary : "/usr/bin/env"
    var command = folder.map { ["env", "-C", $0, binary] } ?? [binary]
    if let limit {
      program = "/bin/sh"
      command = ["sh", "-c", "ulimit -v \(limit); exec \"$0\" \"$@\""] + command
    }
    pid = try spawn(program, command + arguments, variables, &actions)
    for (index, ends) in pipes.enumerated() { close(ends[index == 0 ? 0 : 1]) }
    input = pipes[0][1]
    output = pipes[1][0]
    errors = pipes[2][0]
  }

  deinit {
    closeInput()
    if status == nil {
      kill(pid, SIGKILL)
      _ = try? wait()
    }
    close(output)
    close(errors)
  }

  /// Writes; a closed reader does not fail the test.
  func write(_ text: String) {
    signal(SIGPIPE, SIG_IGN)
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(input, $0.baseAddress, $0.count) }
      if count < 0 { return }
      rest = rest.dropFirst(count)
    }
  }

  func closeInput() {
    if isInputOpen { close(input) }
    isInputOpen = false
  }

  func send(_ signal: Int32) { kill(pid, signal) }

  /// Sets a limit of the running process, in the notation of prlimit(1): `--nofile=4:`.
  func limit(_ setting: String) throws {
    let program = Process()
    program.executableURL = URL(fileURLWithPath: "/usr/bin/prlimit")
    program.arguments = ["--pid", "\(pid)", setting]
    try program.run()
    program.waitUntilExit()
    guard program.terminationStatus == 0 else { throw TimedOut(description: "prlimit \(setting) failed") }
  }

  /// The next line of a stream, nil at its end. `waiter`: the line of the calling test.
  func line(from descriptor: Int32, waiter: Int = #line) throws -> String? {
    let deadline = Deadline(after: Self.limit)
    while true {
      var bytes = pending[descriptor] ?? []
      if let end = bytes.firstIndex(of: 0x0A) {
        let line = String(decoding: bytes[..<end], as: UTF8.self)
        bytes.removeFirst(end + 1)
        pending[descriptor] = bytes
        if transcript.count == 50 { transcript.removeFirst() }
        transcript.append((descriptor == errors ? "! " : "") + line)
        return line
      }
      guard deadline.waits(for: descriptor) else {
        throw TimedOut(
          description: """
            line \(waiter) of the test waits for \(descriptor == errors ? "standard error" : "output") in vain; so far: \
            \(String(decoding: bytes, as: UTF8.self)); before it: \(transcript); the process: \(threads)
            """)
      }
      var chunk = [UInt8](repeating: 0, count: 4096)
      let count = read(descriptor, &chunk, chunk.count)
      if count <= 0 { return nil }
      pending[descriptor] = bytes + chunk[..<count]
    }
  }

  func line(waiter: Int = #line) throws -> String? { try line(from: output, waiter: waiter) }

  /// What each thread of the process waits in, and the text of standard error; reported when a wait times out.
  private var threads: String {
    let tasks = "/proc/\(pid)/task"
    let all = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
    let states = all.sorted().map { task in
      ["comm", "wchan", "syscall"].map { name in
        ((try? String(contentsOfFile: "\(tasks)/\(task)/\(name)", encoding: .utf8)) ?? "?")
          .trimmingCharacters(in: .whitespacesAndNewlines)
      }.joined(separator: " ")
    }
    var entry = pollfd(fd: errors, events: Int16(POLLIN), revents: 0)
    var chunk = [UInt8](repeating: 0, count: 4096)
    let count = poll(&entry, 1, 0) > 0 ? max(0, read(errors, &chunk, chunk.count)) : 0
    let reported = (pending[errors] ?? []) + chunk[..<count]
    return states.joined(separator: "; ") + "; standard error: " + String(decoding: reported, as: UTF8.self)
  }

  /// The next line of standard error that contains `text`.
  @discardableResult
  func errorLine(with text: String, waiter: Int = #line) throws -> String {
    try errorLines(to: text, waiter: waiter).last ?? ""
  }

  /// The next lines of standard error, up to the one that contains `text`.
  func errorLines(to text: String, waiter: Int = #line) throws -> [String] {
    var seen: [String] = []
    let deadline = Deadline(after: Self.limit)
    while let line = try line(from: errors, waiter: waiter) {
      seen.append(line)
      if line.contains(text) { return seen }
      // A process may write other lines forever.
      if deadline.isOver { throw TimedOut(description: "standard error has no '\(text)': \(seen.suffix(50))") }
    }
    throw TimedOut(description: "standard error ended without '\(text)': \(seen)")
  }

  /// `sending`: a signal that is sent repeatedly until the process has ended.
  func wait(sending signal: Int32? = nil) throws -> Int32 {
    if let status { return status }
    let waiter = Waiter(pid)
    Thread { waiter.run() }.start()
    let deadline = Deadline(after: Self.limit)
    var raw: Int32?
    while let signal, raw == nil, !deadline.isOver {
      send(signal)
      raw = waiter.result(within: 0.05)
    }
    guard let raw = raw ?? waiter.result(within: Self.limit) else {
      throw TimedOut(description: "the process does not end")
    }
    let code = raw & 0x7F == 0 ? raw >> 8 & 0xFF : 128 + raw & 0x7F
    status = code
    return code
  }
}

private final class Waiter: @unchecked Sendable {
  private let pid: pid_t
  private var raw: Int32 = 0
  private let done = DispatchSemaphore(value: 0)
  init(_ pid: pid_t) { self.pid = pid }
  func run() {
    while waitpid(pid, &raw, 0) < 0, errno == EINTR {}
    done.signal()
  }
  func result(within limit: TimeInterval) -> Int32? {
    done.wait(timeout: .now() + limit) == .success ? raw : nil
  }
}

/// A temporary folder that is removed with the value.
final class Scratch {
  let path: String

  init() throws {
    var template = Array((NSTemporaryDirectory() + "/rxd-test-XXXXXX").utf8CString)
    guard mkdtemp(&template) != nil else { throw TimedOut(description: "no temporary folder") }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  /// Replaces the file atomically, and returns its path.
  @discardableResult
  func write(_ name: String, _ text: String) throws -> String {
    let file = "\(path)/\(name)"
    try text.write(toFile: file, atomically: true, encoding: .utf8)
    return file
  }

  /// Appends to an existing file.
  func append(_ text: String, to name: String) throws {
    let file = try FileHandle(forUpdating: URL(fileURLWithPath: "\(path)/\(name)"))
    defer { try? file.close() }
    try file.seekToEnd()
    try file.write(contentsOf: Data(text.utf8))
  }
}

extension RunningRxd {
  /// Waits until the process listens on its control socket.
  func waits(forSocket path: String) throws {
    let folder = try FolderWatch(URL(fileURLWithPath: path).deletingLastPathComponent().path)
    // The socket file exists a moment before the process listens.
    guard folder.first({ access(path, F_OK) == 0 ? true : nil }) != nil,
      Polling.until({ SocketClient(path: path) != nil })
    else { throw TimedOut(description: "no socket \(path)") }
  }
}
