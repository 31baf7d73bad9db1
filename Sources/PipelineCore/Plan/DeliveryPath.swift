/// The delivery guarantee for the events on the path from one source to one sink.
package struct DeliveryPath: Sendable, Equatable {
  /// The levels of the guarantee, from the weakest to the strongest.
  package enum Level: Int, Sendable, Comparable {
    /// A crash loses events under way.
    case bestEffort
    /// Committed input is safe; other input is lost with the process.
    case onceCommitted
    /// A killed process loses no event; some are delivered again.
    case atLeastOnce
    /// Neither a killed process nor a power cut loses input that was acknowledged to the sender; some events are
    /// delivered again.
    case durable

    package static func < (a: Level, b: Level) -> Bool { a.rawValue < b.rawValue }

    package var name: String {
      switch self {
      case .bestEffort: "best effort"
      case .onceCommitted: "at least once from the commit on"
      case .atLeastOnce: "at least once"
      case .durable: "durable"
      }
    }
  }

  /// One reason why the level is no higher.
  package struct Limit: Sendable, Equatable {
    /// The highest level of a path with this limit.
    package var level: Level
    /// The possible loss or repetition, a clause.
    package var effect: String
    /// The reason, a clause; nil: the mode of the pipeline.
    package var cause: String?
    /// The remedy, a sentence.
    package var remedy: String
    /// The line of the file that is the reason; nil: the reason is not a line of the file.
    package var location: SourceLocation?
  }

  /// The source and the sink, in the names of the file.
  package var source: String
  package var sink: String
  /// All limits of the path, the weakest first.
  package var limits: [Limit]

  package var level: Level { limits.first?.level ?? .durable }

  /// `events -> out: at least once: after a crash ... (shop.yaml:9: ...)`.
  package var line: String {
    let reasons = limits.prefix { $0.level == level }.map { limit -> String in
      let prefix = limit.location.map { "\($0.text.name):\($0.line): " } ?? ""
      return limit.effect + (limit.cause.map { " (\(prefix)\($0))" } ?? "")
    }
    let words =
      reasons.isEmpty
      ? "neither a crash nor a power cut loses an event; those under way are delivered again"
      : reasons.joined(separator: "; ")
    return "\(source) -> \(sink): \(level.name): \(words)"
  }
}

extension DeliveryRequirement {
  var level: DeliveryPath.Level { self == .durable ? .durable : .atLeastOnce }
}

extension Plan {
  /// The guarantee of every path from a source to a sink, through signals, errors outputs and commands: sink by sink,
  /// the sources in the order of the plan.
  ///
  /// Sources of inner signals count if they read their own input, like `file`, and not if they send a request or
  /// compute values for the event of the inner signal.
  package func deliveryPaths(hasStateDirectory: Bool) -> [DeliveryPath] {
    deliveryPaths(hasStateDirectory: hasStateDirectory, atMost: .max).paths
  }

  /// The first `limit` paths, the number of the others, and the weakest level of all and of the others.
  func deliveryPaths(
    hasStateDirectory: Bool, atMost limit: Int
  ) -> (paths: [DeliveryPath], others: Int, weakest: DeliveryPath.Level, weakestOther: DeliveryPath.Level) {
    let map = DeliveryMap(self, hasStateDirectory)
    var paths: [DeliveryPath] = []
    var others = 0
    var weakest = DeliveryPath.Level.durable
    var weakestOther = DeliveryPath.Level.durable
    map.visit { path in
      weakest = min(weakest, path.level)
      if paths.count < limit {
        paths.append(map.path(path))
      } else {
        others += 1
        weakestOther = min(weakestOther, path.level)
      }
    }
    return (paths, others, weakest, weakestOther)
  }

  /// The name of a source, with its container if it is inner: `http in books`.
  fileprivate func name(of source: PlannedSource, _ sourceNames: Set<String>) -> String {
    let step = steps[source.step.number]
    return sourceNames.contains(step.owner) ? step.owner : "\(step.keyword) in \(step.owner)"
  }

  fileprivate func limits(_ mode: Delivery, _ hasStateDirectory: Bool) -> [DeliveryPath.Limit] {
    switch mode {
    case .durable: []
    case .light:
      [
        .init(
          level: .atLeastOnce, effect: "after a crash, events since the last checkpoint are delivered again",
          cause: requestedDelivery.map { "'delivery: \($0.value.rawValue)'" },
          remedy: "Write 'delivery: durable'", location: requestedDelivery?.location)
      ]
    case .bestEffort:
      [
        hasStateDirectory
          ? .init(
            level: .bestEffort, effect: "a crash loses events under way", cause: "'delivery: bestEffort'",
            remedy: "Write 'delivery: durable', or leave 'delivery' out", location: requestedDelivery?.location)
          : .init(
            level: .bestEffort, effect: "a crash loses events under way", cause: "there is no state directory",
            remedy: "Run it with '--state-dir DIR', or as a service with 'StateDirectory='", location: nil)
      ]
    }
  }

  fileprivate func limits(
    of source: PlannedSource, _ mode: Delivery, _ weakness: SourceReach.Weakness
  ) -> [DeliveryPath.Limit] {
    if mode == .bestEffort { return [] }
    let step = steps[source.step.number]
    if let own = step.delivery {
      return [Self.outside(step, own, "a crash loses events that were acknowledged at once")]
    }
    var limits: [DeliveryPath.Limit] = []
    switch source.component.recovery {
    case .never:
      let isAnswered = source.component.serving != nil
      let cause =
        isAnswered
        ? "'\(step.keyword)' answers its clients before their events are safe"
        : "'\(step.keyword)' cannot be read again"
      let remedy =
        isAnswered
        ? "Answer when they are: 'answer: written'" : "Read a 'file', or let 'httpServer' receive the events"
      limits.append(
        mode == .durable
          ? .init(
            level: .onceCommitted, effect: "events that were read and not yet committed are lost with the process",
            cause: cause, remedy: remedy, location: step.location)
          : .init(
            level: .bestEffort, effect: "a crash loses events since the last checkpoint", cause: cause,
            remedy: "Write 'delivery: durable', which loses only uncommitted events", location: step.location))
    case .sender:
      if mode == .light, let kept = weakness.keeps {
        limits.append(
          .init(
            level: .bestEffort,
            effect: "a crash loses what '\(steps[kept.number].keyword)' keeps since the last checkpoint",
            cause: "the senders of '\(step.keyword)' do not send answered requests again",
            remedy: "Write 'delivery: durable', or leave 'delivery' out",
            location: requestedDelivery?.location ?? step.location))
      }
    case .request, .position, .made: break
    }
    if let step = weakness.forgets {
      let step = steps[step.number]
      limits.append(
        .init(
          level: .bestEffort, effect: "what '\(step.keyword)' keeps is lost with the process",
          cause: "its state cannot be saved", remedy: "Use a step whose state can be saved", location: step.location))
    }
    return limits
  }

  fileprivate func limits(of sink: SinkPlan) -> [DeliveryPath.Limit] {
    let step = steps[sink.step.number]
    if let own = step.delivery {
      return [Self.outside(step, own, "a crash loses events that count as delivered at once")]
    }
    switch sink.component.confirmation {
    case .dropped, .client, .disk, .receiver: return []
    case .nothing:
      return [
        .init(
          level: .bestEffort, effect: "events may be lost on the way to their receiver",
          cause: "'\(step.keyword)' does not know what arrives", remedy: "Use a sink that does, such as 'http'",
          location: step.location)
      ]
    case .system:
      return [
        .init(
          level: .atLeastOnce, effect: "a power cut can lose data that is not yet on a disk",
          cause: "'\(step.keyword)' leaves its data to the system", remedy: "Use a 'file' or 'http'",
          location: step.location)
      ]
    }
  }

  private static func outside(_ step: StepPlan, _ own: Located<Delivery>, _ effect: String) -> DeliveryPath.Limit {
    .init(
      level: .bestEffort, effect: effect, cause: "'\(step.keyword)' has 'delivery: bestEffort'", remedy: "Remove it",
      location: own.location)
  }
}

extension SourceRecovery {
  /// Whether the source of an inner signal acknowledges with the event that created the signal, and has no input of its
  /// own.
  fileprivate var belongsToOuter: Bool { self == .made || self == .request }
}

extension Plan {
  /// For each sink: whether all its events come from sources that read the same input again after a crash, over steps
  /// whose state is saved. Then all output after a checkpoint is written again.
  ///
  /// Polls and timers are not such sources: after a restart they send other events.
  var sinksWhoseInputComesAgain: [Bool] {
    var comesAgain = sinks.map { _ in true }
    DeliveryMap(self, true).visit { path in
      let source = sources[path.source]
      let isSame = source.component.recovery == .position && !isBestEffort(source.step)
      if !isSame || path.ofSource.contains(where: { $0.level == .bestEffort }) { comesAgain[path.sink] = false }
    }
    return comesAgain
  }
}

// MARK: Requirements

extension Plan {
  /// An error for each reason why a path has less than `require` asks for, in the order of the file. Nothing if the
  /// file requires nothing.
  package func deliveryShortfalls(hasStateDirectory: Bool) -> [Diagnostic] {
    guard let requirement else { return [] }
    var found: [(limit: DeliveryPath.Limit, first: DeliveryMap.Path, more: Int)] = []
    var index: [String: Int] = [:]
    let map = DeliveryMap(self, hasStateDirectory)
    map.visit { path in
      guard path.level < requirement.value.level, sinks[path.sink].printedSignal == nil else { return }
      for limits in [map.ofMode, path.ofSource, map.ofSinks[path.sink]] {
        for limit in limits where limit.level < requirement.value.level {
          let key = "\(limit.location?.offset ?? -1) \(limit.effect)"
          if let at = index[key] {
            found[at].more += 1
          } else {
            index[key] = found.count
            found.append((limit, path, 0))
          }
        }
      }
    }
    func offset(_ limit: DeliveryPath.Limit) -> Int { limit.location?.offset ?? requirement.location.offset }
    return found.sorted { offset($0.limit) < offset($1.limit) }.map { limit, first, more in
      let path = map.path(first)
      var notes: [Diagnostic.Note] = []
      if limit.location != nil { notes.append(.init("required here", at: requirement.location)) }
      if more > 0 { notes.append(.init("this limits \(Printable.count(more, "more path")), too")) }
      return Diagnostic(
        .weakGuarantee,
        """
        the path from '\(path.source)' to '\(path.sink)' is only \(limit.level.name): \(limit.effect)\
        \(limit.cause.map { ", because \($0)" } ?? "")
        """, at: limit.location ?? requirement.location, notes: notes,
        help: "\(limit.remedy); or ask for less than 'require: \(requirement.value.rawValue)'")
    }
  }
}

// MARK: All paths

/// The paths of a plan, each with its limits. There may be as many as sources times sinks, so common parts are computed
/// once.
private struct DeliveryMap {
  /// A path, by the indexes of its ends, with the weaknesses between its source and its sink.
  struct Path {
    var source: Int
    var sink: Int
    var ofSource: [DeliveryPath.Limit]
    var level: DeliveryPath.Level
  }

  let ofMode: [DeliveryPath.Limit]
  let ofSinks: [[DeliveryPath.Limit]]
  private let plan: Plan
  private let mode: Delivery
  private let reach: SourceReach
  private let sourceNames: Set<String>

  init(_ plan: Plan, _ hasStateDirectory: Bool) {
    self.plan = plan
    mode = plan.delivery(hasStateDirectory: hasStateDirectory)
    ofMode = plan.limits(mode, hasStateDirectory)
    ofSinks = plan.sinks.map { plan.limits(of: $0) }
    reach = SourceReach(plan)
    sourceNames = Set(plan.named.lazy.filter { $0.kind == .source }.map(\.name))
  }

  /// Sink by sink, the sources in the order of the plan.
  func visit(_ body: (Path) -> Void) {
    func level(_ limits: [DeliveryPath.Limit]) -> DeliveryPath.Level { limits.map(\.level).min() ?? .durable }
    let ofMode = level(ofMode)
    /// The origins of the sinks' chains, cached because many sinks read one signal.
    var known: [Int: [Int: SourceReach.Weakness]] = [:]
    /// The limits of sources on paths without weakness.
    var usual: [Int: [DeliveryPath.Limit]] = [:]
    for (sink, sinkPlan) in plan.sinks.enumerated() {
      let (signal, own) = reach.origin(of: sinkPlan.input)
      let found: [Int: SourceReach.Weakness]
      if case .named(let index)? = signal.origin {
        found = known[index] ?? reach.sources(of: signal)
        known[index] = found
      } else {
        found = reach.sources(of: signal)
      }
      let ofSink = min(ofMode, level(ofSinks[sink]))
      for (source, planned) in plan.sources.enumerated() {
        guard let upstream = found[planned.step.number], !planned.isInner || !planned.component.recovery.belongsToOuter
        else { continue }
        let weakness = own.joined(upstream)
        let limits: [DeliveryPath.Limit]
        if weakness.rank == 0 {
          limits = usual[source] ?? plan.limits(of: planned, mode, weakness)
          usual[source] = limits
        } else {
          limits = plan.limits(of: planned, mode, weakness)
        }
        body(Path(source: source, sink: sink, ofSource: limits, level: min(ofSink, level(limits))))
      }
    }
  }

  /// The path in words.
  func path(_ path: Path) -> DeliveryPath {
    let limits = ofMode + path.ofSource + ofSinks[path.sink]
    // A stable order: equal levels stay from source to sink.
    let sorted = limits.enumerated().sorted { ($0.element.level, $0.offset) < ($1.element.level, $1.offset) }
    return DeliveryPath(
      source: plan.name(of: plan.sources[path.source], sourceNames), sink: plan.sinks[path.sink].name,
      limits: sorted.map(\.element))
  }
}

// MARK: The path upstream

/// The sources of a signal's events, and the weaknesses of the steps on the path. There may be thousands of signals in
/// a row, so nothing here is recursive.
private struct SourceReach {
  /// The steps on the path from a source that limit the guarantee.
  struct Weakness {
    /// A step with state.
    var keeps: StepID?
    /// A step whose state cannot be saved.
    var forgets: StepID?

    var rank: Int { (keeps == nil ? 0 : 1) + (forgets == nil ? 0 : 2) }

    func joined(_ other: Weakness) -> Weakness {
      Weakness(keeps: keeps ?? other.keeps, forgets: forgets ?? other.forgets)
    }
  }

  private let plan: Plan
  /// For each command, by its index in `plan.named`, the signals whose events execute it.
  private let callers: [Int: [SignalPlan]]

  init(_ plan: Plan) {
    self.plan = plan
    callers = plan.named.contains { $0.kind == .command } ? Self.callers(plan) : [:]
  }

  /// The named signal with which a chain begins, and the weaknesses of the chain's steps; a signal further downstream
  /// if the chain is not linear.
  func origin(of signal: SignalPlan) -> (signal: SignalPlan, weakness: Weakness) {
    var signal = signal
    var weakness = Weakness()
    while signal.inputs.count == 1, signal.inner.isEmpty, !signal.onlyListens {
      weakness.add(signal)
      signal = signal.inputs[0]
    }
    return (signal, weakness)
  }

  /// The sources of a signal by the numbers of their steps, each with the weakest path from it.
  func sources(of signal: SignalPlan) -> [Int: Weakness] {
    var found: [Int: Weakness] = [:]
    /// The weaknesses, as bits, with which a signal has been visited, or a command together with the signals that
    /// execute it.
    var seen: [ObjectIdentifier: UInt8] = [:]
    var seenWhole: [Int: UInt8] = [:]
    var waiting = [(signal, Weakness())]

    /// Adds a named signal; if it is a command, also the signals that execute it.
    func addWhole(_ index: Int, _ weakness: Weakness) {
      waiting.append((plan.named[index].body, weakness))
      let bit = UInt8(1) << UInt8(weakness.rank)
      if seenWhole[index, default: 0] & bit != 0 { return }
      seenWhole[index, default: 0] |= bit
      for caller in callers[index] ?? [] { waiting.append((caller, weakness)) }
    }

    while case (let signal, var weakness)? = waiting.popLast() {
      let bit = UInt8(1) << UInt8(weakness.rank)
      let before = seen[ObjectIdentifier(signal), default: 0]
      if before & bit != 0 { continue }
      seen[ObjectIdentifier(signal)] = before | bit
      switch signal.origin {
      case .input: break
      case .named(let index): waiting.append((plan.named[index].body, weakness))
      case .errors(.named(let index)): addWhole(index, weakness)
      case .errors(.sink(let index)): waiting.append((plan.sinks[index].input, weakness))
      case nil where signal.source != nil:
        let known = found[signal.step.number]
        if known.map({ $0.rank < weakness.rank }) ?? true { found[signal.step.number] = weakness }
      case nil:
        weakness.add(signal)
        for inner in signal.inner { waiting.append((inner, weakness)) }
        if signal.onlyListens {
          // An output of a command: its events come from the signals that execute the command.
          for case .named(let index)? in signal.inputs.map(\.origin) { addWhole(index, weakness) }
        } else {
          for input in signal.feeding { waiting.append((input, weakness)) }
        }
      }
    }
    return found
  }

  /// Finds the steps that execute commands: those with a command among their inputs.
  private static func callers(_ plan: Plan) -> [Int: [SignalPlan]] {
    var found: [Int: [SignalPlan]] = [:]
    var seen: Set<ObjectIdentifier> = []
    /// `outside`: the inputs of the steps whose parameters contain the signal.
    var waiting = (plan.named.map(\.body) + plan.sinks.map(\.input)).map { (signal: $0, outside: [SignalPlan]()) }
    while let (signal, outside) = waiting.popLast() {
      guard seen.insert(ObjectIdentifier(signal)).inserted else { continue }
      if !signal.onlyListens, !signal.isHidden {
        for case .named(let index)? in signal.inputs.dropFirst().map(\.origin)
        where plan.named[index].kind == .command {
          found[index, default: []] += signal.inputs.prefix(1) + outside
        }
      }
      for inner in signal.inner { waiting.append((inner, outside + signal.inputs)) }
      for input in signal.inputs { waiting.append((input, outside)) }
    }
    return found
  }
}

extension SourceReach.Weakness {
  fileprivate mutating func add(_ signal: SignalPlan) {
    for step in signal.steps {
      if step.component.persistence != .nothing {
        keeps = keeps ?? step.id
      } else if step.component.forgetsState {
        forgets = forgets ?? step.id
      }
    }
  }
}

extension Component {
  /// Whether a step has state that it cannot save. The graph saves inner signals.
  fileprivate var forgetsState: Bool {
    ownSpec.persistence == .nothing && !ownSpec.memory.isEmpty && innerPlans.isEmpty
  }
}
