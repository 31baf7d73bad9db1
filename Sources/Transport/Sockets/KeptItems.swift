import Synchronization

/// Items that one version of a pipeline leaves to the next during a reload, such as connections and running programs.
/// Items that no version has taken when the reload is over are discarded.
package final class KeptItems<Item: Sendable>: Sendable {
  private let items = Mutex<[String: [Item]]>([:])
  private let discard: @Sendable (Item) -> Void

  /// - Parameter discard: Called with each item that no version has taken.
  package init(discard: @escaping @Sendable (Item) -> Void = { _ in }) { self.discard = discard }

  /// Keeps items under a key until the reload is over. False: no reload is under way, and nothing is kept.
  package func keep(_ new: [Item], for key: String) -> Bool {
    KeptListeners.duringReload(
      of: ObjectIdentifier(self), discard: { self.discardAll() },
      keep: { items.withLock { $0[key, default: []] += new } })
  }

  /// Whether items of a key are kept.
  package func has(_ key: String) -> Bool { items.withLock { $0[key] != nil } }

  /// Removes and returns the items of a key, in the order in which they were kept.
  package func take(_ key: String) -> [Item] { items.withLock { $0.removeValue(forKey: key) } ?? [] }

  /// Removes and returns the item of a key that was kept first.
  package func takeFirst(_ key: String) -> Item? {
    items.withLock { items in
      guard var entries = items[key], !entries.isEmpty else { return nil }
      defer { items[key] = entries.isEmpty ? nil : entries }
      return entries.removeFirst()
    }
  }

  private func discardAll() {
    let left = items.withLock { items in
      defer { items = [:] }
      return items.values.flatMap { $0 }
    }
    for item in left { discard(item) }
  }
}
