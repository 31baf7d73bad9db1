internal import DequeModule

/// The arrival times of a queue's events, to the second and in bounded memory: shows how long the oldest event has
/// waited.
struct QueueAges {
  private struct Group {
    var since: Instant
    var events: Int
  }
  private var groups = Deque<Group>()
  /// The time between two groups; doubled when there are too many.
  private var step = TimeSpan.seconds(1)
  private static let most = 1024

  /// When the oldest event arrived, at most one step too early; nil: the queue is empty.
  var oldest: Instant? { groups.first?.since }

  mutating func add(_ events: Int, at now: Instant) {
    guard events > 0 else { return }
    if let last = groups.last, now < last.since + step {
      groups[groups.count - 1].events += events
      return
    }
    groups.append(Group(since: now, events: events))
    if groups.count > Self.most { thin() }
  }

  /// Removes the oldest events.
  mutating func remove(_ events: Int) {
    var left = events
    while left > 0, let first = groups.first {
      if first.events > left {
        groups[0].events -= left
        return
      }
      left -= first.events
      groups.removeFirst()
    }
    if groups.isEmpty { step = .seconds(1) }
  }

  private mutating func thin() {
    step = step + step
    var kept = Deque<Group>()
    for group in groups {
      if let last = kept.last, group.since < last.since + step {
        kept[kept.count - 1].events += group.events
      } else {
        kept.append(group)
      }
    }
    groups = kept
  }
}
