import Synchronization

/// The limit on the file pages that all stores of a process together keep in memory, however many stores there are. A
/// page that is not kept is read again from the system, which has it in its own cache. Thread-safe.
package final class StoreCaches: Sendable {
  /// The maximum number of pages of one store, and the minimum that a transaction should have while it runs.
  static let mostPages = 256
  static let leastPages = 16

  private let limit: Int
  private let stores = Atomic(0)

  /// - Parameter limit: The limit for all stores together, in bytes; each writing thread may use up to ``leastPages``
  ///   more.
  package init(_ limit: Int = 16 << 20) { self.limit = limit }

  func join() { stores.add(1, ordering: .relaxed) }
  func leave() { stores.subtract(1, ordering: .relaxed) }

  /// The number of pages that each store may keep now.
  var pages: Int {
    min(Self.mostPages, limit / StoreSchema.pageBytes / max(1, stores.load(ordering: .relaxed)))
  }
}
