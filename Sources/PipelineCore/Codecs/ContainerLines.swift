/// Lines of containers' log files. Each line shows which of two formats it has:
///
/// - CRI (containerd, CRI-O): `2026-01-31T08:00:01.123456789Z stdout F text`; with `P` instead of `F`, the next line of
///   the stream continues it
/// - json-file (docker): `{"log":"text\n","stream":"stdout","time":"2026-01-31T08:00:01.123456789Z"}`; if `log` does not
///   end in a line feed, the next line of the stream continues it
struct ContainerLines {
  struct Line {
    var stream: UnsafeRawBufferPointer
    /// When the runtime read the line; docker's format may lack it.
    var time: Value?
    /// The text without a line end.
    var message: UnsafeRawBufferPointer
    /// Whether the next line of the stream continues this one.
    var isPiece: Bool
    /// Further members of docker's format, as JSON.
    var attributes: Value?
  }

  func read(_ line: UnsafeRawBufferPointer, _ parser: JSONParser, _ arena: Arena) throws(RejectReason) -> Line {
    line.first == UInt8(ascii: "{") ? try readJSON(line, parser, arena) : try readCRI(line)
  }

  private func readCRI(_ line: UnsafeRawBufferPointer) throws(RejectReason) -> Line {
    func fault(_ expected: String, _ at: Int) -> RejectReason { .malformed(.container, expected: expected, at: at) }
    let space = UInt8(ascii: " ")
    guard let time = line.offset(of: space), time > 0, line[0] >= 0x30, line[0] <= 0x39 else {
      throw fault("a time, or a JSON object", 0)
    }
    guard let stream = line.offset(of: space, from: time + 1), stream > time + 1 else {
      throw fault("the name of a stream", time + 1)
    }
    let tags = line.offset(of: space, from: stream + 1) ?? line.count
    let tag = stream + 1 < tags ? line[stream + 1] : 0
    // Further tags may follow a colon.
    guard tag == UInt8(ascii: "F") || tag == UInt8(ascii: "P"),
      tags == stream + 2 || line[stream + 2] == UInt8(ascii: ":")
    else { throw fault("F or P", stream + 1) }
    guard let read = FieldType.timestamp.read(line.part(0, time)) else { throw fault("a time (RFC 3339)", 0) }
    return Line(
      stream: line.part(time + 1, stream), time: read, message: line.part(min(tags + 1, line.count), line.count),
      isPiece: tag == UInt8(ascii: "P"))
  }

  private func readJSON(
    _ line: UnsafeRawBufferPointer, _ parser: JSONParser, _ arena: Arena
  ) throws(RejectReason) -> Line {
    let value = parser.parse(line, into: arena)
    if let failure = JSONFailure(value) { throw .json(failure) }
    var result = Line(stream: line.part(0, 0), message: line.part(0, 0), isPiece: true)
    var hasLog = false
    for entry in value.entries {
      let key = JSONParser.unescape(entry.key, into: arena).rawBytes
      if key.equals("attrs"), entry.value.is(.map) {
        result.attributes = entry.value
        continue
      }
      guard entry.value.is(.string) else { continue }
      let text = JSONParser.unescape(entry.value, into: arena).rawBytes
      if key.equals("log") {
        hasLog = true
        result.isPiece = text.last != 0x0A
        result.message = text.withoutLineEnd
      } else if key.equals("stream") {
        result.stream = text
      } else if key.equals("time") {
        guard let read = FieldType.timestamp.read(text) else {
          throw .malformed(.container, expected: "a time (RFC 3339) in 'time'", at: 0)
        }
        result.time = read
      }
    }
    guard hasLog else { throw .malformed(.container, expected: "a text 'log' in the object", at: 0) }
    return result
  }

  /// Appends the event that the lines make together.
  func append(
    _ lines: some Sequence<Line>, offset: Int64, _ invalidUTF8: InvalidUTF8, _ arena: Arena, _ rows: RowBatch
  ) {
    var first: Line?
    var only: UnsafeRawBufferPointer?
    var texts: [UInt8] = []
    var isInMiddle = false
    for line in lines {
      if first == nil {
        first = line
        only = line.message
      } else {
        if let text = only {
          texts.append(contentsOf: text)
          only = nil
        }
        if !isInMiddle { texts.append(0x0A) }
        texts.append(contentsOf: line.message)
      }
      isInMiddle = line.isPiece
    }
    guard let first else { return }
    let whole = only ?? texts.withUnsafeBytes { arena.copy($0) }
    guard let text = invalidUTF8.admit(whole, offset: offset, arena, rows),
      let stream = invalidUTF8.admit(first.stream, offset: offset, arena, rows)
    else { return }
    let entries = arena.entries(4)
    entries[0] = Entry(key: .literal("stream"), value: .string(stream))
    entries[1] = Entry(key: .literal("message"), value: .string(text))
    var count = 2
    if let time = first.time {
      entries[count] = Entry(key: .literal("time"), value: time)
      count += 1
    }
    if let attributes = first.attributes {
      entries[count] = Entry(key: .literal("attrs"), value: attributes)
      count += 1
    }
    rows.append(Value(kind: .map, pointer: entries.baseAddress, length: count), offset: offset)
  }
}
