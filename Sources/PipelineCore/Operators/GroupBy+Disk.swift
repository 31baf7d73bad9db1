/// The groups of `groupBy` that are on the disk: those whose chains have no timers and send nothing by themselves.
///
/// A group comes back when its key comes, when it has been idle for long enough, or when it completes. The first index has the groups in the
/// order of their creation, the second one the times at which they have been idle for long enough.
extension GroupBy.Node {
  static let indexes = 2
  private static let indexOfTokens = 0
  private static let indexOfTimers = 1
  /// The tokens of timers.
  static let idleToken = 1
  static let completionToken = 2
  /// How many groups are completed or brought back in one turn; few in debug builds, so that tests have several turns.
  private static let atOnce = _isDebugAssertConfiguration() ? 5 : 1000
  /// After which time the disk is asked again if it could not be read.
  private static let pause = TimeSpan.seconds(1)
  /// An estimate of the memory that a group takes, and each of its steps.
  private static let bytesOfGroup = 180
  private static let bytesOfStep = 110

  /// Whether groups may be on the disk.
  var movesGroups: Bool { parameters.movesKeys && shared?.late.isEmpty == true }

  /// What is known of the groups on the disk, beside ``SpilledValues``.
  struct Disk {
    /// The number of groups whose chains have not completed; they are a part of `running`.
    var running = 0
    /// The token of the last group that was completed because the input had.
    var completed = 0
    /// Set for the first group that will have been idle for long enough, at `idleDue`.
    var idleTimer = Wake.none
    var idleDue = Instant.distantFuture
    /// Set while groups wait to be completed.
    var completionTimer = Wake.none
    /// Whether the log says that the disk cannot be read.
    var isUnreadable = false
  }

  /// What is on the disk of a group.
  private struct Kept {
    var token: Int
    var key: OwnedValue
    /// When it has been idle for long enough, and the number of that timer.
    var timer: (due: Instant, number: UInt64)?
    /// The states of its steps; nil: its chain has completed.
    var steps: [FusedRun.MovedStep]?
  }

  // MARK: Coming back

  /// The group of the key in `buffer`, if it is on the disk. False: the disk cannot be read, and the event has been rejected.
  func bringBackGroup(of event: Event, _ spilled: SpilledValues) -> Bool {
    do throws(SpillFault) {
      _ = try bringBack(buffer.bytes, spilled)
      return true
    } catch {
      reject(event, .keysUnreadable, "the groups on the disk cannot be read: \(error.message)")
      return false
    }
  }

  private func bringBack(_ text: UnsafeRawBufferPointer, _ spilled: SpilledValues) throws(SpillFault) -> Group? {
    guard let run = shared else { return nil }
    let found = try spilled.comeBack(text, executor) { (state) throws(StateFault) in
      try state.readOrigins(haveIdentities: true)
      var kept = Kept(token: try state.read(in: 1...max(created, 1)), key: try state.read())
      if try state.read(Bool.self) { kept.timer = (try state.read(), try state.read()) }
      if try state.read(Bool.self) { kept.steps = try run.readMoved(&state) }
      return kept
    }
    guard let kept = found else { return nil }
    let group = make(known.insert(text, known.hash(text)), kept.key.value, kept.token, mayBeOnDisk: true)
      .takeUnretainedValue()
    if let timer = kept.timer { group.timer = executor.reschedule(at: timer.due, timer.number, group, 0) }
    if let steps = kept.steps {
      // It was counted while it was on the disk.
      running -= 1
      disk.running -= 1
      run.restoreMoved(steps, of: group)
    } else {
      end(group)
    }
    return group
  }

  private func first(_ index: Int, _ spilled: SpilledValues) throws(SpillFault) -> SpilledMark? {
    try spilled.first(index) { known.find($0, known.hash($0)) != nil }
  }

  private func bringBack(_ mark: SpilledMark, _ spilled: SpilledValues) throws(SpillFault) -> Group {
    let group = try mark.withKey { text throws(SpillFault) in try bringBack(text, spilled) }
    guard let group else { throw SpillFault("a group is missing") }
    return group
  }

  private func isUnreadable(_ fault: SpillFault) {
    guard !disk.isUnreadable else { return }
    disk.isUnreadable = true
    execution.services.log(
      .error, execution.plan.steps[nodeContext.step.number].label,
      "the groups on the disk cannot be read: \(fault.message); trying again")
  }

  // MARK: Idle groups

  /// Sets the timer for the first group on the disk that has been idle for long enough. It fires before all other timers of its moment.
  func setIdleTimer() {
    guard let spilled, parameters.idle != nil, !isClosed, !outerEnded else { return }
    let next: Instant
    do throws(SpillFault) {
      let first = try first(Self.indexOfTimers, spilled)
      disk.isUnreadable = false
      next = first.map { spilled.epoch + TimeSpan(nanoseconds: $0.time) } ?? .distantFuture
    } catch {
      isUnreadable(error)
      next = now + Self.pause
    }
    setIdleTimer(at: next)
  }

  private func setIdleTimer(at next: Instant) {
    guard next != disk.idleDue || !disk.idleTimer.isSet else { return }
    cancelWake(&disk.idleTimer)
    disk.idleDue = next
    if next < .distantFuture { disk.idleTimer = executor.reschedule(at: next, 0, self, Self.idleToken) }
  }

  /// Brings back the groups that have been idle for long enough: their own timers complete them, in their order.
  private func bringBackIdle(_ spilled: SpilledValues) {
    do throws(SpillFault) {
      for _ in 0..<Self.atOnce {
        guard let mark = try first(Self.indexOfTimers, spilled),
          spilled.epoch + TimeSpan(nanoseconds: mark.time) <= now
        else { break }
        _ = try bringBack(mark, spilled)
      }
    } catch {
      // One group may be damaged, though its time can be read: it must not be tried again at once.
      isUnreadable(error)
      return setIdleTimer(at: now + Self.pause)
    }
    setIdleTimer()
  }

  func timerCame(_ token: Int) {
    switch token {
    case Self.idleToken:
      disk.idleTimer = .none
      if let spilled { bringBackIdle(spilled) }
    default:
      disk.completionTimer = .none
      if let spilled, !isClosed {
        completeInOrder(spilled)
        finishIfOver()
      }
    }
  }

  // MARK: The end

  /// Completes groups in the order of their creation, many in one turn, and the rest in the next ones.
  func completeInOrder(_ spilled: SpilledValues) {
    // What is in memory is sorted once in each turn.
    var inMemory = inOrder.filter { $0.number >= 0 && $0.token > disk.completed }[...]
    var room = Self.atOnce
    while !isClosed {
      let next: SpilledMark?
      do throws(SpillFault) {
        next = try first(Self.indexOfTokens, spilled)
        disk.isUnreadable = false
        if let next, inMemory.first.map({ next.time < Int64($0.token) }) ?? true {
          // Only groups on the disk are many.
          room -= 1
          guard room >= 0 else { return continueLater(now) }
          let group = try bringBack(next, spilled)
          spilled.skip(Self.indexOfTokens, to: next.next)
          disk.completed = group.token
          complete(group)
          drop(group, spilled)
          continue
        }
      } catch {
        isUnreadable(error)
        return continueLater(now + Self.pause)
      }
      guard let group = inMemory.popFirst() else { return }
      disk.completed = group.token
      complete(group)
    }
  }

  private func continueLater(_ time: Instant) {
    if !isClosed, !disk.completionTimer.isSet { disk.completionTimer = wake(at: time, Self.completionToken) }
  }

  /// Goes on after a restart in which groups on the disk had not been completed.
  func completeRest() {
    guard outerEnded, spilled != nil else { return }
    execution.whenWired { [self] in continueLater(now) }
  }

  /// Removes a group from memory that has completed, or that has been moved to the disk.
  private func drop(_ group: Group, _ spilled: SpilledValues) {
    guard group.number >= 0, let held = groups[group.number] else { return }
    spilled.drop(group.number)
    groups[group.number] = nil
    pages.mark(group.number)
    known.remove(group.number)
    countKept()
    group.number = -1
    cancelWake(&group.timer)
    if group.steps != nil { shared?.discard(group) }
    release(held)
  }

  // MARK: Moving

  /// Moves groups whose keys have not come for long to the disk, while there is no room for all.
  func moveGroups() {
    guard let spilled, let run = shared else { return }
    let keptBySteps = run.steps.reduce(0) { $0 &+ $1.counters.pointee.keptBytes }
    spilled.setBytes(
      known.textBytes &+ keptBySteps &+ known.count
        &* (KeyTable.bytes(of: 0) &+ Self.bytesOfGroup &+ run.steps.count &* Self.bytesOfStep), keys: known.count)
    guard spilled.needsRoom(known.count) else { return }
    spilled.makeRoom(
      text: known.text, record: { record($0, run, spilled) },
      leave: { numbers in
        for number in numbers {
          guard let group = groups[number]?.takeUnretainedValue() else { continue }
          if group.steps != nil { disk.running += 1 }
          drop(group, spilled)
        }
      })
    setIdleTimer()
  }

  private func record(_ number: Int, _ run: FusedRun, _ spilled: SpilledValues) -> SpilledValues.Record? {
    guard let group = groups[number]?.takeUnretainedValue() else { return nil }
    let timer = executor.pending(group.timer)
    let bytes = spilled.bytes(executor) { state in
      state.write(group.token)
      state.write(value: group.key)
      state.write(timer != nil)
      if let timer {
        state.write(timer.deadline)
        state.write(timer.sequence)
      }
      state.write(group.steps != nil)
      if let steps = group.steps { run.writeMoved(steps, &state) }
    }
    return bytes.map {
      SpilledValues.Record(
        value: $0, times: [Int64(group.token), timer.map { ($0.deadline - spilled.epoch).nanoseconds }])
    }
  }

  // MARK: State

  private func take(_ spilled: SpilledValues) {
    self.spilled = spilled
    spilled.takeAll(known.numbers)
    countKept()
  }

  func saveGroupsOnDisk(_ state: inout StateWriter) {
    if spilled == nil, movesGroups, let spilling = state.spilling(pages) {
      take(SpilledValues(spilling, owner: state.newOwner(), epoch: state.now, indexes: Self.indexes))
    }
    state.write(spilled?.isUsed ?? false)
    guard let spilled else { return }
    spilled.save(&state)
    guard spilled.isUsed else { return }
    state.write(disk.completed)
    state.write(disk.running)
  }

  func restoreGroupsOnDisk(_ state: inout StateReader) throws(StateFault) {
    let spilled = try SpilledValues(&state, indexes: Self.indexes, hasGone: true)
    disk.completed = try state.read(in: 0...Int.max / 2)
    let count = try state.read(in: 0...Int.max / 2)
    guard movesGroups else { throw StateFault("its groups had other chains, and some of them are on the disk") }
    // Groups that have been completed may be on the disk still.
    spilled.skip(Self.indexOfTokens, to: SpilledMark(time: Int64(disk.completed) + 1, key: []))
    running += count
    disk.running = count
    take(spilled)
    setIdleTimer()
  }
}
