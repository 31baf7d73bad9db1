extension Execution {
  /// The data that an execution keeps on disk, and its last commit.
  struct Commits {
    /// Commits state and outbox; nil: nothing is kept.
    var committer: Committer?
    var options: DeliveryOptions?
    /// Moves keys of steps to the disk, and reads them there; nil: all are in memory.
    var spilling: Spilling?
    /// The identity of the outbox event that the sink is being given, the same in each repetition.
    var deliveredEvent: DeliveryID?
    /// ``Execution/namesEvents``; nil: not computed yet.
    var namesEvents: Bool?
    let last = LastCommit()
    private var hasBegunLast = false
    /// Callbacks to run when no answer can arrive any more, by the numbers of their holds.
    private var callbacks: [Int: () -> Void] = [:]
    private var lastNumber = 0
    /// Whether the last commit is under way, after which the callbacks run.
    private var isAwaited = false

    /// Marks the last commit as begun; false: it had begun before.
    mutating func beginLast() -> Bool {
      defer { hasBegunLast = true }
      return !hasBegunLast
    }

    mutating func addCallback(_ callback: @escaping () -> Void) -> Int {
      lastNumber += 1
      callbacks[lastNumber] = callback
      return lastNumber
    }

    mutating func removeCallback(_ number: Int) { callbacks[number] = nil }

    /// Whether callbacks wait without a commit under way. Marks a commit as begun.
    mutating func beginWait() -> Bool {
      guard !callbacks.isEmpty, !isAwaited else { return false }
      isAwaited = true
      return true
    }

    /// Takes the callbacks, because the last commit is done.
    mutating func takeCallbacks() -> [() -> Void] {
      isAwaited = false
      defer { callbacks = [:] }
      return Array(callbacks.values)
    }
  }

  var committer: Committer? { commits.committer }
  /// The record of the event in hand, which outlives the process; nil: none is kept.
  var inHand: InHand? { commits.options?.inHand }

  /// Commits state, positions and outbox from the launch on. Call it before the launch.
  package func commit(with options: DeliveryOptions) {
    commits.options = options
    if let store = options.store.spill {
      let (log, name) = (services.log, plan.name)
      commits.spilling = Spilling(
        store, limit: options.stateMemory, now: { [executor] in executor.now }, report: { log($0, name, $1) })
    }
    let committer = Committer(self, options)
    commits.committer = committer
    committer.begin()
    settings.keepsStateOnFailure = true
    settings.acknowledgesOnDisk = true
  }

  /// Calls `done` once, on any thread, when the last state (``savedState``) of an execution that has ended, or was
  /// cancelled, is on the disk; at once where nothing is kept. Called in a turn.
  package func finishCommits(_ done: @escaping @Sendable () -> Void) {
    commits.last.whenDone(done)
    commitLast()
  }

  /// Commits the last state, once. This commit waits for nothing outside the graph, because a client may wait for it.
  /// Without a state, or where sinks could not write earlier events, a completed pipeline starts over next time, and
  /// any other continues from its last commit.
  private func commitLast() {
    guard commits.beginLast() else { return }
    let last = commits.last
    guard let committer else { return last.finish() }
    let done: @Sendable () -> Void = { last.finish() }
    if let parts = saved.parts, !hasLostEvents, committer.isDurable || !leavesUnsaved {
      committer.finish(.replace(parts), done)
    } else if saved.parts != nil, !hasLostEvents {
      // After a crash, the sources reread the events that only this process holds.
      committer.finish(.keep, done)
    } else {
      committer.finish(outcome == .completed && !isSuspended ? .clear : .keep, done)
    }
  }

  /// Holds the execution (``hold()``) for clients that wait for answers. `callback` is called in a turn, once, when the
  /// graph has ended and its last commit is on the disk, so that no answer can come any more. ``endHold(_:)`` ends the
  /// hold.
  package func hold(whenFinal callback: @escaping () -> Void) -> Int {
    hold()
    return commits.addCallback(callback)
  }

  package func endHold(_ number: Int) {
    commits.removeCallback(number)
    release()
  }

  /// Commits the last state as soon as the graph has ended, if clients wait for answers: the commit must not wait for
  /// these clients.
  func commitForClients() {
    guard outcome != nil, saved.draft == nil, sinkEnds.closing == 0, commits.beginWait() else { return }
    let executor = executor
    let execution = Weak(self)
    finishCommits { executor.post { execution.object?.callFinalCallbacks() } }
  }

  private func callFinalCallbacks() {
    for callback in commits.takeCallbacks() { callback() }
  }

  /// Whether sinks had not written all accepted events of this execution when it ended: an older commit holds the rest.
  package var hasLostEvents: Bool { committer != nil && tally.undelivered > 0 }

  /// Whether a later execution can continue from the state of this one.
  var keepsState: Bool { committer != nil }

  /// Whether senders are answered when the effects of their events are on the disk.
  package var answersAfterCommits: Bool { committer?.isDurable == true }

  /// Whether events need IDs: an expression reads them, or a sink without an outbox may repeat events after a crash.
  package var namesEvents: Bool {
    if let known = commits.namesEvents { return known }
    let names =
      plan.readsNames
      || committer?.isDurable == false
        && plan.sinks.contains { $0.component.namesDeliveries && plan.distinguishesEvents(at: $0) }
    commits.namesEvents = names
    return names
  }

  /// The identity of the store, which no other store has; nil: nothing is kept on disk.
  var storeIdentity: UInt64? { committer?.identity }

  /// Calls `body` in this turn or, in durable delivery, in a later one, when the effects of this turn are on the disk.
  package func whenCommitted(_ body: @escaping () -> Void) {
    if let committer, committer.isDurable { committer.whenCommitted(body) } else { body() }
  }
}
