/// The named signals that a pipeline may still run, according to the plan and to the running signals.
struct SignalReach {
  enum Referrer {
    case sink(Int)
    case named(Int)
  }

  private struct Reference {
    var by: Referrer
    /// Whether the referrer may subscribe the signal after the referrer's own start, or repeatedly.
    var isLate: Bool
  }

  /// The references to each named signal.
  private let references: [[Reference]]
  private let isCold: [Bool]
  /// The named signals that each one refers to.
  private let targets: [[Int]]

  /// The referrers of each named signal.
  static func references(_ named: [NamedPlan], _ sinks: [SinkPlan]) -> [[Referrer]] {
    walk(named, sinks).map { $0.map(\.by) }
  }

  /// The signals that run only because their errors outputs are read. Reading an errors output does not subscribe the
  /// signal, so each of these signals gets a root subscriber that drops its events: a reader of the events that a
  /// source rejects expects the source to run.
  ///
  /// - Parameter roots: The signals that run without a reader.
  static func readOnlyForErrors(_ named: [NamedPlan], _ sinks: [SinkPlan], besides roots: [Int]) -> [Int] {
    var walk = Walk(references: Array(repeating: [], count: named.count))
    var found: [Int] = []
    var runs: Set<Int> = []
    var waiting: [Int] = []
    func start(_ signal: Int) { if runs.insert(signal).inserted { waiting.append(signal) } }
    // Visits the started signals and starts the signals that they read.
    func visitStarted() {
      while let next = waiting.popLast() {
        walk.reached = []
        walk.visit(named[next].body, by: .named(next))
        for target in walk.reached { start(target) }
      }
    }
    for (index, sink) in sinks.enumerated() { walk.visit(sink.input, by: .sink(index)) }
    let bySinks = walk.reached
    for signal in bySinks + roots { start(signal) }
    visitStarted()
    var next = 0
    while next < walk.ownersOfErrors.count {
      let owner = walk.ownersOfErrors[next]
      next += 1
      // A command runs when it is executed, a cold signal once for each reader.
      guard named[owner].kind != .command, !named[owner].isCold, !runs.contains(owner) else { continue }
      found.append(owner)
      start(owner)
      visitStarted()
    }
    return found
  }

  private static func walk(_ named: [NamedPlan], _ sinks: [SinkPlan]) -> [[Reference]] {
    var walk = Walk(references: Array(repeating: [], count: named.count))
    for (index, sink) in sinks.enumerated() { walk.visit(sink.input, by: .sink(index)) }
    for (index, named) in named.enumerated() { walk.visit(named.body, by: .named(index)) }
    return walk.references
  }

  init(_ plan: Plan) {
    references = Self.walk(plan.named, plan.sinks)
    var targets: [[Int]] = Array(repeating: [], count: plan.named.count)
    for (index, list) in references.enumerated() {
      for case .named(let referrer) in list.map(\.by) where targets[referrer].last != index {
        targets[referrer].append(index)
      }
    }
    self.targets = targets
    isCold = plan.named.map(\.isCold)
  }

  /// The current state of the graph.
  struct State {
    /// Whether a sink still accepts events.
    var isOpen: (Int) -> Bool
    /// Whether a named signal is running; unknown for cold signals.
    var isRunning: (Int) -> Bool
  }

  /// The signal and everything that it runs.
  func run(by signal: Int) -> [Int] {
    if targets[signal].isEmpty { return [signal] }
    var found = [signal]
    var seen: Set<Int> = [signal]
    var next = 0
    while next < found.count {
      for target in targets[found[next]] where seen.insert(target).inserted { found.append(target) }
      next += 1
    }
    return found
  }

  /// Whether the signal, which is not running, may run again.
  func mayRun(_ signal: Int, _ state: State) -> Bool {
    var seen: Set<Int> = []
    return isCold[signal] ? isWanted(signal, state, &seen) : mayBegin(signal, state, &seen)
  }

  /// Whether a referrer may still begin to subscribe to the signal.
  private func mayBegin(_ signal: Int, _ state: State, _ seen: inout Set<Int>) -> Bool {
    guard seen.insert(signal).inserted else { return false }
    for reference in references[signal] {
      switch reference.by {
      case .sink(let index): if reference.isLate, state.isOpen(index) { return true }
      // Each subscription of a cold signal is separate, so none is known to be the last.
      case .named(let index) where isCold[index]: if isWanted(index, state, &seen) { return true }
      case .named(let index):
        if reference.isLate && state.isRunning(index) || mayBegin(index, state, &seen) { return true }
      }
    }
    return false
  }

  /// Whether any referrer runs or may run.
  private func isWanted(_ signal: Int, _ state: State, _ seen: inout Set<Int>) -> Bool {
    guard seen.insert(signal).inserted else { return false }
    for reference in references[signal] {
      switch reference.by {
      case .sink(let index): if state.isOpen(index) { return true }
      case .named(let index) where isCold[index]: if isWanted(index, state, &seen) { return true }
      case .named(let index): if state.isRunning(index) || mayBegin(index, state, &seen) { return true }
      }
    }
    return false
  }

  private struct Walk {
    var references: [[Reference]]
    /// The named signals to which the visited signals refer.
    var reached: [Int] = []
    /// The named signals whose errors outputs are read.
    var ownersOfErrors: [Int] = []

    mutating func visit(_ signal: SignalPlan, by referrer: Referrer) {
      signal.forEachReference { origin, isLate in
        switch origin {
        case .errors(.named(let index)): ownersOfErrors.append(index)
        case .errors(.sink), .input: break
        case .named(let index):
          references[index].append(Reference(by: referrer, isLate: isLate))
          reached.append(index)
        }
      }
    }
  }
}

extension Plan {
  /// Whether the events of `signal` start, on any path, with events that a sink could not deliver.
  func readsErrorsOfSinks(_ signal: SignalPlan) -> Bool {
    var found = false
    Plan.walk(from: [signal], named) { signal in
      if case .errors(.sink)? = signal.origin { found = true }
      return found ? nil : signal.inputs + signal.inner
    }
    return found
  }

  /// Whether all events of `signal` start with rejected events.
  func readsOnlyErrors(_ signal: SignalPlan) -> Bool {
    var found = false
    var other = false
    Plan.walk(from: [signal], named) { signal in
      switch signal.origin {
      case .errors:
        found = true
        return nil
      case .named: return []
      case .input: other = true
      case nil:
        if let first = signal.inputs.first, !signal.onlyListens {
          return signal.steps[0].component is any CombiningDeclaration ? signal.inputs : [first]
        }
        other = true
      }
      return nil
    }
    return found && !other
  }
}

extension Plan {
  /// The steps of the tables that are loaded from their own sources.
  static func stepsOfTables(_ tables: [TablePlan], _ named: [NamedPlan]) -> Set<StepID> {
    if tables.isEmpty { return [] }
    var found: Set<StepID> = []
    Plan.walk(from: tables.filter(\.isLoaded).map { named[$0.named].body }, named) { signal in
      found.formUnion(signal.steps.map(\.id))
      return signal.inputs + signal.inner
    }
    return found
  }

  /// Visits signals upstream, through names and errors outputs. It is not recursive, because there may be thousands of
  /// signals in a row.
  ///
  /// - Parameter visit: Returns the signals within this one to visit next; nil: not even the signal that it refers to.
  ///   Each signal is visited once.
  static func walk(
    from signals: [SignalPlan], _ named: [NamedPlan], _ visit: (SignalPlan) -> [SignalPlan]?
  ) {
    var seen: Set<Int> = []
    var waiting = signals
    while let next = waiting.popLast() {
      guard let within = visit(next) else { continue }
      waiting += within
      switch next.origin {
      case .named(let index), .errors(.named(let index)):
        if seen.insert(index).inserted { waiting.append(named[index].body) }
      case .errors(.sink), .input, nil: break
      }
    }
  }
}
