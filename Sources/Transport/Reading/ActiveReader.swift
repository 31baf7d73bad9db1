import Synchronization

/// Counts as one active reader during its lifetime: of files, programs or connections, followed or read once. The
/// blocks of all readers share one limit, because each has several blocks under way, and their rows need as much memory
/// again.
final class ActiveReader: Sendable {
  /// However many readers there are, no read becomes smaller than this.
  static let leastBlock = 8 << 10
  private static let all = Atomic(0)

  init() { Self.all.add(1, ordering: .relaxed) }

  deinit { Self.all.subtract(1, ordering: .relaxed) }

  /// The number of bytes, out of `limit`, that one reader may read at once.
  static func share(of limit: Int) -> Int { limit / max(1, all.load(ordering: .relaxed)) }
}
