import CLinux
import Glibc
import Transport

/// The signals that this process listens to, read from a descriptor instead of handlers: nothing ever
/// runs in the middle of something else, and waiting for them costs no wake-up.
struct Signals {
  /// Readable while a signal is pending.
  let descriptor: Int32
  private static let handled = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1]

  /// Blocks signals in the calling thread and those that it starts from now on.
  static func hold(_ signals: [Int32]) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    pthread_sigmask(SIG_BLOCK, &set, nil)
  }

  /// Takes the signals over. Called on the main thread, before any other thread is started.
  init() throws(PosixError) {
    Self.hold(Self.handled)
    descriptor = rx_signalfd(Self.handled, Int32(Self.handled.count))
    if descriptor < 0 { throw PosixError("create", "a signalfd") }
  }

  /// The next pending signal, or nil. Several of one kind count as one.
  func next() -> Int32? {
    let signal = rx_next_signal(descriptor)
    return signal == 0 ? nil : signal
  }
}
