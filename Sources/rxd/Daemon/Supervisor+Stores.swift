import Logging
import PipelineCore
import PipelineRuntime
import Storage

extension Supervisor {
  /// Opens the store of a slot unless it is open, and takes over the state of an earlier process.
  /// - Returns: How the run keeps its state; nil: it keeps nothing.
  func openStore(_ slot: PipelineSlot) throws(StoreRefusal) -> DeliveryOptions? {
    guard let stores, slot.plan.delivery(hasStateDirectory: true) != .bestEffort else { return nil }
    if let other = holder(ofStoreOf: slot) {
      throw StoreRefusal(
        "the pipeline of \(other.path) has this name, too, and its state is kept under it: give one of them another 'name'"
      )
    }
    let store: DiskStore
    // Without a state in memory, the last commit has the state.
    if slot.saved == nil { closeStore(slot) }
    if let open = slot.store {
      store = open
    } else {
      store = try stores.open(slot.name)
      slot.store = store
      slot.inHand = stores.inHand(slot.name)
      slot.saved = store.savedState
    }
    for (sink, backlog) in store.backlogs.sorted(by: { $0.key < $1.key })
    where backlog.rows > 0 && !slot.plan.sinks.contains(where: { $0.name == sink && !slot.plan.isBestEffort($0.step) })
    {
      log.write(
        .warning, slot.name,
        """
        \(Printable.count(backlog.events, "event")) wait for the sink '\(sink)', which the file has no more, or whose \
        delivery is best effort; they are kept
        """
      )
    }
    // Rows that wait are delivered in durable mode only: those of an earlier version of the file, or of replayed dead letters.
    let hasRows = store.backlogs.values.contains { $0.rows > 0 }
    var delivery = DeliveryOptions(
      store: store, isDurable: hasRows || slot.plan.delivery(hasStateDirectory: true) == .durable)
    delivery.inHand = slot.inHand
    return delivery
  }

  /// Whether the store of the slot's name belongs to another slot that is about to leave it.
  func mustAwaitStore(_ slot: PipelineSlot) -> Bool {
    guard let holder = holder(ofStoreOf: slot) else { return false }
    return holder.isLeaving || holder.next.map { $0.plan.name != holder.name } ?? false
  }

  /// The other slot that has the store of the slot's name open.
  private func holder(ofStoreOf slot: PipelineSlot) -> PipelineSlot? {
    guard slot.plan.delivery(hasStateDirectory: true) != .bestEffort else { return nil }
    return slots.first { $0 !== slot && $0.store != nil && $0.name == slot.name }
  }

  /// The file of a pipeline is gone, and its sinks have not delivered everything.
  func reportWaitingEvents(_ slot: PipelineSlot) {
    let count = slot.store?.backlogs.values.reduce(0) { $0 + $1.events } ?? 0
    guard count > 0, let stores else { return }
    log.write(
      .warning, slot.name,
      "\(count) event\(count == 1 ? " is" : "s are") kept for the sinks of this pipeline, whose file is gone, until a pipeline of this "
        + "name runs again: 'rxd state show \(slot.name) --state-dir \(stores.path)' shows how many wait for which sink"
    )
  }

  /// Closes the store of a pipeline that no longer runs.
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
    if !store.close(within: Self.closingLimit) {
      logger.error("the state could not be written", metadata: ["pipeline": "\(slot.name)"])
    }
  }

  /// A store belongs to a name: a renamed pipeline continues from the store of its new name, as at a start.
  func leaveStore(_ slot: PipelineSlot, for name: String) {
    closeStore(slot)
    slot.saved = nil
    slot.loss = "its name was '\(slot.name)', and what that keeps stays under that name"
    logger.warning(
      "\(slot.loss ?? "")", metadata: ["pipeline": "\(name)"])
  }
}
