/// `text` of streams, and `lines`: each line is a string, without its line feed or CRLF. Empty lines are events too.
final class LineDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8

  init(_ options: DecoderOptions) { invalidUTF8 = options.invalidUTF8 }

  var framing: Framing { .lines }

  func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool {
    let text = slab.bytes
    guard !text.isEmpty, offset > 0 || text.byteOrderMarkLength == 0, UTF8Text.isValid(text) else { return false }
    rows.holdLines(text, offset: offset, in: slab)
    return true
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    if UTF8Text.isValid(text) {
      text.forEachLine(from: first) { line, at in
        rows.append(.string(line), offset: offset &+ Int64(at))
      }
      return
    }
    text.forEachLine(from: first) { line, at in
      appendText(line, offset: offset &+ Int64(at), invalidUTF8, arena, rows)
    }
  }
}

/// `whole`, and `text` of bodies: the whole input is one string.
final class WholeDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8

  init(_ options: DecoderOptions) { invalidUTF8 = options.invalidUTF8 }

  var framing: Framing { .whole }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    appendText(text.part(first, text.count), offset: offset, invalidUTF8, arena, rows)
  }
}

/// `bytes`: each range of the input is an event, unchanged and unchecked.
final class BytesDecoder: EventDecoder {
  var framing: Framing { .chunks }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    // The end of a stream is not an event; an empty body is one.
    if range.isEmpty, offset > 0 { return }
    rows.append(.bytes(slab.bytes.part(range.lowerBound, range.upperBound)), offset: offset)
  }
}

/// Appends a string, or applies `invalidUTF8` to bytes that are not UTF-8.
private func appendText(
  _ text: UnsafeRawBufferPointer, offset: Int64, _ invalidUTF8: InvalidUTF8, _ arena: Arena, _ rows: RowBatch
) {
  guard let at = UTF8Text.firstError(text) else {
    rows.append(.string(text), offset: offset)
    return
  }
  switch invalidUTF8 {
  case .reject: rows.reject(text, offset: offset, .invalidUTF8(at: at))
  case .replace: rows.append(.string(UTF8Text.repaired(text, into: arena)), offset: offset)
  case .bytes: rows.append(.bytes(text), offset: offset)
  }
}

extension InvalidUTF8 {
  /// The line, repaired if `invalidUTF8` says so; nil if the row was rejected.
  func admit(
    _ line: UnsafeRawBufferPointer, offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) -> UnsafeRawBufferPointer? {
    guard let at = UTF8Text.firstError(line) else { return line }
    if self == .replace { return UTF8Text.repaired(line, into: arena) }
    rows.reject(line, offset: offset, .invalidUTF8(at: at))
    return nil
  }
}
