/// The rule that joins the lines of a stream into events.
package struct LineJoining: Sendable, Equatable {
  /// How a line determines the boundary between events.
  package enum Rule: Sendable, Equatable {
    /// A line that matches starts an event.
    case start(String)
    /// A line that matches ends an event.
    case end(String)
    /// A line that matches belongs to the line before it.
    case continuation(String)
    /// A line that matches is continued by the next line.
    case wrapped(String)
    /// A line that begins with a space or a tab belongs to the line before it.
    case indented

    /// The name of the rule's parameter.
    package var name: String {
      switch self {
      case .start: "start"
      case .end: "end"
      case .continuation: "continuation"
      case .wrapped: "wrapped"
      case .indented: "indented"
      }
    }

    var pattern: String? {
      switch self {
      case .start(let pattern), .end(let pattern), .continuation(let pattern), .wrapped(let pattern): pattern
      case .indented: nil
      }
    }
  }

  /// Nil: each line is an event, unless its format marks it as continued (`container`).
  package var rule: Rule?
  /// An RE2 pattern whose first group, or whole match, is the key of a line: only lines with the same key are joined.
  /// Nil: all lines have the same key.
  package var key: String?
  /// The maximum number of keys with an incomplete event; when another key appears, the oldest event ends.
  package var maxKeys = 1000
  /// How long the last event, or the last of each key, waits for further lines. The decoder's caller measures this
  /// time.
  package var wait: TimeSpan
  /// The maximum number of lines of an event; the next line starts another event. `maxBytes` is the same for bytes.
  package var maxLines: Int
  package var maxBytes: Int

  package init(_ rule: Rule?, wait: TimeSpan = .seconds(1), maxLines: Int = 1000, maxBytes: Int = 1 << 20) {
    self.rule = rule
    self.wait = wait
    self.maxLines = maxLines
    self.maxBytes = maxBytes
  }

  /// The formats whose rows may be joined lines.
  package static let formats: [DecoderFormat] = [.text, .lines, .json, .ndjson, .logfmt, .regex, .syslog, .container]
}

/// Joins lines, and passes each group of lines to another decoder as one row.
///
/// An event starts at the first line after the end of the previous one, so the result depends only on the lines
/// since ``pendingOffset``: decoding can continue there without memory. `isLast` ends the current event, even if the
/// input continues.
final class JoiningDecoder: EventDecoder {
  private let inner: any EventDecoder
  private let joining: LineJoining
  private let rule: LineRule?

  /// The lines of the incomplete event, each with its line feed.
  private var held: [UInt8] = []
  private var heldOffset: Int64 = 0
  /// The number of lines of the incomplete event; 0 if there is none.
  private var lines = 0

  init(_ inner: any EventDecoder, _ joining: LineJoining) throws(CodecFailure) {
    self.inner = inner
    self.joining = joining
    rule = try joining.rule.map { rule throws(CodecFailure) in try LineRule(rule) }
  }

  var framing: Framing { .lines }
  var joinsLines: Bool { true }
  var pendingOffset: Int64? { lines > 0 ? heldOffset : nil }
  var undecoded: [UInt8]? { lines > 0 ? held : [] }
  var memory: [UInt8] { inner.memory }

  func reset(memory: [UInt8]) {
    held = []
    lines = 0
    inner.reset(memory: memory)
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes
    let (looksAhead, matchJoins) = (rule?.looksAhead ?? false, rule?.matchJoins ?? false)
    // The start of the incomplete event in the slab; earlier lines of it are held.
    var first = range.lowerBound
    var at = range.lowerBound
    func end(at stop: Int) {
      if held.isEmpty {
        emit(slab, first..<stop, offset &+ Int64(first - range.lowerBound), arena, rows)
      } else {
        held.append(contentsOf: text[first..<stop])
        let whole = held.withUnsafeBytes { Slab($0) }
        arena.keep(whole)
        emit(whole, 0..<whole.count, heldOffset, arena, rows)
        // The buffer of an unusually long event is not kept.
        held.removeAll(keepingCapacity: held.count <= 64 << 10)
      }
      lines = 0
      first = stop
    }
    while at < range.upperBound {
      let next = text.offset(of: 0x0A, from: at).map { min($0 + 1, range.upperBound) } ?? range.upperBound
      let from = offset == 0 && at == range.lowerBound ? at + text.part(at, next).byteOrderMarkLength : at
      let isMatch = rule?.matches(text.part(from, next).withoutLineEnd) ?? false
      if lines > 0 {
        let isFull = lines >= joining.maxLines || held.count + (next - first) > joining.maxBytes
        if isFull || looksAhead && isMatch != matchJoins { end(at: at) }
      }
      if lines == 0 { heldOffset = offset &+ Int64(at - range.lowerBound) }
      lines += 1
      at = next
      if !looksAhead, isMatch != matchJoins { end(at: at) }
    }
    guard lines > 0 else { return }
    if isLast { end(at: range.upperBound) } else { held.append(contentsOf: text[first..<range.upperBound]) }
  }

  private func emit(_ slab: Slab, _ range: Range<Int>, _ offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound).withoutLineEnd
    inner.decode(
      slab, range.lowerBound..<range.lowerBound + text.count, offset: offset, isLast: true, arena: arena, into: rows)
  }
}

extension UnsafeRawBufferPointer {
  /// The text without a line feed or CRLF at its end.
  var withoutLineEnd: UnsafeRawBufferPointer {
    var end = count
    if end > 0, self[end &- 1] == 0x0A {
      end &-= 1
      if end > 0, self[end &- 1] == 0x0D { end &-= 1 }
    }
    return part(0, end)
  }
}
