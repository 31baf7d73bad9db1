import ArgumentParser
import PipelineCore

/// The report of `rxd run --stats` at the end of a pipeline.
struct StatisticsReport {
  enum Form: String, CaseIterable, ExpressibleByArgument { case text, json }

  let plan: Plan
  let statistics: PipelineStatistics

  func text(_ form: Form) -> String { form == .json ? json : table }

  /// The steps of the file, in its order.
  private var steps: [(plan: StepPlan, counted: PipelineStatistics.Step)] {
    plan.fileSteps(statistics).map { (plan.steps[$0.step.number], $0) }
  }

  // MARK: For people

  private static let widths = (location: 16, step: 19, number: 8, time: 7)

  /// The table, at most 80 columns wide.
  private var table: String {
    var lines = ["\(plan.name): what its steps did with events", ""]
    lines.append(Self.line("location", "step", ["in", "out", "dropped", "rejected"], "time"))
    for (step, counted) in steps {
      let numbers = [
        counted.received, counted.sent, counted.dropped &+ counted.superseded &+ counted.undecided,
        counted.rejected &+ counted.failed,
      ].map { Self.shown($0) }
      lines.append(
        Self.line(
          Self.cut(Self.location(step), Self.widths.location, atStart: true), Self.cut(step.label, Self.widths.step),
          numbers,
          counted.nanoseconds.map(Self.shown(nanoseconds:)) ?? "-"))
    }
    let ends = steps.filter { $0.counted.bytes != nil || $0.counted.position != nil }
    if !ends.isEmpty { lines.append("") }
    for (step, counted) in ends {
      let isSink = plan.sinks.contains { $0.step == counted.step }
      var line =
        Self.padded(Self.cut(Self.location(step), Self.widths.location, atStart: true), Self.widths.location) + "  "
      line += Self.padded(Self.cut(step.label, Self.widths.step), Self.widths.step)
      line += "  \(counted.bytes ?? 0) bytes \(isSink ? "written" : "read")"
      if let position = counted.position { line += ", up to offset \(position)" }
      lines.append(line)
    }
    let plugins = steps.compactMap { step, counted in
      counted.plugin.flatMap { Self.sentence($0) }.map {
        "\(Self.location(step)) \(Printable.cut(step.label, limit: 100)): \($0)"
      }
    }
    if !plugins.isEmpty { lines.append("") }
    for sentence in plugins {
      for (index, line) in Layout.lines(sentence, 78).enumerated() { lines.append((index == 0 ? "" : "  ") + line) }
    }
    return lines.joined(separator: "\n")
  }

  /// The counts of the plugin behind a step, and the restarts of its program; nil: there is nothing to report.
  private static func sentence(_ plugin: PipelineStatistics.Plugin) -> String? {
    var parts = plugin.sortedCounts.map { "\($0.name) \($0.count)" }
    for (count, text) in [
      (plugin.restarts, "started again"), (plugin.poisoned, "poisonous events"),
      (plugin.missedLines, "lines of stderr not logged"),
    ] where count > 0 { parts.append("\(text) \(count)") }
    return parts.isEmpty ? nil : parts.joined(separator: ", ")
  }

  private static func line(_ location: String, _ step: String, _ numbers: [String], _ time: String) -> String {
    var line = padded(location, widths.location) + "  " + padded(step, widths.step)
    for number in numbers { line += " " + padded(number, widths.number, atStart: true) }
    return line + " " + padded(time, widths.time - 1, atStart: true)
  }

  private static func location(_ step: StepPlan) -> String {
    let name = step.location.text.name.split(separator: "/").last.map(String.init) ?? ""
    return "\(name):\(step.location.line)"
  }

  private static func padded(_ text: String, _ width: Int, atStart: Bool = false) -> String {
    let pad = String(repeating: " ", count: max(0, width - text.unicodeScalars.count))
    return atStart ? pad + text : text + pad
  }

  private static func cut(_ text: String, _ width: Int, atStart: Bool = false) -> String {
    let shown = Printable.cut(text, limit: 300)
    guard shown.unicodeScalars.count > width else { return shown }
    return atStart
      ? "…" + String(String.UnicodeScalarView(shown.unicodeScalars.suffix(width - 1)))
      : String(String.UnicodeScalarView(shown.unicodeScalars.prefix(width - 1))) + "…"
  }

  private static func shown(_ count: UInt64) -> String {
    if count < 100_000_000 { return String(count) }
    return count < 100_000_000_000 ? "\(count / 1_000_000)M" : "\(count / 1_000_000_000)G"
  }

  private static func shown(nanoseconds: UInt64) -> String {
    switch nanoseconds {
    case ..<1_000: "\(nanoseconds)ns"
    case ..<1_000_000: "\(nanoseconds / 1_000)us"
    case ..<10_000_000_000: "\(nanoseconds / 1_000_000)ms"
    default: "\(nanoseconds / 1_000_000_000)s"
    }
  }

  // MARK: For programs

  private var json: String {
    JSONText.object([("pipeline", .string(plan.name))] + statistics.members(of: plan)).text
  }
}
