import Logging
import PipelineCore
import PipelineRuntime
import Storage

extension Supervisor {
  /// Opens the store of a slot unless it is open, and takes over the state of an earlier process.
  /// - Returns: How the run keeps its state; nil: it does not keep any.
  func openStore(_ slot: PipelineSlot) throws(StoreRefusal) -> DeliveryOptions? {
    guard let stores else { return nil }
    guard slot.plan.delivery(hasStateDirectory: true) != .bestEffort else {
      // At the start all such stores are read together.
      if isReady { reportLeftBehind(slot) }
      return nil
    }
    if let other = holder(ofStoreOf: slot) {
      throw StoreRefusal(
        "the pipeline of \(other.path) has this name, too, and its state is kept under it: give one of them another 'name'"
      )
    }
    let store: DiskStore
    if let open = slot.store {
      store = open
    } else {
      store = try stores.open(slot.name)
      slot.store = store
      slot.inHand = stores.inHand(slot.name)
      slot.saved = store.savedState.map { LeftState($0) }
    }
    if stores.replication != nil, slot.plan.stateMemory != nil {
      throw StoreRefusal("'state' keeps keys next to the store, which --replicate does not copy: remove one of them")
    }
    try store.openSpill(memory: slot.plan.stateMemory.map { $0 / 2 })
    followRenamedSinks(slot.plan, store)
    reportLeftBehind(slot)
    // Waiting rows are delivered in durable mode only. They may be rows of an earlier version of the file, or of
    // replayed dead letters.
    let hasRows = store.backlogs.values.contains { $0.rows > 0 }
    var delivery = DeliveryOptions(
      store: store, isDurable: hasRows || slot.plan.delivery(hasStateDirectory: true) == .durable)
    delivery.inHand = slot.inHand
    delivery.stateMemory = slot.plan.stateMemory.map { $0 - $0 / 2 }
    return delivery
  }

  /// Lets sinks that have been renamed (`movedFrom`) deliver the events that wait under their former names.
  private func followRenamedSinks(_ plan: Plan, _ store: DiskStore) {
    let sinks = plan.sinksOfStore
    for move in plan.formerNames where move.isSink && sinks.contains(move.name) {
      guard let backlog = store.backlogs[move.former], backlog.rows > 0 else { continue }
      store.giveRows(of: move.former, to: move.name)
      log.write(
        .info, plan.name,
        "the sink '\(move.name)' delivers the \(Printable.count(backlog.events, "event")) that \(backlog.events == 1 ? "waits" : "wait") for '\(move.former)'"
      )
    }
  }

  /// The sinks of each pipeline that deliver from its store.
  var takers: LeftBehind.Takers {
    Dictionary(slots.filter { !$0.isLeaving }.map { ($0.name, $0.plan.sinksOfStore) }) { $0.union($1) }
  }

  /// The events in the slot's open store that the slot does not deliver.
  func leftBehind(_ slot: PipelineSlot) -> [LeftBehind] {
    slot.store.map { LeftBehind.find(slot.name, $0.backlogs, slot.plan.sinksOfStore) } ?? []
  }

  /// Opens the stores of all pipelines before the first one starts.
  func openStoresAhead() {
    var names: Set<String> = []
    let opened = slots.filter {
      $0.plan.delivery(hasStateDirectory: true) != .bestEffort && names.insert($0.name).inserted
    }
    stores?.openAhead(opened.map(\.name))
  }

  /// Whether the store of the slot's name is being closed, or belongs to another slot that is about to leave it.
  func mustAwaitStore(_ slot: PipelineSlot) -> Bool {
    let isClosing = closingStores.contains { $0.name == slot.name }
    if isClosing, slot.plan.delivery(hasStateDirectory: true) != .bestEffort { return true }
    guard let holder = holder(ofStoreOf: slot) else { return false }
    return holder.isLeaving || holder.next.map { $0.plan.name != holder.name } ?? false
  }

  /// Whether another slot has the store of the slot's name open.
  func isStoreOfAnother(_ slot: PipelineSlot) -> Bool { stores != nil && holder(ofStoreOf: slot) != nil }

  /// The other slot that has the store of the slot's name open.
  private func holder(ofStoreOf slot: PipelineSlot) -> PipelineSlot? {
    guard slot.plan.delivery(hasStateDirectory: true) != .bestEffort else { return nil }
    return slots.first { $0 !== slot && $0.store != nil && $0.name == slot.name }
  }

  /// Drops the state that the last run has left in memory: the next run does not continue from it.
  func dropState(_ slot: PipelineSlot) {
    guard let saved = slot.saved else { return }
    slot.saved = nil
    if saved.unsaved > 0 {
      let count = saved.unsaved
      log.write(
        .warning, slot.name,
        "\(count == 1 ? "an event that was" : "\(count) events that were") waiting to be delivered \(count == 1 ? "is" : "are") lost: no version of the pipeline has started that could deliver \(count == 1 ? "it" : "them")"
      )
    }
    saved.discard()
  }

  /// Reports undelivered events of a pipeline whose file is gone.
  func reportWaitingEvents(_ slot: PipelineSlot) {
    let count = slot.store?.backlogs.values.reduce(0) { $0 + $1.events } ?? 0
    guard count > 0, let stores else { return }
    log.write(
      .warning, slot.name,
      "\(count) event\(count == 1 ? " is" : "s are") kept for the sinks of this pipeline, whose file is gone, until a pipeline of this "
        + "name runs again: 'rxd state show \(slot.name) --state-dir \(stores.path)' shows how many wait for which sink"
    )
  }

  /// A store that is being closed by the thread that writes it.
  struct ClosingStore {
    var number: Int
    /// The name of the store's pipeline.
    var name: String
    var store: DiskStore
    /// The time at which the process stops waiting for the store.
    var end: Instant
  }

  /// Closes the store of a pipeline that no longer runs, without waiting for the disk.
  func closeStore(_ slot: PipelineSlot) {
    guard let store = slot.store else { return }
    slot.store = nil
    slot.inHand?.close()
    slot.inHand = nil
    let statistics = store.statistics
    if let time = statistics.percentile99 {
      logger.debug(
        "\(Printable.count(Int(statistics.commits), "commit")), 99 % of them within \(Self.shown(time))",
        metadata: ["pipeline": "\(slot.name)"])
    }
    close(store, of: slot.name)
  }

  func close(_ store: DiskStore, of name: String) {
    closings += 1
    let number = closings
    closingStores.append(ClosingStore(number: number, name: name, store: store, end: now + Self.closingLimit))
    let post = poster()
    store.beginClosing { post(.closed(number)) }
  }

  /// The time at which the process stops waiting for the first of the stores that are being closed; nil: there is none,
  /// or the process is stopping and waits for all at the end.
  var closingEnd: Instant? { isStopping ? nil : closingStores.map(\.end).min() }

  /// Gives up stores that are not closed within the limit.
  func endClosing(at now: Instant) {
    for closing in closingStores where now >= closing.end { reportUnwritten(closing.name) }
    closingStores.removeAll { now >= $0.end }
  }

  private func reportUnwritten(_ name: String) {
    logger.error("the state could not be written", metadata: ["pipeline": "\(name)"])
  }

  /// Waits for the stores that are being closed, at the end of the process.
  func awaitStores() {
    let end = now + Self.closingLimit + .milliseconds(20 * Int64(closingStores.count))
    for closing in closingStores where !closing.store.close(within: max(.zero, end - now)) {
      reportUnwritten(closing.name)
    }
    closingStores = []
  }

  /// Closes the store of a renamed pipeline. A store belongs to a name, so the pipeline continues from the store of its
  /// new name, as at a start.
  func leaveStore(_ slot: PipelineSlot, for name: String) {
    closeStore(slot)
    dropState(slot)
    slot.loss = "its name was '\(slot.name)', and what that keeps stays under that name"
    logger.warning(
      "\(slot.loss ?? "")", metadata: ["pipeline": "\(name)"])
  }
}
