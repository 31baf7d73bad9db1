import PipelineCore
import PipelineTesting

/// Draws the lines of a tap as lanes of marbles, with the events of all edges on one time axis.
struct TapMarbles {
  private struct Entry {
    var nanoseconds: Int
    var verdict: String?
    var moment: SignalHistory.Moment
    /// Whether the line is the verdict on an earlier event.
    var isChange: Bool
  }

  private struct Lane {
    var label: String
    var entries: [Entry] = []
  }

  let tick: TimeSpan
  /// The maximum number of columns of a line.
  let columns: Int
  private var lanes: [Lane] = []
  /// The time of the picture's first event, on the pipelines' clock and as time of day.
  private var start: (nanoseconds: Int, time: String)?

  init(tick: TimeSpan, columns: Int) {
    self.tick = tick
    self.columns = columns
  }

  private static let labelWidth = 26
  /// The time span of a picture.
  var span: TimeSpan { TimeSpan(nanoseconds: Int64(max(10, columns - Self.labelWidth - 2)) &* tick.nanoseconds) }
  var isEmpty: Bool { start == nil }

  /// Takes a line; returns the pictures that are complete.
  mutating func take(_ line: JSONView) -> String {
    if let edges = line["edges"]?.items {
      for edge in edges { _ = lane(edge) }
      return "watching \(Printable.count(edges.count, "edge")) of \(line["pipeline"]?.text ?? "")\n"
    }
    guard let nanoseconds = line["nanoseconds"]?.count else { return "" }
    var done = ""
    if let start, nanoseconds &- start.nanoseconds >= Int(span.nanoseconds) { done = finish() }
    if start == nil { start = (nanoseconds, line["time"]?.text ?? "") }
    let moment: SignalHistory.Moment =
      switch line["end"]?.text {
      case "complete": .complete
      case .some: .error(line["message"]?.text ?? "")
      case nil: .next(line["event"]?.testValue ?? .null)
      }
    lanes[lane(line)].entries.append(
      Entry(nanoseconds: nanoseconds, verdict: line["verdict"]?.text, moment: moment, isChange: line["since"] != nil))
    return done
  }

  private mutating func lane(_ line: JSONView) -> Int {
    let label = "\(line["from"]?.text ?? "") -> \(line["to"]?.text ?? "")"
    if let index = lanes.firstIndex(where: { $0.label == label }) { return index }
    lanes.append(Lane(label: label))
    return lanes.count - 1
  }

  /// Draws the events so far: a lane for each edge and, below it, one for each verdict other than `passed`.
  mutating func finish() -> String {
    guard let start else { return "" }
    var rows: [(label: String, history: SignalHistory)] = []
    func history(_ entries: [Entry]) -> SignalHistory {
      SignalHistory(
        entries.map { entry in
          let ticks = Int64(max(0, entry.nanoseconds - start.nanoseconds)) / tick.nanoseconds
          return SignalHistory.Entry(at: TimeSpan(nanoseconds: ticks * tick.nanoseconds), entry.moment)
        })
    }
    for index in lanes.indices {
      let entries = lanes[index].entries
      rows.append((Self.cut(lanes[index].label), history(entries.filter { !$0.isChange })))
      for verdict in Verdict.allCases where verdict != .passed {
        let some = entries.filter { $0.verdict == verdict.rawValue }
        if !some.isEmpty { rows.append(("  \(verdict.rawValue)", history(some))) }
      }
      lanes[index].entries = []
    }
    self.start = nil
    let picture = MarbleDrawing(tick: tick).draw(rows.map(\.history))
    var text = "\(start.time)\n"
    for (row, line) in zip(rows, picture.lines) {
      let label = row.label + String(repeating: " ", count: max(0, Self.labelWidth - row.label.unicodeScalars.count))
      text += "\(label)  \(line)\n"
    }
    for line in picture.legend { text += Printable.cut("  \(line)", limit: max(40, columns)) + "\n" }
    return text + "\n"
  }

  /// Cuts the beginning of a long label, because the end is more specific.
  private static func cut(_ label: String) -> String {
    let shown = Printable.cut(label, limit: 300)
    guard shown.unicodeScalars.count > labelWidth else { return shown }
    return "…" + String(String.UnicodeScalarView(shown.unicodeScalars.suffix(labelWidth - 1)))
  }
}
