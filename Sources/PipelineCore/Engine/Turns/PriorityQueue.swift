/// Counts the nodes that have deferred work to later in the turn, by precedence: the node with the lowest precedence
/// runs first, whatever the order of deferral.
///
/// Nodes with `settle` come first, upstream before downstream; then named schedulers, in the order of the file.
struct PriorityQueue {
  private var counts: [Int] = []
  private var total = 0
  private static let settling = 64
  private static let limit = 1024

  /// The precedence of a node with `settle` that has this many such nodes upstream.
  static func settling(upstream: Int) -> Int { min(upstream, settling - 1) }
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

  /// Whether work with a lower precedence is deferred.
  func has(before precedence: Int) -> Bool {
    total > 0 && counts.prefix(precedence).contains { $0 > 0 }
  }
}
