import PipelineCore

/// The most important facts about a running process, in sentences, the worst first.
struct LiveRanking {
  /// A sentence about one part of the process. Names are in backquotes.
  struct Fact: Equatable {
    var text: String
    /// The name of the pipeline; empty: the fact is about the process.
    var pipeline = ""
    /// The name of the step; empty: the fact is about the pipeline.
    var step = ""

    var document: JSONText {
      .object([("text", .string(text)), ("pipeline", .string(pipeline)), ("step", .string(step))])
    }
  }
  private var found: [(weight: Double, fact: Fact)] = []

  init(_ rates: LiveRates) {
    let now = TimeText.nanoseconds(rfc3339: rates.now.at)
    /// Seconds from then until now; nil: the time is unknown.
    func age(_ time: String) -> Double? {
      guard let now, let time = TimeText.nanoseconds(rfc3339: time) else { return nil }
      return Double(now.subtractingReportingOverflow(time).partialValue) / 1e9
    }
    if let refusal = rates.now.refusal {
      add(98, "The last reload was rejected: \(refusal)")
    }
    for pipeline in rates.now.pipelines {
      if ["failed", "restarting"].contains(pipeline.state) {
        var text = "`\(pipeline.name)` does not run: \(pipeline.failure?.reason ?? "it is \(pipeline.state)")"
        if let left = pipeline.failure.flatMap({ age($0.nextTry) }).map(-), left >= 1 {
          text += "; it is started again in \(Self.time(left))"
        }
        add(100, text, of: pipeline.name)
      }
      if !pipeline.isCurrent {
        add(95, "`\(pipeline.name)` has been busy with one event for more than a second", of: pipeline.name)
      }
    }
    let during = "in the last \(Self.time(rates.seconds))"
    for row in rates.rows {
      func add(_ weight: Double, _ text: String) { self.add(weight, text, of: row.pipeline, step: row.step.id) }
      let step = row.step
      let queue = step.outbox ?? step.queue
      let waiting = max(queue?.events ?? 0, step.holding)
      let oldest = Double(queue?.oldest ?? 0) / 1e9
      let wait =
        "\(Self.number(waiting)) event\(waiting == 1 ? " waits" : "s wait")"
        + (oldest >= 1 ? ", the oldest for \(Self.time(oldest))" : "")
      if let trouble = step.trouble {
        let since = age(trouble.since).flatMap { $0 >= 1 ? " for \(Self.time($0))" : nil } ?? ""
        add(92, "`\(step.id)` of `\(row.pipeline)` has not delivered\(since): \(trouble.reason)")
      }
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
          "`\(step.id)` at \(step.location) failed for \(Self.events(row.errorCount)) \(during); see \(Self.why(row))")
      }
      if row.divertedCount > 0 {
        // Rejections that the file handles come before other facts.
        self.add(
          8,
          "`\(step.id)` at \(step.location) rejected \(Self.events(row.divertedCount)) \(during), which the file reads from its errors output; see \(Self.why(row))",
          of: row.pipeline, step: step.id)
      }
      if row.retryCount > 0 {
        add(45, "`\(step.id)` of `\(row.pipeline)` tried again \(Self.times(row.retryCount)) \(during)")
      }
      if row.restartCount > 0 {
        add(
          65,
          "the plugin of `\(step.id)` of `\(row.pipeline)` ended and was started again \(Self.times(row.restartCount)) \(during)"
        )
      }
      if row.busy > 0.8 {
        add(35 + row.busy, "`\(step.id)` at \(step.location) takes \(Self.percent(row.busy)) of a core")
      }
      let share = Double(row.droppedCount) / Double(max(1, row.receivedCount))
      if row.receivedCount >= 10, share >= 0.9 {
        add(
          10 + 5 * share,
          "`\(step.id)` at \(step.location) left out \(Self.percent(share)) of \(Self.events(row.receivedCount)) \(during); see \(Self.why(row))"
        )
      }
    }
    if found.isEmpty {
      let rate = rates.rows.filter { $0.step.kind == "source" }.reduce(0) { $0 + $1.received }
      let shown = Self.rate(rate)
      add(
        0, "Nothing is held back: \(shown) event\(shown == "1" ? "" : "s") a second come\(shown == "1" ? "s" : "") in")
    }
  }

  private mutating func add(_ weight: Double, _ text: String, of pipeline: String = "", step: String = "") {
    found.append((weight, Fact(text: text, pipeline: pipeline, step: step)))
  }

  /// All facts, the worst first.
  var facts: [Fact] {
    found.enumerated().sorted { ($1.element.weight, $0.offset) < ($0.element.weight, $1.offset) }.map(\.element.fact)
  }
  var sentences: [String] { facts.map(\.text) }

  // MARK: Texts

  /// The command that explains the reason.
  private static func why(_ row: LiveRates.Row) -> String { "`rxd why \(row.pipeline) \(row.step.id)`" }

  static func times(_ count: Int) -> String { count == 1 ? "once" : "\(number(count)) times" }

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
