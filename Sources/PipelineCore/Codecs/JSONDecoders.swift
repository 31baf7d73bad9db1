import CJSON

/// `ndjson`, and `json` of streams: one document per line. Blank lines are skipped.
final class JSONLinesDecoder: EventDecoder {
  private let opener: JSONOpener

  init(_ options: DecoderOptions) { opener = JSONOpener(options) }

  var framing: Framing { .lines }

  func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool {
    let text = slab.bytes
    guard opener.check == .outline, offset > 0 || text.byteOrderMarkLength == 0 else { return false }
    if isPassedOn, let count = rows.countPassThrough(text) {
      rows.holdDocuments(count, text, offset: offset, in: slab)
      return true
    }
    guard let found = rows.index(text), rx_lines_are_sound(rows.lines) else { return false }
    rows.holdDocuments(found, text, offset: offset, in: slab)
    return true
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    guard opener.check == .outline, let found = rows.index(text.part(first, text.count)) else {
      text.forEachLine(from: first) { line, at in append(line, offset: offset &+ Int64(at), arena, rows) }
      return
    }
    let base = text.baseAddress.map { $0 + first }
    for line in found {
      let lineOffset = offset &+ Int64(first) &+ Int64(line.line)
      if line.token != RowBatch.Row.none, let base {
        let kind: Value.Kind = base.load(fromByteOffset: Int(line.start), as: UInt8.self) == 0x7B ? .jsonMap : .jsonList
        let value = Value(kind: kind, pointer: base + Int(line.start), length: Int(line.end &- line.start))
        rows.append(value, offset: lineOffset, token: line.token)
      } else {
        var stop = first &+ Int(line.stop)
        if stop > first &+ Int(line.line), text[stop &- 1] == 0x0D { stop &-= 1 }
        append(text.part(first &+ Int(line.line), stop), offset: lineOffset, arena, rows)
      }
    }
  }

  private func append(_ line: UnsafeRawBufferPointer, offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    let value = opener.parser.open(line, checking: opener.check)
    if value.isError {
      opener.appendFaulty(line, value, offset: offset, arena, rows)
    } else {
      rows.append(value, offset: offset)
    }
  }
}

/// `json` of bodies: one document, or several in a row, each on its own line or not.
///
/// A document that is malformed inside its brackets is rejected alone. After one that never ends, the search for the
/// next document continues at the start of a line.
final class JSONBodyDecoder: EventDecoder {
  private let opener: JSONOpener

  init(_ options: DecoderOptions) { opener = JSONOpener(options) }

  var framing: Framing { .whole }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    var at = offset == 0 ? text.byteOrderMarkLength : 0
    let body = text.part(at, text.count)
    let whole = opener.parser.open(body, checking: opener.check)
    if !whole.isError {
      rows.append(whole, offset: offset &+ Int64(at))
      return
    }
    while true {
      while at < text.count, text.part(at, at + 1).isBlank { at += 1 }
      guard at < text.count, let base = text.baseAddress?.assumingMemoryBound(to: CChar.self) else { return }
      let end = rx_json_document_end(base, text.count, at)
      // The document has no end, or not even a start.
      guard end > at else { return decodeLines(text, at, offset, arena, rows) }
      append(text.part(at, end), offset &+ Int64(at), arena, rows)
      at = end
    }
  }

  /// Reads each line that starts with a bracket as a document; other lines belong to the faulty document before them.
  private func decodeLines(
    _ text: UnsafeRawBufferPointer, _ start: Int, _ offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) {
    var faulty = start
    var fault: RejectReason?
    func rejectFault(_ end: Int) {
      guard let reason = fault else { return }
      var end = end
      while end > faulty, text.part(end - 1, end).isBlank { end -= 1 }
      rows.reject(text.part(faulty, end), offset: offset &+ Int64(faulty), reason)
      fault = nil
    }
    text.forEachLine(from: start) { line, at in
      guard at == start || line.first == UInt8(ascii: "{") || line.first == UInt8(ascii: "[") else { return }
      rejectFault(at)
      let value = opener.parser.open(line, checking: opener.check)
      if let failure = JSONFailure(value) {
        faulty = at
        fault = .json(failure)
      } else {
        rows.append(value, offset: offset &+ Int64(at))
      }
    }
    rejectFault(text.count)
  }

  private func append(
    _ document: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) {
    opener.append(document, offset: offset, arena, rows)
  }
}

/// The common part of the JSON decoders.
final class JSONOpener {
  let parser: JSONParser
  let check: JSONParser.Check
  private let invalidUTF8: InvalidUTF8

  init(_ options: DecoderOptions) {
    parser = JSONParser(limits: options.json.limits)
    check = options.json.check
    invalidUTF8 = options.invalidUTF8
  }

  func append(_ document: UnsafeRawBufferPointer, offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    let value = parser.open(document, checking: check)
    if value.isError {
      appendFaulty(document, value, offset: offset, arena, rows)
    } else {
      rows.append(value, offset: offset)
    }
  }

  /// Handles a document that could not be opened: it is blank, can be repaired, or is rejected.
  @inline(never)
  func appendFaulty(
    _ document: UnsafeRawBufferPointer, _ error: Value, offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) {
    guard let failure = JSONFailure(error), failure.reason != .empty else { return }
    if failure.reason == .invalidUTF8, invalidUTF8 == .replace {
      let value = parser.open(UTF8Text.repaired(document, into: arena), checking: check)
      if !value.isError {
        rows.append(value, offset: offset)
        return
      }
    }
    rows.reject(document, offset: offset, .json(failure))
  }
}
