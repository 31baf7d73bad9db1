/// How lines of `key=value` pairs are read.
package struct LogfmtDecoding: Sendable, Equatable {
  /// The types of fields by name; other fields are strings.
  package var types: [String: FieldType] = [:]
  package init() {}
}

/// `logfmt`: `level=info msg="with \"spaces\"" retry`.
///
/// A key without `=` is `true`; a key with an empty value is `""`. Quoted values use JSON's escapes. If a key is
/// repeated, its first value counts. Blank lines are skipped.
final class LogfmtDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  /// Whether each range is one row, line breaks included.
  private let isOneRow: Bool
  private let types: [(name: [UInt8], type: FieldType)]
  /// The keys of a line are compared pairwise, so their number must be limited.
  private static let fieldLimit = 1_000
  private let members = ScratchBuffer<Entry>()

  init(_ options: DecoderOptions) {
    invalidUTF8 = options.invalidUTF8
    isOneRow = options.unit == .row
    types = options.logfmt.types.map { (Array($0.key.utf8), $0.value) }
  }

  var framing: Framing { .lines }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    text.forEachRow(from: first, isOne: isOneRow) { line, at in
      if line.isBlank { return }
      let lineOffset = offset &+ Int64(at)
      guard let line = invalidUTF8.admit(line, offset: lineOffset, arena, rows) else { return }
      if let reason = read(line, arena) {
        rows.reject(line, offset: lineOffset, reason)
      } else {
        let members = members.elements
        let entries = arena.entries(members.count)
        _ = entries.update(fromContentsOf: members)
        rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: lineOffset)
      }
    }
  }

  /// Fills `members`, or returns why the line is rejected.
  private func read(_ line: UnsafeRawBufferPointer, _ arena: Arena) -> RejectReason? {
    let members = members
    members.clear()
    var at = 0
    while true {
      while at < line.count, line[at] <= 0x20 { at += 1 }
      if at == line.count { return nil }
      let start = at
      while at < line.count, line[at] > 0x20, line[at] != UInt8(ascii: "=") { at += 1 }
      if at == start { return .emptyKey(at: at) }
      if members.count == Self.fieldLimit { return .tooManyFields(limit: Self.fieldLimit) }
      let key = Value.string(line.part(start, at))
      guard at < line.count, line[at] == UInt8(ascii: "=") else {
        append(key, .bool(true))
        continue
      }
      at += 1
      if at < line.count, line[at] == UInt8(ascii: "\"") {
        guard let end = closingQuote(line, at + 1) else { return .quote(at: at) }
        let inside = line.part(at + 1, end)
        var value = Value.string(inside)
        if inside.offset(of: UInt8(ascii: "\\")) != nil {
          value.flags = 1
          value = JSONParser.unescape(value, into: arena)
        }
        if let reason = append(key, typed: value) { return reason }
        at = end + 1
        if at < line.count, line[at] > 0x20 { return .quote(at: at) }
      } else {
        let first = at
        while at < line.count, line[at] > 0x20 { at += 1 }
        if let reason = append(key, typed: .string(line.part(first, at))) { return reason }
      }
    }
  }

  private func closingQuote(_ line: UnsafeRawBufferPointer, _ start: Int) -> Int? {
    var at = start
    while at < line.count {
      if line[at] == UInt8(ascii: "\"") { return at }
      at += line[at] == UInt8(ascii: "\\") ? 2 : 1
    }
    return nil
  }

  private func append(_ key: Value, typed value: Value) -> RejectReason? {
    guard !types.isEmpty else {
      append(key, value)
      return nil
    }
    for (name, type) in types where name.withUnsafeBytes({ $0.equals(key.rawBytes) }) {
      guard let read = type.read(value.rawBytes) else {
        return .type(type, field: String(decoding: key.rawBytes, as: UTF8.self))
      }
      append(key, read)
      return nil
    }
    append(key, value)
    return nil
  }

  private func append(_ key: Value, _ value: Value) {
    let bytes = key.rawBytes
    for member in members.elements where member.key.rawBytes.equals(bytes) { return }
    members.append(Entry(key: key, value: value))
  }
}
