import Logging
import PipelineCore
import PipelineRuntime
import Storage
import Transport

/// Work that may wait for a disk, or take long, runs on its own thread, one job after the other: the supervisor's
/// thread answers the control socket and notifies the watchdog.
extension Supervisor {
  /// A check of a pipeline that could not start.
  struct StartCheck {
    var number: Int
    var slot: PipelineSlot
    /// The name of the store that the check may open.
    var name: String
    var began: Instant
  }

  /// The result of a check.
  struct CheckedStart: Sendable {
    var canStart: Bool
    /// The store, if the check has opened it.
    var store: DiskStore?
  }

  // MARK: Checks of pipelines that could not start

  /// Checks whether the cause that kept a pipeline from starting is gone. The pipeline was never wired, so a dry run
  /// repeats nothing. If the cause is gone, the pipeline starts at once.
  func checkAgain(_ slot: PipelineSlot) {
    slot.restarts.checkAt = nil
    guard slot.run == nil, slot.restarts.at != nil, !isStopping else { return }
    // One check at a time: while one hangs, the other pipelines start at the end of their pauses.
    guard check == nil, !mustAwaitStore(slot), !isStoreOfAnother(slot) else { return checkLater(slot) }
    let number = aside.next()
    check = StartCheck(number: number, slot: slot, name: slot.name, began: now)
    let opens = slot.store == nil && slot.plan.delivery(hasStateDirectory: true) != .bestEffort
    let (plan, name, saved, services) = (slot.plan, slot.name, slot.saved?.bytes, services)
    let stores = opens ? stores : nil
    let post = poster()
    aside.enqueue {
      var found = CheckedStart(canStart: false)
      do throws(StoreRefusal) {
        found.store = try stores?.open(name)
        let state = found.store.map(\.savedState) ?? saved
        found.canStart =
          Execution.dryRun(plan, services: services, clock: SystemClock.shared, restoring: state).failure == nil
      } catch {}
      post(.checked(number, found))
    }
  }

  private func checkLater(_ slot: PipelineSlot) {
    // Many waiting pipelines share the time of the thread, so each is checked less often.
    let waiting = slots.count { $0.restarts.checkAt != nil }
    slot.restarts.checkAt = now + TimeSpan(nanoseconds: Self.checkInterval.nanoseconds * Int64(1 + waiting / 10))
  }

  func checked(_ number: Int, _ found: CheckedStart) {
    guard let check, check.number == number else { return }
    self.check = nil
    let slot = check.slot
    let isHere = slots.contains { $0 === slot } && slot.name == check.name
    if let store = found.store {
      if isHere, slot.store == nil, slot.run == nil, slot.state != .over {
        slot.store = store
        slot.inHand = stores?.inHand(slot.name)
        slot.saved = store.savedState.map { LeftState($0) }
      } else {
        close(store, of: check.name)
      }
    }
    guard isHere, slot.run == nil, slot.restarts.at != nil, !isStopping else { return }
    guard found.canStart else { return checkLater(slot) }
    // If the pipeline fails nevertheless, its pauses decide.
    slot.restarts.mayCheck = false
    slot.restarts.at = nil
    launch(slot)
  }

  /// Whether a slot cannot be launched yet: the store of its name is still open or being closed, or a check uses its
  /// resources.
  func mustWait(_ slot: PipelineSlot) -> Bool {
    isBeingChecked(slot) || mustAwaitStore(slot)
  }

  private func isBeingChecked(_ slot: PipelineSlot) -> Bool {
    check.map { $0.slot === slot || $0.name == slot.name } ?? false
  }

  /// How long the verdict of a reload waits for a check, because a disk that does not answer may block the check for
  /// ever.
  private static let checkLimit = TimeSpan.seconds(5)

  private func awaitsCheck(_ slot: PipelineSlot) -> Bool {
    slot.awaitsStore && slot.run == nil && slot.state == .running && !slot.isHeldUp && isBeingChecked(slot)
  }

  /// The time from which the verdict of a reload no longer waits for the check; nil: it does not wait for it.
  var checkEnd: Instant? {
    guard let check, reload != nil, !isStopping, slots.contains(where: awaitsCheck) else { return nil }
    return check.began + Self.checkLimit
  }

  /// Ends the wait: the verdict of the reload names the cause that blocks pipelines, which start when the check is
  /// done.
  func endWaitForCheck() {
    guard let check else { return }
    let reason =
      "its files or its store have not answered for \(Self.shown(now - check.began)); it starts when they do"
    for slot in slots where awaitsCheck(slot) {
      slot.isHeldUp = true
      log.write(.error, slot.name, "not started yet: \(reason)", limited: false)
      decide(slot, failed: reason)
    }
  }

  // MARK: Events that are left behind

  /// How long the verdict of a reload waits for the record of its pipelines, and for the reading of stores that no
  /// pipeline opens.
  private static let readingLimit = TimeSpan.seconds(1)

  /// Logs the events in the store of the slot's name that the slot does not deliver.
  func reportLeftBehind(_ slot: PipelineSlot) {
    guard slot.store == nil else {
      for left in leftBehind(slot) { log.write(.warning, slot.name, left.line) }
      return
    }
    readLeftBehind([slot])
  }

  /// Reads the undelivered events of stores that these slots do not open. Returns the number of the message that will
  /// have the events; nil: there is nothing to read.
  ///
  /// - Parameter takers: Recorded before the reading; nil: nothing is recorded.
  @discardableResult
  private func readLeftBehind(_ slots: [PipelineSlot], noting takers: LeftBehind.Takers? = nil) -> Int? {
    let names = Set(slots.filter { $0.store == nil && $0.plan.sinksOfStore.isEmpty }.map(\.name))
    guard let stores, takers != nil || !names.isEmpty else { return nil }
    let number = aside.next()
    let post = poster()
    aside.enqueue {
      if let takers { stores.note(takers) }
      post(.leftBehind(number, names.sorted().flatMap { stores.leftBehind($0, []) }))
    }
    return number
  }

  /// Finishes a reload whose changes are done: the verdict follows when the events that they leave behind are known.
  func finish(_ reload: Reload) {
    guard reload.reading == nil else { return }
    endKeeping()
    guard let number = readLeftBehind(slots, noting: takers) else { return complete(reload, left: []) }
    self.reload?.reading = number
    reloads.readingEnd = now + Self.readingLimit
  }

  func take(_ left: [LeftBehind], _ number: Int) {
    guard let reload, reload.reading == number else {
      for left in left { log.write(.warning, left.pipeline, left.line) }
      return
    }
    complete(reload, left: left)
  }

  /// Completes the reload, because stores could not be read in time; the log reports their events later.
  func endReading() {
    reloads.readingEnd = nil
    if let reload, reload.reading != nil { complete(reload, left: []) }
  }
}
