import Glibc

// Before anything else: a hang-up during start-up waits until `run` reads it, and a reader that goes
// away is an error of the write, not the end of the process.
Signals.hold([SIGHUP])
signal(SIGPIPE, SIG_IGN)
if let plain = PlainArguments(CommandLine.arguments.dropFirst()) {
  do { try plain.perform() } catch { Rxd.exit(withError: error) }
} else {
  Rxd.main()
}
