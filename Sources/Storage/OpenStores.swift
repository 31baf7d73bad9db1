import Transport

/// The stores that this process has open to write to. Closing any descriptor of a file gives up the locks of the process on it (fcntl(2)), with which
/// SQLite keeps other processes away; so what a reader has open of such a store is closed behind the writer.
enum OpenStores {
  private struct Entry {
    var writers = 0
    var readers: [AnyObject] = []
  }
  private static let all = Guarded<[StoreFile.Place: Entry]>([:])

  static func open(_ place: StoreFile.Place) { all.withLock { $0[place, default: Entry()].writers += 1 } }

  static func close(_ place: StoreFile.Place) {
    // Closed outside of the lock.
    let readers = all.withLock { entries -> [AnyObject] in
      entries[place]?.writers -= 1
      guard let entry = entries[place], entry.writers <= 0 else { return [] }
      entries[place] = nil
      return entry.readers
    }
    withExtendedLifetime(readers) {}
  }

  /// Closes what a reader has open, now or behind the writer of this process.
  static func leave(_ reader: AnyObject, of place: StoreFile.Place?) {
    guard let place else { return }
    all.withLock { entries in
      if entries[place] != nil { entries[place]?.readers.append(reader) }
    }
  }
}

/// What a connection that writes to a store has besides; released when it is closed.
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
