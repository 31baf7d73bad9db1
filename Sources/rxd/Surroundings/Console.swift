import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// Exit statuses, after sysexits.h.
enum ExitStatus {
  /// The command succeeded.
  static let success = ExitCode(0)
  /// A pipeline or a test failed.
  static let failure = ExitCode(1)
  /// The command line has an error.
  static let usage = ExitCode(64)
  /// An input file is malformed.
  static let data = ExitCode(65)
  /// An input file is missing.
  static let noInput = ExitCode(66)
  /// A running process, a service or a program that is needed cannot be reached.
  static let unavailable = ExitCode(69)
  /// The system has no memory.
  static let system = ExitCode(71)
  /// A file or a socket cannot be read or written.
  static let inputOutput = ExitCode(74)
  /// A resource is in use by another process.
  static let temporary = ExitCode(75)
  /// A pipeline file does not compile.
  static let configuration = ExitCode(78)
}

/// The output streams of the verbs, and their only way to a terminal. Text from a file, a name or an event cannot
/// control the terminal (``ControlEscaping/forTerminal(_:)``). Output to a file or a pipe is not changed.
enum Console {
  private static let isTerminal = (output: isatty(1) == 1, errors: isatty(2) == 1)

  /// Writes to standard output. Ends the process quietly when the reader has gone away.
  static func print(_ text: String, terminator: String = "\n") {
    write(Array((text + terminator).utf8))
  }

  static func write(_ bytes: [UInt8]) { put(isTerminal.output ? ControlEscaping.forTerminal(bytes) : bytes) }

  /// Writes to a screen that the verb draws itself. Texts in it must have been made safe with ``shown(_:)``.
  static func draw(_ sequence: String) { put(Array(sequence.utf8)) }

  /// The text, made safe for ``draw(_:)``.
  static func shown(_ text: String) -> String {
    String(decoding: ControlEscaping.forTerminal(Array(text.utf8)), as: UTF8.self)
  }

  private static func put(_ bytes: [UInt8]) {
    do throws(PosixError) {
      try FileDescriptor.standardOutput.write(bytes)
    } catch {
      if error.isBrokenPipe { _exit(0) }
      printError(error.message)
      _exit(ExitStatus.inputOutput.rawValue)
    }
  }

  /// Writes a line to standard error. A failure is ignored.
  static func printError(_ message: String) {
    // Line feeds are layout; other control characters in a path or a message are escaped.
    note(
      "rxd: "
        + message.split(separator: "\n", omittingEmptySubsequences: false)
        .map { Printable.cut(String($0), limit: 8192) }.joined(separator: "\n"))
  }

  /// Writes a question to standard error, without a line end.
  static func ask(_ text: String) throws(PosixError) {
    let bytes = Array(text.utf8)
    try FileDescriptor.standardError.write(isTerminal.errors ? ControlEscaping.forTerminal(bytes) : bytes)
  }

  static func note(_ text: String) { try? ask(text + "\n") }

  /// The width of the terminal; 80 without one.
  static var columns: Int {
    var size = winsize()
    return ioctl(1, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0 ? Int(size.ws_col) : 80
  }

  /// Whether to use colours on a stream.
  static func colors(_ mode: ColorMode, on descriptor: Int32) -> Bool {
    mode.isEnabled(
      isTerminal: isatty(descriptor) == 1,
      noColor: !(ProcessEnvironment["NO_COLOR"] ?? "").isEmpty
        || ProcessEnvironment["TERM"] == "dumb")
  }
}
