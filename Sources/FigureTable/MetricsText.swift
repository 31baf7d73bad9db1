import PipelineCore

/// The text forms of metrics.
package enum MetricsFormat: Sendable {
  /// Prometheus text 0.0.4.
  case prometheus
  /// OpenMetrics 1.0.
  case openMetrics

  /// The form that a client's `Accept` asks for.
  package init(accept: String?) {
    self = accept?.lowercased().contains("application/openmetrics-text") == true ? .openMetrics : .prometheus
  }

  package var contentType: String {
    switch self {
    case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
    case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
    }
  }
}

/// Writes metrics as text, family by family; families without samples are left out.
package struct MetricsWriter {
  /// A subject with its labels as text: `pipeline="a",from="b"`.
  package typealias Labelled<Subject> = (labels: String, subject: Subject)

  private let format: MetricsFormat
  private var text = ""

  package init(_ format: MetricsFormat) { self.format = format }

  /// The text of all that was written.
  package consuming func finished() -> String { format == .openMetrics ? text + "# EOF\n" : text }

  package mutating func write<Subject>(_ table: FigureTable<Subject>, _ subjects: [Labelled<Subject>]) {
    for (family, metrics) in table.families {
      var isBegun = false
      for (labels, subject) in subjects {
        for metric in metrics {
          guard let value = metric.reading(of: subject) else { continue }
          if !isBegun { begin(family) }
          isBegun = true
          add(value, labels, metric, subject)
        }
      }
    }
  }

  private mutating func begin(_ family: MetricFamily) {
    let described = format == .openMetrics ? family.name : family.name + family.suffix
    let kind = format == .prometheus && family.kind == .info ? "gauge" : family.kind.rawValue
    text += "# HELP \(described) \(family.help)\n# TYPE \(described) \(kind)\n"
  }

  private mutating func add<Subject>(
    _ value: FigureValue, _ labels: String, _ metric: Metric<Subject>, _ subject: Subject
  ) {
    let family = metric.family
    var labels = labels
    for label in metric.labels { Self.append(label.name, label.value, to: &labels) }
    if let name = metric.label, let value = metric.value?(subject) { Self.append(name, value, to: &labels) }
    switch value {
    case .count(let count): sample(family, labels, String(count))
    case .number(let number): sample(family, labels, String(number))
    case .span(let span): sample(family, labels, String(Double(span.nanoseconds) / 1e9))
    case .flag(let flag): sample(family, labels, flag ? "1" : "0")
    case .share(let share): sample(family, labels, String((share * 10_000).rounded() / 10_000))
    case .counts(let counts):
      for (name, count) in counts {
        var labels = labels
        Self.append(metric.label ?? "name", name, to: &labels)
        sample(family, labels, String(count))
      }
    case .gauges(let gauges):
      for gauge in gauges {
        for (of, value) in gauge.values {
          var labels = labels
          Self.append("gauge", gauge.name, to: &labels)
          if !of.isEmpty { Self.append("of", of, to: &labels) }
          sample(family, labels, Self.text(value))
        }
      }
    case .latency(let latency):
      var count: UInt64 = 0
      for (index, more) in latency.counts.enumerated() {
        count &+= more
        var labels = labels
        let bound = index < Latency.bounds.count ? String(Double(Latency.bounds[index]) / 1e9) : "+Inf"
        Self.append("le", bound, to: &labels)
        sample(family, labels, String(count), "_bucket")
      }
      sample(family, labels, String(Double(latency.sum) / 1e9), "_sum")
      sample(family, labels, String(count), "_count")
    // Only in JSON.
    case .json: break
    }
  }

  private static func text(_ value: Double) -> String {
    if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
    return Int(exactly: value).map(String.init) ?? String(value)
  }

  private mutating func sample(_ family: MetricFamily, _ labels: String, _ value: String, _ suffix: String = "") {
    text += family.name
    text += family.suffix
    text += suffix
    if !labels.isEmpty {
      text += "{"
      text += labels
      text += "}"
    }
    text += " "
    text += value
    text += "\n"
  }

  /// Labels as text, for ``write(_:_:)``.
  package static func labels(_ labels: [(name: String, value: String)]) -> String {
    var text = ""
    for label in labels { append(label.name, label.value, to: &text) }
    return text
  }

  private static func append(_ name: String, _ value: String, to text: inout String) {
    if !text.isEmpty { text += "," }
    text += name
    text += "=\""
    if value.utf8.allSatisfy({ $0 != 0x22 && $0 != 0x5C && $0 != 0x0A }) {
      text += value
    } else {
      for scalar in value.unicodeScalars {
        switch scalar {
        case "\\": text += "\\\\"
        case "\"": text += "\\\""
        case "\n": text += "\\n"
        default: text.unicodeScalars.append(scalar)
        }
      }
    }
    text += "\""
  }
}
