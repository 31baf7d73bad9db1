import PipelineCore

/// Parses the response of `GET /containers/ID/logs`, as Docker's API describes it: frames of one stream each or, with a
/// terminal, plain text. Each line begins with its time.
struct DockerLines {
  struct Line: Equatable {
    /// Whether the line is from standard error; otherwise from standard output or the terminal.
    var isError: Bool
    /// Nanoseconds since 1970; nil if the line has no time.
    var time: Int64?
    var text: [UInt8]
    /// The length of the whole line, if it was truncated.
    var cut: Int?
  }

  private struct Partial {
    var time: Int64?
    var text: [UInt8] = []
    var count = 0
    var isOpen = false
  }

  private let hasTerminal: Bool
  private let limit: Int
  private var pending: [UInt8] = []
  private var partial = [Partial(), Partial()]
  /// The maximum size of a frame of the API in bytes.
  private static let longestFrame = 1 << 30

  init(hasTerminal: Bool, limit: Int) {
    self.hasTerminal = hasTerminal
    self.limit = limit
  }

  /// False if the response violates the API.
  mutating func take(_ bytes: [UInt8], _ each: (Line) -> Void) -> Bool {
    pending += bytes
    var at = 0
    defer { pending.removeFirst(at) }
    if hasTerminal {
      while let end = pending[at...].firstIndex(of: 0x0A) {
        add(pending[at...end], 0, each)
        at = end + 1
      }
      // A line without an end must not grow forever; its beginning has the time.
      if pending.count - at > limit + 64 {
        add(pending[at...], 0, each)
        at = pending.count
      }
      return true
    }
    while pending.count - at >= 8 {
      let head = pending[at..<(at + 8)]
      let kind = head[at]
      let length = head.suffix(4).reduce(0) { $0 << 8 | Int($1) }
      guard kind <= 2, head[at + 1] == 0, head[at + 2] == 0, head[at + 3] == 0, length <= Self.longestFrame else {
        return false
      }
      guard pending.count - at - 8 >= length else { return length <= limit + (1 << 20) }
      add(pending[(at + 8)..<(at + 8 + length)], kind == 2 ? 1 : 0, each)
      at += 8 + length
    }
    return true
  }

  /// The end of the response also ends the last line.
  mutating func finish(_ each: (Line) -> Void) {
    if hasTerminal, !pending.isEmpty { add(pending[...], 0, each) }
    pending = []
    for stream in partial.indices where partial[stream].isOpen { end(stream, each) }
  }

  /// Adds a part of a line, with its time; the part may contain the line's end.
  private mutating func add(_ part: ArraySlice<UInt8>, _ stream: Int, _ each: (Line) -> Void) {
    var rest = part
    let isEnded = rest.last == 0x0A
    if isEnded { rest = rest.dropLast() }
    if isEnded, rest.last == 0x0D, hasTerminal { rest = rest.dropLast() }
    // Docker splits lines of more than 16 KiB; each part has its own time.
    if let space = rest.prefix(40).firstIndex(of: 0x20), let time = Self.time(rest[..<space]) {
      if !partial[stream].isOpen { partial[stream].time = time }
      rest = rest[(space + 1)...]
    }
    partial[stream].isOpen = true
    partial[stream].count += rest.count
    partial[stream].text += rest.prefix(max(0, limit - partial[stream].text.count))
    if isEnded { end(stream, each) }
  }

  private mutating func end(_ stream: Int, _ each: (Line) -> Void) {
    let line = partial[stream]
    partial[stream] = Partial()
    each(
      Line(
        isError: stream == 1, time: line.time, text: line.text,
        cut: line.count > line.text.count ? line.count : nil))
  }

  /// Converts `2026-01-02T03:04:05.123456789Z` to nanoseconds since 1970.
  static func time(_ text: ArraySlice<UInt8>) -> Int64? {
    let bytes = Array(text)
    guard bytes.count >= 20, bytes.last == UInt8(ascii: "Z") else { return nil }
    for (index, mark) in [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")] where bytes[index] != mark.utf8.first {
      return nil
    }
    func number(_ start: Int, _ count: Int) -> Int64? {
      var value: Int64 = 0
      for byte in bytes[start..<(start + count)] {
        guard byte &- 0x30 < 10 else { return nil }
        value = value * 10 + Int64(byte &- 0x30)
      }
      return value
    }
    guard let year = number(0, 4), let month = number(5, 2), let day = number(8, 2), let hour = number(11, 2),
      let minute = number(14, 2), let second = number(17, 2), (1970...2200).contains(year), (1...12).contains(month),
      (1...31).contains(day), hour < 24, minute < 60, second <= 60
    else { return nil }
    var fraction: Int64 = 0
    if bytes.count > 20 {
      guard bytes[19] == UInt8(ascii: "."), bytes.count <= 30 else { return nil }
      let digits = bytes.count - 21
      guard digits > 0, let value = number(20, digits) else { return nil }
      fraction = (digits..<9).reduce(value) { value, _ in value * 10 }
    } else if bytes[19] != UInt8(ascii: "Z") {
      return nil
    }
    // Days of the civil calendar; years are counted from March.
    let shifted = month > 2 ? year : year - 1
    let era = shifted / 400
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    let days = era * 146_097 + dayOfEra - 719_468
    return (days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction
  }
}
