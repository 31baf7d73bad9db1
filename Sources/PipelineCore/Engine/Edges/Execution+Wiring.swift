extension Execution {
  // MARK: Wiring

  /// One subscription with everything upstream of it: the whole graph at the launch, later an inner signal or the next
  /// round of a `repeat`. It is wired completely. Then the nodes that send their own events start, then the sources,
  /// both in the order of subscription.
  final class Wiring {
    /// The scope of the subscription.
    var scope: Scope
    var nodes: [() -> Void] = []
    var sources: [(node: RunningSource, resuming: Bool)] = []

    init(_ scope: Scope) { self.scope = scope }
  }

  /// The subscriptions that are being wired or are starting, one within another.
  struct Wirings {
    /// Whether the graph is being wired for the first time: sinks and errors outputs are incomplete.
    var isLaunching = false
    /// The subscription that is being wired; nil while events flow.
    fileprivate(set) var current: Wiring?
    /// The innermost wiring whose nodes are starting; its sources have not started.
    fileprivate(set) var beginning: Wiring?
    /// Reused, by nesting depth.
    private var pool: [Wiring] = []
    private var depth = 0
    /// The last number given to a subscription of a shared signal or to a source.
    var lastSubscription: UInt64 = 0

    mutating func nextSubscription() -> UInt64 {
      lastSubscription &+= 1
      return lastSubscription
    }

    fileprivate mutating func enter(_ scope: Scope) -> Wiring {
      if depth == pool.count { pool.append(Wiring(scope)) }
      let entered = pool[depth]
      entered.scope = scope
      depth += 1
      current = entered
      return entered
    }

    fileprivate mutating func leave() {
      depth -= 1
      current = nil
    }
  }

  func enterWiring(_ scope: Scope) -> Wiring { wirings.enter(scope) }

  func leaveWiring(_ left: Wiring) {
    left.nodes.removeAll(keepingCapacity: true)
    left.sources.removeAll(keepingCapacity: true)
    left.scope = topScope
    wirings.leave()
  }

  /// Starts the nodes of a wired subscription, and then its sources: the first event of a source reaches every
  /// subscriber, after the nodes' own events, such as the value of `startWith`.
  func begin(_ wired: Wiring) {
    wirings.current = nil
    if !wired.nodes.isEmpty, !isDryRun {
      let outer = wirings.beginning
      wirings.beginning = wired
      var next = 0
      while next < wired.nodes.count {
        wired.nodes[next]()
        next += 1
      }
      wirings.beginning = outer
    }
    var next = 0
    while next < wired.sources.count {
      let source = wired.sources[next]
      start(source.node, resuming: source.resuming)
      next += 1
    }
    leaveWiring(wired)
  }

  // MARK: Taking over

  /// Calls `body` in this turn when everything that was wired at the launch has begun, unless something fails before;
  /// at once after the launch. In `body` a source takes over input that cannot be read again: if its pipeline does not
  /// start, the input is untouched, and the previous version continues with it.
  package func whenBegun(_ body: @escaping () -> Void) {
    if hasBegun { body() } else { life.takeovers.append(body) }
  }

  /// Calls `body` after all callbacks of `whenBegun`, unless something fails before: the pipeline has started then. In
  /// `body` a sink takes over the events that the previous version has not delivered.
  package func whenTakenOver(_ body: @escaping () -> Void) { life.lastTakeovers.append(body) }

  /// Runs the callbacks when the wired graph has begun: sources take over input that cannot be read again, then sinks
  /// take over undelivered events.
  func takeOver() {
    // A callback may add another.
    while outcome == nil, !life.takeovers.isEmpty { life.takeovers.removeFirst()() }
    life.takeovers = []
    life.hasBegun = outcome == nil
    while outcome == nil, !life.lastTakeovers.isEmpty { life.lastTakeovers.removeFirst()() }
    life.lastTakeovers = []
  }
}
