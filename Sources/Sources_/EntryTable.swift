import PipelineCore
import Transport

/// The entries of a directory by path, in buckets that are saved independently: a checkpoint encodes and writes only
/// buckets that have changed.
struct EntryTable {
  private struct Bucket {
    var entries: [String: DirectoryEntry] = [:]
    /// The bucket as it was saved; nil if it has changed since.
    var encoded: [UInt8]?
  }

  private var buckets: [Bucket] = [Bucket()]
  private(set) var count = 0
  /// Above this average number per bucket, the number of buckets doubles, which halves the average.
  private static let mostInBucket = 64

  init() {}

  var all: [String: DirectoryEntry] {
    var all: [String: DirectoryEntry] = [:]
    for bucket in buckets { all.merge(bucket.entries) { $1 } }
    return all
  }

  subscript(path: String) -> DirectoryEntry? {
    get { buckets[index(of: path)].entries[path] }
    set {
      let at = index(of: path)
      let old = buckets[at].entries[path]
      if old == newValue { return }
      buckets[at].entries[path] = newValue
      buckets[at].encoded = nil
      count += (newValue == nil ? 0 : 1) - (old == nil ? 0 : 1)
      if count > buckets.count * Self.mostInBucket { grow() }
    }
  }

  private func index(of path: String) -> Int {
    // The multiplication is needed because the lowest bits of the hash depend only on the lowest bits of the text.
    Int(truncatingIfNeeded: (Fingerprint.of(path.utf8) &* 0x9E37_79B9_7F4A_7C15) &>> 32) & (buckets.count - 1)
  }

  private mutating func grow() {
    let entries = all
    buckets = Array(repeating: Bucket(), count: buckets.count * 2)
    for (path, entry) in entries { buckets[index(of: path)].entries[path] = entry }
  }

  /// Saves the table together with changes that are not part of it yet; nil removes an entry.
  mutating func save(_ state: inout StateWriter, with changes: [String: DirectoryEntry?]) {
    var changed: [Int: [String: DirectoryEntry]] = [:]
    var total = count
    for (path, entry) in changes {
      let at = index(of: path)
      var entries = changed[at] ?? buckets[at].entries
      total += (entry == nil ? 0 : 1) - (entries[path] == nil ? 0 : 1)
      entries[path] = entry
      changed[at] = entries
    }
    state.write(UInt64(total))
    for at in buckets.indices {
      state.cut()
      if let entries = changed[at] {
        Self.write(entries, to: &state)
      } else if let encoded = buckets[at].encoded {
        state.append(encoded: encoded)
      } else {
        let entries = buckets[at].entries
        buckets[at].encoded = state.encoding { Self.write(entries, to: &$0) }
      }
    }
    state.cut()
  }

  private static func write(_ entries: [String: DirectoryEntry], to state: inout StateWriter) {
    for (path, entry) in entries.sorted(by: { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }) {
      state.write(path)
      state.write(UInt64(entry.kind.rawValue))
      state.write(entry.inode)
      state.write(entry.size)
      state.write(entry.modified)
    }
  }
}
