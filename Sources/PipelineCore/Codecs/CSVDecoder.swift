#if canImport(Glibc)
  import Glibc
#endif

/// How comma-separated values are read (RFC 4180, with LF or CRLF).
package struct CSVDecoding: Sendable, Equatable {
  /// Where the column names come from.
  package enum Header: Sendable, Equatable {
    /// The first row names the columns: rows become maps.
    case firstRow
    /// There is no header: rows become lists.
    case none
    /// The given columns; the first row is already data.
    case names([String])
  }

  package var header: Header = .firstRow
  /// One ASCII character.
  package var delimiter: UInt8 = UInt8(ascii: ",")
  /// One ASCII character; doubled in a quoted field it means the character itself. Nil: no character quotes.
  package var quote: UInt8? = UInt8(ascii: "\"")
  /// `string` or `infer`, for unquoted fields; quoted ones are always strings.
  package var types: FieldType = .string
  /// Whether an unquoted empty field is null rather than an empty string; nil: only with `infer`.
  package var emptyIsNull: Bool?
  /// The maximum length in bytes of a row with quoted line breaks.
  package var rowLimit = 1 << 20

  /// The number of lines to skip before the header, or before the first row.
  package var skipLines = 0
  /// An RE2 pattern for the header: lines before the first one that matches are skipped.
  package var headerAt: String?
  /// The maximum number of lines that ``headerAt`` may skip; further lines are rejected.
  package static let mostSkipped = 1000

  /// Whether lines before the header are skipped.
  package var skips: Bool { skipLines > 0 || headerAt != nil }

  package init() {}
}

/// `csv`. Fields without doubled quotes are slices of the slab.
///
/// A row with fewer or more fields than there are columns is rejected. If the quotes of a row are malformed or do not
/// end within the limit, its first line is rejected and decoding continues with the next line. Blank lines are skipped.
/// A second column of the same name gets the suffix `_2`, and so on.
final class CSVDecoder: EventDecoder {
  private let options: CSVDecoding
  private let invalidUTF8: InvalidUTF8
  private let quote: UInt8
  private let delimiter: UInt8
  private let types: FieldType
  /// All unquoted fields are strings, taken literally.
  private let areStrings: Bool
  private let emptyIsNull: Bool
  @exclusivity(unchecked) private var names: FieldNames?
  /// The text of the header row; until it has been read, ``text(ofSkipped:)``.
  private(set) var memory: [UInt8] = []
  /// The start of an incomplete row, and its input offset.
  private let carried = OutputBuffer()
  private var carriedOffset: Int64 = 0
  private var carriedState = RowScanner.State.fieldStart
  private let fields = ScratchBuffer<Value>()
  private let headerPattern: Pattern?
  /// Whether the header, or the first row, has not been reached yet.
  private var isSkipping: Bool
  private var skipped = 0
  /// The input offset of the first line that was skipped and not rejected; nil if there is none.
  private var skippedFrom: Int64?
  /// The beginning of the first skipped line.
  private var firstSkipped: [UInt8] = []
  /// Whether the missing header was reported.
  private var isReported = false

  init(_ options: DecoderOptions) throws(CodecFailure) {
    self.options = options.csv
    invalidUTF8 = options.invalidUTF8
    isSkipping = options.csv.skips
    headerPattern = try options.csv.headerAt.map { text throws(CodecFailure) in try LineRule.compile(text, "headerAt") }
    if options.csv.headerAt != nil, options.csv.header != .firstRow {
      throw CodecFailure(
        option: "headerAt", message: "'headerAt' finds the header, and 'header' says that the input has none",
        help: "Leave one of them out, or leave lines out by number: 'skipLines'")
    }
    quote = options.csv.quote ?? 0
    delimiter = options.csv.delimiter
    types = options.csv.types
    emptyIsNull = options.csv.emptyIsNull ?? (types == .infer)
    areStrings = types == .string && !emptyIsNull
    let csv = options.csv
    if csv.delimiter == csv.quote || csv.delimiter == 0x0A || csv.delimiter == 0x0D || csv.delimiter >= 0x80
      || csv.delimiter == 0
    {
      throw CodecFailure(
        option: "delimiter",
        message: "the delimiter must be one ASCII character other than the quote and a line break")
    }
    if let quote = csv.quote, quote == 0x0A || quote == 0x0D || quote >= 0x80 || quote == 0 {
      throw CodecFailure(option: "quote", message: "the quote must be one ASCII character, no line break")
    }
    if csv.types != .string, csv.types != .infer {
      throw CodecFailure(option: "types", message: "the types must be 'string' or 'infer'")
    }
    if case .names(let names) = csv.header {
      if names.isEmpty {
        throw CodecFailure(option: "header", message: "the header must name at least one column")
      }
      self.names = Self.distinct(names.map { Array($0.utf8) })
    }
  }

  var framing: Framing { .lines }

  /// Whether lines were skipped and the header, or the first row, has not been read completely.
  private var isBeforeRows: Bool { skipped > 0 && (isSkipping || options.header == .firstRow && names == nil) }

  /// Until the header has been read, a checkpoint must restart at the first skipped line.
  var pendingOffset: Int64? {
    if isBeforeRows, let skippedFrom { return skippedFrom }
    return carried.count > 0 ? carriedOffset : nil
  }
  var undecoded: [UInt8]? { isBeforeRows ? nil : Array(carried.bytes) }

  /// Replaces the header in the memory once lines were rejected for lack of a header. It begins with a line feed, which
  /// no row can.
  private static func text(ofSkipped lines: Int) -> [UInt8] { [0x0A] + Array("\(lines)".utf8) }

  private static func skipped(in memory: [UInt8]) -> Int? {
    guard memory.first == 0x0A, let lines = Int(String(decoding: memory.dropFirst(), as: UTF8.self)) else { return nil }
    return max(0, min(lines, .max / 2))
  }

  func reset(memory: [UInt8]) {
    carried.clear()
    let known = options.header == .firstRow ? Self.skipped(in: memory) : nil
    self.memory = known == nil ? [] : memory
    isSkipping = options.skips && (memory.isEmpty || known != nil)
    skipped = known ?? 0
    skippedFrom = nil
    firstSkipped = []
    isReported = false
    // Without a header row, a memory that is not empty says that the skipped lines precede the checkpoint.
    if options.header != .firstRow { self.memory = memory }
    guard options.header == .firstRow else { return }
    names = nil
    if !memory.isEmpty, known == nil {
      let slab = Slab(memory)
      setHeader(slab.bytes)
    }
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    if let names { arena.keep(names) }
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    var first = offset == 0 ? text.byteOrderMarkLength : 0
    if isSkipping { first = skip(text, from: first, offset, isLast: isLast, arena, rows) }
    if carried.count == 0 {
      read(text, from: first, offset: offset, isLast: isLast, arena, rows)
      return
    }
    // The scan continues where it stopped; the row is copied once, when it is complete.
    var scanner = RowScanner(options, state: carriedState)
    switch scanner.scan(text, from: 0) {
    case .row(let end, let next) where carried.count + end <= options.rowLimit:
      carried.append(text.part(0, next))
      let row = arena.copy(carried.bytes)
      let start = carriedOffset
      carried.clear()
      read(row, from: 0, offset: start, isLast: true, arena, rows)
      read(text, from: next, offset: offset, isLast: isLast, arena, rows)
    case .open where !isLast && carried.count + text.count <= options.rowLimit:
      carried.append(text)
      carriedState = scanner.state
    default:
      // Rejects the first line and scans the rest again.
      carried.append(text)
      let again = arena.copy(carried.bytes)
      let start = carriedOffset
      carried.clear()
      read(again, from: 0, offset: start, isLast: isLast, arena, rows)
    }
  }

  /// Skips lines before the header; returns the offset of the header.
  private func skip(
    _ text: UnsafeRawBufferPointer, from first: Int, _ offset: Int64, isLast: Bool, _ arena: Arena, _ rows: RowBatch
  ) -> Int {
    let most = options.skipLines + CSVDecoding.mostSkipped
    defer { if skipped > most, options.header == .firstRow { memory = Self.text(ofSkipped: skipped) } }
    var at = first
    while at < text.count {
      let end = text.offset(of: 0x0A, from: at) ?? text.count
      let line = text.part(at, end).withoutReturn
      if skipped >= options.skipLines, headerPattern?.matches(line) ?? true {
        isSkipping = false
        if options.header != .firstRow { memory = [0x0A] }
        return at
      }
      if skippedFrom == nil { skippedFrom = offset &+ Int64(at) }
      if skipped == 0 { firstSkipped = Array(line.part(0, min(line.count, 1024))) }
      skipped += 1
      if skipped > most {
        rows.reject(line, offset: offset &+ Int64(at), .noHeader(lines: skipped - 1))
        // Rejected lines are never read again. The next line sets its own input offset, because converted text has
        // another length than the input.
        skippedFrom = nil
      }
      at = end + 1
    }
    if isLast, let skippedFrom, skipped <= most, !isReported {
      let head = firstSkipped.withUnsafeBytes { arena.copy($0) }
      rows.reject(head, offset: skippedFrom, .noHeader(lines: skipped))
      isReported = true
    }
    return text.count
  }

  /// Reads rows from `first` on; `offset` is the input offset of `text`.
  private func read(
    _ text: UnsafeRawBufferPointer, from first: Int, offset: Int64, isLast: Bool, _ arena: Arena,
    _ rows: RowBatch
  ) {
    var at = first
    // Up to this offset there is no quote, so each line is a row.
    var nextQuote = options.quote == nil ? text.count : text.offset(of: quote, from: at) ?? text.count
    while at < text.count {
      let lineEnd = text.offset(of: 0x0A, from: at) ?? text.count
      if nextQuote < at { nextQuote = text.offset(of: quote, from: at) ?? text.count }
      if nextQuote >= lineEnd {
        accept(text.part(at, lineEnd), quoted: false, offset &+ Int64(at), arena, rows)
        at = lineEnd + 1
        continue
      }
      var scanner = RowScanner(options, state: .fieldStart)
      switch scanner.scan(text, from: at) {
      case .row(let end, let next):
        if end - at > options.rowLimit {
          refuse(text.part(at, lineEnd), offset &+ Int64(at), .tooLong(limit: options.rowLimit), rows)
          at = lineEnd + 1
        } else {
          accept(text.part(at, end), quoted: true, offset &+ Int64(at), arena, rows)
          at = next
        }
      case .open:
        let tooLong = text.count - at > options.rowLimit
        if !isLast, !tooLong {
          carried.append(text.part(at, text.count))
          carriedOffset = offset &+ Int64(at)
          carriedState = scanner.state
          return
        }
        let reason: RejectReason = tooLong ? .tooLong(limit: options.rowLimit) : .quote(at: nextQuote - at)
        refuse(text.part(at, lineEnd), offset &+ Int64(at), reason, rows)
        at = lineEnd + 1
      case .malformed(let quote):
        refuse(text.part(at, lineEnd), offset &+ Int64(at), .quote(at: quote - at), rows)
        at = lineEnd + 1
      }
    }
  }

  private func refuse(
    _ line: UnsafeRawBufferPointer, _ offset: Int64, _ reason: RejectReason, _ rows: RowBatch
  ) {
    rows.reject(line.withoutReturn, offset: offset, reason)
  }

  // MARK: Rows

  private func accept(
    _ row: UnsafeRawBufferPointer, quoted: Bool, _ offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) {
    let row = row.withoutReturn
    if row.isEmpty { return }
    guard let row = invalidUTF8.admit(row, offset: offset, arena, rows) else { return }
    if names == nil, options.header == .firstRow {
      setHeader(row)
      if let names { arena.keep(names) }
      return
    }
    split(row, quoted: quoted, asStrings: areStrings, arena)
    guard let names else {
      rows.append(arena.list(fields.elements), offset: offset)
      return
    }
    guard fields.count == names.keys.count else {
      rows.reject(row, offset: offset, .fieldCount(found: fields.count, expected: names.keys.count))
      return
    }
    let entries = arena.entries(fields.count)
    let keys = names.keys
    let values = fields.elements
    for index in 0..<entries.count { entries[index] = Entry(key: keys[index], value: values[index]) }
    rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: offset)
  }

  private func setHeader(_ row: UnsafeRawBufferPointer) {
    memory = Array(row)
    let arena = Arena()
    split(row, quoted: options.quote != nil && row.contains(quote), asStrings: true, arena)
    names = Self.distinct(fields.elements.map { Array($0.rawBytes) })
  }

  private static func distinct(_ names: [[UInt8]]) -> FieldNames {
    var seen: Set<[UInt8]> = []
    var result: [[UInt8]] = []
    for name in names {
      var unique = name
      var number = 2
      while !seen.insert(unique).inserted {
        unique = name + Array("_\(number)".utf8)
        number += 1
      }
      result.append(unique)
    }
    return FieldNames(result)
  }

  /// Splits a well-formed row into `fields`.
  private func split(_ row: UnsafeRawBufferPointer, quoted: Bool, asStrings: Bool, _ arena: Arena) {
    let fields = fields
    fields.clear()
    var at = 0
    while true {
      if quoted, at < row.count, row[at] == quote {
        let (field, next) = quotedField(row, at, arena)
        fields.append(field)
        at = next
      } else {
        let end = row.offset(of: delimiter, from: at) ?? row.count
        let text = row.part(at, end)
        fields.append(asStrings ? .string(text) : field(text))
        at = end
      }
      if at >= row.count { return }
      at += 1
    }
  }

  private func field(_ text: UnsafeRawBufferPointer) -> Value {
    if text.isEmpty { return emptyIsNull ? .null : .string(text) }
    return types.read(text) ?? .string(text)
  }

  /// The field whose opening quote is at `start`, and the offset after its closing quote.
  private func quotedField(
    _ row: UnsafeRawBufferPointer, _ start: Int, _ arena: Arena
  ) -> (Value, next: Int) {
    var end = row.offset(of: quote, from: start + 1) ?? row.count
    if end + 1 >= row.count || row[end + 1] != quote {
      return (.string(row.part(start + 1, end)), end + 1)
    }
    let memory = arena.allocate(row.count - start)
    var used = 0
    var at = start + 1
    while true {
      let doubled = end + 1 < row.count && row[end + 1] == quote
      let piece = row.part(at, doubled ? end + 1 : end)
      if let source = piece.baseAddress { memcpy(memory + used, source, piece.count) }
      used += piece.count
      if !doubled { break }
      at = end + 2
      end = row.offset(of: quote, from: at) ?? row.count
    }
    return (.string(UnsafeRawBufferPointer(start: memory, count: used)), end + 1)
  }
}

extension UnsafeRawBufferPointer {
  /// The text without a carriage return at its end.
  @inline(__always)
  fileprivate var withoutReturn: UnsafeRawBufferPointer {
    count > 0 && self[count - 1] == 0x0D ? part(0, count - 1) : self
  }
}

/// Finds the ends of rows whose quoted fields may contain line breaks; a scan can stop at any byte and continue there.
struct RowScanner {
  enum State { case fieldStart, plain, quoted, closed, closedReturn }
  enum Finding {
    /// The row ends before `end`; the next one begins at `next`.
    case row(end: Int, next: Int)
    /// A quoted field is still open at the end of the text.
    case open
    /// The byte at this offset cannot follow a closing quote.
    case malformed(at: Int)
  }

  private(set) var state: State
  private let delimiter: UInt8
  private let quote: UInt8

  init(_ options: CSVDecoding, state: State) {
    self.state = state
    delimiter = options.delimiter
    quote = options.quote ?? 0
  }

  /// If no line feed is left and no quoted field is open, the row ends with the text, which must then be the last of
  /// its input.
  mutating func scan(_ text: UnsafeRawBufferPointer, from start: Int) -> Finding {
    var at = start
    while at < text.count {
      let byte = text[at]
      switch state {
      case .fieldStart:
        if byte == 0x0A { return .row(end: at, next: at + 1) }
        state = byte == quote ? .quoted : byte == delimiter ? .fieldStart : .plain
      case .plain:
        var end = at
        while end < text.count, text[end] != 0x0A, text[end] != delimiter { end += 1 }
        at = end
        if at == text.count { continue }
        if text[at] == 0x0A { return .row(end: at, next: at + 1) }
        state = .fieldStart
      case .quoted:
        guard let end = text.offset(of: quote, from: at) else { return .open }
        at = end
        state = .closed
      case .closed:
        if byte == 0x0A { return .row(end: at, next: at + 1) }
        if byte == quote {
          state = .quoted
        } else if byte == delimiter {
          state = .fieldStart
        } else if byte == 0x0D {
          state = .closedReturn
        } else {
          return .malformed(at: at)
        }
      case .closedReturn:
        if byte == 0x0A { return .row(end: at, next: at + 1) }
        return .malformed(at: at)
      }
      at += 1
    }
    return state == .quoted ? .open : .row(end: at, next: at)
  }
}
