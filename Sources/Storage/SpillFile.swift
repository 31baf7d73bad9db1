import CRocks
import Glibc
import PipelineCore
import Synchronization
import Transport

/// The keys of steps that are on the disk, in a directory beside the store (``SpillStore``), with RocksDB.
///
/// One thread at a time, the pipeline's, finds and writes keys; the thread of the store syncs them and removes what is no longer
/// needed. The directory is closed with the last reference to this object.
final class SpillFile: SpillStore, @unchecked Sendable {
  /// The directory beside the store at `path`.
  static func path(besideStore path: String) -> String {
    (path.hasSuffix(".db") ? String(path.dropLast(3)) : path) + ".keys"
  }

  /// The owner under which the identity of the store is kept; steps have higher numbers.
  private static let storeIdentity: UInt32 = 0

  private let keys: OpaquePointer
  private let path: String
  /// Whether keys have been written since the last sync.
  private let isUnsynced = Atomic(false)
  /// The owners that have keys here.
  private let owners = Mutex<Set<Int64>>([])

  /// Opens the directory; creates it if there is none.
  ///
  /// Keys of another store, of which a file was copied or replaced, are moved away.
  ///
  /// - Parameter memory: The bytes that may be used to cache keys, and to collect new ones.
  /// - Throws: ``StoreRefusal``.
  init(besideStore store: String, identity: UInt64, memory: Int, log: DiskStore.Log) throws(StoreRefusal) {
    path = Self.path(besideStore: store)
    var opened = try Self.open(path, memory)
    var found: UInt64 = 0
    switch rx_rocks_top(opened, Self.storeIdentity, &found) {
    case 1 where found == identity: break
    case 0: break
    case 1:
      rx_rocks_close(opened, false)
      let aside = Self.unusedName(path + ".foreign")
      guard rename(path, aside) == 0 else {
        throw StoreRefusal(
          "\(path) has the keys of another store and cannot be moved away: \(PosixError("rename", path).message)")
      }
      log(.error, "\(path) has the keys of another store: it was renamed to \(aside)")
      opened = try Self.open(path, memory)
    default:
      defer { rx_rocks_close(opened, false) }
      throw StoreRefusal("\(path) cannot be read: \(Self.failure)")
    }
    keys = opened
    if !rx_rocks_write(keys, Self.storeIdentity, identity) || !rx_rocks_sync(keys) {
      throw StoreRefusal("\(path) cannot be written: \(Self.failure)")
    }
    guard let known = readOwners() else { throw StoreRefusal("\(path) cannot be read: \(Self.failure)") }
    owners.withLock { $0 = known }
  }

  deinit { rx_rocks_close(keys, owners.withLock(\.isEmpty)) }

  private static func open(_ path: String, _ memory: Int) throws(StoreRefusal) -> OpaquePointer {
    // RocksDB creates files as the umask permits, but others must not read keys. If this fails, the library says why.
    mkdir(path, 0o700)
    var why = [CChar](repeating: 0, count: 512)
    guard let opened = rx_rocks_open(path, memory, &why, why.count) else {
      let reason = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      throw rx_rocks_load(nil, 0)
        ? StoreRefusal("\(path) cannot be opened: \(reason)")
        : StoreRefusal("'state' needs RocksDB, which cannot be loaded (\(reason)): install the package librocksdb7.8")
    }
    return opened
  }

  private static func unusedName(_ stem: String) -> String {
    var number = 1
    while access("\(stem)-\(number)", F_OK) == 0 { number += 1 }
    return "\(stem)-\(number)"
  }

  /// The reason of the last failure on this thread.
  private static var failure: String { String(cString: rx_rocks_failure()) }

  private func readOwners() -> Set<Int64>? {
    var found = [UInt32](repeating: 0, count: 64)
    while true {
      let count = rx_rocks_owners(keys, &found, found.count)
      guard count >= 0 else { return nil }
      if count <= found.count {
        return Set(found.prefix(count).filter { $0 != Self.storeIdentity }.map { Int64($0) })
      }
      found = [UInt32](repeating: 0, count: count)
    }
  }

  /// The highest owner that has keys here; 0: none has.
  var lastOwner: Int64 { owners.withLock { $0.max() ?? 0 } }

  /// The bytes of the files.
  var fileBytes: Int { Int(clamping: rx_rocks_file_bytes(keys)) }

  // MARK: Keys

  func find(_ key: UnsafeRawBufferPointer, of owner: Int64) throws(SpillFault) -> SpilledValue? {
    var value = (rank: UInt64(0), time: Int64(0))
    var length = 0
    let result = withUnsafeMutableBytes(of: &value) {
      rx_rocks_find(keys, UInt32(owner), key.baseAddress, key.count, $0.baseAddress, $0.count, &length)
    }
    switch result {
    case 0: return nil
    case 1: return SpilledValue(rank: Int(clamping: value.rank), time: value.time)
    default: throw SpillFault(Self.failure)
    }
  }

  func write(
    _ keys: [(key: UnsafeRawBufferPointer, value: SpilledValue)], of owner: Int64, top: Int
  ) throws(SpillFault) {
    for (key, value) in keys {
      let head = (rank: UInt64(value.rank), time: value.time)
      withUnsafeBytes(of: head) { bytes in
        rx_rocks_put(self.keys, UInt32(owner), key.baseAddress, key.count, bytes.baseAddress, bytes.count)
      }
    }
    guard rx_rocks_write(self.keys, UInt32(owner), UInt64(top)) else { throw SpillFault(Self.failure) }
    isUnsynced.store(true, ordering: .releasing)
    owners.withLock { _ = $0.insert(owner) }
  }

  func top(of owner: Int64) throws(SpillFault) -> Int? {
    var top: UInt64 = 0
    switch rx_rocks_top(keys, UInt32(owner), &top) {
    case 0: return nil
    case 1: return Int(clamping: top)
    default: throw SpillFault(Self.failure)
    }
  }

  // MARK: Commits

  /// Makes sure that all keys written so far are on the disk. Called before a commit that no longer has them in pages.
  func sync() throws(DatabaseError) {
    guard isUnsynced.exchange(false, ordering: .acquiringAndReleasing) else { return }
    guard rx_rocks_sync(keys) else {
      isUnsynced.store(true, ordering: .releasing)
      let reason = Self.failure
      // The codes of SQLite for a full disk and for one that fails.
      throw DatabaseError(code: reason.contains("No space") ? 13 : 10, message: "\(path): \(reason)")
    }
  }

  /// Called when a state with these owners is on the disk: removes the keys of all others.
  /// - Returns: Why some cannot be removed; nil: all are.
  func keep(_ spilled: [SpilledOwner]) -> String? {
    let floors = spilled.map {
      rx_rocks_floor(owner: UInt32($0.owner), rank: UInt64(clamping: $0.least.rank), time: $0.least.time)
    }
    rx_rocks_set_floors(keys, floors, floors.count)
    let kept = Set(spilled.map(\.owner))
    for gone in owners.withLock({ $0.subtracting(kept) }) {
      guard rx_rocks_remove(keys, UInt32(gone)) else { return Self.failure }
      owners.withLock { _ = $0.remove(gone) }
    }
    return nil
  }
}
