import ArgumentParser
import PipelineCore

/// The picture of `rxd top`: sentences above a table.
struct TopTable {
  enum Order: String, CaseIterable, ExpressibleByArgument {
    case file, name, `in`, out, dropped, errors, held, keys, kept, busy
  }

  var order = Order.file
  /// Only steps whose pipeline or name contains this text are shown.
  var filter = ""
  var columns = 80
  /// The number of lines of the window; nil: as many as are needed.
  var lines: Int?
  var colors = false
  private static let mostSentences = 5

  /// The number of rows scrolled out above; ``text(_:longer:history:)`` clamps it.
  var offset = 0
  /// The number of rows that fitted in the last text.
  private(set) var room = Int.max

  /// A column of numbers.
  private struct Column {
    var title: String
    var width: Int
    var text: (LiveRates.Row) -> String
  }

  /// The columns that fit into the window.
  private var shown: [Column] {
    let wide = columns >= 80
    var all = [
      Column(title: "IN/S", width: wide ? 8 : 6) { LiveRanking.rate($0.received) },
      Column(title: "OUT/S", width: wide ? 8 : 6) { LiveRanking.rate($0.sent) },
    ]
    if columns >= 60 { all.append(Column(title: "DROP/S", width: wide ? 8 : 6) { LiveRanking.rate($0.dropped) }) }
    if columns >= 40 {
      all.append(Column(title: "ERR/S", width: wide ? 6 : 5) { LiveRanking.rate($0.errors) })
      all.append(Column(title: "HELD", width: wide ? 7 : 6) { LiveRanking.rate(Double(Self.held($0))) })
    }
    if columns >= 100 {
      all.append(Column(title: "KEYS", width: 7) { $0.step.keys.map(Self.count) ?? "-" })
      all.append(Column(title: "KEEPS", width: 7) { $0.step.keptBytes.map(Self.bytes) ?? "-" })
    }
    if columns >= 60 {
      all.append(Column(title: "BUSY", width: 5) { $0.busy < 0.005 ? "-" : "\(Int(($0.busy * 100).rounded()))%" })
    }
    return all
  }

  /// The text. No line is longer than ``columns``, and there are at most ``lines``.
  ///
  /// - Parameters:
  ///   - rates: The rates since the last reading.
  ///   - longer: The rates over a longer time, for the sentences.
  ///   - history: Events per second of each step, the newest last.
  mutating func text(_ rates: LiveRates, longer: LiveRates, history: [String: [Double]]) -> String {
    var text: [String] = []
    let running = rates.now.pipelines.count { $0.state == "running" }
    text.append(
      bold(
        cut(
          "rxd top  \(rates.now.at)  \(Printable.count(rates.now.pipelines.count, "pipeline")), \(running) running",
          columns)))
    var sentences: [String] = []
    for sentence in LiveRanking(longer).sentences.prefix(Self.mostSentences) {
      sentences += Self.wrap(sentence, columns)
    }
    // The table gets at least half of the window.
    if let lines { sentences = Array(sentences.prefix(max(1, lines / 2 - 3))) }
    text += sentences + [""]
    let several = rates.now.pipelines.count > 1
    let numbers = shown
    let used = numbers.reduce(0) { $0 + $1.width + 1 }
    let spark = columns >= 80 ? max(7, min(20, columns - (columns >= 100 ? 96 : 80) + 7)) : 0
    let width = max(8, columns - used - (spark > 0 ? spark + 1 : 0))
    func line(_ step: String, _ texts: [String], _ last: String) -> String {
      var line = pad(cut(step, width, atStart: true), width)
      for (text, column) in zip(texts, numbers) { line += " " + pad(text, column.width, atStart: true) }
      return spark > 0 ? line + " " + last : cut(line, columns)
    }
    let mark = order == .file || order == .name ? "" : " by \(order.rawValue)"
    text.append(bold(line("STEP\(mark)", numbers.map(\.title), "RATE")))
    let all = sorted(rates.rows.filter { filter.isEmpty || $0.name.contains(filter) })
    room = lines.map { max(1, $0 - text.count - 1) } ?? Int.max
    let isWhole = all.count <= room || lines.map { all.count <= $0 - text.count } == true
    offset = isWhole ? 0 : max(0, min(offset, all.count - room))
    let rows = isWhole ? all[...] : all[offset..<min(all.count, offset + room)]
    for row in rows {
      let shown = line(
        several ? row.name : row.step.id, numbers.map { $0.text(row) },
        Self.sparkline(history[row.name] ?? [], width: spark))
      text.append(row.step.pausesInput || row.errors > 0 ? red(shown) : shown)
    }
    if !isWhole {
      text.append(cut("rows \(rows.startIndex + 1) to \(rows.endIndex) of \(all.count): ↑ ↓ scroll", columns))
    }
    return text.joined(separator: "\n") + "\n"
  }

  private static func held(_ row: LiveRates.Row) -> Int {
    max(row.step.holding, row.step.outbox?.events ?? 0, row.step.queue?.events ?? 0)
  }

  private func sorted(_ rows: [LiveRates.Row]) -> [LiveRates.Row] {
    func by(_ value: (LiveRates.Row) -> Double) -> [LiveRates.Row] {
      rows.enumerated().sorted { (value($1.element), $0.offset) < (value($0.element), $1.offset) }.map(\.element)
    }
    switch order {
    case .file: return rows
    case .name: return rows.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
    case .in: return by(\.received)
    case .out: return by(\.sent)
    case .dropped: return by(\.dropped)
    case .errors: return by(\.errors)
    case .held: return by { Double(Self.held($0)) }
    case .keys: return by { Double($0.step.keys ?? 0) }
    case .kept: return by { Double($0.step.keptBytes ?? 0) }
    case .busy: return by(\.busy)
    }
  }

  static func count(_ count: Int) -> String { LiveRanking.rate(Double(count)) }

  /// `512`, `4.2K`, `13M`.
  static func bytes(_ count: Int) -> String {
    var (size, units) = (Double(count), ["", "K", "M", "G", "T"][...])
    while size >= 1023.5, units.count > 1 {
      size /= 1024
      units = units.dropFirst()
    }
    let tenths = Int((size * 10).rounded())
    let unit = units.first ?? ""
    return size < 9.95 && !unit.isEmpty && tenths % 10 != 0
      ? "\(tenths / 10).\(tenths % 10)\(unit)" : "\((tenths + 5) / 10)\(unit)"
  }

  /// The newest rates as bars, relative to the greatest of them.
  static func sparkline(_ rates: [Double], width: Int) -> String {
    let marks = Array("▁▂▃▄▅▆▇█")
    let shown = rates.suffix(width)
    let most = shown.max() ?? 0
    guard most > 0 else {
      return String(repeating: " ", count: max(0, width - shown.count)) + String(repeating: "▁", count: shown.count)
    }
    let text = shown.map { String(marks[min(7, Int($0 / most * 7.999))]) }.joined()
    return String(repeating: " ", count: max(0, width - shown.count)) + text
  }

  private static func parts(of word: Substring, _ most: Int) -> [String] {
    var left = word.unicodeScalars[...]
    var parts: [String] = []
    while !left.isEmpty {
      parts.append(String(String.UnicodeScalarView(left.prefix(most))))
      left = left.dropFirst(most)
    }
    return parts
  }

  /// The sentence in lines that fit the width.
  static func wrap(_ sentence: String, _ columns: Int) -> [String] {
    var lines: [String] = []
    var line = " "
    // A word that is longer than a line is split.
    let words = Printable.cut(sentence, limit: 1000).split(separator: " ").flatMap {
      parts(of: $0, max(8, columns - 4))
    }
    for word in words {
      if line.unicodeScalars.count + word.unicodeScalars.count + 1 > columns, line.contains(where: { $0 != " " }) {
        lines.append(line)
        line = "   "
      }
      line += " " + word
    }
    return lines + [line]
  }

  private func bold(_ text: String) -> String { colors ? "\u{1B}[1m\(text)\u{1B}[0m" : text }
  private func red(_ text: String) -> String { colors ? "\u{1B}[31m\(text)\u{1B}[0m" : text }

  private func pad(_ text: String, _ width: Int, atStart: Bool = false) -> String {
    let pad = String(repeating: " ", count: max(0, width - text.unicodeScalars.count))
    return atStart ? pad + text : text + pad
  }

  private func cut(_ text: String, _ width: Int, atStart: Bool = false) -> String {
    let shown = Printable.cut(text, limit: 300)
    guard shown.unicodeScalars.count > width else { return shown }
    return atStart
      ? "…" + String(String.UnicodeScalarView(shown.unicodeScalars.suffix(width - 1)))
      : String(String.UnicodeScalarView(shown.unicodeScalars.prefix(width - 1))) + "…"
  }
}
