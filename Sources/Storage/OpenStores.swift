import Transport

/// The stores that this process has open for writing. Closing any descriptor of a file releases the process's locks on
/// it (fcntl(2)), with which SQLite keeps other processes away. So a reader's descriptors of such a store are closed
/// only after the writer's.
enum OpenStores {
  private struct Entry {
    var writers = 0
    var readers: [AnyObject] = []
  }
  private static let all = Guarded<[StoreFile.Place: Entry]>([:])

  static func open(_ place: StoreFile.Place) { all.withLock { $0[place, default: Entry()].writers += 1 } }

  static func close(_ place: StoreFile.Place) {
    // The readers must be closed outside of the lock.
    let readers = all.withLock { entries -> [AnyObject] in
      entries[place]?.writers -= 1
      guard let entry = entries[place], entry.writers <= 0 else { return [] }
      entries[place] = nil
      return entry.readers
    }
    withExtendedLifetime(readers) {}
  }

  /// Closes a reader's descriptors: at once, or after the writer of this process has closed its own.
  static func leave(_ reader: AnyObject, of place: StoreFile.Place?) {
    guard let place else { return }
    all.withLock { entries in
      if entries[place] != nil { entries[place]?.readers.append(reader) }
    }
  }
}

/// The gate and the entry in `OpenStores` that a connection holds while it writes to a store; released when the
/// connection closes.
final class StoreHold {
  private var gate: ReaderGate?
  private let place: StoreFile.Place?

  init(_ gate: ReaderGate) {
    self.gate = gate
    place = gate.place
    if let place { OpenStores.open(place) }
  }

  deinit {
    gate = nil
    if let place { OpenStores.close(place) }
  }
}
