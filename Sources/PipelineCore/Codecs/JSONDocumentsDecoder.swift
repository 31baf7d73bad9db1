/// `jsonDocuments`: JSON documents one after another, over several lines or on one. Also a JSON text sequence (RFC
/// 7464): its record separators are white space between documents, and end an unfinished one.
///
/// A document that is not valid JSON is rejected alone, up to the bracket that closes it. It ends earlier at a record
/// separator, or at a line that begins with `{` or `[` where no value may be. Bytes between documents that cannot start
/// a value are rejected together, up to the next line that begins with `{` or `[`.
final class JSONDocumentsDecoder: EventDecoder {
  private let opener: JSONOpener
  private let limit: Int

  private enum State {
    /// No document is open.
    case between
    case value, valueOrEnd, key, keyOrEnd, colon, commaOrEnd
    /// Within a number or `true`, `false`, `null`.
    case token
    /// Within a document that is not valid JSON: only brackets and strings are tracked.
    case faulty
    /// After bytes that cannot start a value.
    case skipped
  }
  private var state = State.between
  /// The open brackets around the next byte: true for maps. In a faulty document only their number counts.
  private var open: [Bool] = []
  private var isInString = false
  private var isEscaped = false
  /// The bytes of a word, at most the last eight.
  private var word: UInt64 = 0
  /// Whether the last byte was a line feed or a record separator, or there was none.
  private var isAtLineStart = true

  /// The input offset of the start of the document, or of the skipped bytes.
  private var start: Int64 = 0
  /// The offset of the first error in the document; -1 if there is none.
  private var fault = -1
  /// The bytes of the document from earlier ranges; for a document that is too long, only its start.
  private var held: [UInt8] = []
  /// The input offset of the end of the last range.
  private var reached: Int64 = 0

  /// `true`, `false`, `null`, and 0 for a number, which the parser checks.
  private static let words: Set<UInt64> = [0x7472_7565, 0x6661_6C73_65, 0x6E75_6C6C, 0]
  private static let separator: UInt8 = 0x1E
  /// The maximum number of bytes kept of rejected input.
  private static let headBytes = 4096

  init(_ options: DecoderOptions) {
    opener = JSONOpener(options)
    limit = options.json.maxBytes
  }

  var framing: Framing { .anywhere }
  var pendingOffset: Int64? { state == .between ? nil : start }
  var undecoded: [UInt8]? {
    if state == .between { return [] }
    return Int64(held.count) == reached &- start ? held : nil
  }

  func reset(memory: [UInt8]) {
    close()
    isAtLineStart = true
  }

  private func close() {
    state = .between
    open.removeAll(keepingCapacity: true)
    (isInString, isEscaped) = (false, false)
    fault = -1
    held.removeAll(keepingCapacity: held.capacity <= 64 << 10)
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    reached = offset &+ Int64(text.count)
    // The start, in this range, of the current document's bytes.
    var first = 0
    /// The document up to this byte, or the kept start of it.
    func whole(_ end: Int) -> UnsafeRawBufferPointer {
      if held.isEmpty { return text.part(first, end) }
      keep(end, upTo: limit + 1)
      let slab = held.withUnsafeBytes { Slab($0) }
      arena.keep(slab)
      return slab.bytes
    }
    /// Keeps the document's bytes in this range, unless earlier ones are missing.
    func keep(_ end: Int, upTo most: Int) {
      guard Int64(held.count) == offset &+ Int64(first) &- start else { return }
      held.append(contentsOf: text.part(first, end).prefix(max(0, most - held.count)))
    }
    /// Ends the document before this byte.
    func finish(_ end: Int) {
      let length = offset &+ Int64(end) &- start
      var document = whole(end)
      if fault >= 0 {
        while let last = document.last, Self.isBlank(last) { document = document.part(0, document.count - 1) }
      }
      if length > Int64(limit) {
        rows.reject(
          UnsafeRawBufferPointer(rebasing: document.prefix(Self.headBytes)), offset: start, .tooLong(limit: limit))
      } else if fault >= 0 {
        let found = JSONFailure(opener.parser.open(document, checking: .everything))
        rows.reject(document, offset: start, .json(found ?? JSONFailure(.malformed, offset: fault)))
      } else {
        opener.append(document, offset: start, arena, rows)
      }
      close()
    }
    func begin(_ at: Int, _ next: State) {
      start = offset &+ Int64(at)
      first = at
      state = next
    }
    func valueEnded(_ end: Int) { if open.isEmpty { finish(end) } else { state = .commaOrEnd } }
    func failed(_ at: Int) {
      fault = Int(offset &+ Int64(at) &- start)
      state = open.isEmpty ? .skipped : .faulty
      isInString = false
    }

    var at = 0
    while at < text.count {
      let byte = text[at]
      let beginsLine = isAtLineStart
      isAtLineStart = byte == 0x0A || byte == Self.separator
      if isInString {
        if isEscaped {
          isEscaped = false
          if byte >= 0x20 {
            at += 1
            continue
          }
        } else if byte == UInt8(ascii: "\"") {
          isInString = false
          at += 1
          switch state {
          case .key, .keyOrEnd: state = .colon
          case .faulty: break
          default: valueEnded(at)
          }
          continue
        } else if byte == UInt8(ascii: "\\") {
          isEscaped = true
          at += 1
          continue
        } else if byte >= 0x20 {
          at += 1
          while at < text.count, text[at] >= 0x20, text[at] != UInt8(ascii: "\""), text[at] != UInt8(ascii: "\\") {
            at += 1
          }
          continue
        }
        // Control characters, line breaks included, are not allowed in JSON strings.
        if state != .faulty { failed(at) }
        isInString = false
      }
      if state == .token {
        switch byte {
        case 0x20, 0x09, 0x0A, 0x0D, Self.separator, UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "["),
          UInt8(ascii: "]"), UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "\""):
          // A word other than true, false and null is not a value.
          if open.isEmpty, !Self.words.contains(word) { failed(at) } else { valueEnded(at) }
        default:
          if word != 0 { word = word << 8 | UInt64(byte) }
          at += 1
          continue
        }
      }
      let isOpening = byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[")
      if state == .faulty || state == .skipped {
        if byte == Self.separator || beginsLine && isOpening {
          finish(at)
          // The byte is examined again, now outside a document.
          if isOpening { isAtLineStart = true } else { at += 1 }
          continue
        }
        if state == .faulty {
          if isOpening {
            open.append(true)
          } else if byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]") {
            open.removeLast()
            if open.isEmpty { finish(at + 1) }
          } else if byte == UInt8(ascii: "\"") {
            isInString = true
          }
          if open.count > Self.mostOpen { state = .skipped }
        }
        at += 1
        continue
      }
      if Self.isBlank(byte) {
        at += 1
        continue
      }
      if byte == Self.separator {
        if state != .between {
          fault = Int(offset &+ Int64(at) &- start)
          finish(at)
        }
        at += 1
        continue
      }
      if state == .between {
        if isByteOrderMark(byte, offset &+ Int64(at)) {
          at += 1
          continue
        }
        begin(at, .value)
      }
      switch (byte, state) {
      case (UInt8(ascii: "{"), .value), (UInt8(ascii: "{"), .valueOrEnd):
        open.append(true)
        state = .keyOrEnd
      case (UInt8(ascii: "["), .value), (UInt8(ascii: "["), .valueOrEnd):
        open.append(false)
        state = .valueOrEnd
      case (UInt8(ascii: "}"), .keyOrEnd) where open.last == true,
        (UInt8(ascii: "}"), .commaOrEnd) where open.last == true,
        (UInt8(ascii: "]"), .valueOrEnd) where open.last == false,
        (UInt8(ascii: "]"), .commaOrEnd) where open.last == false:
        open.removeLast()
        valueEnded(at + 1)
      case (UInt8(ascii: ","), .commaOrEnd): state = open.last == true ? .key : .value
      case (UInt8(ascii: ":"), .colon): state = .value
      case (UInt8(ascii: "\""), .value), (UInt8(ascii: "\""), .valueOrEnd), (UInt8(ascii: "\""), .key),
        (UInt8(ascii: "\""), .keyOrEnd):
        isInString = true
      case (UInt8(ascii: "-"), .value), (UInt8(ascii: "-"), .valueOrEnd), (0x30...0x39, .value),
        (0x30...0x39, .valueOrEnd),
        (UInt8(ascii: "t"), .value), (UInt8(ascii: "t"), .valueOrEnd), (UInt8(ascii: "f"), .value),
        (UInt8(ascii: "f"), .valueOrEnd), (UInt8(ascii: "n"), .value), (UInt8(ascii: "n"), .valueOrEnd):
        state = .token
        word = byte > UInt8(ascii: "9") ? UInt64(byte) : 0
      default:
        failed(at)
        // The byte may start the next document, or close this one.
        if state == .faulty {
          isAtLineStart = beginsLine
          continue
        }
      }
      if open.count > Self.mostOpen { failed(at) }
      at += 1
    }
    guard state != .between else { return }
    if isLast {
      if state == .token, open.isEmpty, Self.words.contains(word) { return finish(text.count) }
      if fault < 0 { fault = Int(offset &+ Int64(text.count) &- start) }
      return finish(text.count)
    }
    keep(text.count, upTo: state == .skipped ? max(Self.headBytes, held.count) : limit + 1)
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }

  /// More deeply nested brackets are not a document; the parser also rejects some that nest less deeply.
  private static let mostOpen = 10_000

  private func isByteOrderMark(_ byte: UInt8, _ offset: Int64) -> Bool {
    switch offset {
    case 0: byte == 0xEF
    case 1: byte == 0xBB
    case 2: byte == 0xBF
    default: false
    }
  }
}
