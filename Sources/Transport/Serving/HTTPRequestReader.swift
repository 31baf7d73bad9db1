import Glibc
import PipelineCore

/// The head of a request: its bytes, and the ranges of its parts.
///
/// Immutable once the reader has returned it. Pointers into it are valid as long as it lives.
final class RequestHead: @unchecked Sendable {
  struct Field: Sendable {
    var name: Range<Int32>
    var value: Range<Int32>
  }
  private let memory: UnsafeMutableRawPointer
  private let most: Int
  private let count: Int
  let method: Range<Int32>
  let target: Range<Int32>
  /// The target up to the `?`.
  let path: Range<Int32>
  @exclusivity(unchecked) private var fieldCount = 0
  /// Whether the version is HTTP/1.0.
  @exclusivity(unchecked) var isOld = false
  /// The announced length of the body; 0 if it has none or is chunked.
  @exclusivity(unchecked) var length = 0
  @exclusivity(unchecked) var isChunked = false
  /// Whether the client wants to send further requests on the connection.
  @exclusivity(unchecked) var isKeptAlive = true
  /// Whether the client waits for `100 Continue` before it sends the body.
  @exclusivity(unchecked) var expectsContinue = false
  /// Whether the body has a content coding.
  @exclusivity(unchecked) var isCoded = false

  /// A copy of the lines, with room for the given number of fields.
  init(
    _ lines: UnsafeRawBufferPointer, maxFields: Int, method: Range<Int32>, target: Range<Int32>, path: Range<Int32>
  ) {
    most = maxFields
    count = lines.count
    memory = malloc(maxFields * MemoryLayout<Field>.stride + lines.count)!
    if let source = lines.baseAddress {
      memcpy(memory + maxFields * MemoryLayout<Field>.stride, source, lines.count)
    }
    self.method = method
    self.target = target
    self.path = path
  }

  deinit { free(memory) }

  /// The lines of the head.
  var bytes: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: memory + most * MemoryLayout<Field>.stride, count: count)
  }

  var fields: UnsafeBufferPointer<Field> {
    UnsafeBufferPointer(start: memory.assumingMemoryBound(to: Field.self), count: fieldCount)
  }

  /// Adds a field, for which there must be room.
  func append(_ field: Field) {
    precondition(fieldCount < most, "a head has no room")
    memory.bindMemory(to: Field.self, capacity: most)[fieldCount] = field
    fieldCount &+= 1
  }

  /// Whether the answer has no body, because the method is HEAD.
  var isForHeadersOnly: Bool { HTTPRequestReader.isEqual(self[method], "HEAD") }

  /// Whether the method is GET or HEAD.
  var isForReading: Bool { isForHeadersOnly || HTTPRequestReader.isEqual(self[method], "GET") }

  func text(_ range: Range<Int32>) -> String { String(decoding: self[range], as: UTF8.self) }

  subscript(_ range: Range<Int32>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: bytes[Int(range.lowerBound)..<Int(range.upperBound)])
  }

  /// The value of the first field with that name; nil: there is none. `name` is in lower case.
  func value(of name: StaticString) -> String? { bytes(of: name).map { String(decoding: $0, as: UTF8.self) } }

  /// The value as bytes, valid as long as the head lives.
  func bytes(of name: StaticString) -> UnsafeRawBufferPointer? {
    let length = name.utf8CodeUnitCount
    // Names of another length are passed over first: a head has several fields, and each request is asked for some.
    for field in fields where field.name.count == length && HTTPRequestReader.isSame(self[field.name], name) {
      return self[field.value]
    }
    return nil
  }

  /// Names and values after the `?`, decoded, in order; bytes that are not UTF-8 are replaced.
  var query: [(name: String, value: String)] {
    guard path.upperBound < target.upperBound else { return [] }
    return FormText.pairs(Array(self[(path.upperBound + 1)..<target.upperBound])[...])
  }

  /// The headers by which a browser describes the page that sends the request.
  var pageHeaders: PageAccess.Headers {
    let origin = bytes(of: "origin")
    let site = bytes(of: "sec-fetch-site")
    func isOneOf(_ value: UnsafeRawBufferPointer, _ names: [StaticString]) -> Bool {
      names.contains { HTTPRequestReader.isSame(value, $0) }
    }
    // True if the user opens the page and sees its address; false if another page loads it into a frame.
    let isOpened =
      bytes(of: "sec-fetch-mode").map { isOneOf($0, ["navigate"]) } == true
      && bytes(of: "sec-fetch-dest").map { isOneOf($0, ["document"]) } != false
    let isOfOtherPage = origin == nil && site.map { !isOneOf($0, ["same-origin", "none"]) } == true && !isOpened
    return PageAccess.Headers(
      host: bytes(of: "host"), origin: origin, isOfOtherPage: isOfOtherPage,
      isOfProgram: origin == nil && site == nil && !isForReading)
  }

  func matches(_ field: Field, _ name: StaticString) -> Bool {
    field.name.count == name.utf8CodeUnitCount && HTTPRequestReader.isSame(self[field.name], name)
  }

  /// The coding of the body; unknown if there are several.
  var contentCoding: Decompressor.Coding {
    let names = fields.filter { matches($0, "content-encoding") }.map { text($0.value) }
    guard let name = names.first else { return .none }
    return names.count == 1 ? Decompressor.Coding(name) : .unknown
  }

  /// The memory that the head occupies.
  var byteCount: Int { count + most * MemoryLayout<Field>.stride }
}

/// Parses the requests of one connection (RFC 9112). Anything that two parsers could understand differently is
/// rejected: lines without a carriage return, folded fields, spaces before a colon, a length that is repeated or
/// combined with chunks, codings other than chunked.
struct HTTPRequestReader {
  enum Part {
    /// More bytes are needed; the caller offers the unconsumed bytes again.
    case more
    case head(RequestHead)
    case body(UnsafeRawBufferPointer)
    case end
    /// The bytes are not a request, or the head is too long; the status to answer.
    case refused(Int)
  }

  private enum State {
    case head
    case fixed(Int)
    case chunkSize
    case chunk(Int)
    case chunkEnd
    case trailer
    case failed
  }

  private let maxHeadBytes: Int
  private let maxLines: Int
  private var state = State.head
  /// The start of the incomplete line, in the unconsumed bytes.
  private var line = 0
  /// The number of complete lines of the head or trailer.
  private var lines = 0
  /// Bytes of the trailer and of chunk extensions.
  private var extra = 0

  init(maxHeadBytes: Int, maxLines: Int) {
    self.maxHeadBytes = maxHeadBytes
    self.maxLines = maxLines
  }

  /// The next part, and how many bytes it has consumed.
  mutating func next(_ bytes: UnsafeRawBufferPointer) -> (consumed: Int, part: Part) {
    var at = 0
    while true {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[at...])
      switch state {
      case .head:
        // Some clients send an empty line after a body; RFC 9112, 2.2, asks servers to skip it.
        if lines == 0, line == 0, rest.count >= 2, rest[0] == Self.carriageReturn, rest[1] == Self.lineFeed {
          at += 2
          continue
        }
        let (used, part) = head(rest)
        return (at + used, part)
      case .fixed(let left):
        if left == 0 {
          restart()
          return (at, .end)
        }
        guard !rest.isEmpty else { return (at, .more) }
        let count = min(left, rest.count)
        state = .fixed(left - count)
        return (at + count, .body(UnsafeRawBufferPointer(rebasing: rest[..<count])))
      case .chunkSize:
        guard let end = endOfLine(rest) else { return (at, lineIsTooLong(rest) ? fail() : .more) }
        guard let size = end < 0 ? nil : chunkSize(UnsafeRawBufferPointer(rebasing: rest[..<end])) else {
          return (at, fail())
        }
        at += end + 2
        state = size == 0 ? .trailer : .chunk(size)
      case .chunk(let left):
        if left == 0 {
          state = .chunkEnd
          continue
        }
        guard !rest.isEmpty else { return (at, .more) }
        let count = min(left, rest.count)
        state = .chunk(left - count)
        return (at + count, .body(UnsafeRawBufferPointer(rebasing: rest[..<count])))
      case .chunkEnd:
        guard rest.count >= 2 else { return (at, .more) }
        guard rest[0] == Self.carriageReturn, rest[1] == Self.lineFeed else { return (at, fail()) }
        at += 2
        state = .chunkSize
      case .trailer:
        guard let end = endOfLine(rest) else { return (at, lineIsTooLong(rest) ? fail() : .more) }
        guard end >= 0 else { return (at, fail()) }
        if end == 0 {
          at += 2
          restart()
          return (at, .end)
        }
        // Trailer fields are ignored, but their syntax is checked.
        extra += end
        lines += 1
        guard extra <= maxHeadBytes, lines <= maxLines, field(rest, 0..<end) != nil else { return (at, fail()) }
        at += end + 2
      case .failed: return (bytes.count, .more)
      }
    }
  }

  private mutating func fail(_ status: Int = 400) -> Part {
    state = .failed
    return .refused(status)
  }

  private mutating func restart() {
    state = .head
    line = 0
    lines = 0
    extra = 0
  }

  // MARK: Lines

  private static let carriageReturn = UInt8(ascii: "\r")
  private static let lineFeed = UInt8(ascii: "\n")

  /// The end of the first line, before its CR LF; negative if it ends otherwise, nil if it is incomplete.
  private func endOfLine(_ bytes: UnsafeRawBufferPointer) -> Int? {
    guard let feed = bytes.offset(of: Self.lineFeed) else { return nil }
    return feed > 0 && bytes[feed - 1] == Self.carriageReturn ? feed - 1 : -1
  }

  private func lineIsTooLong(_ bytes: UnsafeRawBufferPointer) -> Bool { bytes.count > maxHeadBytes }

  private mutating func chunkSize(_ text: UnsafeRawBufferPointer) -> Int? {
    var size = 0
    var digits = 0
    for byte in text {
      guard let digit = FormText.hexadecimal(byte) else { break }
      digits += 1
      guard digits <= 15 else { return nil }
      size = size << 4 | Int(digit)
    }
    guard digits > 0 else { return nil }
    // Extensions are ignored; they must be separated from the number.
    let rest = text[digits...].drop { $0 == 0x20 || $0 == 0x09 }
    guard rest.isEmpty || rest.first == UInt8(ascii: ";"), rest.allSatisfy(Self.isInValue) else { return nil }
    extra += rest.count
    return extra <= maxHeadBytes ? size : nil
  }

  /// A visible character, a space, a tab, or a byte above ASCII.
  @inline(__always)
  private static func isInValue(_ byte: UInt8) -> Bool { byte >= 0x20 && byte != 0x7f || byte == 0x09 }

  /// Whether ``isInValue(_:)`` holds for all bytes. Without an early exit and in bytes, so that the loop is vectorized.
  private static func areInValue(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var wrong: UInt8 = 0
    for byte in bytes { wrong |= (byte < 0x20 ? 1 : 0) & (byte == 0x09 ? 0 : 1) | (byte == 0x7f ? 1 : 0) }
    return wrong == 0
  }

  @inline(__always)
  private static func isInToken(_ byte: UInt8) -> Bool {
    // One bit per character: `low` has digits and !#$%&'*+-. (below 64), `high` letters and ^_`|~ (from 64).
    let low: UInt64 = 0x03FF_6CFA_0000_0000
    let high: UInt64 = 0x57FF_FFFF_C7FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  static func isEqual(_ bytes: UnsafeRawBufferPointer, _ text: StaticString) -> Bool {
    guard bytes.count == text.utf8CodeUnitCount, let start = bytes.baseAddress else { return false }
    return memcmp(start, text.utf8Start, bytes.count) == 0
  }

  /// Whether the texts are equal, ignoring case; `name` is in lower case.
  static func isSame(_ bytes: some Collection<UInt8>, _ name: StaticString) -> Bool {
    guard bytes.count == name.utf8CodeUnitCount else { return false }
    var at = name.utf8Start
    for byte in bytes {
      if HTTPSyntax.lower(byte) != at.pointee { return false }
      at += 1
    }
    return true
  }

  // MARK: The head

  /// Searches for the end of the head, then parses it.
  private mutating func head(_ bytes: UnsafeRawBufferPointer) -> (Int, Part) {
    guard let first = bytes.first else { return (0, .more) }
    // Refused at the first byte: another protocol, such as TLS, may never end a line.
    guard Self.isInToken(first) || first == Self.carriageReturn && bytes.count == 1 else { return (0, fail()) }
    while let feed = UnsafeRawBufferPointer(rebasing: bytes[line...]).offset(of: Self.lineFeed) {
      let end = line + feed
      guard end > 0, bytes[end - 1] == Self.carriageReturn else { return (0, fail()) }
      guard end <= maxHeadBytes else { return (0, fail(431)) }
      if feed == 1 {
        let part = read(UnsafeRawBufferPointer(rebasing: bytes[..<(line - 2)]))
        return (end + 1, part)
      }
      lines += 1
      // The request line is not counted.
      guard lines <= maxLines + 1 else { return (0, fail(431)) }
      line = end + 1
    }
    return (0, bytes.count > maxHeadBytes ? fail(431) : .more)
  }

  /// Parses a complete head, without its empty line and the CR LF of the last line.
  private mutating func read(_ bytes: UnsafeRawBufferPointer) -> Part {
    let first = bytes.offset(of: Self.lineFeed).map { $0 - 1 } ?? bytes.count
    guard let head = requestLine(bytes, first) else { return fail() }
    var hosts = 0
    var lengths = 0
    var encodings = 0
    var isClosed = false
    var isKept = false
    var at = first + 2
    while at < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[at...])
      let end = at + (rest.offset(of: Self.lineFeed).map { $0 - 1 } ?? rest.count)
      guard let found = field(bytes, at..<end) else { return fail() }
      head.append(found)
      at = end + 2
      let value = bytes[Int(found.value.lowerBound)..<Int(found.value.upperBound)]
      switch found.name.count {
      case 4 where head.matches(found, "host"): hosts += 1
      case 6 where head.matches(found, "expect"):
        if Self.isSame(value, "100-continue") { head.expectsContinue = !head.isOld }
      case 7 where head.matches(found, "upgrade"): isClosed = true
      case 10 where head.matches(found, "connection"):
        for option in value.split(separator: UInt8(ascii: ",")) {
          let option = Self.trimmed(option)
          if Self.isSame(option, "close") { isClosed = true }
          if Self.isSame(option, "keep-alive") { isKept = true }
        }
      case 14 where head.matches(found, "content-length"):
        lengths += 1
        guard let length = Self.decimal(value) else { return fail() }
        head.length = length
      case 16 where head.matches(found, "content-encoding"): head.isCoded = true
      case 17 where head.matches(found, "transfer-encoding"):
        encodings += 1
        guard Self.isSame(value, "chunked"), !head.isOld else { return fail() }
        head.isChunked = true
      default: break
      }
    }
    guard hosts == 1 || hosts == 0 && head.isOld, lengths + encodings <= 1 else { return fail() }
    head.isKeptAlive = !isClosed && (isKept || !head.isOld)
    restart()
    if head.isChunked { state = .chunkSize } else { state = .fixed(head.length) }
    return .head(head)
  }

  /// Parses `METHOD TARGET HTTP/1.1` with single spaces; nil for any other line.
  private func requestLine(_ bytes: UnsafeRawBufferPointer, _ end: Int) -> RequestHead? {
    let line = UnsafeRawBufferPointer(rebasing: bytes[..<end])
    guard let first = line.offset(of: 0x20), first > 0, line[..<first].allSatisfy(Self.isInToken),
      !Self.isEqual(UnsafeRawBufferPointer(rebasing: line[..<first]), "CONNECT"),
      let length = UnsafeRawBufferPointer(rebasing: line[(first + 1)...]).offset(of: 0x20), length > 0
    else { return nil }
    let second = first + 1 + length
    let target = line[(first + 1)..<second]
    guard target.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
    let version = UnsafeRawBufferPointer(rebasing: line[(second + 1)...])
    let isOld = Self.isEqual(version, "HTTP/1.0")
    guard isOld || Self.isEqual(version, "HTTP/1.1") else { return nil }
    let path = target.firstIndex(of: UInt8(ascii: "?")) ?? second
    // The first line has no field.
    let head = RequestHead(
      bytes, maxFields: max(0, lines - 1), method: 0..<Int32(first), target: Int32(first + 1)..<Int32(second),
      path: Int32(first + 1)..<Int32(path))
    head.isOld = isOld
    return head
  }

  /// Parses a field, without the spaces around its value; nil if the line is not a field.
  private func field(_ bytes: UnsafeRawBufferPointer, _ line: Range<Int>) -> RequestHead.Field? {
    let text = UnsafeRawBufferPointer(rebasing: bytes[line])
    guard let colon = text.offset(of: UInt8(ascii: ":")), colon > 0 else { return nil }
    for index in 0..<colon where !Self.isInToken(text[index]) { return nil }
    guard Self.areInValue(UnsafeRawBufferPointer(rebasing: text[(colon + 1)...])) else { return nil }
    let value = Self.trimmed(text[(colon + 1)...])
    let start = line.lowerBound
    return RequestHead.Field(
      name: Int32(start)..<Int32(start + colon),
      value: Int32(start + value.startIndex)..<Int32(start + value.endIndex))
  }

  private static func trimmed(_ bytes: Slice<UnsafeRawBufferPointer>) -> Slice<UnsafeRawBufferPointer> {
    let all = bytes.base
    func isSpace(_ at: Int) -> Bool { all[at] == 0x20 || all[at] == 0x09 }
    var (start, end) = (bytes.startIndex, bytes.endIndex)
    while end > start, isSpace(end - 1) { end -= 1 }
    while start < end, isSpace(start) { start += 1 }
    return all[start..<end]
  }

  /// Parses digits only; a number that is too large becomes the largest.
  private static func decimal(_ bytes: Slice<UnsafeRawBufferPointer>) -> Int? {
    var number = 0
    for byte in bytes {
      guard byte &- 48 < 10 else { return nil }
      let (product, isOver) = number.multipliedReportingOverflow(by: 10)
      let (sum, isTooLarge) = product.addingReportingOverflow(Int(byte &- 48))
      number = isOver || isTooLarge ? .max : sum
    }
    return bytes.isEmpty ? nil : number
  }
}

extension UnsafeRawBufferPointer {
  /// The offset of the first such byte.
  fileprivate func offset(of byte: UInt8) -> Int? {
    guard let base = baseAddress, let found = memchr(base, Int32(byte), count) else { return nil }
    return UnsafeRawPointer(found) - base
  }
}
