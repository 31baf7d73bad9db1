import PipelineCore
import Synchronization
import Transport

/// The newest values of metrics, and the page that Prometheus scrapes. Written in turns, read by other threads.
final class MetricStore: Sendable {
  struct Metric {
    var name = ""
    var type = ""
    /// The ready-made metric to which it belongs, if any.
    var family: String?
    var help = ""
    var labels: [(name: String, value: String)] = []
    var value = 0.0
    var isRelative = false
    /// The number of events that it represents.
    var weight = 1.0
    /// The metric's time, in milliseconds since 1970; nil: the time of arrival.
    var timestamp: Int64?
  }

  /// One value of one series.
  struct Sample: Equatable {
    var name: String
    var labels: [Label]
    var value: Double

    struct Label: Equatable {
      var name: String
      var value: String
    }
  }

  struct Fault: Error { var message: String }

  private enum Kind: String {
    case counter, gauge, histogram, summary, untyped
  }

  private enum Content {
    case value(Double)
    /// The number of observations in each bucket, not cumulative; the last one is `+Inf`.
    case histogram(counts: [Double], sum: Double)
  }

  private struct Series {
    var name: String
    /// The labels as written, without braces.
    var labels: String
    var content: Content
    var seen: Int64
  }

  private struct Family {
    var kind: Kind
    var help: String
    /// The series, in the order of arrival.
    var series: [Series] = []
    var index: [String: Int] = [:]
  }

  private struct State {
    var order: [String] = []
    var families: [String: Family] = [:]
    var count = 0
    var swept: Int64 = 0
  }

  private let buckets: [Double]
  private let mostSeries: Int
  private let expire: Int64?
  private let state = Mutex(State())

  init(buckets: [Double], mostSeries: Int, expire: Int64?) {
    self.buckets = buckets
    self.mostSeries = mostSeries
    self.expire = expire
  }

  /// A name as Prometheus allows it.
  static func name(_ text: String, mayHaveColon: Bool = true) -> String {
    var bytes = text.utf8.map { byte in
      let isFine =
        (byte | 0x20) &- 0x61 < 26 || byte &- 0x30 < 10 || mayHaveColon && byte == UInt8(ascii: ":")
      return isFine ? byte : UInt8(ascii: "_")
    }
    if bytes.first.map({ $0 &- 0x30 < 10 }) ?? true { bytes.insert(UInt8(ascii: "_"), at: 0) }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// Whether a label would replace the name of its metric; Prometheus rejects the whole request then.
  static func isNameOfMetrics(_ label: String) -> Bool { label == "__name__" }

  private static func escaped(_ text: String, quotes: Bool) -> String {
    var bytes: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\\"): bytes += [byte, byte]
      case 0x0A: bytes += Array("\\n".utf8)
      case UInt8(ascii: "\"") where quotes: bytes += Array("\\\"".utf8)
      default: bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func kind(of type: String, isPart: Bool) -> (kind: Kind, observes: Bool)? {
    switch type {
    case "counter": (.counter, false)
    case "gauge", "info", "stateset": (.gauge, false)
    case "", "untyped", "unknown": (.untyped, false)
    case "histogram": (.histogram, !isPart)
    case "timer", "distribution": (.histogram, true)
    case "summary": (.summary, false)
    case "gaugehistogram": (.untyped, false)
    default: nil
    }
  }

  /// Stores a value. Returns the reason if it cannot be stored.
  func take(_ metric: Metric, at now: Int64 = monotonicNow()) -> String? {
    let shown = Printable.cut(metric.name)
    let isPart = metric.family.map { $0 != metric.name } ?? false
    guard let (typed, observes) = Self.kind(of: metric.type, isPart: isPart) else {
      return Self.unknown(metric).message
    }
    // The time at which a counter began is not a counter.
    let kind = typed == .counter && isPart && metric.name.hasSuffix("_created") ? .gauge : typed
    let name = Self.name(metric.name)
    let family = kind == .histogram || kind == .summary ? Self.name(metric.family ?? metric.name) : name
    let value = metric.type == "timer" ? metric.value / 1000 : metric.value
    let labels = Self.sorted(metric.labels)
    if observes, labels.contains(where: { $0.name == "le" }) {
      return "the metric '\(shown)' has a label 'le', which the buckets of its histogram have"
    }
    // A rejected value creates no series.
    if observes, !value.isFinite { return "the metric '\(shown)' has observed \(value), which is not a number" }
    if !observes, metric.isRelative, kind == .counter, !(value >= 0) {
      return "the counter '\(shown)' would fall by \(-value)"
    }
    let text = Self.text(labels)
    let key = "\(name){\(text)"
    return state.withLock { state in
      sweep(&state, now)
      if let known = state.families[family] {
        if known.kind != kind {
          return "the metric '\(shown)' is a \(kind.rawValue), and an earlier one of its name a \(known.kind.rawValue)"
        }
      }
      if state.families[family]?.index[key] == nil {
        if state.count >= mostSeries {
          return "the metric '\(shown)' would be a new series, and there are \(mostSeries), which 'maxSeries' allows"
        }
        if state.families[family] == nil {
          state.families[family] = Family(kind: kind, help: metric.help)
          state.order.append(family)
        }
        state.count += 1
        let count = state.families[family]!.series.count
        state.families[family]!.index[key] = count
        state.families[family]!.series.append(
          Series(
            name: name, labels: text,
            content: observes
              ? .histogram(counts: Array(repeating: 0, count: buckets.count + 1), sum: 0) : .value(0), seen: now))
      }
      guard let index = state.families[family]?.index[key] else { return nil }
      add(&state.families[family]!.series[index], metric, value, now)
      return nil
    }
  }

  private func add(_ series: inout Series, _ metric: Metric, _ value: Double, _ now: Int64) {
    switch series.content {
    case .histogram(var counts, let sum):
      counts[buckets.firstIndex { value <= $0 } ?? buckets.count] += metric.weight
      // The array is not copied.
      series.content = .value(0)
      series.content = .histogram(counts: counts, sum: sum + value * metric.weight)
    case .value(let old):
      series.content = .value(metric.isRelative ? old + value * metric.weight : value)
    }
    series.seen = now
  }

  /// The values of a metric's series after this event: the value itself, the new total, or the updated histogram.
  func samples(_ metric: Metric) -> Result<[Sample], Fault> {
    let isPart = metric.family.map { $0 != metric.name } ?? false
    guard let (kind, observes) = Self.kind(of: metric.type, isPart: isPart) else {
      return .failure(Self.unknown(metric))
    }
    let name = Self.name(metric.name)
    let labels = Self.sorted(metric.labels).map { Sample.Label(name: $0.name, value: $0.value) }
    if !observes, !metric.isRelative { return .success([Sample(name: name, labels: labels, value: metric.value)]) }
    if let fault = take(metric) { return .failure(Fault(message: fault)) }
    // An accepted value has a metric.
    let family = kind == .histogram || kind == .summary ? Self.name(metric.family ?? metric.name) : name
    let key = "\(name){\(Self.text(Self.sorted(metric.labels)))"
    let content = state.withLock { state in
      state.families[family].flatMap { family in family.index[key].map { family.series[$0].content } }
    }
    switch content {
    case nil: return .success([])
    case .value(let value): return .success([Sample(name: name, labels: labels, value: value)])
    case .histogram(let counts, let sum):
      var samples: [Sample] = []
      var total = 0.0
      for (index, count) in counts.enumerated() {
        total += count
        let bound = index < buckets.count ? Self.text(buckets[index]) : "+Inf"
        samples.append(
          Sample(name: name + "_bucket", labels: labels + [Sample.Label(name: "le", value: bound)], value: total))
      }
      samples.append(Sample(name: name + "_sum", labels: labels, value: sum))
      samples.append(Sample(name: name + "_count", labels: labels, value: total))
      return .success(samples)
    }
  }

  private static func unknown(_ metric: Metric) -> Fault {
    Fault(
      message:
        "the metric '\(Printable.cut(metric.name))' has the type '\(Printable.cut(metric.type))', which Prometheus does not have"
    )
  }

  /// Each name once, sorted.
  private static func sorted(_ given: [(name: String, value: String)]) -> [(name: String, value: String)] {
    var labels = given.sorted { $0.name < $1.name }
    for index in labels.indices.dropFirst().reversed() where labels[index].name == labels[index - 1].name {
      labels.remove(at: index)
    }
    return labels
  }

  private static func text(_ labels: [(name: String, value: String)]) -> String {
    labels.map { "\($0.name)=\"\(escaped($0.value, quotes: true))\"" }.joined(separator: ",")
  }

  /// Removes series that are too old; at most once a second.
  private func sweep(_ state: inout State, _ now: Int64) {
    guard let expire, now - state.swept >= 1_000_000_000 else { return }
    state.swept = now
    for name in state.order {
      guard var family = state.families[name], family.series.contains(where: { now - $0.seen > expire }) else {
        continue
      }
      let old = family.series.count
      family.series.removeAll { now - $0.seen > expire }
      state.count -= old - family.series.count
      family.index = Dictionary(
        uniqueKeysWithValues: family.series.enumerated().map { ("\($1.name){\($1.labels)", $0) })
      state.families[name] = family.series.isEmpty ? nil : family
    }
    state.order.removeAll { state.families[$0] == nil }
  }

  // MARK: The page

  /// The page in the text format of Prometheus.
  func page(at now: Int64 = monotonicNow()) -> [UInt8] {
    state.withLock { state in
      sweep(&state, now)
      var page: [UInt8] = []
      for name in state.order {
        guard let family = state.families[name] else { continue }
        if !family.help.isEmpty {
          page += Array("# HELP \(name) \(Self.escaped(family.help, quotes: false))\n".utf8)
        }
        page += Array("# TYPE \(name) \(family.kind.rawValue)\n".utf8)
        for series in family.series { append(series, &page) }
      }
      return page
    }
  }

  private func append(_ series: Series, _ page: inout [UInt8]) {
    func line(_ name: String, _ labels: String, _ value: Double) {
      page += Array("\(name)\(labels.isEmpty ? "" : "{\(labels)}") \(Self.text(value))\n".utf8)
    }
    switch series.content {
    case .value(let value): line(series.name, series.labels, value)
    case .histogram(let counts, let sum):
      let before = series.labels.isEmpty ? "" : series.labels + ","
      var total = 0.0
      for (index, count) in counts.enumerated() {
        total += count
        let bound = index < buckets.count ? Self.text(buckets[index]) : "+Inf"
        line(series.name + "_bucket", "\(before)le=\"\(bound)\"", total)
      }
      line(series.name + "_sum", series.labels, sum)
      line(series.name + "_count", series.labels, total)
    }
  }

  private static func text(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value > 0 ? "+Inf" : "-Inf" }
    if value == value.rounded(), value.magnitude < 1e15 { return "\(Int64(value))" }
    return "\(value)"
  }
}
