import PipelineCore
import PipelineTesting

/// A marble diagram: one line for each signal, with a common time axis; events of one instant are stacked. Readable on
/// light and dark backgrounds; deterministic.
struct MarblePicture {
  enum Row {
    /// A signal; the events with these indexes have a marked rim.
    case signal(name: String, Marbles, marked: Set<Int> = [])
    /// The operation on the signals above it.
    case step(String)
  }

  /// For screen readers.
  var title: String
  /// The same as text or marbles.
  var description: String
  var rows: [Row]
  /// The values of the letters.
  var values: [(String, String)] = []

  // Sizes in pixels.
  private static let tickWidth = 23
  private static let radius = 12
  private static let stackPitch = 28
  private static let longestGap = 12
  private static let character = 7.25
  private static let minimumWidth = 440

  /// `head`: SVG above the signals, which may use the styles.
  func svg(head: String = "", headHeight: Int = 0, headWidth: Int = 0) -> String {
    let instants = self.instants()
    let columns = columns(at: instants)
    let last = columns.last?.x ?? 0
    let steps = rows.compactMap { row -> String? in if case .step(let text) = row { text } else { nil } }
    let widest = steps.flatMap(Self.wrapped).map { Int(Double($0.utf8.count) * Self.character) + 60 }.max() ?? 0
    let labels = rows.compactMap { row -> Int? in
      if case .signal(let name, _, _) = row { Self.width(name) } else { nil }
    }
    let left = max(16, (labels.max() ?? 0) + 22)
    let width = max(Self.minimumWidth, left + last + 64, widest + 24, headWidth)
    let stop = min(width - 16, left + last + 48)

    var palette = Palette()
    var body = ""
    var y = 10 + headHeight
    var lines: [(top: Int, bottom: Int)] = []
    for row in rows {
      switch row {
      case .step(let text):
        let wrapped = Self.wrapped(text)
        let height = wrapped.count * 18 + 14
        body += rectangle("b", 12, y, width - 24, height, 9)
        for (number, line) in wrapped.enumerated() {
          body += label("m", width / 2, y + 22 + number * 18, line, anchor: "middle")
        }
        y += height + 8
      case .signal(let name, let marbles, let marked):
        let stacks = self.stacks(marbles)
        let tallest = stacks.values.map { self.height($0) }.max() ?? 0
        let height = max(42, tallest + 16)
        let axis = y + height / 2
        body += signal(name, marbles, stacks, marked, columns, (left, axis, stop), &palette)
        lines.append((y + 4, y + height - 4))
        y += height
      }
    }
    body = head + guides(columns, left, lines.first?.top ?? 0, y) + body
    y += 4
    body += scale(columns, left, y, stop)
    y += 34
    for line in legend() {
      body += "<circle class=\"c\(palette.color(line.letter))\" cx=\"\(left + 5)\" cy=\"\(y + 2)\" r=\"5\"/>"
      body += label("k", left + 16, y + 6, "\(line.letter) = \(line.value)")
      y += 19
    }
    return frame(width, y + 4, body)
  }

  // MARK: Positions

  private struct Column {
    var at: TimeSpan
    var x: Int
    /// Whether the drawing leaves out the time before it.
    var isCut: Bool
    var gapStart: Int
    /// Something happens at this instant.
    var isBusy: Bool
  }

  private func instants() -> [TimeSpan] {
    var all: Set<TimeSpan> = [.zero]
    for case .signal(_, let marbles, _) in rows {
      for entry in marbles.entries { all.insert(entry.at) }
    }
    return all.sorted()
  }

  /// The positions of instants on the time axis, linear except for long pauses and wide values.
  private func columns(at instants: [TimeSpan]) -> [Column] {
    let tick = max(1, instants.reduce(Int64(0)) { Self.divisor($0, $1.nanoseconds) })
    let stacks = rows.compactMap { row -> [TimeSpan: [Item]]? in
      if case .signal(_, let marbles, _) = row { self.stacks(marbles) } else { nil }
    }
    var edges = stacks.map { _ in Int.min / 2 }
    var columns: [Column] = []
    var x = 0
    var before = TimeSpan.zero
    for instant in instants {
      let ticks = (instant.nanoseconds - before.nanoseconds) / tick
      let isCut = ticks > Self.longestGap
      let start = x
      x += isCut ? Self.tickWidth * 5 : Int(ticks) * Self.tickWidth
      for (line, stack) in stacks.enumerated() {
        guard let items = stack[instant] else { continue }
        let half = (items.map(\.width).max() ?? 0) / 2
        x = max(x, edges[line] + half + 4)
      }
      if columns.isEmpty {
        x = stacks.compactMap { $0[instant]?.map(\.width).max() }.reduce(Self.radius) { max($0, $1 / 2) } + 6
      }
      for (line, stack) in stacks.enumerated() {
        guard let items = stack[instant] else { continue }
        edges[line] = x + (items.map(\.width).max() ?? 0) / 2
      }
      columns.append(
        Column(at: instant, x: x, isCut: isCut, gapStart: start, isBusy: stacks.contains { $0[instant] != nil }))
      before = instant
    }
    return columns
  }

  private static func divisor(_ a: Int64, _ b: Int64) -> Int64 { b == 0 ? a : divisor(b, a % b) }

  private struct Item {
    var moment: SignalMoment
    var text: String
    var width: Int
    /// The index of the event in the signal.
    var number: Int
  }

  /// The items at each instant of a signal, in order.
  private func stacks(_ marbles: Marbles) -> [TimeSpan: [Item]] {
    var result: [TimeSpan: [Item]] = [:]
    var number = 0
    for entry in marbles.entries {
      switch entry.moment {
      case .next(let name):
        let text = text(name)
        let isRound = text.utf8.count <= 2
        let width = isRound ? 2 * Self.radius : Self.width(text) + 14
        result[entry.at, default: []].append(Item(moment: entry.moment, text: text, width: width, number: number))
        number += 1
      case .complete: result[entry.at, default: []].append(Item(moment: entry.moment, text: "", width: 8, number: -1))
      case .error: result[entry.at, default: []].append(Item(moment: entry.moment, text: "", width: 20, number: -1))
      case .subscribe, .cancel:
        result[entry.at, default: []].append(Item(moment: entry.moment, text: "", width: 14, number: -1))
      }
    }
    return result
  }

  /// The height of a stack; a completion takes no space alongside events.
  private func height(_ items: [Item]) -> Int {
    let events = items.count { $0.moment != .complete }
    return max(1, events) * Self.stackPitch + (events < items.count ? 12 : 0)
  }

  /// The label of a value: its text if short, otherwise its letter.
  private func text(_ name: String) -> String {
    guard let value = values.first(where: { $0.0 == name })?.1 else { return name }
    return value.utf8.count <= 12 ? value : name
  }

  private func legend() -> [(letter: String, value: String)] {
    values.filter { text($0.0) == $0.0 && $0.1 != $0.0 }
  }

  private static func width(_ text: String) -> Int { Int((Double(text.unicodeScalars.count) * character).rounded(.up)) }

  /// A step, broken into lines of similar length between words.
  static func wrapped(_ text: String) -> [String] {
    var lines: [String] = []
    for given in text.split(separator: "\n") {
      let count = (given.utf8.count + 95) / 96
      let limit = count == 1 ? 96 : given.utf8.count / max(count, 1) + 8
      var line = ""
      for word in given.split(separator: " ") {
        if !line.isEmpty, line.utf8.count + 1 + word.utf8.count > limit {
          lines.append(line)
          line = ""
        } else if !line.isEmpty {
          line += " "
        }
        line += word
      }
      lines.append(line)
    }
    return lines
  }

  // MARK: Drawing

  /// Colours by the order in which values appear; equal values have equal colours.
  private struct Palette {
    private var known: [String: Int] = [:]
    mutating func color(_ text: String) -> Int {
      if let known = known[text] { return known }
      let number = known.count % 8
      known[text] = number
      return number
    }
  }

  private func signal(
    _ name: String, _ marbles: Marbles, _ stacks: [TimeSpan: [Item]], _ marked: Set<Int>, _ columns: [Column],
    _ line: (left: Int, axis: Int, stop: Int), _ palette: inout Palette
  ) -> String {
    let (left, axis, stop) = line
    var text = label("n", left - 12, axis + 4, name, anchor: "end")
    let end = marbles.entries.last { $0.moment == .complete || $0.moment == .error || $0.moment == .cancel }
    let begin = marbles.entries.first { $0.moment == .subscribe }
    let from = left + (begin.flatMap { begin in columns.first { $0.at == begin.at } }?.x ?? 0)
    if let end, let column = columns.first(where: { $0.at == end.at }) {
      text += stroke("l", from, axis, left + column.x, axis)
    } else {
      text += stroke("l", from, axis, stop - 2, axis)
      text += "<path class=\"a\" d=\"M\(stop - 9) \(axis - 5)l8 5-8 5\"/>"
    }
    for column in columns where column.isCut {
      let middle = left + (column.gapStart + column.x) / 2
      text += "<path class=\"a\" d=\"M\(middle - 6) \(axis + 6)l4-12M\(middle + 2) \(axis + 6)l4-12\"/>"
    }
    var rims = ""
    for column in columns {
      guard let items = stacks[column.at] else { continue }
      let x = left + column.x
      if items.contains(where: { $0.moment == .complete }) {
        let half = max(height(items) / 2, Self.radius + 4)
        text += stroke("e", x, axis - half, x, axis + half)
      }
      let visible = items.filter { $0.moment != .complete }
      for (number, item) in visible.enumerated() {
        let y = axis + number * Self.stackPitch - (visible.count - 1) * Self.stackPitch / 2
        text += draw(item, x, y, &palette)
        if marked.contains(item.number) {
          rims += rectangle("w", x - item.width / 2 - 3, y - 14, item.width + 6, 28, 14)
        }
      }
    }
    return text + rims
  }

  private func draw(_ item: Item, _ x: Int, _ y: Int, _ palette: inout Palette) -> String {
    switch item.moment {
    case .next:
      let color = palette.color(item.text)
      let shape: String
      if item.width == 2 * Self.radius {
        shape = "<circle class=\"c\(color)\" cx=\"\(x)\" cy=\"\(y)\" r=\"\(Self.radius)\"/>"
      } else {
        shape = rectangle("c\(color)", x - item.width / 2, y - 11, item.width, 22, 11)
      }
      return shape + label("v", x, y + 4, item.text, anchor: "middle")
    case .error: return "<path class=\"x\" d=\"M\(x - 8) \(y - 8)l16 16m0-16l-16 16\"/>"
    case .subscribe: return "<path class=\"a\" d=\"M\(x - 6) \(y + 7)l6-10 6 10\"/>"
    case .cancel: return stroke("d", x, y - 12, x, y + 12)
    case .complete: return ""
    }
  }

  /// A faint line through all signals at each instant.
  private func guides(_ columns: [Column], _ left: Int, _ top: Int, _ bottom: Int) -> String {
    let path = columns.filter(\.isBusy).map { "M\(left + $0.x) \(top)V\(bottom + 6)" }.joined()
    return path.isEmpty ? "" : "<path class=\"u\" d=\"\(path)\"/>"
  }

  /// The times under the signals; some are left out where they would overlap.
  private func scale(_ columns: [Column], _ left: Int, _ y: Int, _ stop: Int) -> String {
    var text = stroke("t", left, y, stop, y)
    // A common unit, if there is one, at the end.
    let units: [(name: String, length: Int64)] = [
      ("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000),
    ]
    let unit = units.first { unit in columns.allSatisfy { $0.at.nanoseconds % unit.length == 0 } }
    if let unit { text += label("s", stop, y + 18, unit.name, anchor: "end") }
    var edge = Int.min
    for column in columns {
      let x = left + column.x
      text += stroke("t", x, y, x, y + 5)
      let name = unit.map { "\(column.at.nanoseconds / $0.length)" } ?? (column.at == .zero ? "0" : "\(column.at)")
      let half = Int(Double(name.utf8.count) * 3.1) + 1
      guard x - half > edge + 5 else { continue }
      text += label("s", x, y + 18, name, anchor: "middle")
      edge = x + half
    }
    return text
  }

  private func label(_ style: String, _ x: Int, _ y: Int, _ text: String, anchor: String = "") -> String {
    let alignment = anchor.isEmpty ? "" : " text-anchor=\"\(anchor)\""
    let space = text.hasPrefix(" ") || text.contains("  ") ? " xml:space=\"preserve\"" : ""
    return "<text class=\"\(style)\" x=\"\(x)\" y=\"\(y)\"\(alignment)\(space)>\(Self.escaped(text))</text>"
  }

  private func rectangle(_ style: String, _ x: Int, _ y: Int, _ width: Int, _ height: Int, _ round: Int) -> String {
    "<rect class=\"\(style)\" x=\"\(x)\" y=\"\(y)\" width=\"\(width)\" height=\"\(height)\" rx=\"\(round)\"/>"
  }

  private func stroke(_ style: String, _ x1: Int, _ y1: Int, _ x2: Int, _ y2: Int) -> String {
    "<path class=\"\(style)\" d=\"M\(x1) \(y1)L\(x2) \(y2)\"/>"
  }

  private func frame(_ width: Int, _ height: Int, _ body: String) -> String {
    """
    <svg xmlns="http://www.w3.org/2000/svg" width="\(width)" height="\(height)" viewBox="0 0 \(width) \(height)" role="img">
    <title>\(Self.escaped(title))</title>
    <desc>\(Self.escaped(description))</desc>
    <style>\(Self.style)</style>
    \(body.split(separator: "><").joined(separator: ">\n<"))
    </svg>

    """
  }

  static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"": result += "&quot;"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// Follows the dark mode of the reader's system or page.
  static let style = """
    text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#24292f}
    .n{font-weight:600;font-size:13px}.s{font-size:10px;fill:#6e7781}.k{fill:#424a53}
    .v{fill:#fff;font-weight:600}.m{font-size:12.5px}
    path{fill:none;stroke-linecap:round}
    .l{stroke:#57606a;stroke-width:2}.a{stroke:#57606a;stroke-width:2;stroke-linejoin:round}
    .e{stroke:#24292f;stroke-width:3.5}.x{stroke:#cf222e;stroke-width:4}.d{stroke:#57606a;stroke-width:2;stroke-dasharray:3 4}
    .t{stroke:#afb8c1}.u{stroke:#d0d7de;stroke-dasharray:2 4}
    .b{fill:#f6f8fa;stroke:#afb8c1}.w{fill:none;stroke:#cf222e;stroke-width:2;stroke-dasharray:4 3}
    .c0{fill:#0969da}.c1{fill:#bc4c00}.c2{fill:#1a7f37}.c3{fill:#8250df}.c4{fill:#bf3989}.c5{fill:#0b7285}.c6{fill:#7d6608}.c7{fill:#57606a}
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.v{fill:#fff}.s{fill:#8d96a0}.k{fill:#b1bac4}
    .l,.a,.d{stroke:#9198a1}.e{stroke:#e6edf3}.x{stroke:#ff6b64}.t{stroke:#484f58}.u{stroke:#30363d}
    .b{fill:#161b22;stroke:#484f58}.w{stroke:#ff6b64}
    .c0{fill:#1f6feb}.c1{fill:#c24e00}.c2{fill:#238636}.c3{fill:#8957e5}.c4{fill:#c0408f}.c5{fill:#12809a}.c6{fill:#8a7408}.c7{fill:#656d76}}
    """
}
