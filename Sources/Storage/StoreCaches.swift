import Synchronization

/// The pages of files that all stores of a process keep in memory: one bound for all, whatever their number. A page that is not kept is read again from the
/// system, which has it in its own cache. Thread-safe.
package final class StoreCaches: Sendable {
  /// The most pages of one store; and the fewest that a transaction should have while it runs.
  static let mostPages = 256
  static let leastPages = 16

  private let limit: Int
  private let stores = Atomic(0)

  /// - Parameter limit: Of all together, in bytes; up to ``leastPages`` more for each of the threads that write.
  package init(_ limit: Int = 16 << 20) { self.limit = limit }

  func join() { stores.add(1, ordering: .relaxed) }
  func leave() { stores.subtract(1, ordering: .relaxed) }

  /// How many pages each store may keep now.
  var pages: Int {
    min(Self.mostPages, limit / StoreSchema.pageBytes / max(1, stores.load(ordering: .relaxed)))
  }
}
