import Synchronization

/// Events that a sink has taken and acknowledges later: those of one turn, or of several turns that need not be
/// distinguished.
///
/// A receipt holds the acknowledgement of the turn until each event has been acknowledged once. A receipt that is freed
/// earlier has failed; acknowledging more events than were taken is a programming error and traps.
public final class Receipt: Sendable {
  private struct State {
    var left: Int
    /// The memory charge of the remaining events, unless it was released already.
    var bytes: Int
    var outcome = Ack.Outcome.acknowledged
  }
  let ack: Ack
  private let state: Mutex<State>
  private let book: ReceiptBook
  /// The arrival time of the first of its events.
  fileprivate let since: Instant

  fileprivate init(_ events: Int, bytes: Int, _ ack: Ack, _ book: ReceiptBook, since: Instant) {
    self.ack = ack
    self.book = book
    self.since = since
    state = Mutex(State(left: events, bytes: bytes))
    if events > 0 { ack.hold() }
  }

  deinit {
    let (left, bytes) = state.withLock { ($0.left, $0.bytes) }
    book.memory?.remove(bytes)
    if left > 0 { ack.release(.failed("it was given up")) }
  }

  /// Whether the sender is notified of a failure and sends the events again.
  package var notifiesSender: Bool { ack.notifiesSender }

  /// How many events have not been acknowledged.
  package var left: Int { state.withLock(\.left) }

  /// Reports that some of its events have been delivered, or have failed for good. From any thread.
  public func acknowledge(_ events: Int, _ outcome: Ack.Outcome = .acknowledged) {
    end { state in
      precondition(events <= state.left, "a sink acknowledged an event twice")
      state.left -= events
      if state.outcome == .acknowledged { state.outcome = outcome }
      return events
    }
  }

  /// Reports that the remaining events have been delivered, or have failed for good.
  public func acknowledgeAll(_ outcome: Ack.Outcome = .acknowledged) {
    end { state in
      defer { state.left = 0 }
      if state.outcome == .acknowledged { state.outcome = outcome }
      return state.left
    }
  }

  /// Reports that the events no longer have a reader, which counts as delivered; only a sender that waits for an answer
  /// receives the failure.
  package func dropAll(_ reason: String) { acknowledgeAll(ack.notifiesSender ? .failed(reason) : .acknowledged) }

  /// Reports that the next execution gets the remaining events, so that their outcome is not decided here.
  package func announceHandover() { if left > 0 { ack.handOver() } }

  /// Leaves the remaining events to the next execution; nil: there are none.
  package func leave() -> LeftReceipt? {
    let (count, bytes) = state.withLock { state in
      defer { (state.left, state.bytes) = (0, 0) }
      return (state.left, state.bytes)
    }
    guard count > 0 else { return nil }
    book.memory?.remove(bytes)
    book.left(count)
    return LeftReceipt(ack, count, bytes: bytes)
  }

  /// Reports that the sink no longer holds the events in memory, although it acknowledges them later: they are written,
  /// but not on the disk. From any thread.
  package func freeMemory() {
    book.memory?.remove(
      state.withLock { state in
        defer { state.bytes = 0 }
        return state.bytes
      })
  }

  private func end(_ change: (inout State) -> Int) {
    let (count, bytes, outcome) = state.withLock { state -> (Int, Int, Ack.Outcome?) in
      let before = state.left
      let count = change(&state)
      // Assumes that the events are equally large.
      let kept = state.left == 0 ? 0 : state.bytes / before * state.left
      defer { state.bytes = kept }
      return (count, state.bytes - kept, count > 0 && state.left == 0 ? state.outcome : nil)
    }
    book.memory?.remove(bytes)
    if count > 0 { book.acknowledged(count, since: since) }
    if let outcome { ack.release(outcome) }
  }

  /// Adds events of the same turn; false: the receipt has been acknowledged, or belongs to another turn.
  fileprivate func add(_ events: Int, bytes: Int, _ ack: Ack) -> Bool {
    guard ack === self.ack else { return false }
    return state.withLock { state in
      if state.left == 0 { return false }
      state.left += events
      state.bytes += bytes
      return true
    }
  }
}

/// Events that one execution has taken and the next one delivers (``Receipt/leave()``). A left receipt that no sink
/// takes fails.
package final class LeftReceipt: Sendable {
  private let hold: Mutex<Ack?>
  package let events: Int
  /// The memory that the sink uses for the events.
  package let bytes: Int
  /// Whether the sender is notified of a failure and sends the events again.
  package let notifiesSender: Bool

  fileprivate init(_ ack: Ack, _ events: Int, bytes: Int) {
    hold = Mutex(ack)
    self.events = events
    self.bytes = bytes
    notifiesSender = ack.notifiesSender
  }

  /// The reason given to senders of events that no version takes: they must send again.
  package static let untaken = "the pipeline was replaced, and the new version did not take it"

  deinit { release(.failed(Self.untaken)) }

  /// Ends the hold without a new receipt.
  package func release(_ outcome: Ack.Outcome) { hold.withLock { $0.take() }?.release(outcome) }

  fileprivate func take(_ book: ReceiptBook, at now: Instant) -> Receipt? {
    guard let ack = hold.withLock({ $0.take() }) else { return nil }
    let receipt = book.take(events, bytes: bytes, ack, joining: nil, at: now)
    ack.release()
    return receipt
  }
}

/// Counts the events that a sink has taken on receipts, and those of them that are acknowledged.
final class ReceiptBook: Sendable {
  private let total = Atomic(0)
  private let done = Atomic(0)
  /// Measures the time from arrival to acknowledgement; nil: it is not measured.
  private let latency: LatencyMeter?
  /// The account of the receipts' bytes.
  let memory: SinkMemory?
  /// Events that arrive within this time may share a receipt, and then a latency; in nanoseconds.
  private static let sameTime: Int64 = 10_000_000

  init(_ latency: LatencyMeter? = nil, _ memory: SinkMemory? = nil) {
    self.latency = latency
    self.memory = memory
  }

  var taken: Int { total.load(ordering: .relaxed) }
  var isClosed: Bool { done.load(ordering: .acquiring) == taken }

  func take(
    _ events: Int, bytes: Int, _ ack: Ack, joining open: Receipt?, at now: Instant = Instant(nanoseconds: 0)
  ) -> Receipt {
    total.add(events, ordering: .relaxed)
    if let open, (now - open.since).nanoseconds < Self.sameTime, open.add(events, bytes: bytes, ack) { return open }
    return Receipt(events, bytes: bytes, ack, self, since: now)
  }

  func take(_ left: LeftReceipt, at now: Instant) -> Receipt? { left.take(self, at: now) }

  /// Events that the next execution delivers.
  fileprivate func left(_ events: Int) { done.add(events, ordering: .releasing) }

  fileprivate func acknowledged(_ events: Int, since: Instant) {
    latency?.ended(events, since: since)
    done.add(events, ordering: .releasing)
  }
}
