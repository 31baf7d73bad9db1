/// A table of a running pipeline. Keys are given as ``KeyText`` represents them.
final class RunningTable {
  private(set) var rows = TableRows()
  /// The key of ``row``; empty: none, which no row has.
  let key = OutputBuffer(capacity: 64)
  /// Called when the table's own source has sent its initial data, and the table has stored it.
  var sourceHasLoaded: (() -> Void)?
  /// Counts the lookups; nil: they are not counted.
  var counts: UnsafeMutablePointer<LookupCounts>?
  /// Called once, if a key is searched for of a kind that no key of the table has: the type of the key and those of the table's.
  var warns: ((String, [String]) -> Void)?

  /// The row with that key, absent if there is none; valid until the end of the turn.
  var row: Value {
    counts?.pointee.all &+= 1
    if let row = rows[key.bytes] { return row }
    counts?.pointee.misses &+= 1
    if let warns, rows.count > 0, let kind = key.bytes.first.flatMap(KeyKind.init), !rows.kinds.contains(kind.name) {
      self.warns = nil
      warns(kind.name, rows.kinds)
    }
    return .absent
  }

  /// Replaces all rows.
  func replace(by new: TableRows, retiring arena: Arena) {
    // Events of this turn may have old rows.
    arena.keep(rows)
    rows = new
  }
}

/// How often expressions looked up a row of a table, and how often there was none.
struct LookupCounts {
  var all: UInt64 = 0
  var misses: UInt64 = 0
}

/// The rows of a table (`tables:` in a file), which expressions read by key. Used in turns only.
final class TableRows {
  private let keys = KeyTable()
  /// The rows, by the number of their key.
  private var rows: [OwnedValue?] = []
  /// The bytes of the rows and of their keys.
  private(set) var bytes = 0

  /// The kinds of all keys that the table has had, as bits.
  private var known: UInt64 = 0

  var count: Int { keys.count }
  /// One more than the largest number of a key.
  var numbers: Int { rows.count }

  /// The row with that key; valid until the end of the turn.
  subscript(key: UnsafeRawBufferPointer) -> Value? { count == 0 ? nil : number(of: key).flatMap { rows[$0]?.value } }

  /// The types of the keys that were ever there.
  var kinds: [String] {
    KeyKind.allCases.filter { known & 1 << UInt64($0.rawValue) != 0 }.map(\.name)
  }

  /// The number of the row with that key, or nil.
  func number(of key: UnsafeRawBufferPointer) -> Int? { keys.find(key, keys.hash(key)) }

  /// Adds the row, or replaces the one with that key; returns its number.
  func put(_ row: Value, _ key: UnsafeRawBufferPointer, retiring arena: Arena) -> Int {
    let hash = keys.hash(key)
    if let number = keys.find(key, hash) {
      let before = rows[number]?.byteCount ?? 0
      // Events of this turn may have the old row.
      rows[number]?.keep(in: arena)
      rows[number] = OwnedValue(row)
      bytes += (rows[number]?.byteCount ?? 0) - before
      return number
    }
    let number = keys.insert(key, hash)
    set(OwnedValue(row), number)
    return number
  }

  private func set(_ row: OwnedValue, _ number: Int) {
    while rows.count <= number { rows.append(nil) }
    let key = keys.text(number)
    bytes += row.byteCount + key.count
    if let kind = key.first { known |= 1 << UInt64(kind & 63) }
    rows[number] = row
  }

  func remove(_ number: Int, retiring arena: Arena) {
    guard let row = rows[number] else { return }
    row.keep(in: arena)
    bytes -= row.byteCount + keys.text(number).count
    rows[number] = nil
    keys.remove(number)
  }

  // MARK: State

  /// The key and the row with this number; nil: there is none.
  func entry(_ number: Int) -> (key: UnsafeRawBufferPointer, row: OwnedValue)? {
    rows[number].map { (keys.text(number), $0) }
  }

  /// Adds a row of a saved state; false: its key was there.
  func restore(_ row: OwnedValue, _ key: ArraySlice<UInt8>, at number: Int?) -> Bool {
    guard let number = keys.insertNew(key, at: number) else { return false }
    set(row, number)
    return true
  }
}
