import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The loop of `rxd top`: readings, draws, reads keys.
final class TopScreen {
  private let client: ControlClient
  private var table: TopTable
  private let interval: TimeSpan
  private let isTerminal: Bool
  private var history: [String: [Double]] = [:]
  /// Readings of the last minute, the oldest first.
  private var readings: [LiveStatistics] = []
  private var isPaused = false
  /// The name being typed; nil: keys are commands.
  private var typed: String?
  private static let window = 60_000_000_000

  init(_ client: ControlClient, _ table: TopTable, interval: TimeSpan, color: ColorMode) {
    self.client = client
    self.table = table
    self.interval = interval
    isTerminal = isatty(0) == 1 && isatty(1) == 1
    self.table.colors = isTerminal && Console.colors(color, on: 1)
  }

  func run() throws(ControlClient.Failure) {
    let terminal = isTerminal ? RawTerminal() : nil
    defer { terminal?.restore() }
    readings = [try TopVerb.read(client)]
    var next = SystemClock.shared.now + interval
    while true {
      if Self.wait(until: next, readable: isTerminal ? 0 : nil) {
        if !readKeys() { return }
        draw()
        continue
      }
      if SystemClock.shared.now < next { continue }
      next = SystemClock.shared.now + interval
      if isPaused { continue }
      show(try TopVerb.read(client))
      draw()
    }
  }

  /// Waits until the descriptor can be read, which it returns, or the time has come. A signal ends neither.
  @discardableResult
  static func wait(until end: Instant, readable descriptor: Int32? = nil) -> Bool {
    // A descriptor below zero is left out.
    var entry = pollfd(fd: descriptor ?? -1, events: Int16(POLLIN), revents: 0)
    while true {
      let left = (end - SystemClock.shared.now).nanoseconds
      if left <= 0 { return false }
      // Rounded up, so that it does not end early and wait again.
      if poll(&entry, 1, Int32(clamping: (left - 1) / 1_000_000 + 1)) > 0 { return true }
    }
  }

  private func show(_ now: LiveStatistics) {
    if let last = readings.last {
      let rates = LiveRates(from: last, to: now)
      var kept: [String: [Double]] = [:]
      for row in rates.rows { kept[row.name] = ((history[row.name] ?? []) + [row.received]).suffix(20) }
      history = kept
    }
    readings.append(now)
    // The one before the window begins it.
    while readings.count > 2, readings[1].nanoseconds < now.nanoseconds - Self.window { readings.removeFirst() }
  }

  private func draw() {
    guard readings.count > 1, let first = readings.first, let last = readings.last else { return }
    if isTerminal {
      var size = winsize()
      if ioctl(1, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 {
        table.columns = max(80, Int(size.ws_col))
        table.lines = max(8, Int(size.ws_row) - 1)
      }
    }
    let text = table.text(
      LiveRates(from: readings[readings.count - 2], to: last), longer: LiveRates(from: first, to: last),
      history: history)
    guard isTerminal else { return Console.print(text) }
    let hint =
      typed.map { "filter: \($0)_" }
      ?? (isPaused ? "paused; space goes on" : "q ends, s: order (\(table.order.rawValue)), / filters, space pauses")
    // Each line clears what is behind it; the rest of the screen is cleared at the end.
    let lines = Console.shown(text).split(separator: "\n", omittingEmptySubsequences: false)
      .joined(separator: "\u{1B}[K\r\n")
    Console.draw("\u{1B}[H\(lines)\(Console.shown(hint))\u{1B}[K\u{1B}[J")
  }

  /// Returns false if the person wants to end.
  private func readKeys() -> Bool {
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = read(0, &bytes, bytes.count)
    guard count > 0 else { return false }
    for byte in bytes[..<count] {
      if byte == 0x03 || byte == 0x04 { return false }
      if let text = typed {
        switch byte {
        case 0x0D, 0x0A: typed = nil
        case 0x1B:
          typed = nil
          table.filter = ""
        case 0x7F, 0x08: typed = String(text.dropLast())
        case 0x20...0x7E: typed = text + String(Unicode.Scalar(byte))
        default: break
        }
        if let typed { table.filter = typed }
        continue
      }
      switch byte {
      case UInt8(ascii: "q"): return false
      case UInt8(ascii: "s"):
        let all = TopTable.Order.allCases
        table.order = all[((all.firstIndex(of: table.order) ?? 0) + 1) % all.count]
      case UInt8(ascii: "/"):
        typed = ""
        table.filter = ""
      case UInt8(ascii: " "): isPaused.toggle()
      default: break
      }
    }
    return true
  }
}
