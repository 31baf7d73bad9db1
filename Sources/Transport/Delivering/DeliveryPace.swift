import PipelineCore

/// Limits the number of batches that may begin. After a failure the destination is in *trouble*: no batch begins for a
/// while, then one alone, the probe, until a probe succeeds. From then on each answer allows one more, up to the
/// maximum: a recovering destination is not overloaded.
///
/// Batches that began before continue meanwhile. Their success does not show the current state of the destination;
/// their failure makes the pause longer.
struct DeliveryPace {
  private let most: Int
  /// The number of batches that may be under way: the maximum, except for a while after trouble.
  private var allowed: Int
  private(set) var isInTrouble = false
  /// No batch begins before this time; nil: there is no pause.
  private(set) var resumesAt: Instant?
  /// The batch that probes whether the trouble is over.
  private var probe: Int?

  init(most: Int) {
    self.most = most
    allowed = most
  }

  /// Whether another batch may begin while `count` others are under way.
  func admits(beside count: Int) -> Bool {
    resumesAt == nil && (isInTrouble ? probe == nil && count < most : count < allowed)
  }

  mutating func begun(_ batch: Int) {
    if isInTrouble { probe = batch }
  }

  /// Whether a batch that has begun may be delivered now; if not, it counts as not begun.
  mutating func confirms(_ batch: Int) -> Bool {
    if resumesAt == nil, !isInTrouble || probe == batch { return true }
    withdrawn(batch)
    return false
  }

  /// The batch is no longer under way, without a result about the destination.
  mutating func withdrawn(_ batch: Int) {
    if probe == batch { probe = nil }
  }

  /// The destination has answered for the batch.
  mutating func answered(_ batch: Int) {
    if probe == batch {
      probe = nil
      isInTrouble = false
    }
    if !isInTrouble, allowed < most { allowed += 1 }
  }

  /// No batch begins before `end`.
  mutating func pause(until end: Instant) { resumesAt = max(resumesAt ?? end, end) }

  /// The destination is down; the next batch begins after `pause` at the earliest.
  mutating func failed(_ batch: Int, _ now: Instant, pause: TimeSpan) {
    isInTrouble = true
    allowed = 1
    withdrawn(batch)
    self.pause(until: now + pause)
  }

  /// Ends the pause if it is over.
  mutating func resume(_ now: Instant) {
    if let end = resumesAt, end <= now { resumesAt = nil }
  }
}
