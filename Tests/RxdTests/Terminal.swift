import CLinux
import Foundation

/// The built binary, or another program, with its own terminal. Waits for output and for the end, each with a time limit.
final class Terminal {
  private let master: Int32
  private let pid: pid_t
  private var seen: [UInt8] = []
  private var status: Int32?

  convenience init(
    _ arguments: String..., program: String = Rxd.binary, environment: [String: String] = [:], columns: UInt16 = 120,
    rows: UInt16 = 40
  ) throws {
    try self.init(arguments: arguments, program: program, environment: environment, columns: columns, rows: rows)
  }

  init(
    arguments: [String], program: String = Rxd.binary, environment: [String: String] = [:], in folder: String? = nil,
    columns: UInt16 = 120, rows: UInt16 = 40
  ) throws {
    // The equivalents of posix_openpt, unlockpt and ptsname, which are unavailable in Swift.
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var locked: Int32 = 0
    var number: Int32 = 0
    let (unlock, getNumber): (UInt, UInt) = (0x4004_5431, 0x8004_5430)
    guard master >= 0, ioctl(master, unlock, &locked) == 0, ioctl(master, getNumber, &number) == 0 else {
      throw TimedOut(description: "no pty")
    }
    let name = "/dev/pts/\(number)"
    var size = winsize(ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0)
    guard ioctl(master, UInt(TIOCSWINSZ), &size) == 0 else { throw TimedOut(description: "no size of a pty") }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in 0...2 { posix_spawn_file_actions_addopen(&actions, Int32(descriptor), name, O_RDWR, 0) }
    var variables = ProcessInfo.processInfo.environment
    variables["XDG_RUNTIME_DIR"] = Rxd.runtime
    variables.merge(["TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"]) { $1 }
    variables.merge(environment) { $1 }
    // `env -C` changes the directory and then executes the program.
    let words = folder.map { ["env", "-C", $0, program] } ?? [program]
    // The flag starts a new session.
    pid = try spawn(folder == nil ? program : "/usr/bin/env", words + arguments, variables, &actions, flags: 0x80)
  }

  deinit {
    if status == nil {
      kill(pid, SIGKILL)
      var raw: Int32 = 0
      waitpid(pid, &raw, 0)
    }
    close(master)
  }

  /// Types, and waits for a text after everything that was waited for earlier.
  func type(_ keys: String, expecting text: String) throws {
    let bytes = Array(keys.utf8)
    guard bytes.withUnsafeBytes({ write(master, $0.baseAddress, $0.count) }) == bytes.count else {
      throw TimedOut(description: "cannot type \(keys.debugDescription)")
    }
    if !text.isEmpty { try expect(text) }
  }

  /// Waits for a text; earlier output is discarded.
  func expect(_ text: String) throws {
    let wanted = Data(text.utf8)
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      if let found = Data(seen).range(of: wanted) {
        seen.removeFirst(found.upperBound)
        return
      }
      guard try more(deadline, text) else {
        throw TimedOut(
          description: "no \(text.debugDescription) in \(String(decoding: seen, as: UTF8.self).debugDescription)")
      }
    }
  }

  /// The output since the last text that was waited for.
  var output: String { String(decoding: seen, as: UTF8.self) }
  /// The rest of the line after the last text that was waited for, without escape sequences.
  func line() throws -> String {
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      if let end = seen.firstIndex(of: 0x0A) {
        let text = String(decoding: seen[..<end], as: UTF8.self)
        seen.removeFirst(end + 1)
        return text.replacing(/\x{1B}\[[0-9;?]*[A-Za-z]/, with: "").replacing("\r", with: "")
      }
      guard try more(deadline, "a line") else { throw TimedOut(description: "no line") }
    }
  }

  /// Whether the terminal is in canonical mode with echo.
  var isCooked: Bool {
    var settings = termios()
    let flags = tcflag_t(ICANON | ECHO | ISIG)
    return tcgetattr(master, &settings) == 0 && settings.c_lflag & flags == flags
  }

  func send(_ signal: Int32) { kill(pid, signal) }

  /// Reads until the end and returns the exit status.
  func wait() throws -> Int32 {
    let deadline = Deadline(after: RunningRxd.limit)
    while try more(deadline) {}
    var raw: Int32 = 0
    waitpid(pid, &raw, 0)
    status = raw & 0x7F == 0 ? raw >> 8 & 0xFF : -(raw & 0x7F)
    return status ?? -1
  }

  /// Whether more output arrived; false at the end.
  private func more(_ deadline: Deadline, _ wanted: String = "the end") throws -> Bool {
    guard deadline.waits(for: master) else {
      throw TimedOut(
        description:
          "waited too long for \(wanted.debugDescription); on the screen is \(String(decoding: seen, as: UTF8.self).debugDescription)"
      )
    }
    var chunk = [UInt8](repeating: 0, count: 4096)
    let count = read(master, &chunk, chunk.count)
    if count <= 0 { return false }
    seen += chunk[..<count]
    return true
  }
}
