import CLinux
import Glibc
import Transport

/// The signals of this process, read from a descriptor instead of handled: no handler interrupts other code, and
/// waiting for signals costs no wake-up.
struct Signals {
  /// A descriptor that is readable while a signal is pending.
  let descriptor: Int32
  private static let handled = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2]
  private static let ending = [SIGINT, SIGTERM, SIGQUIT]

  /// Blocks all handled signals from the start, until ``release()`` or a handler.
  static func hold() { mask(SIG_BLOCK, handled) }

  /// Restores the default effects of the signals.
  static func release() { mask(SIG_UNBLOCK, handled) }

  /// Lets signals that ask the process to end do so at once, until ``init()``: nothing has started, so there is nothing
  /// to wait for. The others stay blocked. Signals that the parent process ignored stay ignored. The handler that
  /// prints backtraces is replaced: signals sent by a person need none.
  static func endAtOnce() {
    for signal in ending where !rx_is_signal_ignored(signal) { rx_end_at_signal(signal) }
    mask(SIG_UNBLOCK, ending)
  }

  private static func mask(_ how: Int32, _ signals: [Int32]) {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    pthread_sigmask(how, &set, nil)
  }

  /// Takes over the signals. Called on the main thread, before any other thread is started.
  init() throws(PosixError) {
    Self.hold()
    descriptor = rx_signalfd(Self.handled, Int32(Self.handled.count))
    if descriptor < 0 { throw PosixError("create", "a signalfd") }
  }

  /// The next pending signal, or nil. Several signals of one kind count as one.
  func next() -> Int32? {
    let signal = rx_next_signal(descriptor)
    return signal == 0 ? nil : signal
  }
}
