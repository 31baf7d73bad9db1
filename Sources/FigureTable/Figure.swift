import PipelineCore

/// A figure of a process, a pipeline, a step or an edge. Every view has it from the table: `GET /stats`, `rxd run --stats-format json` and the live
/// page under its key, metrics in a family, and the documentation with both and its meaning.
package struct Figure<Subject>: Sendable {
  /// Reads a value; nil: there is none now.
  package typealias Reading = @Sendable (Subject) -> FigureValue?
  package typealias Condition = @Sendable (Subject) -> Bool

  /// The key of a JSON object's member, such as `queue.events` in a nested one; nil: the figure is only a metric.
  package let key: String?
  /// The meaning, where the metric's help does not give it: a clause without a full stop.
  package let meaning: String
  package let metric: Metric<Subject>?
  /// Reads it for JSON; nil: the figure that it is part of has it.
  fileprivate let read: Reading?
  /// Whether JSON has it; nil: always.
  fileprivate let isShown: Condition?
}

/// A value of a figure.
package enum FigureValue: Sendable {
  case count(UInt64)
  case number(Int)
  /// Nanoseconds in JSON, seconds in metrics.
  case span(TimeSpan)
  case flag(Bool)
  case share(Double)
  case latency(Latency)
  /// Counts by name; in metrics the name is the value of the label that the metric adds.
  case counts([(name: String, count: UInt64)])
  /// Gauges by name and label: the labels `gauge` and `of` of metrics.
  case gauges([(name: String, values: [(of: String, value: Double)])])
  /// Left out of metrics.
  case json(JSONText)

  package var document: JSONText {
    switch self {
    case .count(let count): .count(count)
    case .number(let number): .int(number)
    case .span(let span): .int(Int(span.nanoseconds))
    case .flag(let flag): .bool(flag)
    case .share(let share): .document("\(share)")
    case .latency(let latency):
      .object([
        ("count", .count(latency.count)), ("sum_nanoseconds", .int(Int(latency.sum))),
        ("p50_nanoseconds", .int(Int(latency.bound(of: 0.5) ?? 0))),
        ("p99_nanoseconds", .int(Int(latency.bound(of: 0.99) ?? 0))),
        // Counts for each bound, not cumulative; the last has no upper bound.
        ("counts", .array(latency.counts.map(JSONText.count))),
      ])
    case .counts(let counts): .object(counts.map { ($0.name, .count($0.count)) })
    case .gauges(let gauges):
      .object(
        gauges.map { gauge in
          // A single gauge needs no label.
          if gauge.values.count == 1, gauge.values[0].of.isEmpty { return (gauge.name, .gauge(gauge.values[0].value)) }
          return (gauge.name, .object(gauge.values.map { ($0.of, .gauge($0.value)) }))
        })
    case .json(let document): document
    }
  }
}

extension JSONText {
  package static func count(_ number: UInt64) -> JSONText { .int(Int(clamping: number)) }
}

/// A metric: one or several figures, distinguished by labels.
package struct MetricFamily: Sendable {
  package enum Kind: String, Sendable { case counter, gauge, info, histogram }

  /// Without `_total` and `_info`.
  package let name: String
  package let kind: Kind
  /// One sentence without a full stop.
  package let help: String
  /// More for the documentation.
  package let note: String

  init(_ name: String, _ kind: Kind, _ help: String, note: String = "") {
    (self.name, self.kind, self.help, self.note) = (name, kind, help, note)
  }

  package var suffix: String {
    switch kind {
    case .counter: "_total"
    case .info: "_info"
    case .gauge, .histogram: ""
    }
  }
}

/// The samples of a figure in a family.
package struct Metric<Subject>: Sendable {
  package let family: MetricFamily
  /// The labels in addition to those of the subject.
  package fileprivate(set) var labels: [(name: String, value: String)] = []
  /// A label whose value is a name of ``FigureValue/counts(_:)``, or that of `value`; nil: no label.
  package fileprivate(set) var label: String?
  fileprivate(set) var value: (@Sendable (Subject) -> String)?
  /// Nil: as JSON reads it, also where JSON leaves it out.
  fileprivate var read: Figure<Subject>.Reading?
  fileprivate var isGiven: Figure<Subject>.Condition?

  /// - Parameter isGiven: Whether there is a sample.
  static func of(
    _ family: MetricFamily, labels: [(name: String, value: String)] = [], label: String? = nil,
    value: (@Sendable (Subject) -> String)? = nil, if isGiven: Figure<Subject>.Condition? = nil,
    read: Figure<Subject>.Reading? = nil
  ) -> Metric {
    Metric(family: family, labels: labels, label: label, value: value, read: read, isGiven: isGiven)
  }

  /// The only metric of a family.
  static func metric(
    _ name: String, _ kind: MetricFamily.Kind, _ help: String, note: String = "", label: String? = nil,
    if isGiven: Figure<Subject>.Condition? = nil, read: Figure<Subject>.Reading? = nil
  ) -> Metric {
    of(MetricFamily(name, kind, help, note: note), label: label, if: isGiven, read: read)
  }

  func reading(of subject: Subject) -> FigureValue? { isGiven?(subject) == false ? nil : read?(subject) }
}

/// All figures of one kind of subject.
package struct FigureTable<Subject>: Sendable {
  /// In the order of metrics; members of a nested object follow it.
  package private(set) var all: [Figure<Subject>] = []
  /// The figures in JSON, in its order.
  private var members: [Member] = []
  private typealias Member = (key: String, isShown: Figure<Subject>.Condition?, read: Figure<Subject>.Reading)
  /// The families in their order, each with the metrics of all its figures.
  package private(set) var families: [(family: MetricFamily, metrics: [Metric<Subject>])] = []

  /// - Parameters:
  ///   - order: The keys in the order of JSON; others follow.
  ///   - fill: Adds the figures, in the order of metrics.
  init(order: String = "", _ fill: (inout FigureTable) -> Void) {
    fill(&self)
    let order = order.split(separator: " ").map(String.init)
    for figure in all {
      if let key = figure.key, let read = figure.read { members.append((key, figure.isShown, read)) }
    }
    func rank(_ key: String) -> Int { order.firstIndex(of: key) ?? order.count }
    members = members.enumerated().sorted { (rank($0.element.key), $0.offset) < (rank($1.element.key), $1.offset) }
      .map(\.element)
    for metric in all.compactMap(\.metric) {
      if let known = families.firstIndex(where: { $0.family.name == metric.family.name }) {
        families[known].metrics.append(metric)
      } else {
        families.append((metric.family, [metric]))
      }
    }
  }

  /// - Parameters:
  ///   - key: See ``Figure/key``; `meaning`: ``Figure/meaning``.
  ///   - read: The value; nil: there is none now.
  ///   - isShown: Whether JSON has it.
  mutating func add(
    _ key: String?, meaning: String = "", _ read: @escaping Figure<Subject>.Reading,
    if isShown: Figure<Subject>.Condition? = nil, _ metric: Metric<Subject>? = nil
  ) {
    var metric = metric
    if metric?.read == nil { metric?.read = read }
    all.append(Figure(key: key, meaning: meaning, metric: metric, read: read, isShown: isShown))
  }

  /// Adds an object of figures of a part of the subject. `labels`: the part's labels, in addition to those of each figure's metric.
  mutating func add<Part>(
    _ key: String, meaning: String = "", _ figures: FigureTable<Part>, labels: [(name: String, value: String)] = [],
    of part: @escaping @Sendable (Subject) -> Part?
  ) {
    add(key, meaning: meaning, { part($0).map { .json(.object(figures.members(of: $0))) } })
    for figure in figures.all {
      let metric = figure.metric.map { metric in
        Metric<Subject>.of(
          metric.family, labels: labels + metric.labels, label: metric.label,
          read: { part($0).flatMap { metric.reading(of: $0) } })
      }
      all.append(
        Figure(key: figure.key.map { "\(key).\($0)" }, meaning: figure.meaning, metric: metric, read: nil, isShown: nil)
      )
    }
  }

  /// The figures as members of a JSON object.
  package func members(of subject: Subject) -> [(String, JSONText)] {
    var found: [(String, JSONText)] = []
    found.reserveCapacity(32)
    members.withUnsafeBufferPointer { members in
      for index in members.indices {
        if let isShown = members[index].isShown, !isShown(subject) { continue }
        if let value = members[index].read(subject) { found.append((members[index].key, value.document)) }
      }
    }
    return found
  }
}

/// The tables: every figure of a running process is one entry here.
package enum Figures {}
