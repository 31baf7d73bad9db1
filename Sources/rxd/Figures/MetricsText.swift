import PipelineCore

/// One metric with all its samples.
struct MetricFamily {
  enum Kind: String { case counter, gauge, info, histogram }

  struct Sample {
    var labels: [(name: String, value: String)]
    var value: String
    /// The suffix of a histogram's series: `_bucket`, `_sum`, `_count`.
    var suffix = ""
  }

  /// Without `_total` and `_info`.
  var name: String
  var kind: Kind
  /// One sentence without a full stop.
  var help: String
  var samples: [Sample] = []

  init(_ name: String, _ kind: Kind, _ help: String) {
    self.name = name
    self.kind = kind
    self.help = help
  }

  mutating func add(_ labels: [(name: String, value: String)], _ count: UInt64) {
    samples.append(Sample(labels: labels, value: String(count)))
  }

  mutating func add(_ labels: [(name: String, value: String)], _ number: Int) {
    samples.append(Sample(labels: labels, value: String(number)))
  }

  mutating func add(_ labels: [(name: String, value: String)], _ latency: Latency) {
    var count: UInt64 = 0
    for (index, more) in latency.counts.enumerated() {
      count &+= more
      let bound = index < Latency.bounds.count ? String(Double(Latency.bounds[index]) / 1e9) : "+Inf"
      samples.append(Sample(labels: labels + [("le", bound)], value: String(count), suffix: "_bucket"))
    }
    samples.append(Sample(labels: labels, value: String(Double(latency.sum) / 1e9), suffix: "_sum"))
    samples.append(Sample(labels: labels, value: String(count), suffix: "_count"))
  }

  mutating func add(_ labels: [(name: String, value: String)], share: Double) {
    samples.append(Sample(labels: labels, value: String((share * 10_000).rounded() / 10_000)))
  }

  mutating func add(_ labels: [(name: String, value: String)], seconds span: TimeSpan) {
    samples.append(Sample(labels: labels, value: String(Double(span.nanoseconds) / 1e9)))
  }
}

/// The text forms of metrics.
enum MetricsFormat {
  /// Prometheus text 0.0.4.
  case prometheus
  /// OpenMetrics 1.0.
  case openMetrics

  /// The form that a client's `Accept` asks for.
  init(accept: String?) {
    self = accept?.lowercased().contains("application/openmetrics-text") == true ? .openMetrics : .prometheus
  }

  var contentType: String {
    switch self {
    case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
    case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
    }
  }

  /// The metrics as text; families without samples are left out.
  func text(_ families: [MetricFamily]) -> String {
    var text = ""
    for family in families where !family.samples.isEmpty {
      let suffix =
        switch family.kind {
        case .counter: "_total"
        case .info: "_info"
        case .gauge, .histogram: ""
        }
      let described = self == .openMetrics ? family.name : family.name + suffix
      let kind = self == .prometheus && family.kind == .info ? "gauge" : family.kind.rawValue
      text += "# HELP \(described) \(family.help)\n# TYPE \(described) \(kind)\n"
      for sample in family.samples {
        text += family.name
        text += suffix + sample.suffix
        if !sample.labels.isEmpty {
          text += "{"
          for (index, label) in sample.labels.enumerated() {
            if index > 0 { text += "," }
            text += label.name
            text += "=\""
            Self.escape(label.value, to: &text)
            text += "\""
          }
          text += "}"
        }
        text += " "
        text += sample.value
        text += "\n"
      }
    }
    return self == .openMetrics ? text + "# EOF\n" : text
  }

  private static func escape(_ value: String, to text: inout String) {
    for scalar in value.unicodeScalars {
      switch scalar {
      case "\\": text += "\\\\"
      case "\"": text += "\\\""
      case "\n": text += "\\n"
      default: text.unicodeScalars.append(scalar)
      }
    }
  }
}
