import Transport

/// The stores that this process has open for writing. Closing any descriptor of a file releases the process's locks on
/// it (fcntl(2)), with which SQLite keeps other processes away. So a reader's descriptors of such a store are closed
/// only after the writer's.
enum OpenStores {
  private struct Entry {
    var writers = 0
    var readers: [AnyObject] = []
  }
  private static let all = Guarded<[StoreFile.FileIdentity: Entry]>([:])

  static func open(_ fileIdentity: StoreFile.FileIdentity) {
    all.withLock { $0[fileIdentity, default: Entry()].writers += 1 }
  }

  static func close(_ fileIdentity: StoreFile.FileIdentity) {
    // The readers must be closed outside of the lock.
    let readers = all.withLock { entries -> [AnyObject] in
      entries[fileIdentity]?.writers -= 1
      guard let entry = entries[fileIdentity], entry.writers <= 0 else { return [] }
      entries[fileIdentity] = nil
      return entry.readers
    }
    withExtendedLifetime(readers) {}
  }

  /// Closes a reader's descriptors: at once, or after the writer of this process has closed its own.
  static func leave(_ reader: AnyObject, of fileIdentity: StoreFile.FileIdentity?) {
    guard let fileIdentity else { return }
    all.withLock { entries in
      if entries[fileIdentity] != nil { entries[fileIdentity]?.readers.append(reader) }
    }
  }
}

/// The gate and the entry in `OpenStores` that a connection holds while it writes to a store; released when the
/// connection closes.
final class StoreHold {
  private var gate: ReaderGate?
  private let fileIdentity: StoreFile.FileIdentity?

  init(_ gate: ReaderGate) {
    self.gate = gate
    fileIdentity = gate.fileIdentity
    if let fileIdentity { OpenStores.open(fileIdentity) }
  }

  deinit {
    gate = nil
    if let fileIdentity { OpenStores.close(fileIdentity) }
  }
}
