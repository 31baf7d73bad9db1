/// The named signals that a pipeline may still run, according to the plan and to the running signals.
struct SignalReach {
  enum Referrer {
    case sink(Int)
    case named(Int)
  }

  private struct Reference {
    var by: Referrer
    /// Whether the referrer may subscribe it after its own start, or repeatedly.
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

  /// The signals that run only because their errors outputs are read. Reading an errors output does not subscribe the signal, so each of these
  /// signals gets a root subscriber that drops its events: the reader of the events that a source rejects expects the source to run.
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
        walk.visit(named[next].body, by: .named(next), isLate: false)
        for target in walk.reached { start(target) }
      }
    }
    for (index, sink) in sinks.enumerated() { walk.visit(sink.input, by: .sink(index), isLate: false) }
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
    for (index, sink) in sinks.enumerated() { walk.visit(sink.input, by: .sink(index), isLate: false) }
    for (index, named) in named.enumerated() { walk.visit(named.body, by: .named(index), isLate: false) }
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
    /// Whether a sink still takes events.
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

  /// Whether a referrer may subscribe it that has not yet.
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
    /// The named signals that were visited references.
    var reached: [Int] = []
    /// The named signals whose errors outputs are read.
    var ownersOfErrors: [Int] = []

    mutating func visit(_ signal: SignalPlan, by referrer: Referrer, isLate: Bool) {
      switch signal.kind {
      case .errors(.named(let index)): ownersOfErrors.append(index)
      case .errors(.sink), .input: break
      case .source(let component, _):
        for inner in component.innerPlans { visit(inner, by: referrer, isLate: true) }
      case .run(_, let input): visit(input, by: referrer, isLate: isLate)
      case .node(let component, _, _) where type(of: component).onlyListens: break
      case .node(let component, _, let inputs):
        let isLater = isLate || type(of: component).subscribesAgain
        for input in inputs { visit(input, by: referrer, isLate: isLater) }
        for inner in component.innerPlans { visit(inner, by: referrer, isLate: true) }
      case .named(let index):
        references[index].append(Reference(by: referrer, isLate: isLate))
        reached.append(index)
      }
    }
  }
}

extension Plan {
  /// Whether the events of `signal` start, on any path, with events that a sink could not deliver.
  func readsErrorsOfSinks(_ signal: SignalPlan) -> Bool {
    var seen: Set<Int> = []
    var waiting = [signal]
    while let next = waiting.popLast() {
      switch next.kind {
      case .errors(.sink): return true
      case .named(let index), .errors(.named(let index)):
        if seen.insert(index).inserted { waiting.append(named[index].body) }
      case .run(_, let input): waiting.append(input)
      case .source(let component, _): waiting += component.innerPlans
      case .node(let component, _, let inputs): waiting += inputs + component.innerPlans
      case .input: break
      }
    }
    return false
  }

  /// Whether all events of `signal` start with rejected events.
  func readsOnlyErrors(_ signal: SignalPlan) -> Bool {
    var seen: Set<Int> = []
    var waiting = [signal]
    var found = false
    while let next = waiting.popLast() {
      switch next.kind {
      case .errors: found = true
      case .named(let index): if seen.insert(index).inserted { waiting.append(named[index].body) }
      case .run(_, let input): waiting.append(input)
      case .node(let component, _, _) where type(of: component).onlyListens: return false
      case .node(let component, _, let inputs):
        guard let first = inputs.first else { return false }
        waiting += component is any CombiningOperator ? inputs : [first]
      case .source, .input: return false
      }
    }
    return found
  }
}
