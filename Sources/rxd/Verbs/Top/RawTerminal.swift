import Glibc

/// The settings to restore when a signal ends the process; nil: the terminal is unchanged. Read by a signal handler.
nonisolated(unsafe) private var settingsToRestore: UnsafeMutablePointer<termios>?

/// A terminal in raw mode, which delivers each key at once, on the alternate screen. It is restored when the process
/// ends, even by a signal.
struct RawTerminal {
  private static let ending = [SIGTERM, SIGINT, SIGHUP, SIGQUIT]
  private static let leaving: StaticString = "\u{1B}[?25h\u{1B}[?1049l"

  init?() {
    var settings = termios()
    guard tcgetattr(0, &settings) == 0 else { return nil }
    let saved = UnsafeMutablePointer<termios>.allocate(capacity: 1)
    saved.initialize(to: settings)
    settingsToRestore = saved
    for number in Self.ending { signal(number) { RawTerminal.end(with: $0) } }
    settings.c_lflag &= ~tcflag_t(ICANON | ECHO | ISIG)
    tcsetattr(0, TCSAFLUSH, &settings)
    Console.draw("\u{1B}[?1049h\u{1B}[?25l\u{1B}[2J")
  }

  func restore() {
    for number in Self.ending { signal(number, SIG_DFL) }
    guard let saved = settingsToRestore else { return }
    settingsToRestore = nil
    tcsetattr(0, TCSAFLUSH, saved)
    saved.deallocate()
    Console.draw("\(Self.leaving)")
  }

  /// Runs in a signal handler: only async-signal-safe calls. The process then ends by the signal.
  private static func end(with number: Int32) {
    if let saved = settingsToRestore {
      tcsetattr(0, TCSANOW, saved)
      _ = write(1, leaving.utf8Start, leaving.utf8CodeUnitCount)
    }
    signal(number, SIG_DFL)
    raise(number)
  }
}
