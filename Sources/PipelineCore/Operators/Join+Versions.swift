extension Join {
  /// Events with the version of their key that was valid at their time.
  ///
  /// An event waits until no earlier version can come. A version stays until a newer one is valid for all events that
  /// wait or may come.
  final class VersionNode: TimedNode {
    /// The keys with more than one version, by the time of their second one.
    private var replaced = TimerQueue()
    /// The entry of each key in it.
    private var entries: [Wake] = []
    private let target = Target()

    /// The timer target of all entries in the queue, none of which becomes due by itself.
    private final class Target: TimerTarget {
      func woke(_ token: Int) {}
    }

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      super.init(parameters, nodeContext, downstream, counting: 1)
    }

    /// The table follows no events: they do not wait for it while it is idle, and its next version may be older than they are.
    override func follows(_ side: Side) -> Bool { side === left }

    /// Whether all versions that an event of this time can have are there.
    private func isCertain(_ time: Int64) -> Bool { right.isIdle || time < right.bound }

    override func take(_ event: Event, at time: Int64, _ side: Side) {
      if side === right {
        add(event, at: time)
      } else if isCertain(time) {
        resolve(event, at: time, key(inserting: false))
      } else if let key = key(inserting: true) {
        insert(OwnedEvent(event), at: time, key: key, isMatched: false, left)
        if left.events.count > parameters.limit, var displaced = left.events.removeFirst() {
          watermarks.release(&displaced.hold)
          forget(displaced.key)
          lose(displaced.event.event, of: left.name, &left.losses)
        }
      }
    }

    private func resolve(_ event: Event, at time: Int64, _ key: Int?) {
      if let key, let slot = right.events.last(of: key, through: time) {
        right.events[slot].isMatched = true
        let version = right.events[slot].event
        version.keep(in: arena)
        executor.withEventTime(time) { send(event, nil, version.heldValue, nil) }
      } else if left.sendsUnmatched {
        executor.withEventTime(time) { send(event, nil, .null, nil) }
      } else {
        countDropped(event)
      }
    }

    private func add(_ event: Event, at time: Int64) {
      guard let key = key(inserting: true) else { return }
      for slot in right.events.slots(of: key, in: time...time) {
        let former = right.events.remove(slot)
        if !former.isMatched { countSuperseded(former.event.event) }
      }
      insert(OwnedEvent(event), at: time, key: key, isMatched: false, right)
      if right.events.count > parameters.limit, let displaced = right.events.removeFirst() {
        order(displaced.key)
        forget(displaced.key)
        lose(displaced.event.event, of: right.name, &right.losses)
      }
      free()
    }

    @discardableResult
    override func insert(_ event: OwnedEvent, at time: Int64, key: Int, isMatched: Bool, _ side: Side) -> Int {
      let slot = super.insert(event, at: time, key: key, isMatched: isMatched, side)
      if side === left {
        left.events[slot].hold = watermarks.hold(at: time)
      } else {
        order(key)
      }
      return slot
    }

    /// Notes when the first version of a key is replaced.
    private func order(_ key: Int) {
      while entries.count <= key { entries.append(.none) }
      replaced.cancel(entries[key])
      entries[key] = .none
      guard let two = right.events.firstTwo(of: key) else { return }
      entries[key] = replaced.schedule(at: Instant(nanoseconds: right.events[two.second].time), target, key)
    }

    override func settle() {
      while !isClosed, let first = left.events.firstTime, isCertain(first), let entry = left.events.removeFirst() {
        entry.event.keep(in: arena)
        resolve(entry.event.event, at: entry.time, entry.key)
        var hold = entry.hold
        watermarks.release(&hold)
        if !isClosed { forget(entry.key) }
      }
      if !isClosed { free() }
    }

    /// Removes versions that no event needs any more.
    private func free() {
      let earliest = min(left.bound, left.events.firstTime ?? EventTime.end)
      guard earliest != EventTime.unknown else { return }
      while let due = replaced.popDue(Instant(nanoseconds: earliest)) {
        entries[due.token] = .none
        guard let two = right.events.firstTwo(of: due.token) else { continue }
        let version = right.events.remove(two.first)
        if !version.isMatched { countDropped(version.event.event) }
        order(due.token)
      }
    }

    override var isOver: Bool { left.hasEnded && left.events.count == 0 }

    override func stop() {
      replaced = TimerQueue()
      entries = []
      super.stop()
    }

    override var heldCount: Int {
      left.events.count + right.events.all.count { !right.events[$0].isMatched }
    }
  }
}
