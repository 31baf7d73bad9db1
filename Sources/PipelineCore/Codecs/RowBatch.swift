import CJSON

/// The rows that a decoder found in a range of the input, in input order, and the rows that it rejected.
///
/// Reused for the next range after ``clear()``, so that decoding does not allocate in the long run. Values point into
/// the slab, the decoder or the turn's arena, and live until the end of the turn. Not thread-safe.
package final class RowBatch {
  /// A future event.
  package struct Row {
    package var value: Value
    /// The input offset of the start of the row, in bytes.
    package var offset: Int64
    /// The index of the row's first token in ``RowBatch/lines``, or ``none``.
    var token: UInt32 = Row.none

    static let none = UInt32.max
  }

  // The class is not thread-safe by contract, and no access lasts longer than a load or a store.
  @exclusivity(unchecked) private var start: UnsafeMutablePointer<Row>
  @exclusivity(unchecked) package private(set) var count = 0
  @exclusivity(unchecked) private var capacity: Int

  /// Rows that are not events. A rejected row does not affect the others.
  package private(set) var rejected: [RejectedRow] = []

  /// The tokens of a range with one JSON document per line. They are found once; the decoder uses them to outline each
  /// document, and ``Projection`` to read paths. Created when first needed.
  private(set) var lines: OpaquePointer?

  package init(capacity: Int = 256) {
    self.capacity = max(capacity, 16)
    start = .allocate(capacity: self.capacity)
  }

  deinit {
    start.deallocate()
    rx_lines_free(lines)
  }

  /// The contents of the batch, if it has no rows.
  enum Form {
    /// The batch has rows.
    case rows
    /// The documents of an indexed block, all with a valid outline; `text` is the block, `offset` its input offset.
    case documents(UnsafeBufferPointer<rx_line>, text: UnsafeRawBufferPointer, offset: Int64)
    /// Like `documents`, but only counted: ``indexDocuments()`` finds the documents.
    case lazy(UnsafeRawBufferPointer, offset: Int64)
    /// The lines of a UTF-8 text, each a string; `offset` is its input offset.
    case lines(UnsafeRawBufferPointer, offset: Int64)
  }
  private(set) var form = Form.rows
  /// Set only if the form is not `rows`: the slab consists exactly of the rows, each with a line feed, so it can be
  /// written unchanged if each event is to be a line.
  private(set) var passThrough: EncodedEvents?

  /// Sets the form to the documents found by `rx_lines_rows`; `slab` contains the whole block.
  func holdDocuments(
    _ lines: UnsafeBufferPointer<rx_line>, _ text: UnsafeRawBufferPointer, offset: Int64, in slab: Slab
  ) {
    form = .documents(lines, text: text, offset: offset)
    if rx_lines_pass_through(self.lines) {
      passThrough = EncodedEvents(bytes: text, count: lines.count, memory: slab, lines: .documents)
    }
  }

  /// Sets the form to `count` documents that pass through, without indexing them.
  func holdDocuments(_ count: Int, _ text: UnsafeRawBufferPointer, offset: Int64, in slab: Slab) {
    form = .lazy(text, offset: offset)
    passThrough = EncodedEvents(bytes: text, count: count, memory: slab, lines: .documents)
  }

  /// Indexes the documents of a block that was only counted, because a step reads them.
  func indexDocuments() {
    guard case .lazy(let text, let offset) = form else { return }
    guard let found = index(text) else { preconditionFailure("lines that were counted are not found again") }
    form = .documents(found, text: text, offset: offset)
  }

  func holdLines(_ text: UnsafeRawBufferPointer, offset: Int64, in slab: Slab) {
    form = .lines(text, offset: offset)
    guard text.last == 0x0A, text.offset(of: 0x0D) == nil else { return }
    let count = rx_count_feeds(text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count)
    passThrough = EncodedEvents(bytes: text, count: count, memory: slab, lines: .strings)
  }

  /// The number of documents, if they may pass through and can be counted fast; nothing else is determined.
  func countPassThrough(_ text: UnsafeRawBufferPointer) -> Int? {
    if lines == nil { lines = rx_lines_new() }
    var count = 0
    let start = text.baseAddress?.assumingMemoryBound(to: CChar.self)
    return rx_lines_count_pass_through(lines, start, text.count, &count) ? count : nil
  }

  /// Indexes the lines and tokens of a block of documents; nil if each line must be read separately.
  func index(_ text: UnsafeRawBufferPointer) -> UnsafeBufferPointer<rx_line>? {
    if lines == nil { lines = rx_lines_new() }
    guard rx_lines_index(lines, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count) else {
      return nil
    }
    var count = 0
    let first = rx_lines_rows(lines, &count)
    return UnsafeBufferPointer(start: first, count: count)
  }

  /// The rows. Valid until the next `append` or `clear`.
  package var rows: UnsafeBufferPointer<Row> { UnsafeBufferPointer(start: start, count: count) }

  @inline(__always)
  package func append(_ value: Value, offset: Int64) { append(value, offset: offset, token: Row.none) }

  @inline(__always)
  func append(_ value: Value, offset: Int64, token: UInt32) {
    if count == capacity { grow() }
    start[count] = Row(value: value, offset: offset, token: token)
    count &+= 1
  }

  /// Forgets the tokens of the rows from this index on, because the tokens of another text are about to overwrite them
  /// in ``lines``.
  func forgetTokens(from first: Int) {
    for index in first..<max(first, count) { start[index].token = Row.none }
  }

  package func reject(_ bytes: UnsafeRawBufferPointer, offset: Int64, _ reason: RejectReason) {
    rejected.append(RejectedRow(bytes: .bytes(bytes), offset: offset, index: count, reason: reason))
  }

  /// The row before which ``forEachRow(from:upTo:tokens:while:)`` stopped.
  struct Stop {
    /// The index of the row or document; in plain lines, the offset of the line in the range.
    var next: Int
    /// The row's input offset, in bytes.
    var offset: Int64
  }

  /// Calls `body` in order for each row that is not rejected, with its value and input offset, while it returns true;
  /// during the call `indexed` has the tokens of the value's text. Returns where it stopped; nil if no row is left.
  ///
  /// - Parameters:
  ///   - first: Where an earlier call stopped (``Stop/next``).
  ///   - end: In a batch that has rows, the index after the last row to visit.
  @inline(__always)
  func forEachRow(
    from first: Int = 0, upTo end: Int = .max, tokens indexed: UnsafeMutablePointer<rx_lines_row>,
    while body: (Value, Int64) -> Bool
  ) -> Stop? {
    // After this call the text may be freed, and its tokens must not be matched to another text.
    defer { indexed.pointee.lines = nil }
    indexDocuments()
    switch form {
    case .lazy: return nil
    case .rows:
      let all = start
      let last = min(end, count)
      var index = first
      while index < last {
        let row = all[index]
        if row.token != Row.none {
          indexed.pointee = rx_lines_row(
            lines: lines, payload: row.value.payload, length: row.value.length, token: row.token)
        }
        index &+= 1
        if !body(row.value, row.offset) { return index < last ? Stop(next: index, offset: all[index].offset) : nil }
      }
      return nil
    case .documents(let documents, let text, let offset):
      guard let base = text.baseAddress else { return nil }
      let lines = lines
      var index = first
      while index < documents.count {
        let line = documents[index]
        let start = base + Int(line.start)
        let value = Value(
          kind: start.load(as: UInt8.self) == UInt8(ascii: "{") ? .jsonMap : .jsonList, pointer: start,
          length: Int(line.end &- line.start))
        indexed.pointee = rx_lines_row(
          lines: lines, payload: value.payload, length: value.length, token: line.token)
        index &+= 1
        if !body(value, offset &+ Int64(line.line)) {
          guard index < documents.count else { return nil }
          return Stop(next: index, offset: offset &+ Int64(documents[index].line))
        }
      }
      return nil
    case .lines(let text, let offset):
      let rest = text.forEachLine(from: first, while: { line, at in body(.string(line), offset &+ Int64(at)) })
      return rest.map { Stop(next: $0, offset: offset &+ Int64($0)) }
    }
  }

  package func clear() {
    count = 0
    form = .rows
    passThrough = nil
    if !rejected.isEmpty { rejected.removeAll(keepingCapacity: rejected.count < 1024) }
  }

  @inline(never)
  private func grow() {
    let larger = UnsafeMutablePointer<Row>.allocate(capacity: capacity * 2)
    larger.update(from: start, count: count)
    start.deallocate()
    start = larger
    capacity *= 2
  }
}

/// A row of input that is not an event.
package struct RejectedRow {
  /// The row's bytes, of kind `.bytes`; valid until the end of the turn.
  package var bytes: Value
  /// The input offset of the start of the row, in bytes.
  package var offset: Int64
  /// The number of valid rows before it in the batch.
  package var index: Int
  package var reason: RejectReason
}

/// Why a row of input is not an event.
package enum RejectReason: Error, Sendable, Equatable {
  case json(JSONFailure)
  /// `at` counts bytes from the start of the row, here and in the cases below.
  case invalidUTF8(at: Int)
  /// Bytes that are not a character of that charset.
  case charset(String, at: Int)
  case fieldCount(found: Int, expected: Int)
  /// A quoted field that does not end, or continues after its closing quote.
  case quote(at: Int)
  /// A row that is longer than the limit, in bytes.
  case tooLong(limit: Int)
  /// A `=` without a key before it.
  case emptyKey(at: Int)
  case tooManyFields(limit: Int)
  case noMatch
  /// No CSV header within the first lines.
  case noHeader(lines: Int)
  /// A syslog message that violates its RFC, with what was expected at a byte.
  case syslog(expected: String, at: Int)
  /// A line that violates its format, with what was expected at a byte.
  case malformed(DecoderFormat, expected: String, at: Int)
  /// The text of a field does not have the field's type.
  case type(FieldType, field: String)
  /// The value of a column does not have the column's declared type.
  case column(String, name: String)
  /// The reason that a plugin's decoder gives.
  case plugin(String)

  /// The kind of the fault, for metrics; must never change.
  package var code: String {
    switch self {
    case .json: "malformed_json"
    case .invalidUTF8: "invalid_utf8"
    case .charset: "invalid_charset"
    case .fieldCount: "field_count"
    case .quote: "malformed_quotes"
    case .tooLong: "row_too_long"
    case .emptyKey: "empty_key"
    case .tooManyFields: "too_many_fields"
    case .noMatch: "no_match"
    case .noHeader: "no_header"
    case .syslog: "malformed_syslog"
    case .malformed(let format, _, _): "malformed_\(format.rawValue)"
    case .type, .column: "wrong_type"
    case .plugin: "refused_by_plugin"
    }
  }
}

extension RejectReason: CustomStringConvertible {
  package var description: String {
    switch self {
    case .json(let failure): "\(failure)"
    case .invalidUTF8(let at): "invalid UTF-8 at byte \(at)"
    case .charset(let name, let at): "not a valid character of \(name) at byte \(at)"
    case .fieldCount(let found, let expected): "the row has \(found) fields where \(expected) are expected"
    case .quote(let at): "malformed quotes around byte \(at)"
    case .tooLong(let limit): "the row is longer than \(limit) bytes"
    case .emptyKey(let at): "'=' without a key before it at byte \(at)"
    case .tooManyFields(let limit): "the row has more than \(limit) fields"
    case .noMatch: "the line does not match the pattern"
    case .noHeader(let lines): "no header in the first \(lines) lines"
    case .syslog(let expected, let at): "not a syslog message: expected \(expected) at byte \(at)"
    case .malformed(.container, let expected, let at): "not a line of a container: expected \(expected) at byte \(at)"
    case .malformed(let format, let expected, let at):
      "not a metric of \(format.rawValue): expected \(expected) at byte \(at)"
    case .type(let type, let field): "field '\(field)' is no \(type.rawValue)"
    case .column(let type, let name): "the column '\(name)' is not of type \(type)"
    case .plugin(let reason): reason
    }
  }
}
