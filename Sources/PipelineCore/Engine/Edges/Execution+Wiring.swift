extension Execution {
  // MARK: Wiring

  /// One subscription with everything upstream of it: the whole graph at the launch, later an inner signal or the next
  /// round of a `repeat`. It is wired completely. Then the nodes start that send something of their own, then the
  /// sources, both in the order of subscription.
  final class Wiring {
    /// The scope of its subscription.
    var scope: Scope
    var nodes: [() -> Void] = []
    var sources: [(node: RunningSource, resuming: Bool)] = []

    init(_ scope: Scope) { self.scope = scope }
  }

  func enterWiring(_ scope: Scope) -> Wiring {
    if wiringDepth == wirings.count { wirings.append(Wiring(scope)) }
    let entered = wirings[wiringDepth]
    entered.scope = scope
    wiringDepth += 1
    wiring = entered
    return entered
  }

  func leaveWiring(_ left: Wiring) {
    left.nodes.removeAll(keepingCapacity: true)
    left.sources.removeAll(keepingCapacity: true)
    left.scope = topScope
    wiringDepth -= 1
    wiring = nil
  }

  /// Starts the nodes of a wired subscription, and then its sources: the first event of a source reaches every
  /// subscriber, after what the nodes send of their own, such as the value of `startWith`.
  func begin(_ wired: Wiring) {
    wiring = nil
    if !wired.nodes.isEmpty, !isDryRun {
      let outer = beginning
      beginning = wired
      var next = 0
      while next < wired.nodes.count {
        wired.nodes[next]()
        next += 1
      }
      beginning = outer
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

  /// Calls `body` in this turn when everything that was wired at the launch has begun, unless something fails before; at once after the launch. A source
  /// takes over there what cannot be read again: if its pipeline does not start, the input is untouched, and the version before goes on with it.
  package func whenBegun(_ body: @escaping () -> Void) {
    if hasBegun { body() } else { takeovers.append(body) }
  }

  /// Calls `body` after all of these, unless something fails before: the pipeline has started then. A sink takes over there what the version before has
  /// not delivered.
  package func whenTakenOver(_ body: @escaping () -> Void) { lastTakeovers.append(body) }

  /// Everything has begun: sources take over what cannot be read again, then sinks what was not delivered.
  func takeOver() {
    // One may add another.
    while outcome == nil, !takeovers.isEmpty { takeovers.removeFirst()() }
    takeovers = []
    hasBegun = outcome == nil
    while outcome == nil, !lastTakeovers.isEmpty { lastTakeovers.removeFirst()() }
    lastTakeovers = []
  }
}
