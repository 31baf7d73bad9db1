/// What nodes have put off to later in the turn, counted by precedence: the node that comes first in the priority queue goes
/// first, whatever the order in which it was put off.
///
/// Nodes that settle come first, those above before those below; then what waits on named schedulers, in the
/// order in which the file names them.
struct PriorityQueue {
  private var counts: [Int] = []
  private var total = 0
  private static let settling = 64
  private static let limit = 1024

  /// The precedence of a node that settles, with so many others above it.
  static func settling(above: Int) -> Int { min(above, settling - 1) }
  /// The precedence of a named scheduler.
  static func scheduler(_ number: Int) -> Int { settling + min(number, limit) }

  mutating func add(_ precedence: Int) {
    while counts.count <= precedence { counts.append(0) }
    counts[precedence] += 1
    total += 1
  }

  mutating func remove(_ precedence: Int) {
    counts[precedence] -= 1
    total -= 1
    precondition(counts[precedence] >= 0, "removed from the priority queue without being in it")
  }

  /// Whether something goes first.
  func has(before precedence: Int) -> Bool {
    total > 0 && counts.prefix(precedence).contains { $0 > 0 }
  }
}
