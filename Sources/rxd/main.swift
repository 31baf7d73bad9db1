import CLinux
import Glibc

// Before anything else: a signal that comes during start-up waits until it is known what shall become of it, and a reader
// that goes away, or a file that has reached the limit of its size, is an error of the write, not the end of the process.
Signals.hold()
signal(SIGPIPE, SIG_IGN)
signal(SIGXFSZ, SIG_IGN)
rx_explain_exhaustion(ExitStatus.system.rawValue)
do {
  if let plain = PlainArguments(CommandLine.arguments.dropFirst()) {
    if !plain.isRun { Signals.release() }
    try plain.perform()
  } else {
    var command = try Rxd.parseAsRoot()
    if !(command is Run) { Signals.release() }
    try command.run()
  }
} catch {
  Rxd.exit(withError: error)
}
