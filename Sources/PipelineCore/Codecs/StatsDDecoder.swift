/// `statsd`: each line is a metric, with the tags of DogStatsD.
///
/// Several values of one name are written `a:1:2|c` (DogStatsD) or, each with a type of its own, `a:1|c:2|ms` (the
/// original StatsD).
///
/// An event is `{ name, type, labels, value, sampleRate }`; a line with several values gives several events. Counters,
/// and gauges with a sign, are changes: `relative` is true. The value of a set is the text to be counted.
final class StatsDDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  let framing: Framing
  private var members: [Entry] = []
  private var tags: [(key: Value, value: Value)] = []
  /// The maximum number of tags, and of values, in a line; a line with more is malformed.
  static let fieldLimit = 1000

  init(_ options: DecoderOptions) {
    invalidUTF8 = options.invalidUTF8
    framing = options.unit == .stream ? .lines : .whole
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    slab.bytes.part(range.lowerBound, range.upperBound).forEachLine { line, at in
      guard !line.isBlank else { return }
      let lineOffset = offset &+ Int64(at)
      guard let text = invalidUTF8.admit(line, offset: lineOffset, arena, rows) else { return }
      do throws(RejectReason) {
        try readAll(text, lineOffset, arena, rows)
      } catch {
        rows.reject(line, offset: lineOffset, error)
      }
    }
  }

  private static let types: [(short: StaticString, name: StaticString)] = [
    ("c", "counter"), ("g", "gauge"), ("ms", "timer"), ("h", "histogram"), ("d", "distribution"), ("s", "set"),
  ]

  /// Reads the values of a line in which each value has a type, one after another.
  private func readAll(_ line: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch)
    throws(RejectReason)
  {
    var rest = line
    // Nil: the rest of the line begins with the name.
    var name: UnsafeRawBufferPointer?
    var count = 0
    while let cut = Self.nextValue(rest) {
      count += 1
      if count > Self.fieldLimit { throw .tooManyFields(limit: Self.fieldLimit) }
      try read(rest.part(0, cut), of: name, offset, arena, rows)
      name = line.part(0, line.offset(of: UInt8(ascii: ":")) ?? 0)
      rest = rest.part(cut + 1, rest.count)
    }
    try read(rest, of: name, offset, arena, rows)
  }

  /// The offset of the colon after a type or a sample rate, which starts the next value.
  private static func nextValue(_ line: UnsafeRawBufferPointer) -> Int? {
    guard let bar = line.offset(of: UInt8(ascii: "|")) else { return nil }
    var start = bar + 1
    var isType = true
    while start < line.count {
      var end = start
      while end < line.count, line[end] != UInt8(ascii: "|") { end += 1 }
      if isType || line[start] == UInt8(ascii: "@"), let colon = line.part(start, end).offset(of: UInt8(ascii: ":")) {
        return start + colon
      }
      isType = false
      start = end + 1
    }
    return nil
  }

  /// - Parameter known: The name of the metric; nil if `line` begins with it.
  private func read(
    _ line: UnsafeRawBufferPointer, of known: UnsafeRawBufferPointer?, _ offset: Int64, _ arena: Arena, _ rows: RowBatch
  ) throws(RejectReason) {
    // Offsets of faults count as if each value followed the name.
    let before = known.map { $0.count + 1 } ?? 0
    func fault(_ expected: String, _ at: Int) -> RejectReason {
      .malformed(.statsd, expected: expected, at: before + at)
    }
    let colon = known == nil ? line.offset(of: UInt8(ascii: ":")) ?? 0 : -1
    guard colon != 0 else { throw fault("a name and ':'", 0) }
    // Events and service checks of DogStatsD are not metrics.
    if known == nil, line[0] == UInt8(ascii: "_"),
      line.part(0, min(3, line.count)).equals("_sc") || line.part(0, min(3, line.count)).equals("_e{")
    {
      throw fault("the name of a metric", 0)
    }
    guard let bar = line.offset(of: UInt8(ascii: "|")), bar > colon else { throw fault("'|' and a type", line.count) }
    var at = bar + 1
    func section() -> UnsafeRawBufferPointer {
      let start = at
      while at < line.count, line[at] != UInt8(ascii: "|") { at += 1 }
      defer { at += 1 }
      return line.part(start, at)
    }
    let short = section()
    guard let type = Self.types.first(where: { short.equals($0.short) }) else {
      throw fault("one of the types c, g, ms, h, d and s", bar + 1)
    }
    var rate = 1.0
    var time: Value?
    var container: Value?
    tags.removeAll(keepingCapacity: true)
    while at <= line.count, at < line.count {
      let start = at
      let part = section()
      switch part.first {
      case UInt8(ascii: "@"):
        guard let number = MetricText.number(part.part(1, part.count)), number > 0, number <= 1 else {
          throw fault("a sample rate above 0, and at most 1", start + 1)
        }
        rate = number
      case UInt8(ascii: "#"): try readTags(part.part(1, part.count))
      case UInt8(ascii: "c") where part.count > 1 && part[1] == UInt8(ascii: ":"):
        container = .string(part.part(2, part.count))
      case UInt8(ascii: "T"):
        guard let number = MetricText.number(part.part(1, part.count)), number.magnitude < 1e11 else {
          throw fault("a time in seconds since 1970", start + 1)
        }
        time = .timestamp(seconds: Int64(number.rounded(.down)), nanoseconds: 0)
      // Newer clients append further parts, which are ignored.
      default: if part.isEmpty { throw fault("'@', '#' or the end", start) }
      }
    }
    let labels = arena.map(tags)
    let isSet = short.equals("s")
    var values = 0
    var from = colon + 1
    while from <= bar {
      var to = from
      // The value of a set may be any text.
      while to < bar, isSet || line[to] != UInt8(ascii: ":") { to += 1 }
      let text = line.part(from, to)
      values += 1
      if values > Self.fieldLimit { throw .tooManyFields(limit: Self.fieldLimit) }
      members.removeAll(keepingCapacity: true)
      add("name", .string(known ?? line.part(0, colon)))
      add("type", .literal(type.name))
      add("labels", labels)
      if isSet {
        add("value", .string(text))
      } else {
        guard let number = MetricText.number(text), number.isFinite else { throw fault("a number", from) }
        add("value", .double(number))
      }
      add("sampleRate", .double(rate))
      let isSigned = text.first == UInt8(ascii: "+") || text.first == UInt8(ascii: "-")
      if short.equals("c") || short.equals("g") && isSigned { add("relative", .bool(true)) }
      if let time { add("timestamp", time) }
      if let container { add("container", container) }
      let entries = arena.entries(members.count)
      _ = entries.update(fromContentsOf: members)
      rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: offset)
      from = to + 1
    }
  }

  private func add(_ key: StaticString, _ value: Value) { members.append(Entry(key: .literal(key), value: value)) }

  private func readTags(_ text: UnsafeRawBufferPointer) throws(RejectReason) {
    var from = 0
    while from < text.count {
      var to = from
      while to < text.count, text[to] != UInt8(ascii: ",") { to += 1 }
      let tag = text.part(from, to)
      from = to + 1
      if tag.isEmpty { continue }
      if tags.count == Self.fieldLimit { throw .tooManyFields(limit: Self.fieldLimit) }
      let colon = tag.offset(of: UInt8(ascii: ":")) ?? tag.count
      let key = Value.string(tag.part(0, colon))
      // If a tag is repeated, its last value counts.
      tags.removeAll { $0.key.rawBytes.equals(key.rawBytes) }
      tags.append((key, colon < tag.count ? .string(tag.part(colon + 1, tag.count)) : .literal("")))
    }
  }
}

/// Numbers in metric formats.
enum MetricText {
  /// Nil if the text is not a number. `special`: accepts `NaN`, `+Inf` and `-Inf`, which Prometheus writes.
  static func number(_ text: UnsafeRawBufferPointer, special: Bool = false) -> Double? {
    guard let first = text.first, text.count <= 64 else { return nil }
    if special {
      if text.equals("NaN") || text.equals("nan") || text.equals("Nan") { return .nan }
      if text.equals("+Inf") || text.equals("Inf") || text.equals("+inf") || text.equals("inf") { return .infinity }
      if text.equals("-Inf") || text.equals("-inf") { return -.infinity }
    }
    let isPlain = text.allSatisfy {
      $0 &- 0x30 < 10 || $0 == UInt8(ascii: ".") || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "+")
        || $0 == UInt8(ascii: "e") || $0 == UInt8(ascii: "E")
    }
    guard isPlain else { return nil }
    return Double(String(decoding: first == UInt8(ascii: "+") ? text.part(1, text.count) : text, as: UTF8.self))
  }
}

extension StatsDDecoder {
  /// The fields of every event, for the checker of expressions.
  static var fields: [ExpressionType.Field] {
    typealias Field = ExpressionType.Field
    return [
      Field("name", .string), Field("type", .string), Field("labels", .map(.string, .string)), Field("value", .dyn),
      Field("sampleRate", .double), Field("relative", .bool, mayBeAbsent: true),
      Field("timestamp", .timestamp, mayBeAbsent: true), Field("container", .string, mayBeAbsent: true),
    ]
  }
}
