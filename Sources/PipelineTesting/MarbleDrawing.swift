import PipelineCore

/// Draws histories as marbles, one line each, with a common time axis.
package struct MarbleDrawing {
  /// The user's letters and the values they stand for.
  package var letters: [(name: String, value: TestValue)] = []
  package var tick = TimeSpan.milliseconds(1)

  package init(letters: [(name: String, value: TestValue)] = [], tick: TimeSpan = .milliseconds(1)) {
    self.letters = letters
    self.tick = tick
  }

  /// The number of empty ticks up to which they are drawn; longer ones become a pause.
  private static let longestDash = 24

  /// The drawing of several histories.
  package struct Picture {
    /// One line for each history.
    package var lines: [String]
    /// `A = {"x": 1}`, for values that are not themselves letters or digits.
    package var legend: [String]
    /// The columns at which instants start.
    var columns: [(at: TimeSpan, column: Int)]

    func column(at instant: TimeSpan) -> Int? { columns.first { $0.at == instant }?.column }
  }

  package func draw(_ histories: [SignalHistory]) -> Picture {
    var names = MarbleNames(letters)
    var lines = [[String]](repeating: [], count: histories.count)
    var width = 0
    var columns: [(at: TimeSpan, column: Int)] = []
    func put(_ cells: [String]) {
      let most = cells.map(\.count).max() ?? 0
      for (line, cell) in cells.enumerated() {
        lines[line].append(cell + String(repeating: " ", count: most - cell.count))
      }
      width += most
    }

    let instants = Set(histories.flatMap { $0.entries.map(\.at) }).sorted()
    var now = TimeSpan.zero
    for instant in instants {
      let gap = TimeSpan(nanoseconds: instant.nanoseconds &- now.nanoseconds)
      if gap > .zero {
        let (ticks, rest) = gap.nanoseconds.quotientAndRemainder(dividingBy: max(tick.nanoseconds, 1))
        let text =
          rest == 0 && ticks <= Int64(Self.longestDash)
          ? String(repeating: "-", count: Int(ticks)) : " \(gap) "
        put(Array(repeating: text, count: histories.count))
      }
      columns.append((instant, width))
      put(
        histories.map { history in
          let moments = history.entries.filter { $0.at == instant }.map(\.moment)
          // A subscription at the start takes no time.
          let marks = moments.prefix { $0 == .subscribe }
          let rest = moments.dropFirst(marks.count)
          let text = rest.map { names.name(of: $0) }.joined()
          let first = String(repeating: "^", count: marks.count)
          if rest.isEmpty { return first + "-" }
          if rest.count == 1 { return first + (rest.first == .cancel ? "!-" : text) }
          return "\(first)(\(text))"
        })
      now = instant + tick
    }
    return Picture(
      lines: lines.map { $0.joined() }.map { line in
        String(line.reversed().drop { $0 == " " }.reversed())
      }, legend: names.legend, columns: columns)
  }
}

extension SignalHistory {
  /// Both pictures with a mark below the first difference, and the difference in words. Nil if they are equal.
  package static func difference(
    expected: SignalHistory, actual: SignalHistory, tick: TimeSpan = .milliseconds(1),
    letters: [(name: String, value: TestValue)] = []
  ) -> String? {
    guard let index = expected.firstDifference(from: actual) else { return nil }
    let wanted = expected.entries.indices.contains(index) ? expected.entries[index] : nil
    let came = actual.entries.indices.contains(index) ? actual.entries[index] : nil
    var words: String
    switch (wanted, came) {
    case (let wanted?, let came?) where wanted.at == came.at:
      words = "at \(wanted.at): \(wanted.moment) was expected, \(came.moment) came"
    case (let wanted?, let came?) where wanted.moment == came.moment:
      words = "\(wanted.moment) was expected at \(wanted.at), but arrived at \(came.at)"
    case (let wanted?, let came?):
      words = "\(wanted.moment) was expected at \(wanted.at), \(came.moment) came at \(came.at)"
    case (let wanted?, nil): words = "\(wanted.moment) was expected at \(wanted.at), nothing came"
    case (nil, let came?): words = "nothing more was expected, \(came.moment) came at \(came.at)"
    case (nil, nil): words = "the two differ"
    }
    let picture = MarbleDrawing(letters: letters, tick: tick).draw([expected, actual])
    let at = [wanted?.at, came?.at].compactMap { $0 }.min() ?? .zero
    var text = "  expected  \(picture.lines[0])\n  actual    \(picture.lines[1])\n"
    text += "            " + String(repeating: " ", count: picture.column(at: at) ?? 0) + "^ " + words
    for line in picture.legend { text += "\n            \(line)" }
    return text
  }
}
