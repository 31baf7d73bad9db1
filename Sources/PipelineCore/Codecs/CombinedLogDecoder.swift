/// `regex` with the pattern `combined`: the access logs of Apache and nginx, parsed without a regular expression.
///
/// Fields: `host`, `ident`, `user`, `time` (timestamp), `method`, `path`, `protocol`, `status` (int), `bytes` (int),
/// `referrer`, `agent`. `-` is null. A request that is not `METHOD path protocol` is entirely in `path`; `method` and
/// `protocol` are then null. Lines of the common log format have null for `referrer` and `agent`. Text after the agent
/// is in `extra`, which other lines lack. Texts keep the server's escapes (`\"`).
final class CombinedLogDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  private let types: UnsafeMutableBufferPointer<FieldType>

  private static let fieldNames = [
    "host", "ident", "user", "time", "method", "path", "protocol", "status", "bytes", "referrer", "agent",
    "extra",
  ]
  /// The fields and their types.
  static func fields(_ types: [String: FieldType]) -> [(name: String, type: FieldType)] {
    fieldNames.enumerated().map { index, name in
      (name, types[name] ?? (index == 3 ? .timestamp : index == 7 || index == 8 ? .int : .string))
    }
  }

  private let names = FieldNames(CombinedLogDecoder.fieldNames.map { Array($0.utf8) })

  init(_ options: DecoderOptions) throws(CodecFailure) {
    invalidUTF8 = options.invalidUTF8
    if let unknown = options.regex.unknown(among: Self.fieldNames) {
      throw CodecFailure(
        option: "types",
        message: "'combined' has no field '\(unknown)'; it has \(Self.fieldNames.joined(separator: ", "))")
    }
    types = .allocate(capacity: Self.fieldNames.count)
    types.initialize(repeating: .string)
    types[3] = .timestamp
    types[7] = .int
    types[8] = .int
    for (index, name) in Self.fieldNames.enumerated() {
      if let type = options.regex.types[name] { types[index] = type }
    }
  }

  deinit { types.deallocate() }

  var framing: Framing { .lines }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    arena.keep(names)
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    let valid = UTF8Text.isValid(text)
    text.forEachLine(from: first) { line, at in
      let lineOffset = offset &+ Int64(at)
      var line = line
      if !valid {
        guard let admitted = invalidUTF8.admit(line, offset: lineOffset, arena, rows) else { return }
        line = admitted
      }
      let entries = arena.entries(12)
      if let reason = read(line, entries) {
        rows.reject(line, offset: lineOffset, reason)
        return
      }
      let count = entries[11].value.isAbsent ? 11 : 12
      rows.append(Value(kind: .map, pointer: entries.baseAddress, length: count), offset: lineOffset)
    }
  }

  private func read(
    _ line: UnsafeRawBufferPointer, _ entries: UnsafeMutableBufferPointer<Entry>
  ) -> RejectReason? {
    let keys = names.keys
    var at = 0
    /// The text up to `byte`, which is skipped.
    func upTo(_ byte: UInt8) -> UnsafeRawBufferPointer? {
      guard let end = line.offset(of: byte, from: at) else { return nil }
      defer { at = end + 1 }
      return line.part(at, end)
    }
    func pass(_ byte: UInt8) -> Bool {
      guard at < line.count, line[at] == byte else { return false }
      at += 1
      return true
    }
    /// The text in quotes; a backslash escapes the next byte.
    func quoted() -> UnsafeRawBufferPointer? {
      guard pass(UInt8(ascii: "\"")) else { return nil }
      let start = at
      while let quote = line.offset(of: UInt8(ascii: "\""), from: at) {
        var backslashes = 0
        while quote - backslashes > start, line[quote - backslashes - 1] == UInt8(ascii: "\\") {
          backslashes += 1
        }
        at = quote + 1
        if backslashes % 2 == 0 { return line.part(start, quote) }
      }
      return nil
    }
    let space = UInt8(ascii: " ")
    guard let host = upTo(space), !host.isEmpty, let ident = upTo(space),
      let user = upTo(UInt8(ascii: "[")), user.count >= 2, user[user.count - 1] == space,
      let time = upTo(UInt8(ascii: "]")), pass(space), let request = quoted(), pass(space),
      let status = upTo(space)
    else { return .noMatch }
    let bytesEnd = line.offset(of: space, from: at) ?? line.count
    let bytes = line.part(at, bytesEnd)
    if bytes.isEmpty { return .noMatch }
    at = bytesEnd
    var referrer: UnsafeRawBufferPointer?
    var agent: UnsafeRawBufferPointer?
    var extra: UnsafeRawBufferPointer?
    if pass(space) {
      let before = at
      if let first = quoted(), pass(space), let second = quoted(), at == line.count || line[at] == space {
        referrer = first
        agent = second
        if pass(space) { extra = line.part(at, line.count) }
      } else {
        // A line that ends within quotes does not have this format.
        at = before
        while let quote = line.offset(of: UInt8(ascii: "\""), from: at) {
          at = quote
          if quoted() == nil { return .noMatch }
        }
        extra = line.part(before, line.count)
      }
    }

    var method: UnsafeRawBufferPointer?
    var path = request
    var version: UnsafeRawBufferPointer?
    if let first = request.offset(of: space), first > 0,
      let second = request.offset(of: space, from: first + 1), second > first + 1,
      request.offset(of: space, from: second + 1) == nil, second + 1 < request.count
    {
      method = request.part(0, first)
      path = request.part(first + 1, second)
      version = request.part(second + 1, request.count)
    }
    @inline(__always)
    func set(_ index: Int, _ text: UnsafeRawBufferPointer?, _ wrong: inout Int) -> Bool {
      guard let value = typed(index, text) else {
        wrong = index
        return false
      }
      entries[index] = Entry(key: keys[index], value: value)
      return true
    }
    var wrong = 0
    guard set(0, host, &wrong), set(1, ident, &wrong), set(2, user.part(0, user.count - 1), &wrong),
      set(3, time, &wrong), set(4, method, &wrong), set(5, path, &wrong), set(6, version, &wrong),
      set(7, status, &wrong), set(8, bytes, &wrong), set(9, referrer, &wrong), set(10, agent, &wrong)
    else { return .type(types[wrong], field: Self.fieldNames[wrong]) }
    entries[11] = Entry(key: keys[11], value: .absent)
    if let extra, !extra.isEmpty {
      guard let value = typed(11, extra) else { return .type(types[11], field: "extra") }
      entries[11].value = value
    }
    return nil
  }

  @inline(__always)
  private func typed(_ index: Int, _ text: UnsafeRawBufferPointer?) -> Value? {
    guard let text else { return .null }
    if text.count == 1, text[0] == UInt8(ascii: "-") { return .null }
    return types[index].read(text)
  }
}
