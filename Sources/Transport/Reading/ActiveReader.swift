import Synchronization

/// Counts one reader that has something to read, as long as it lives: files, programs and connections, whether followed or read once. The blocks
/// of all of them share one limit, because several blocks of each are under way, and their rows need as much memory again.
final class ActiveReader: Sendable {
  /// No read becomes smaller because many read.
  static let leastBlock = 8 << 10
  private static let all = Atomic(0)

  init() { Self.all.add(1, ordering: .relaxed) }

  deinit { Self.all.subtract(1, ordering: .relaxed) }

  /// How much of `limit` bytes one reader may read at once.
  static func share(of limit: Int) -> Int { limit / max(1, all.load(ordering: .relaxed)) }
}
