import Glibc

// Before anything else: a hang-up during start-up waits until `run` reads it, and a reader that goes
// away is an error of the write, not the end of the process.
Signals.hold([SIGHUP])
signal(SIGPIPE, SIG_IGN)
Rxd.main()
