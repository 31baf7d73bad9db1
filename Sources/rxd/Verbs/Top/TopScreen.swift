import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The loop of `rxd top`: takes readings, draws, reads keys.
final class TopScreen {
  private let client: ControlClient
  private var table: TopTable
  private let interval: TimeSpan
  private let isTerminal: Bool
  private var history: [String: [Double]] = [:]
  /// The last reading, and the changes since the reading before it and in the last minute.
  private var last: LiveStatistics
  private var rates: (last: LiveRates, minute: LiveRates)?
  private var window = LiveWindow()
  private var isPaused = false
  /// The name being typed; nil: keys are commands.
  private var typed: String?

  init(_ client: ControlClient, _ table: TopTable, interval: TimeSpan, color: ColorMode) throws(ControlClient.Failure) {
    last = try TopVerb.read(client)
    self.client = client
    self.table = table
    self.interval = interval
    isTerminal = isatty(0) == 1 && isatty(1) == 1
    self.table.colors = isTerminal && Console.colors(color, on: 1)
    _ = window.rates(to: last)
  }

  func run() throws(ControlClient.Failure) {
    let terminal = isTerminal ? RawTerminal() : nil
    defer { terminal?.restore() }
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

  /// Waits until the descriptor is readable (true) or `end` has come (false). A signal does not end the wait.
  @discardableResult
  static func wait(until end: Instant, readable descriptor: Int32? = nil) -> Bool {
    // `poll` ignores a negative descriptor.
    var entry = pollfd(fd: descriptor ?? -1, events: Int16(POLLIN), revents: 0)
    while true {
      let left = (end - SystemClock.shared.now).nanoseconds
      if left <= 0 { return false }
      // Rounded up, so that `poll` does not return early and need another call.
      if poll(&entry, 1, Int32(clamping: (left - 1) / 1_000_000 + 1)) > 0 { return true }
    }
  }

  private func show(_ now: LiveStatistics) {
    let newest = LiveRates(from: last, to: now)
    var kept: [String: [Double]] = [:]
    for row in newest.rows { kept[row.name] = ((history[row.name] ?? []) + [row.received]).suffix(20) }
    history = kept
    last = now
    rates = (newest, window.rates(to: now) ?? newest)
  }

  private func draw() {
    guard let rates else { return }
    if isTerminal {
      var size = winsize()
      if ioctl(1, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 {
        table.columns = max(20, Int(size.ws_col))
        table.lines = max(6, Int(size.ws_row) - 1)
      }
    }
    let text = table.text(rates.last, longer: rates.minute, history: history)
    guard isTerminal else { return Console.print(text) }
    let line =
      typed.map { "filter: \($0)_" }
      ?? (isPaused ? "paused; space resumes" : "q ends, s: order (\(table.order.rawValue)), / filters, space pauses")
    let hint = String(String.UnicodeScalarView(line.unicodeScalars.prefix(table.columns - 1)))
    // Each line clears the rest of its row, and the last one the rest of the screen.
    let lines = Console.shown(text).split(separator: "\n", omittingEmptySubsequences: false)
      .joined(separator: "\u{1B}[K\r\n")
    Console.draw("\u{1B}[H\(lines)\(Console.shown(hint))\u{1B}[K\u{1B}[J")
  }

  /// A movement of the table on the screen.
  private enum Move {
    case lines(Int)
    case pages(Int)
    case start, end, nothing
  }

  private func scroll(by move: Move) {
    switch move {
    case .lines(let count): table.offset += count
    case .pages(let count): table.offset += count * max(1, min(table.room, 1000) - 1)
    case .start: table.offset = 0
    case .end: table.offset = 1 << 30
    case .nothing: break
    }
    table.offset = max(0, table.offset)
  }

  /// Takes the rest of an escape sequence of a key; nil: the key is Escape itself.
  private static func move(_ keys: inout ArraySlice<UInt8>) -> Move? {
    guard let kind = keys.first, kind == UInt8(ascii: "[") || kind == UInt8(ascii: "O") else { return nil }
    keys.removeFirst()
    var parameter: [UInt8] = []
    while let byte = keys.popFirst() {
      if (0x30...0x3B).contains(byte) {
        parameter.append(byte)
        continue
      }
      switch (byte, parameter.first) {
      case (UInt8(ascii: "A"), _): return .lines(-1)
      case (UInt8(ascii: "B"), _): return .lines(1)
      case (UInt8(ascii: "H"), _), (UInt8(ascii: "~"), UInt8(ascii: "1")), (UInt8(ascii: "~"), UInt8(ascii: "7")):
        return .start
      case (UInt8(ascii: "F"), _), (UInt8(ascii: "~"), UInt8(ascii: "4")), (UInt8(ascii: "~"), UInt8(ascii: "8")):
        return .end
      case (UInt8(ascii: "~"), UInt8(ascii: "5")): return .pages(-1)
      case (UInt8(ascii: "~"), UInt8(ascii: "6")): return .pages(1)
      default: return .nothing
      }
    }
    return .nothing
  }

  /// Reads and handles keys; returns false if the user wants to quit.
  private func readKeys() -> Bool {
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = read(0, &bytes, bytes.count)
    guard count > 0 else { return false }
    var keys = bytes[..<count]
    while let byte = keys.popFirst() {
      if byte == 0x1B, let move = Self.move(&keys) {
        scroll(by: move)
        continue
      }
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
        table.offset = 0
      case UInt8(ascii: "k"): scroll(by: .lines(-1))
      case UInt8(ascii: "j"): scroll(by: .lines(1))
      case UInt8(ascii: "g"): scroll(by: .start)
      case UInt8(ascii: "G"): scroll(by: .end)
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
