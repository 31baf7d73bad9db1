/// Keys of steps that are on the disk, because they have no room in memory.
///
/// Each key belongs to an owner, a step in a store (``StatePage/owner``), and has a value. A key is written here only after a
/// commit has it in a page, and its page is left out of later commits only once it is here. So what is found here is right
/// wherever the pages of the last commit have nothing else, after whatever crash.
///
/// `Storage` implements this protocol with RocksDB, tests in memory. The calls are made in turns.
package protocol SpillStore: AnyObject, Sendable {
  /// The value of a key; nil: the owner has no such key here. It may be a value that is no longer needed
  /// (``SpilledOwner``).
  func find(_ key: UnsafeRawBufferPointer, of owner: Int64) throws(SpillFault) -> SpilledValue?

  /// Makes changes, all or none. ``find(_:of:)`` and ``marks(_:of:from:count:)`` see them from now on; they are on the disk before the next
  /// commit.
  ///
  /// - Parameter top: The highest rank that any key of the owner has had here.
  func write(_ changes: [SpillChange], of owner: Int64, top: Int) throws(SpillFault)

  /// The first `count` marks of an index that are not before `from`, in their order.
  func marks(_ index: UInt8, of owner: Int64, from: SpilledMark, count: Int) throws(SpillFault) -> [SpilledMark]

  /// The highest rank that any key of the owner has had here; nil: the owner is unknown.
  func top(of owner: Int64) throws(SpillFault) -> Int?
}

/// A change of a key on the disk.
package struct SpillChange {
  package var key: UnsafeRawBufferPointer
  /// What the key has from now on; nil: it is removed.
  package var value: SpilledValue?
  /// The marks that it gets, and those that it loses: its times in indexes.
  package var marks: [(index: UInt8, time: Int64)]
  package var formerMarks: [(index: UInt8, time: Int64)]

  package init(
    _ key: UnsafeRawBufferPointer, _ value: SpilledValue?, marks: [(index: UInt8, time: Int64)] = [],
    formerMarks: [(index: UInt8, time: Int64)] = []
  ) {
    (self.key, self.value, self.marks, self.formerMarks) = (key, value, marks, formerMarks)
  }
}

/// The place of a key in an index: marks are in the order of their times, and of equal ones in the order of the keys' bytes.
package struct SpilledMark: Sendable, Equatable, Comparable {
  package var time: Int64
  package var key: [UInt8]

  package init(time: Int64, key: [UInt8]) { (self.time, self.key) = (time, key) }

  /// Before all marks.
  package static let first = SpilledMark(time: .min, key: [])

  /// The place directly behind it.
  package var next: SpilledMark { SpilledMark(time: time, key: key + [0]) }

  /// Calls `body` with the bytes of the key.
  func withKey<T>(_ body: (UnsafeRawBufferPointer) throws(SpillFault) -> T) throws(SpillFault) -> T {
    let result = key.withUnsafeBytes { bytes -> Result<T, SpillFault> in
      do throws(SpillFault) { return .success(try body(bytes)) } catch { return .failure(error) }
    }
    return try result.get()
  }

  package static func < (one: SpilledMark, other: SpilledMark) -> Bool {
    one.time != other.time ? one.time < other.time : one.key.lexicographicallyPrecedes(other.key)
  }
}

/// What is known of a key on the disk.
package struct SpilledValue: Sendable, Equatable {
  /// The order in which the keys of an owner came.
  package var rank: Int
  /// In nanoseconds, relative to an origin that the owner has chosen.
  package var time: Int64
  /// The step's own data for the key.
  package var payload: [UInt8]

  package init(rank: Int, time: Int64, payload: [UInt8] = []) {
    (self.rank, self.time, self.payload) = (rank, time, payload)
  }
}

/// A step of a committed state that has keys on the disk. All other owners are gone: their keys are removed.
package struct SpilledOwner: Sendable, Equatable {
  package var owner: Int64
  /// Keys of a lower rank or time are no longer needed, and may be removed.
  package var least: SpilledValue
  /// Whether keys have been moved to the disk; false: some may be, before the commit is finished.
  package var hasKeys: Bool

  package init(owner: Int64, least: SpilledValue, hasKeys: Bool = true) {
    (self.owner, self.least, self.hasKeys) = (owner, least, hasKeys)
  }
}

/// Keys on the disk that cannot be read or written.
package struct SpillFault: Error {
  /// The reason, as a clause.
  package var message: String
  package init(_ message: String) { self.message = message }
}
