import ArgumentParser
import PipelineCore

/// The picture of `rxd top`: sentences above a table.
struct TopTable {
  enum Order: String, CaseIterable, ExpressibleByArgument {
    case file, name, `in`, out, dropped, errors, held, keys, kept, busy
  }

  var order = Order.file
  /// Only steps whose pipeline or name contains this.
  var filter = ""
  var columns = 80
  /// How many lines there are; nil: as many as are needed.
  var lines: Int?
  var colors = false
  private static let mostSentences = 5

  /// - Parameters:
  ///   - rates: since the last reading.
  ///   - longer: over a longer time, for the sentences.
  ///   - history: events a second of each step, the newest last.
  func text(_ rates: LiveRates, longer: LiveRates, history: [String: [Double]]) -> String {
    var text: [String] = []
    let running = rates.now.pipelines.count { $0.state == "running" }
    text.append(
      bold("rxd top  \(rates.now.at)  \(Printable.count(rates.now.pipelines.count, "pipeline")), \(running) running"))
    for sentence in LiveRanking(longer).sentences.prefix(Self.mostSentences) { text += Self.wrap(sentence, columns) }
    text.append("")
    let several = rates.now.pipelines.count > 1
    let isWide = columns >= 100
    let spark = max(7, min(20, columns - (isWide ? 96 : 80) + 7))
    let width = max(24, columns - (isWide ? 64 : 48) - spark - 1)
    func line(_ step: String, _ numbers: [String], _ last: String) -> String {
      var line = pad(cut(step, width, atStart: true), width)
      for (number, size) in zip(numbers, isWide ? [8, 8, 8, 6, 7, 7, 7, 5] : [8, 8, 8, 6, 7, 5]) {
        line += " " + pad(number, size, atStart: true)
      }
      return line + " " + last
    }
    let mark = order == .file || order == .name ? "" : " by \(order.rawValue)"
    let kept = isWide ? ["KEYS", "KEEPS"] : []
    text.append(bold(line("STEP\(mark)", ["IN/S", "OUT/S", "DROP/S", "ERR/S", "HELD"] + kept + ["BUSY"], "RATE")))
    var rows = sorted(rates.rows.filter { filter.isEmpty || $0.name.contains(filter) })
    var left = 0
    if let lines, rows.count > lines - text.count - 1 {
      let room = max(1, lines - text.count - 2)
      left = rows.count - room
      rows = Array(rows.prefix(room))
    }
    for row in rows {
      let kept = isWide ? [row.step.keys.map(Self.count) ?? "-", row.step.keptBytes.map(Self.bytes) ?? "-"] : []
      let numbers =
        [
          LiveRanking.rate(row.received), LiveRanking.rate(row.sent), LiveRanking.rate(row.dropped),
          LiveRanking.rate(row.errors), LiveRanking.rate(Double(held(row))),
        ] + kept + [row.busy < 0.005 ? "-" : "\(Int((row.busy * 100).rounded()))%"]
      let shown = line(
        several ? row.name : row.step.id, numbers, Self.sparkline(history[row.name] ?? [], width: spark))
      text.append(row.step.pausesInput || row.errors > 0 ? red(shown) : shown)
    }
    if left > 0 { text.append("... \(left) more") }
    return text.joined(separator: "\n") + "\n"
  }

  private func held(_ row: LiveRates.Row) -> Int {
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
    case .held: return by { Double(held($0)) }
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

  /// The newest rates, relative to the greatest of them.
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

  /// The sentence in lines that fit the width.
  static func wrap(_ sentence: String, _ columns: Int) -> [String] {
    var lines: [String] = []
    var line = " "
    for word in Printable.cut(sentence, limit: 1000).split(separator: " ") {
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
