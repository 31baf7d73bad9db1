import CLinux
import Glibc
import Transport

/// The signals that this process listens to, read from a descriptor instead of handlers: nothing ever
/// runs in the middle of something else, and waiting for them costs no wake-up.
struct Signals {
  /// Readable while a signal is pending.
  let descriptor: Int32
  private static let handled = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2]
  private static let ending = [SIGINT, SIGTERM, SIGQUIT]

  /// Holds all of them back from the very start, until ``release()`` or a handler.
  static func hold() { mask(SIG_BLOCK, handled) }

  /// They do what they do by themselves.
  static func release() { mask(SIG_UNBLOCK, handled) }

  /// Until ``init()``, what asks the process to end does so at once: nothing has begun, so there is nothing to wait for. The others
  /// wait. What the parent process had ignored stays ignored; the handler that prints backtraces has nothing to print for a
  /// signal that a person sends.
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

  /// Takes the signals over. Called on the main thread, before any other thread is started.
  init() throws(PosixError) {
    Self.hold()
    descriptor = rx_signalfd(Self.handled, Int32(Self.handled.count))
    if descriptor < 0 { throw PosixError("create", "a signalfd") }
  }

  /// The next pending signal, or nil. Several of one kind count as one.
  func next() -> Int32? {
    let signal = rx_next_signal(descriptor)
    return signal == 0 ? nil : signal
  }
}
