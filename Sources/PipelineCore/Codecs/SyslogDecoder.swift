/// The names of facilities and severities (RFC 5424, 6.2.1), at the indexes of their numbers.
package enum SyslogNames {
  package static let facilities: [StaticString] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit",
    "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
  ]
  package static let severities: [StaticString] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
  ]

  /// The number of a name; nil if there is no such name.
  static func number(of name: UnsafeRawBufferPointer, in names: [StaticString]) -> Int? {
    names.firstIndex { name.equals($0) }
  }
}

/// `syslog`: each line or message is a message of RFC 5424 or RFC 3164; its first bytes show which.
///
/// In messages of RFC 3164 the host may be missing, as in those of local programs, and the date may have the format of
/// RFC 3339. A message that violates its RFC is read leniently (`SyslogDecoder+Lenient.swift`), and `guessed` has the
/// names of the guessed members; with `strict` it is rejected, with the offset of the error.
final class SyslogDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  let framing: Framing
  private let isStrict: Bool
  private let members = ScratchBuffer<Entry>()
  /// The maximum number of structured data parameters; a message with more is malformed.
  static let parameterLimit = 1000

  init(_ options: DecoderOptions) {
    invalidUTF8 = options.invalidUTF8
    isStrict = options.isStrictSyslog
    framing = options.unit == .stream ? .lines : .whole
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    var text = slab.bytes.part(range.lowerBound, range.upperBound)
    guard framing == .lines else {
      // Some senders end datagrams as if they were lines.
      while let last = text.last, last == 0x0A || last == 0 { text = text.part(0, text.count - 1) }
      if !text.isEmpty { read(text, offset, arena, rows) }
      return
    }
    text.forEachLine { line, at in
      if !line.isBlank { read(line, offset &+ Int64(at), arena, rows) }
    }
  }

  private func read(_ line: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    guard let text = invalidUTF8.admit(line, offset: offset, arena, rows) else { return }
    members.clear()
    var message = Message(text, arena, members)
    do throws(RejectReason) {
      try message.read()
    } catch {
      if isStrict { return rows.reject(line, offset: offset, error) }
      members.clear()
      message = Message(text, arena, members)
      do throws(RejectReason) {
        try message.readLeniently()
      } catch {
        return rows.reject(line, offset: offset, error)
      }
    }
    let entries = arena.entries(members.count)
    _ = entries.update(fromContentsOf: members.elements)
    rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: offset)
  }

  /// The parser of one message.
  struct Message {
    let text: UnsafeRawBufferPointer
    let arena: Arena
    private let members: ScratchBuffer<Entry>
    var at = 0
    /// The members that were not written as the message's RFC requires.
    var guessed: [StaticString] = []

    init(_ text: UnsafeRawBufferPointer, _ arena: Arena, _ members: ScratchBuffer<Entry>) {
      self.text = text
      self.arena = arena
      self.members = members
    }

    func add(_ key: StaticString, _ value: Value) { members.append(Entry(key: .literal(key), value: value)) }

    func fault(_ expected: StaticString) -> RejectReason { .syslog(expected: "\(expected)", at: at) }

    /// Consumes one expected byte.
    private mutating func take(_ byte: UInt8, _ expected: StaticString) throws(RejectReason) {
      guard at < text.count, text[at] == byte else { throw fault(expected) }
      at += 1
    }

    mutating func read() throws(RejectReason) {
      try take(UInt8(ascii: "<"), "'<' and a priority")
      let start = at
      var priority = 0
      while at < text.count, at - start < 3, text[at] &- 0x30 < 10 {
        priority = priority * 10 + Int(text[at] - 0x30)
        at += 1
      }
      guard at > start, priority < 192, text[start] != 0x30 || at - start == 1 else {
        at = start
        throw fault("a priority from 0 to 191")
      }
      try take(UInt8(ascii: ">"), "'>' after the priority")
      add(priority: priority)
      if at + 1 < text.count, text[at] == UInt8(ascii: "1"), text[at + 1] == 0x20 {
        at += 2
        try readNew()
      } else {
        try readOld()
      }
    }

    /// `priority` must be below 192.
    func add(priority: Int) {
      add("facility", .literal(SyslogNames.facilities[priority >> 3]))
      add("severity", .literal(SyslogNames.severities[priority & 7]))
      add("facilityCode", .int(Int64(priority >> 3)))
      add("severityCode", .int(Int64(priority & 7)))
    }

    // MARK: RFC 5424

    private mutating func readNew() throws(RejectReason) {
      add("version", .int(1))
      if let time = try field(32, "a time as in RFC 3339, or '-'") {
        guard let found = TimeText.timestamp(time) else {
          at -= time.count + 1
          throw fault("a time as in RFC 3339, or '-'")
        }
        add("timestamp", .timestamp(seconds: found.seconds, nanoseconds: found.nanoseconds))
      }
      if let host = try field(255, "a host name, or '-'") { add("hostname", .string(host)) }
      if let app = try field(48, "the name of a program, or '-'") { add("appname", .string(app)) }
      if let process = try field(128, "the number of a process, or '-'") { add("procid", .string(process)) }
      if let kind = try field(32, "the kind of the message, or '-'") { add("msgid", .string(kind)) }
      try readStructuredData()
      guard at < text.count else { return add("message", .literal("")) }
      try take(0x20, "a space before the message")
      var message = text.part(at, text.count)
      if message.byteOrderMarkLength > 0 { message = message.part(3, message.count) }
      add("message", .string(message))
    }

    /// Reads printable ASCII and the space after it; nil if the field is `-`.
    private mutating func field(
      _ most: Int, _ expected: StaticString
    ) throws(RejectReason) -> UnsafeRawBufferPointer? {
      let start = at
      while at < text.count, text[at] > 0x20, text[at] < 0x7F { at += 1 }
      guard at > start, at - start <= most, at < text.count, text[at] == 0x20 else {
        if at - start > most { at = start }
        throw fault(expected)
      }
      let found = text.part(start, at)
      at += 1
      return found.count == 1 && found[0] == UInt8(ascii: "-") ? nil : found
    }

    mutating func readStructuredData() throws(RejectReason) {
      guard at < text.count else { throw fault("structured data, or '-'") }
      if text[at] == UInt8(ascii: "-") {
        at += 1
        return
      }
      var elements: [(key: Value, value: Value)] = []
      var count = 0
      repeat {
        try take(UInt8(ascii: "["), "'[' or '-'")
        let start = at
        let id = Value.string(try name("the name of an element"))
        if elements.contains(where: { $0.key.rawBytes.equals(id.rawBytes) }) {
          at = start
          throw fault("a name that no earlier element has")
        }
        var parameters: [(key: Value, value: Value)] = []
        while at < text.count, text[at] == 0x20 {
          at += 1
          count += 1
          if count > SyslogDecoder.parameterLimit { throw .tooManyFields(limit: SyslogDecoder.parameterLimit) }
          let key = Value.string(try name("the name of a parameter"))
          try take(UInt8(ascii: "="), "'=' and a value")
          let value = try quoted()
          // A name may occur several times: its values become a list.
          if let index = parameters.firstIndex(where: { $0.key.rawBytes.equals(key.rawBytes) }) {
            let earlier = parameters[index].value
            let values = earlier.is(.list) ? Array(earlier.elements) : [earlier]
            parameters[index].value = arena.list(values + [value])
          } else {
            parameters.append((key, value))
          }
        }
        try take(UInt8(ascii: "]"), "']', or a space and a parameter")
        elements.append((id, arena.map(parameters)))
      } while at < text.count && text[at] == UInt8(ascii: "[")
      add("structuredData", arena.map(elements))
    }

    private mutating func name(_ expected: StaticString) throws(RejectReason) -> UnsafeRawBufferPointer {
      let start = at
      while at < text.count, text[at] > 0x20, text[at] < 0x7F, text[at] != UInt8(ascii: "="),
        text[at] != UInt8(ascii: "]"), text[at] != UInt8(ascii: "\"")
      { at += 1 }
      guard at > start, at - start <= 32 else {
        if at - start > 32 { at = start }
        throw fault(expected)
      }
      return text.part(start, at)
    }

    /// Reads a text in quotes, where `\` escapes a quote, a `\` and a `]`.
    private mutating func quoted() throws(RejectReason) -> Value {
      try take(UInt8(ascii: "\""), "'\"' and a value")
      let start = at
      var escapes = 0
      while at < text.count, text[at] != UInt8(ascii: "\"") {
        if text[at] == UInt8(ascii: "]") { throw fault("'\\' before ']'") }
        if text[at] == UInt8(ascii: "\\"), at + 1 < text.count, isEscaped(text[at + 1]) {
          escapes += 1
          at += 1
        }
        at += 1
      }
      let raw = text.part(start, at)
      try take(UInt8(ascii: "\""), "'\"' after the value")
      guard escapes > 0 else { return .string(raw) }
      let space = UnsafeMutableRawBufferPointer(start: arena.allocate(raw.count), count: raw.count)
      var count = 0
      var index = 0
      while index < raw.count {
        if raw[index] == UInt8(ascii: "\\"), index + 1 < raw.count, isEscaped(raw[index + 1]) { index += 1 }
        space[count] = raw[index]
        count += 1
        index += 1
      }
      return .string(UnsafeRawBufferPointer(space).part(0, count))
    }

    private func isEscaped(_ byte: UInt8) -> Bool {
      byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte == UInt8(ascii: "]")
    }

    // MARK: RFC 3164

    static let months: [StaticString] = [
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    private mutating func readOld() throws(RejectReason) {
      let start = at
      if isShortDate {
        // The date has neither a year nor a zone, so it is not an instant.
        add("localTime", .string(text.part(start, start + 15)))
        at += 15
      } else {
        while at < text.count, text[at] > 0x20 { at += 1 }
        guard let found = TimeText.timestamp(text.part(start, at)) else {
          at = start
          throw fault("a date such as 'Oct 11 22:14:15'")
        }
        add("timestamp", .timestamp(seconds: found.seconds, nanoseconds: found.nanoseconds))
      }
      try take(0x20, "a space after the date")
      readHostAndTag()
      add("message", .string(text.part(at, text.count)))
    }

    /// Reads a host and the name of the program, or only the latter: a word that a ':' or a process ID ends names a
    /// program.
    mutating func readHostAndTag() {
      let first = word(at)
      if !first.isTag, first.end > at {
        add("hostname", .string(text.part(at, first.end)))
        at = min(first.end + 1, text.count)
      }
      readTag()
    }

    /// `Oct 11 22:14:15`
    private var isShortDate: Bool {
      let date = text.part(at, min(at + 15, text.count))
      guard date.count == 15, Self.months.contains(where: { date.part(0, 3).equals($0) }), date[3] == 0x20,
        date[6] == 0x20, date[9] == UInt8(ascii: ":"), date[12] == UInt8(ascii: ":"),
        let day = number(date, 4, isPadded: true), let hour = number(date, 7), let minute = number(date, 10),
        let second = number(date, 13)
      else { return false }
      return (1...31).contains(day) && hour < 24 && minute < 60 && second <= 60
    }

    private func number(_ date: UnsafeRawBufferPointer, _ digit: Int, isPadded: Bool = false) -> Int? {
      let (tens, ones) = (date[digit], date[digit + 1])
      guard ones &- 0x30 < 10, tens &- 0x30 < 10 || isPadded && tens == 0x20 else { return nil }
      return (tens == 0x20 ? 0 : Int(tens - 0x30) * 10) + Int(ones - 0x30)
    }

    /// The end of the word, and whether it names a program: `cron:`, `sshd[123]:`.
    func word(_ start: Int) -> (end: Int, isTag: Bool) {
      var end = start
      while end < text.count, text[end] > 0x20 { end += 1 }
      guard end > start else { return (end, false) }
      let last = text[end - 1]
      let opens = text.part(start, end).offset(of: UInt8(ascii: "[")) != nil
      return (end, last == UInt8(ascii: ":") || last == UInt8(ascii: "]") && opens)
    }

    /// Reads the name of the program and its process ID, if present.
    mutating func readTag() {
      let found = word(at)
      guard found.isTag else { return }
      var end = found.end
      if text[end - 1] == UInt8(ascii: ":") { end -= 1 }
      var name = text.part(at, end)
      if name.last == UInt8(ascii: "]"), let open = name.offset(of: UInt8(ascii: "[")) {
        if open + 1 < name.count - 1 { add("procid", .string(name.part(open + 1, name.count - 1))) }
        name = name.part(0, open)
      }
      if !name.isEmpty { add("appname", .string(name)) }
      at = found.end
      if at < text.count, text[at] == 0x20 { at += 1 }
    }
  }
}

extension SyslogDecoder {
  /// The fields of every event, for the checker of expressions.
  static var fields: [ExpressionType.Field] {
    typealias Field = ExpressionType.Field
    let data = ExpressionType.map(.string, .map(.string, .dyn))
    return [
      Field("facility", .string), Field("severity", .string), Field("facilityCode", .int), Field("severityCode", .int),
      Field("version", .int, mayBeAbsent: true), Field("timestamp", .timestamp, mayBeAbsent: true),
      Field("localTime", .string, mayBeAbsent: true), Field("hostname", .string, mayBeAbsent: true),
      Field("appname", .string, mayBeAbsent: true), Field("procid", .string, mayBeAbsent: true),
      Field("msgid", .string, mayBeAbsent: true), Field("structuredData", data, mayBeAbsent: true),
      Field("message", .string), Field("sequence", .int, mayBeAbsent: true),
      Field("guessed", .list(.string), mayBeAbsent: true),
    ]
  }
}
