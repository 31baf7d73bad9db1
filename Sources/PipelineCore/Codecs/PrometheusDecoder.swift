/// `prometheus`: metrics in Prometheus' text format, or in OpenMetrics, which ends with `# EOF`.
///
/// Each sample is an event `{ name, type, labels, value }`, with `family` if its metric has another name
/// (`requests_bucket` of `requests`), and `timestamp`, `unit` and `exemplar` if they are given.
final class PrometheusDecoder: EventDecoder {
  var framing: Framing { .whole }
  private var members: [Entry] = []
  private var labels: [(key: Value, value: Value)] = []
  private var isOpen = false
  /// The metric that the current lines belong to.
  private var family = UnsafeRawBufferPointer(start: nil, count: 0)
  private var type: StaticString = "untyped"
  private var unit = UnsafeRawBufferPointer(start: nil, count: 0)
  static let labelLimit = 1000

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    var text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    text = text.part(first, text.count)
    var end = text.count
    while end > 0, text[end - 1] <= 0x20 { end -= 1 }
    isOpen = end >= 5 && text.part(end - 5, end).equals("# EOF") && (end == 5 || text[end - 6] == 0x0A)
    (family, type, unit) = (text.part(0, 0), "untyped", text.part(0, 0))
    text.forEachLine { line, at in
      guard !line.isBlank else { return }
      let lineOffset = offset &+ Int64(first &+ at)
      if let at = UTF8Text.firstError(line) { return rows.reject(line, offset: lineOffset, .invalidUTF8(at: at)) }
      if line[0] == UInt8(ascii: "#") { return readComment(line) }
      do throws(RejectReason) { try read(line, lineOffset, arena, rows) } catch {
        rows.reject(line, offset: lineOffset, error)
      }
    }
    // The names point into the slab, which may be freed now.
    (family, unit) = (UnsafeRawBufferPointer(start: nil, count: 0), UnsafeRawBufferPointer(start: nil, count: 0))
  }

  private static let types: [StaticString] = [
    "counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram",
  ]

  private func readComment(_ line: UnsafeRawBufferPointer) {
    var at = 1
    func word() -> UnsafeRawBufferPointer {
      while at < line.count, line[at] == 0x20 || line[at] == 0x09 { at += 1 }
      let start = at
      if at < line.count, line[at] == UInt8(ascii: "\"") {
        at += 1
        while at < line.count, line[at] != UInt8(ascii: "\"") { at += line[at] == UInt8(ascii: "\\") ? 2 : 1 }
        at = min(at + 1, line.count)
        return line.part(start + 1, max(start + 1, at - 1))
      }
      while at < line.count, line[at] > 0x20 { at += 1 }
      return line.part(start, at)
    }
    let keyword = word()
    let isType = keyword.equals("TYPE")
    guard isType || keyword.equals("UNIT") || keyword.equals("HELP") else { return }
    let name = word()
    if !name.equals(family) { (family, type, unit) = (name, "untyped", line.part(0, 0)) }
    if isType {
      let word = word()
      type = Self.types.first { word.equals($0) } ?? "untyped"
    } else if keyword.equals("UNIT") {
      unit = word()
    }
  }

  /// The suffixes that a sample's name may add to the name of its metric.
  private static let suffixes: [StaticString] = [
    "_total", "_bucket", "_sum", "_count", "_created", "_info", "_gsum", "_gcount",
  ]

  private func isOf(_ name: UnsafeRawBufferPointer) -> Bool {
    if name.equals(family) { return true }
    guard name.count > family.count, !family.isEmpty, name.part(0, family.count).equals(family) else { return false }
    let rest = name.part(family.count, name.count)
    return Self.suffixes.contains { rest.equals($0) }
  }

  private func read(
    _ line: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) throws(RejectReason) {
    var reader = Reader(line, arena)
    labels.removeAll(keepingCapacity: true)
    var name = reader.name()
    if reader.take(UInt8(ascii: "{")) {
      if let quoted = try reader.labels(&labels, mayHaveName: name.isEmpty) { name = quoted }
    }
    if name.isEmpty { throw reader.fault("the name of a metric") }
    let value = try reader.number("a value")
    members.removeAll(keepingCapacity: true)
    if !isOf(name) { (family, type, unit) = (name, "untyped", line.part(0, 0)) }
    add("name", .string(name))
    add("type", .literal(type))
    add("labels", arena.map(labels))
    add("value", .double(value))
    if !name.equals(family) { add("family", .string(family)) }
    if !unit.isEmpty { add("unit", .string(unit)) }
    if reader.hasMore, !reader.isAtExemplar {
      let time = try reader.number("a time")
      let seconds = isOpen ? time : time / 1000
      guard seconds.magnitude < 1e11 else { throw reader.fault("a time") }
      add("timestamp", Self.timestamp(seconds))
    }
    if reader.hasMore { add("exemplar", try readExemplar(&reader, arena)) }
    if reader.hasMore { throw reader.fault("the end of the line") }
    let entries = arena.entries(members.count)
    _ = entries.update(fromContentsOf: members)
    rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: offset)
  }

  private func readExemplar(_ reader: inout Reader, _ arena: Arena) throws(RejectReason) -> Value {
    guard isOpen, reader.take(UInt8(ascii: "#")), reader.take(UInt8(ascii: "{")) else {
      throw reader.fault("the end of the line")
    }
    var own: [(key: Value, value: Value)] = []
    _ = try reader.labels(&own, mayHaveName: false)
    var members: [(key: Value, value: Value)] = [
      (.literal("labels"), arena.map(own)), (.literal("value"), .double(try reader.number("a value"))),
    ]
    if reader.hasMore { members.append((.literal("timestamp"), Self.timestamp(try reader.number("a time")))) }
    return arena.map(members)
  }

  private static func timestamp(_ seconds: Double) -> Value {
    guard seconds.magnitude < 1e11 else { return .null }
    let whole = seconds.rounded(.down)
    // At this magnitude a double resolves only microseconds.
    let rest = min(999_999, ((seconds - whole) * 1_000_000).rounded())
    return .timestamp(seconds: Int64(whole), nanoseconds: UInt32(rest) * 1000)
  }

  private func add(_ key: StaticString, _ value: Value) { members.append(Entry(key: .literal(key), value: value)) }

  /// Reads one line.
  private struct Reader {
    private let line: UnsafeRawBufferPointer
    private let arena: Arena
    private var at = 0

    init(_ line: UnsafeRawBufferPointer, _ arena: Arena) {
      self.line = line
      self.arena = arena
    }

    func fault(_ expected: String) -> RejectReason { .malformed(.prometheus, expected: expected, at: at) }

    private mutating func skipSpace() { while at < line.count, line[at] == 0x20 || line[at] == 0x09 { at += 1 } }

    var hasMore: Bool {
      mutating get {
        skipSpace()
        return at < line.count && !(at == line.count - 1 && line[at] == 0x0D)
      }
    }

    var isAtExemplar: Bool { at < line.count && line[at] == UInt8(ascii: "#") }

    mutating func take(_ byte: UInt8) -> Bool {
      skipSpace()
      guard at < line.count, line[at] == byte else { return false }
      at += 1
      return true
    }

    /// Reads letters, digits, `_` and `:`; empty if there are none.
    mutating func name() -> UnsafeRawBufferPointer {
      skipSpace()
      let start = at
      while at < line.count {
        let byte = line[at]
        let isLetter = (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: "_") || byte == UInt8(ascii: ":")
        guard isLetter || at > start && byte &- 0x30 < 10 else { break }
        at += 1
      }
      return line.part(start, at)
    }

    mutating func number(_ expected: String) throws(RejectReason) -> Double {
      skipSpace()
      let start = at
      while at < line.count, line[at] > 0x20 { at += 1 }
      guard let number = MetricText.number(line.part(start, at), special: true) else {
        at = start
        throw fault(expected)
      }
      return number
    }

    /// Reads labels up to the closing brace. A text without a value is the name of the metric, and is returned.
    mutating func labels(
      _ labels: inout [(key: Value, value: Value)], mayHaveName: Bool
    ) throws(RejectReason) -> UnsafeRawBufferPointer? {
      var found: UnsafeRawBufferPointer?
      while !take(UInt8(ascii: "}")) {
        skipSpace()
        let start = at
        var key = name()
        if key.isEmpty {
          guard at < line.count, line[at] == UInt8(ascii: "\"") else { throw fault("a label or '}'") }
          key = try quoted().rawBytes
          if mayHaveName, found == nil, labels.isEmpty, !peek(UInt8(ascii: "=")) {
            found = key
            if !take(UInt8(ascii: ",")), !peek(UInt8(ascii: "}")) { throw fault("',' or '}'") }
            continue
          }
        }
        guard take(UInt8(ascii: "=")) else { throw fault("'='") }
        let value = try quoted()
        if labels.contains(where: { $0.key.rawBytes.equals(key) }) {
          at = start
          throw fault("a label that does not come before")
        }
        if labels.count == PrometheusDecoder.labelLimit { throw .tooManyFields(limit: PrometheusDecoder.labelLimit) }
        labels.append((.string(key), value))
        if !take(UInt8(ascii: ",")), !peek(UInt8(ascii: "}")) { throw fault("',' or '}'") }
      }
      return found
    }

    private mutating func peek(_ byte: UInt8) -> Bool {
      skipSpace()
      return at < line.count && line[at] == byte
    }

    /// Reads a text in quotes, where `\` escapes a quote, a line feed (`\n`) and itself.
    private mutating func quoted() throws(RejectReason) -> Value {
      guard take(UInt8(ascii: "\"")) else { throw fault("a text in quotes") }
      let start = at
      var escapes = 0
      while at < line.count, line[at] != UInt8(ascii: "\"") {
        if line[at] == UInt8(ascii: "\\") {
          escapes += 1
          at += 1
        }
        at += 1
      }
      guard at < line.count else {
        at = line.count
        throw fault("a closing quote")
      }
      let inside = line.part(start, at)
      at += 1
      guard escapes > 0 else { return .string(inside) }
      let target = arena.allocate(inside.count).assumingMemoryBound(to: UInt8.self)
      var (from, count) = (0, 0)
      while from < inside.count {
        var byte = inside[from]
        if byte == UInt8(ascii: "\\"), from + 1 < inside.count {
          let next = inside[from + 1]
          if next == UInt8(ascii: "n") || next == UInt8(ascii: "\\") || next == UInt8(ascii: "\"") {
            byte = next == UInt8(ascii: "n") ? 0x0A : next
            from += 1
          }
        }
        target[count] = byte
        (from, count) = (from + 1, count + 1)
      }
      return .string(UnsafeRawBufferPointer(start: target, count: count))
    }
  }
}

extension PrometheusDecoder {
  /// The fields of every event, for the checker of expressions.
  static var fields: [ExpressionType.Field] {
    typealias Field = ExpressionType.Field
    let labels = ExpressionType.map(.string, .string)
    let exemplar = [
      Field("labels", labels), Field("value", .double), Field("timestamp", .timestamp, mayBeAbsent: true),
    ]
    return [
      Field("name", .string), Field("type", .string), Field("labels", labels), Field("value", .double),
      Field("family", .string, mayBeAbsent: true), Field("unit", .string, mayBeAbsent: true),
      Field("timestamp", .timestamp, mayBeAbsent: true),
      Field("exemplar", .object(fields: exemplar, open: false), mayBeAbsent: true),
    ]
  }
}
