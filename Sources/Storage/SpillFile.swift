import CRocks
import Glibc
import PipelineCore
import Synchronization
import Transport

/// The keys of steps that are on the disk, in a directory alongside the store (``SpillStore``), with RocksDB.
///
/// A directory is created with the first key, since most pipelines never need one. One thread at a time, the pipeline's, finds and
/// writes keys; the thread of the store syncs them and removes what is no longer needed. The directory is closed with the last
/// reference to this object.
final class SpillFile: SpillStore, @unchecked Sendable {
  /// The directory alongside the store at `path`.
  static func path(besideStore path: String) -> String {
    (path.hasSuffix(".db") ? String(path.dropLast(3)) : path) + ".keys"
  }

  /// The owner under which the identity of the store is kept; steps have higher numbers.
  private static let storeIdentity: UInt32 = 0

  /// Nil until the directory exists. The store's thread reads it only after ``isUnsynced`` or ``owners`` shows that
  /// there are keys.
  private var keys: OpaquePointer?
  private let path: String
  private let identity: UInt64
  private let memory: Int
  private let log: DiskStore.Log
  /// Whether keys have been written since the last sync.
  private let isUnsynced = Atomic(false)
  /// The owners that have keys here.
  private let owners = Mutex<Set<Int64>>([])

  /// Opens the directory, if there is one.
  ///
  /// - Parameter memory: The bytes that may be used to cache keys, and to collect new ones.
  /// - Throws: ``StoreRefusal``, also if the library is not installed.
  init(
    besideStore store: String, identity: UInt64, memory: Int, log: @escaping DiskStore.Log
  ) throws(StoreRefusal) {
    path = Self.path(besideStore: store)
    (self.identity, self.memory, self.log) = (identity, memory, log)
    var why = [CChar](repeating: 0, count: 512)
    guard rx_rocks_load(&why, why.count) else {
      throw StoreRefusal(
        "'state' needs RocksDB, which cannot be loaded (\(Self.text(why))): install the package librocksdb7.8")
    }
    if access(path, F_OK) == 0 { keys = try open() }
  }

  /// Opens the directory; creates it if there is none.
  ///
  /// Keys that belong to another store, because a file was copied or replaced, are moved aside.
  private func open() throws(StoreRefusal) -> OpaquePointer {
    var opened = try openDirectory()
    var found: UInt64 = 0
    let result = rx_rocks_top(opened, Self.storeIdentity, &found)
    if result == 1, found != identity {
      rx_rocks_close(opened, false)
      let aside = Self.unusedName(path + ".foreign")
      guard rename(path, aside) == 0 else {
        throw StoreRefusal(
          "\(path) has the keys of another store and cannot be moved away: \(PosixError("rename", path).message)")
      }
      log(.error, "\(path) has the keys of another store: it was renamed to \(aside)")
      opened = try openDirectory()
    }
    var known: Set<Int64>?
    if result >= 0, rx_rocks_write(opened, Self.storeIdentity, identity), rx_rocks_sync(opened) {
      known = Self.owners(in: opened)
    }
    guard let known else {
      defer { rx_rocks_close(opened, false) }
      throw StoreRefusal("\(path) cannot be used: \(Self.failure)")
    }
    owners.withLock { $0 = known }
    return opened
  }

  deinit { if let keys { rx_rocks_close(keys, owners.withLock(\.isEmpty)) } }

  private func openDirectory() throws(StoreRefusal) -> OpaquePointer {
    // RocksDB creates files as the umask permits, but others must not read keys. If this fails, the library says why.
    mkdir(path, 0o700)
    var why = [CChar](repeating: 0, count: 512)
    guard let opened = rx_rocks_open(path, memory, &why, why.count) else {
      throw StoreRefusal("\(path) cannot be opened: \(Self.text(why))")
    }
    return opened
  }

  private static func text(_ characters: [CChar]) -> String {
    String(decoding: characters.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func unusedName(_ stem: String) -> String {
    var number = 1
    while access("\(stem)-\(number)", F_OK) == 0 { number += 1 }
    return "\(stem)-\(number)"
  }

  /// The reason of the last failure on this thread.
  private static var failure: String { String(cString: rx_rocks_failure()) }

  private static func owners(in keys: OpaquePointer) -> Set<Int64>? {
    var found = [UInt32](repeating: 0, count: 64)
    while true {
      let count = rx_rocks_owners(keys, &found, found.count)
      guard count >= 0 else { return nil }
      if count <= found.count {
        return Set(found.prefix(count).filter { $0 != storeIdentity }.map { Int64($0) })
      }
      found = [UInt32](repeating: 0, count: count)
    }
  }

  /// The highest owner that has keys here; 0: none has.
  var lastOwner: Int64 { owners.withLock { $0.max() ?? 0 } }

  // MARK: Keys

  func find(_ key: UnsafeRawBufferPointer, of owner: Int64) throws(SpillFault) -> SpilledValue? {
    guard let keys else { return nil }
    // Most values are short.
    var room = 256
    while true {
      var length = 0
      let found = withUnsafeTemporaryAllocation(byteCount: room, alignment: 8) {
        bytes -> Result<SpilledValue?, SpillFault> in
        let result = rx_rocks_find(
          keys, UInt32(owner), key.baseAddress, key.count, bytes.baseAddress, bytes.count, &length)
        guard result == 1, length <= bytes.count else {
          return result < 0 ? .failure(SpillFault(Self.failure)) : .success(nil)
        }
        return .success(
          SpilledValue(
            rank: Int(clamping: bytes.load(as: UInt64.self)), time: bytes.load(fromByteOffset: 8, as: Int64.self),
            payload: Array(bytes[Int(RX_ROCKS_HEAD)..<length])))
      }
      if length <= room { return try found.get() }
      room = length
    }
  }

  func write(_ changes: [SpillChange], of owner: Int64, top: Int) throws(SpillFault) {
    if keys == nil {
      do throws(StoreRefusal) { keys = try open() } catch { throw SpillFault(error.message) }
    }
    let number = UInt32(owner)
    for change in changes {
      let (key, length) = (change.key.baseAddress, change.key.count)
      // A mark may be among both: the last change of it in the batch holds.
      for mark in change.formerMarks { rx_rocks_mark(keys, number, mark.index, mark.time, key, length, false) }
      for mark in change.marks { rx_rocks_mark(keys, number, mark.index, mark.time, key, length, true) }
      guard let value = change.value else {
        rx_rocks_delete(keys, number, key, length)
        continue
      }
      let head = (rank: UInt64(value.rank), time: value.time)
      withUnsafeBytes(of: head) { bytes in
        guard !value.payload.isEmpty else {
          return rx_rocks_put(keys, number, key, length, bytes.baseAddress, bytes.count)
        }
        let whole = Array(bytes) + value.payload
        rx_rocks_put(keys, number, key, length, whole, whole.count)
      }
    }
    guard rx_rocks_write(keys, number, UInt64(top)) else { throw SpillFault(Self.failure) }
    owners.withLock { _ = $0.insert(owner) }
    isUnsynced.store(true, ordering: .releasing)
  }

  func marks(
    _ index: UInt8, of owner: Int64, from: SpilledMark, count: Int
  ) throws(SpillFault) -> [SpilledMark] {
    guard let keys else { return [] }
    let walk = from.key.withUnsafeBytes {
      rx_rocks_begin_walk(keys, UInt32(owner), index, from.time, $0.baseAddress, $0.count)
    }
    var found: [SpilledMark] = []
    var (time, key, length): (Int64, UnsafeRawPointer?, Int) = (0, nil, 0)
    while found.count < count, rx_rocks_next(walk, &time, &key, &length) {
      found.append(SpilledMark(time: time, key: Array(UnsafeRawBufferPointer(start: key, count: length))))
    }
    guard rx_rocks_end_walk(walk) else { throw SpillFault(Self.failure) }
    return found
  }

  func top(of owner: Int64) throws(SpillFault) -> Int? {
    guard let keys else { return nil }
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
    guard owners.withLock({ !$0.isEmpty }) else { return nil }
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
