import PipelineCore

/// The most important facts about a running process, in sentences, the worst first.
struct LiveRanking {
  private var found: [(weight: Double, text: String)] = []

  init(_ rates: LiveRates) {
    for pipeline in rates.now.pipelines {
      if ["failed", "restarting"].contains(pipeline.state) {
        add(100, "`\(pipeline.name)` does not run: it is \(pipeline.state)")
      }
      if !pipeline.isCurrent { add(95, "`\(pipeline.name)` has been busy with one event for more than a second") }
    }
    let during = "in the last \(Self.time(rates.seconds))"
    for row in rates.rows {
      let step = row.step
      let queue = step.outbox ?? step.queue
      let waiting = max(queue?.events ?? 0, step.holding)
      let oldest = Double(queue?.oldest ?? 0) / 1e9
      let wait =
        "\(Self.number(waiting)) event\(waiting == 1 ? " waits" : "s wait")"
        + (oldest >= 1 ? ", the oldest for \(Self.time(oldest))" : "")
      if step.pausesInput || row.paused > 0.1 {
        let share = step.pausesInput && row.paused < 0.005 ? "" : " (\(Self.percent(row.paused)) of the time)"
        add(70 + 20 * row.paused, "`\(step.id)` holds back `\(row.pipeline)`\(share): \(wait)")
      } else if oldest >= 5 {
        add(60 + min(9, oldest / 60), "`\(step.id)` of `\(row.pipeline)` is behind: \(wait)")
      } else if row.waited > 0.1 {
        add(
          30 + 10 * row.waited,
          "`\(step.id)` of `\(row.pipeline)` waited for the pipeline \(Self.percent(row.waited)) of the time")
      }
      if let lag = step.lag, lag >= 10 << 20 {
        let age = Double(step.lagAge ?? 0) / 1e9
        add(
          25,
          "`\(step.id)` of `\(row.pipeline)` has \(Self.number(lag >> 20)) MiB left to read"
            + (age >= 1 ? ", the oldest for \(Self.time(age))" : ""))
      } else if let age = step.lagAge, age >= 10_000_000_000 {
        add(24, "`\(step.id)` of `\(row.pipeline)` is \(Self.time(Double(age) / 1e9)) behind its input")
      }
      if let latency = row.latency, let bound = latency.bound(of: 0.99), bound >= 1_000_000_000 {
        let of = step.kind == "sink" ? "events" : "requests"
        add(
          40,
          "`\(step.id)` of `\(row.pipeline)` takes up to \(Self.time(Double(bound) / 1e9)) for 99 % of its \(of), "
            + "on average \(Self.time(Double(latency.sum) / 1e9 / Double(max(1, latency.count))))")
      }
      if row.errorCount > 0 {
        add(
          50 + min(9, Double(row.errorCount) / max(1, Double(row.receivedCount)) * 9),
          "`\(step.id)` at \(step.place) failed for \(Self.events(row.errorCount)) \(during); see \(Self.why(row))")
      }
      if row.retryCount > 0 {
        add(45, "`\(step.id)` of `\(row.pipeline)` tried again \(Self.number(row.retryCount)) times \(during)")
      }
      if row.restartCount > 0 {
        add(
          65,
          "the plugin of `\(step.id)` of `\(row.pipeline)` ended and was started again \(Self.number(row.restartCount)) "
            + "time\(row.restartCount == 1 ? "" : "s") \(during)")
      }
      if row.busy > 0.8 {
        add(35 + row.busy, "`\(step.id)` at \(step.place) takes \(Self.percent(row.busy)) of a core")
      }
      let share = Double(row.droppedCount) / Double(max(1, row.receivedCount))
      if row.receivedCount >= 10, share >= 0.9 {
        add(
          10 + 5 * share,
          "`\(step.id)` at \(step.place) left out \(Self.percent(share)) of \(Self.events(row.receivedCount)) \(during); see \(Self.why(row))"
        )
      }
    }
    if found.isEmpty {
      let rate = rates.rows.filter { $0.step.kind == "source" }.reduce(0) { $0 + $1.received }
      add(0, "Nothing is held back: \(Self.rate(rate)) events a second come in")
    }
  }

  private mutating func add(_ weight: Double, _ text: String) { found.append((weight, text)) }

  var sentences: [String] {
    found.enumerated().sorted { ($1.element.weight, $0.offset) < ($0.element.weight, $1.offset) }.map(\.element.text)
  }

  // MARK: Texts

  /// The command that explains the reason.
  private static func why(_ row: LiveRates.Row) -> String { "`rxd why \(row.pipeline) \(row.step.id)`" }

  static func events(_ count: Int) -> String { "\(number(count)) event\(count == 1 ? "" : "s")" }

  /// `4,210`.
  static func number(_ count: Int) -> String {
    var text = ""
    for (index, digit) in String(count).reversed().enumerated() {
      if index > 0, index % 3 == 0 { text.append(",") }
      text.append(digit)
    }
    return String(text.reversed())
  }

  /// `38 s`, `4 min`.
  static func time(_ seconds: Double) -> String {
    switch seconds {
    case ..<1: "\(Int((seconds * 1000).rounded())) ms"
    case ..<120: "\(Int(seconds.rounded())) s"
    case ..<7200: "\(Int(seconds / 60)) min"
    case ..<172_800: "\(Int(seconds / 3600)) h"
    default: "\(Int(seconds / 86_400)) days"
    }
  }

  /// `99.2 %`.
  static func percent(_ share: Double) -> String {
    let tenths = Int((share * 1000).rounded())
    return tenths == 1000 || tenths % 10 == 0 ? "\(tenths / 10) %" : "\(tenths / 10).\(tenths % 10) %"
  }

  /// `0.3`, `12`, `4.2k`, `1.3M`.
  static func rate(_ rate: Double) -> String {
    func short(_ number: Double, _ unit: String) -> String {
      let tenths = Int((number * 10).rounded())
      return number < 10 && tenths % 10 != 0 ? "\(tenths / 10).\(tenths % 10)\(unit)" : "\((tenths + 5) / 10)\(unit)"
    }
    switch rate {
    case ..<0.05: return "0"
    case ..<9_999.5: return short(rate, "")
    case ..<9_999_500: return short(rate / 1000, "k")
    default: return short(rate / 1_000_000, "M")
    }
  }
}
