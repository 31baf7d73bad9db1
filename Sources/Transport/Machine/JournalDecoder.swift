internal import CJournal
import PipelineCore

/// Turns entries as `rx_journal_read` writes them into events: maps of the fields by their names in the journal.
///
/// A field that occurs several times becomes a list. Fields that are numbers or times by definition
/// (systemd.journal-fields(7)) are typed; a value that violates the definition stays a text. A value that is not UTF-8
/// is bytes.
final class JournalDecoder: EventDecoder {
  var framing: Framing { .whole }
  private var members: [Entry] = []

  /// Fields that are whole numbers.
  private static let numbers: [StaticString] = [
    "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_PID", "ERRNO", "CODE_LINE", "TID", "EXIT_STATUS", "_PID", "_UID", "_GID",
    "_AUDIT_SESSION", "_AUDIT_LOGINUID", "_AUDIT_TYPE", "_AUDIT_ID", "_SYSTEMD_OWNER_UID", "OBJECT_PID", "OBJECT_UID",
    "OBJECT_GID", "OBJECT_AUDIT_SESSION", "OBJECT_AUDIT_LOGINUID", "OBJECT_SYSTEMD_OWNER_UID", "COREDUMP_PID",
    "COREDUMP_UID", "COREDUMP_GID", "COREDUMP_SIGNAL",
  ]
  /// Only journald writes these fields, so their values are well-formed.
  private static func isTime(_ name: UnsafeRawBufferPointer) -> Bool {
    equals(name, "_SOURCE_REALTIME_TIMESTAMP")
  }

  private static func equals(_ name: UnsafeRawBufferPointer, _ text: StaticString) -> Bool {
    name.count == text.utf8CodeUnitCount
      && name.elementsEqual(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    var at = range.lowerBound
    func take(_ count: Int) -> UnsafeRawBufferPointer {
      defer { at += count }
      return UnsafeRawBufferPointer(rebasing: slab.bytes[at..<(at + count)])
    }
    let head = take(MemoryLayout<rx_journal_entry_head>.size).loadUnaligned(as: rx_journal_entry_head.self)
    let cursor = take(Int(head.cursor_length))
    members.removeAll(keepingCapacity: true)
    add("__CURSOR", .string(cursor))
    add("__REALTIME_TIMESTAMP", Self.timestamp(microseconds: head.realtime))
    add("__MONOTONIC_TIMESTAMP", Self.duration(microseconds: head.monotonic))
    var cut: [Value] = []
    for _ in 0..<head.fields {
      let field = take(MemoryLayout<rx_journal_field_head>.size).loadUnaligned(as: rx_journal_field_head.self)
      let name = take(Int(field.name_length))
      let bytes = take(Int(field.length))
      let key = Value.string(name)
      if field.is_cut != 0 { cut.append(key) }
      add(key, Self.value(of: name, bytes, isCut: field.is_cut != 0), arena)
    }
    if !cut.isEmpty { add("__TRUNCATED", arena.list(cut)) }
    let entries = arena.entries(members.count)
    _ = entries.update(fromContentsOf: members)
    rows.append(
      Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: JournalReader.number(of: cursor))
  }

  private func add(_ key: StaticString, _ value: Value) { members.append(Entry(key: .literal(key), value: value)) }

  private func add(_ key: Value, _ value: Value, _ arena: Arena) {
    guard let index = members.firstIndex(where: { $0.key.rawBytes.elementsEqual(key.rawBytes) }) else {
      return members.append(Entry(key: key, value: value))
    }
    let earlier = members[index].value
    members[index].value = arena.list((earlier.is(.list) ? Array(earlier.elements) : [earlier]) + [value])
  }

  private static func value(of name: UnsafeRawBufferPointer, _ bytes: UnsafeRawBufferPointer, isCut: Bool) -> Value {
    if !isCut, let first = name.first {
      // The first character rules out most fields.
      if first == UInt8(ascii: "_"), isTime(name), let time = number(bytes), time >= 0 {
        return timestamp(microseconds: UInt64(time))
      }
      if first == UInt8(ascii: "_"), equals(name, "_SOURCE_MONOTONIC_TIMESTAMP"), let time = number(bytes), time >= 0 {
        return duration(microseconds: UInt64(time))
      }
      if bytes.count < 20, let digit = bytes.first, digit &- 0x30 < 10 || digit == UInt8(ascii: "-"),
        numbers.contains(where: { equals(name, $0) }), let number = number(bytes)
      {
        return .int(number)
      }
    }
    if UTF8Text.isValid(bytes) { return .string(bytes) }
    if isCut {
      // A value may have been cut within a character.
      for less in 1...3 where bytes.count > less {
        let shorter = UnsafeRawBufferPointer(rebasing: bytes.dropLast(less))
        if UTF8Text.isValid(shorter) { return .string(shorter) }
      }
    }
    return .bytes(bytes)
  }

  /// Parses a whole number in decimal digits; nil: the text is not one, or too large.
  private static func number(_ bytes: UnsafeRawBufferPointer) -> Int64? {
    let isNegative = bytes.first == UInt8(ascii: "-")
    let digits = isNegative ? bytes.dropFirst() : bytes[...]
    guard !digits.isEmpty else { return nil }
    var value: Int64 = 0
    for byte in digits {
      guard byte &- 0x30 < 10 else { return nil }
      let (product, isLarge) = value.multipliedReportingOverflow(by: 10)
      let (sum, isLarger) = product.addingReportingOverflow(Int64(byte &- 0x30))
      if isLarge || isLarger { return nil }
      value = sum
    }
    return isNegative ? -value : value
  }

  private static func timestamp(microseconds: UInt64) -> Value {
    .timestamp(seconds: Int64(microseconds / 1_000_000), nanoseconds: UInt32(microseconds % 1_000_000) * 1000)
  }

  private static func duration(microseconds: UInt64) -> Value {
    .duration(nanoseconds: Int64(min(microseconds, UInt64(Int64.max / 1000))) * 1000)
  }
}
