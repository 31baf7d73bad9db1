/// The type as which a column is read: SQLite stores a type with each value.
package enum ColumnKind: String, ChoiceParameter {
  case int, double, string, bytes, bool, timestamp, any
  package var help: String {
    switch self {
    case .int: "an integer"
    case .double: "a number, also where an integer is stored"
    case .string: "a text"
    case .bytes: "a blob"
    case .bool: "the integers 0 and 1, as false and true"
    case .timestamp: "a text as of RFC 3339 or of SQLite's `datetime`, which is UTC, or seconds since 1970"
    case .any: "whatever is stored"
    }
  }

  package var type: ExpressionType {
    switch self {
    case .int: .int
    case .double: .double
    case .string: .string
    case .bytes: .bytes
    case .bool: .bool
    case .timestamp: .timestamp
    case .any: .dyn
    }
  }
}

/// Turns rows into events: maps from column to value. A row's offset is its index.
package final class DatabaseDecoder: EventDecoder {
  package var framing: Framing { .whole }
  private let rows: DatabaseRows
  private let kinds: [(index: Int, name: String, kind: ColumnKind)]

  /// - Parameter columns: The columns that events have, with their types; each must exist. Empty: all columns, as they
  ///   are stored.
  package init(_ rows: DatabaseRows, _ columns: [(name: String, kind: ColumnKind)]) {
    self.rows = rows
    kinds =
      columns.isEmpty
      ? rows.columns.enumerated().map { ($0, $1, .any) }
      : columns.compactMap { column in
        rows.columns.firstIndex(of: column.name).map { ($0, column.name, column.kind) }
      }
  }

  package func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into batch: RowBatch
  ) {
    let names = kinds.map { arena.string($0.name) }
    next: for (number, row) in rows.rows.enumerated() {
      let members = arena.entries(kinds.count)
      for (index, column) in kinds.enumerated() {
        guard let value = Self.value(row[column.index], column.kind, arena) else {
          batch.reject(
            text(row, arena), offset: Int64(number), .column(column.kind.rawValue, name: column.name))
          continue next
        }
        members[index] = Entry(key: names[index], value: value)
      }
      batch.append(
        Value(kind: .map, pointer: members.baseAddress, length: members.count), offset: Int64(number))
    }
  }

  /// A row as JSON, for the errors output.
  private func text(_ row: [DatabaseValue], _ arena: Arena) -> UnsafeRawBufferPointer {
    let value = arena.map(
      zip(rows.columns, row).map { (key: arena.string($0), value: Self.value($1, .any, arena) ?? .null) })
    let buffer = OutputBuffer()
    _ = JSONWriter.append(value, to: buffer)
    return Array(buffer.bytes).withUnsafeBytes { arena.copy($0) }
  }

  /// The value as this type; nil: it is not of that type.
  private static func value(_ stored: DatabaseValue, _ kind: ColumnKind, _ arena: Arena) -> Value? {
    switch (stored, kind) {
    case (.null, _): return .null
    case (.int(let number), .int), (.int(let number), .any): return .int(number)
    case (.int(let number), .double): return .double(Double(number))
    case (.int(let number), .bool): return number == 0 || number == 1 ? .bool(number == 1) : nil
    case (.int(let number), .timestamp): return timestamp(number, 0)
    case (.real(let number), .double), (.real(let number), .any): return .double(number)
    case (.real(let number), .timestamp):
      guard let seconds = Int64(exactly: number.rounded(.down)) else { return nil }
      return timestamp(seconds, UInt32(min(999_999_999, ((number - number.rounded(.down)) * 1e9).rounded())))
    case (.text(let bytes), .string), (.text(let bytes), .any):
      let copy = bytes.withUnsafeBytes { arena.copy($0) }
      if UTF8Text.isValid(copy) { return .string(copy) }
      return kind == .any ? .bytes(copy) : nil
    case (.text(let bytes), .timestamp):
      // `datetime('now')` has no zone.
      let text = bytes.count == 19 || bytes.count == 23 ? bytes + [UInt8(ascii: "Z")] : bytes
      return text.withUnsafeBytes { FieldType.timestamp.read($0) }.flatMap { $0.is(.timestamp) ? $0 : nil }
    case (.blob(let bytes), .bytes), (.blob(let bytes), .any):
      return .bytes(bytes.withUnsafeBytes { arena.copy($0) })
    default: return nil
    }
  }

  private static func timestamp(_ seconds: Int64, _ nanoseconds: UInt32) -> Value? {
    guard seconds >= -62_135_596_800, seconds <= 253_402_300_799 else { return nil }
    return .timestamp(seconds: seconds, nanoseconds: nanoseconds)
  }
}
