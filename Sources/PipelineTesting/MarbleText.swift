import PipelineCore

/// Writes a history as marbles.
enum MarbleText {
  /// The number of empty ticks up to which they are written; longer ones become a pause.
  private static let longestDash = 24

  /// Nil if marbles with this tick cannot express the history. Adds letters for new values to `names`.
  static func write(_ entries: [SignalHistory.Entry], tick: TimeSpan, _ names: inout MarbleNames) -> String? {
    var groups: [(at: TimeSpan, moments: [SignalHistory.Moment])] = []
    for entry in entries {
      if groups.last?.at == entry.at {
        groups[groups.count - 1].moments.append(entry.moment)
      } else {
        groups.append((entry.at, [entry.moment]))
      }
    }
    // A digit after a pause could be read as part of the pause.
    for guardsDigits in [false, true] {
      guard let text = write(groups, tick, &names, guardsDigits) else { return nil }
      guard let read = try? Marbles(text, tick: tick) else { continue }
      if read.entries.map(\.at) == entries.map(\.at), read.entries.count == entries.count { return text }
    }
    return nil
  }

  private static func write(
    _ groups: [(at: TimeSpan, moments: [SignalHistory.Moment])], _ tick: TimeSpan, _ names: inout MarbleNames,
    _ guardsDigits: Bool
  ) -> String? {
    var text = ""
    var now = TimeSpan.zero
    for group in groups {
      let gap = TimeSpan(nanoseconds: group.at.nanoseconds &- now.nanoseconds)
      guard gap >= .zero else { return nil }
      var isAfterPause = false
      if gap > .zero {
        let (ticks, rest) = gap.nanoseconds.quotientAndRemainder(dividingBy: max(tick.nanoseconds, 1))
        isAfterPause = rest != 0 || ticks > Int64(longestDash)
        text +=
          isAfterPause
          ? (text.hasSuffix(" ") ? "\(gap) " : text.isEmpty ? "\(gap) " : " \(gap) ")
          : String(repeating: "-", count: Int(ticks))
      }
      let marks = group.moments.prefix { $0.isMark }
      let rest = group.moments.dropFirst(marks.count)
      text += marks.map { names.name(of: $0) }.joined()
      now = group.at
      if rest.isEmpty { continue }
      let letters = rest.map { names.name(of: $0) }.joined()
      guard !letters.contains("?") else { return nil }
      let isGroup = rest.count > 1 || guardsDigits && isAfterPause
      text += isGroup ? "(\(letters))" : letters
      now = now + tick
    }
    return text
  }
}
