import PipelineCore
import Synchronization

/// Counts the bytes of incomplete messages on all connections of one receiver. Each message has a limit of its own; all
/// together have a budget. When it is exceeded, the connection with the largest incomplete message is ended, so
/// connections that send whole messages stay. Used on one thread.
struct UnfinishedMessages<Connection: Hashable> {
  /// The default for all requests to a server.
  static var usualLimit: Int { 64 << 20 }

  private var held: [Connection: Int] = [:]
  private(set) var total = 0 {
    didSet { charge?.set(total) }
  }
  private let charge: MemoryCharge?

  /// - Parameter memory: The memory budget of the process; nil: the bytes are counted elsewhere.
  init(of memory: MemoryBudget? = nil) { charge = memory.map { MemoryCharge(0, of: $0) } }

  /// - Parameter bytes: 0: no message is incomplete.
  mutating func set(_ bytes: Int, of connection: Connection) {
    let before = bytes == 0 ? held.removeValue(forKey: connection) : held.updateValue(bytes, forKey: connection)
    total += bytes - (before ?? 0)
  }

  /// The connection with the most bytes.
  var largest: Connection? { held.max { $0.value < $1.value }?.key }
}

/// The bytes of one connection that are counted against its server's budget: those of an incomplete message, and of
/// delivered messages that have not been handled. Thread-safe; what is left is returned when the object is released.
final class MessageCharge: Sendable {
  private let state = Mutex((budget: ByteBudget?.none, bytes: 0))

  deinit { move(to: nil) }

  /// - Parameter more: May be negative.
  func add(_ more: Int) {
    guard more != 0 else { return }
    state.withLock {
      $0.bytes += more
      $0.budget?.force(more)
    }
  }

  func move(to budget: ByteBudget?) {
    state.withLock {
      $0.budget?.release($0.bytes)
      budget?.force($0.bytes)
      $0.budget = budget
    }
  }

  /// Whether the budget is used up.
  var isFull: Bool { state.withLock { $0.budget?.isFull ?? false } }
}
