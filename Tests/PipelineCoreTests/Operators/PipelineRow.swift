import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Sources_

/// A statement about whole pipelines, and a pipeline that shows it as marbles.
struct PipelineRow: Sendable {
  var says: String
  /// Named sources in addition to the inputs, `name: { ... }`; a `counted` one sends the input of its name.
  var sources: [String]
  var signals: [String]
  var commands: [String]
  var inputs: [(name: String, marbles: String)]
  /// The events that arrive at a name, in the order of subscription.
  var expected: [(name: String, marbles: String)]
  /// The values of the letters in marbles, as YAML.
  var values: [(String, String)]
  /// `+` and `-` in the order in which subscriptions to `counted` sources start and end.
  var subscriptions: String?

  init(
    _ says: String, sources: [String] = [], signals: [String] = [], commands: [String] = [],
    _ inputs: KeyValuePairs<String, String>, _ expected: KeyValuePairs<String, String>,
    _ values: KeyValuePairs<String, String> = [:], subscriptions: String? = nil
  ) {
    self.says = says
    self.sources = sources
    self.signals = signals
    self.commands = commands
    self.inputs = inputs.map { ($0.key, $0.value) }
    self.expected = expected.map { ($0.key, $0.value) }
    self.values = values.map { ($0.key, $0.value) }
    self.subscriptions = subscriptions
  }

  static let catalogue = Catalogue.sources.adding(.operators).adding(
    Catalogue([
      CatalogueEntry(source: ScriptedSource.self), CatalogueEntry(source: MarblesSource.self),
      CatalogueEntry(source: CountedSource.self), CatalogueEntry(sink: ProbeSink.self),
    ]))

  var yaml: String {
    let own = Set(sources.compactMap { $0.split(separator: ":").first.map(String.init) })
    let scripted = inputs.filter { !own.contains($0.name) }.map { "\($0.name): { scripted: {} }" }
    let sinks = expected.map { "to-\(Self.sink($0.name)): { from: \($0.name), probe: {} }" }
    return [
      ("sources", scripted + sources), ("signals", signals), ("commands", commands), ("sinks", sinks),
    ].filter { !$0.1.isEmpty }.map { "\($0.0):\n" + $0.1.map { "  \($0)\n" }.joined() }.joined()
  }

  private static func sink(_ name: String) -> String { name.split(separator: ".").joined(separator: "-") }

  /// The differences from the expectation, or none: in a plain run and, unless `atOnce`, when cancelled at every other millisecond, and with the
  /// state saved, everything dropped and the state restored after each turn.
  func differences(atOnce: Bool = false) throws -> [String] {
    let letters = try values.map { ($0.0, try MarbleCase.value($0.1)) }
    let table = Dictionary(letters) { first, _ in first }
    var length = TimeSpan.zero
    func history(_ text: String) throws -> SignalHistory {
      let marbles = try Marbles(text)
      length = max(length, marbles.length)
      return SignalHistory(marbles, values: table)
    }
    let scripts = try inputs.map { ($0.name, try history($0.marbles).script) }
    let wanted = try expected.map { ($0.name, try history($0.marbles)) }
    let isEndless = wanted.contains { $0.1.entries.last.map { !$0.moment.isEnd } ?? true }
    let plan = try PipelineRun.compile(yaml, catalogue: Self.catalogue)
    var wrong: [String] = []

    func run(_ change: (inout PipelineRun.Options) -> Void) -> (run: PipelineRun, log: String, alive: Int) {
      let counts = CountedSource.Counts()
      var given: [String: any SourceComponent] = [:]
      for (name, script) in scripts {
        let isCounted = sources.contains { $0.hasPrefix("\(name): { counted") }
        given[name] = isCounted ? CountedSource(counts, script) : ScriptedSource(script) as any SourceComponent
      }
      var options = PipelineRun.Options()
      options.turnLimit = 2000
      if isEndless { options.until = TimeSpan(nanoseconds: length.nanoseconds - 1) }
      change(&options)
      let run = PipelineRun(plan, sources: given, options: options)
      return (run, counts.log, counts.alive)
    }

    func compare(_ run: PipelineRun, upTo end: TimeSpan?, _ how: String) {
      if !run.isQuiet { wrong.append("it is never quiet\(how)") }
      for (name, wanted) in wanted {
        let got = run.sinks["to-" + Self.sink(name)] ?? SignalHistory()
        let part = end.map { end in SignalHistory(wanted.entries.filter { $0.at <= end }) } ?? wanted
        guard
          let difference = SignalHistory.difference(
            expected: part, actual: got, tick: .milliseconds(1), letters: letters)
        else { continue }
        wrong.append("\(name)\(how):\n\(difference)\n\(run.deadLetters.joined(separator: "\n"))")
      }
    }

    let whole = run { _ in }
    compare(whole.run, upTo: nil, "")
    if let subscriptions, whole.log != subscriptions {
      wrong.append("the subscriptions were \(whole.log), not \(subscriptions)")
    }
    if atOnce { return wrong }
    for time in stride(from: Int64(0), through: length.nanoseconds, by: 2_000_000) {
      let span = TimeSpan(nanoseconds: time)
      let cut = run { $0.cancelAt = span }
      compare(cut.run, upTo: span, " cancelled at \(span)")
      if cut.run.pendingTimers != 0 { wrong.append("\(cut.run.pendingTimers) timers are left at \(span)") }
      if cut.log.utf8.count(where: { $0 == UInt8(ascii: "+") }) * 2 != cut.log.utf8.count {
        wrong.append("not every subscription ended at \(span): \(cut.log)")
      }
      if cut.alive != 0 { wrong.append("\(cut.alive) sources are left at \(span)") }
    }
    if subscriptions == nil {
      let restored = run { $0.cutAfter = { _ in true } }
      compare(restored.run, upTo: nil, " restored after each turn")
      wrong += restored.run.refusals.map(\.message)
    }
    return wrong
  }
}

extension SignalHistory.Moment {
  fileprivate var isEnd: Bool {
    switch self {
    case .complete, .error: true
    case .next, .subscribe, .cancel: false
    }
  }
}
