// Messages of devices that almost follow an RFC: without a priority, with a nonstandard date, with a number or a name
// before the date, or in another format (CEF, key=value). Recognized parts become members, the rest is `message`, and
// `guessed` lists the members that the RFC does not determine. A message with a priority above 191 or a date that does
// not exist is rejected.

extension SyslogDecoder.Message {
  mutating func readLeniently() throws(RejectReason) {
    try readPriority()
    skipSpaces()
    if at + 1 < text.count, text[at] == UInt8(ascii: "1"), text[at + 1] == 0x20, isNew(at + 2) {
      at += 2
      try readNewLeniently()
    } else {
      try readOldLeniently()
    }
    // The strict reader rejected the message, so at least one part is guessed.
    if guessed.isEmpty { guessed.append("message") }
    add("guessed", arena.list(guessed.map { .literal($0) }))
  }

  private mutating func guess(_ member: StaticString) { guessed.append(member) }

  private mutating func skipSpaces() { while at < text.count, text[at] == 0x20 { at += 1 } }

  private func isDigit(_ index: Int) -> Bool { index < text.count && text[index] &- 0x30 < 10 }

  /// Reads `<189>`; a message without a priority is a notice of the facility `user` (RFC 3164, 4.3.3).
  private mutating func readPriority() throws(RejectReason) {
    var end = 1
    var priority = 0
    while isDigit(end), end <= 8 {
      priority = priority * 10 + Int(text[end] - 0x30)
      end += 1
    }
    guard text.first == UInt8(ascii: "<"), end > 1, end < text.count, text[end] == UInt8(ascii: ">") else {
      add(priority: 13)
      guess("facility")
      return guess("severity")
    }
    guard priority < 192 else {
      at = 1
      throw fault("a priority from 0 to 191")
    }
    at = end + 1
    add(priority: priority)
  }

  // MARK: RFC 5424

  /// Whether the version 1 is followed by `-` or a date, as only in RFC 5424.
  private func isNew(_ start: Int) -> Bool {
    let time = text.part(start, word(start).end)
    return time.count == 1 && time[0] == UInt8(ascii: "-") || isDate(time)
  }

  /// Whether the word looks like `2026-02-30T...`, even if there is no such day.
  private func isDate(_ word: UnsafeRawBufferPointer) -> Bool {
    guard word.count >= 11, word[4] == UInt8(ascii: "-"), word[7] == UInt8(ascii: "-"),
      word[10] | 0x20 == UInt8(ascii: "t")
    else { return false }
    return (0..<10).allSatisfy { $0 == 4 || $0 == 7 || word[$0] &- 0x30 < 10 }
  }

  private mutating func readTime(_ word: UnsafeRawBufferPointer) throws(RejectReason) {
    if let time = TimeText.timestamp(word) {
      return add("timestamp", .timestamp(seconds: time.seconds, nanoseconds: time.nanoseconds))
    }
    // A leap second becomes the second after it, as on most systems.
    if word.count >= 19, word[17] == UInt8(ascii: "6"), word[18] == UInt8(ascii: "0") {
      let copy = UnsafeMutableRawBufferPointer(start: arena.allocate(word.count), count: word.count)
      copy.copyMemory(from: word)
      copy[17] = UInt8(ascii: "5")
      copy[18] = UInt8(ascii: "9")
      if let time = TimeText.timestamp(UnsafeRawBufferPointer(copy)) {
        guess("timestamp")
        return add("timestamp", .timestamp(seconds: time.seconds &+ 1, nanoseconds: time.nanoseconds))
      }
    }
    throw fault("a time as in RFC 3339, or '-'")
  }

  private mutating func readNewLeniently() throws(RejectReason) {
    add("version", .int(1))
    let time = text.part(at, word(at).end)
    if time.count > 1 { try readTime(time) }
    at += time.count
    for name: StaticString in ["hostname", "appname", "procid", "msgid"] {
      skipSpaces()
      let found = text.part(at, word(at).end)
      at += found.count
      if !found.isEmpty, !(found.count == 1 && found[0] == UInt8(ascii: "-")) { add(name, .string(found)) }
    }
    skipSpaces()
    let start = at
    do throws(RejectReason) {
      if at < text.count { try readStructuredData() }
    } catch {
      at = start
      guess("structuredData")
    }
    skipSpaces()
    var message = text.part(at, text.count)
    if message.byteOrderMarkLength > 0 { message = message.part(3, message.count) }
    add("message", .string(message))
  }

  // MARK: RFC 3164, and what devices make of it

  private mutating func readOldLeniently() throws(RejectReason) {
    // Cisco devices write a message number, the name of the device, and another number: `94: sw1: 000204: `.
    var sequence = number(at)
    if let found = sequence { at = found.end }
    var hasHost = false
    let name = word(at)
    if name.isTag, name.end - at > 1, text[name.end - 1] == UInt8(ascii: ":"), text[at] != UInt8(ascii: "%"),
      name.end + 1 < text.count,
      number(name.end + 1) != nil || date(name.end + 1) != nil
    {
      add("hostname", .string(text.part(at, name.end - 1)))
      guess("hostname")
      hasHost = true
      at = name.end + 1
      if let found = number(at) {
        sequence = found
        at = found.end
      }
    }
    if let sequence { add("sequence", .int(sequence.value)) }
    let hasDate = try readDate()
    if hasDate { skipSpaces() }
    if !hasDate {
      guess("message")
      let first = word(at)
      if first.isTag, isProgram(text.part(at, first.end)) { readTag() }
    } else if hasHost {
      readTag()
    } else {
      readHostAndTag()
    }
    add("message", .string(text.part(at, text.count)))
  }

  /// A number followed by a colon and a space.
  private func number(_ start: Int) -> (value: Int64, end: Int)? {
    var end = start
    var value: Int64 = 0
    while isDigit(end), end - start < 18 {
      value = value * 10 + Int64(text[end] - 0x30)
      end += 1
    }
    guard end > start, end + 1 < text.count, text[end] == UInt8(ascii: ":"), text[end + 1] == 0x20 else { return nil }
    return (value, end + 2)
  }

  /// Reads the date and a colon after it; false if there is none.
  private mutating func readDate() throws(RejectReason) -> Bool {
    if let found = date(at) {
      add("localTime", .string(text.part(found.start, found.end)))
      guess("localTime")
      at = found.next
      return true
    }
    let end = word(at).end
    var time = text.part(at, end)
    if time.last == UInt8(ascii: ":") { time = time.part(0, time.count - 1) }
    guard isDate(time) else { return false }
    try readTime(time)
    at = end
    return true
  }

  /// Finds `Feb 28 00:20:10`. Accepts one space before a single digit, a clock mark, a year, a fraction, and a zone
  /// followed by a colon.
  private func date(_ begin: Int) -> (start: Int, end: Int, next: Int)? {
    var start = begin
    // The mark means that the device's clock is not synchronized.
    if start < text.count, text[start] == UInt8(ascii: "*") || text[start] == UInt8(ascii: ".") { start += 1 }
    guard start + 3 < text.count, Self.months.contains(where: { text.part(start, start + 3).equals($0) }),
      text[start + 3] == 0x20
    else { return nil }
    var index = start + 4
    if index < text.count, text[index] == 0x20 { index += 1 }
    func digits(_ most: Int) -> Int? {
      var value = 0
      let first = index
      while isDigit(index), index - first < most {
        value = value * 10 + Int(text[index] - 0x30)
        index += 1
      }
      return index > first ? value : nil
    }
    func take(_ byte: UInt8) -> Bool {
      guard index < text.count, text[index] == byte else { return false }
      index += 1
      return true
    }
    guard let day = digits(2), (1...31).contains(day), take(0x20) else { return nil }
    if isDigit(index), isDigit(index + 1), isDigit(index + 2), isDigit(index + 3), index + 4 < text.count,
      text[index + 4] == 0x20
    {
      index += 5
    }
    guard let hour = digits(2), hour < 24, take(UInt8(ascii: ":")), let minute = digits(2), minute < 60,
      take(UInt8(ascii: ":")),
      let second = digits(2), second <= 60
    else { return nil }
    if index + 1 < text.count, text[index] == UInt8(ascii: "."), isDigit(index + 1) {
      index += 1
      _ = digits(9)
    }
    var end = index
    // A zone; without the colon the word would be the name of a host.
    var zone = index + 1
    while zone < text.count, text[index] == 0x20, (0x41...0x5A).contains(text[zone]), zone - index <= 5 { zone += 1 }
    if zone > index + 2, zone < text.count, text[zone] == UInt8(ascii: ":") { end = zone }
    let next = end < text.count && text[end] == UInt8(ascii: ":") ? end + 1 : end
    guard next == text.count || text[next] == 0x20 else { return nil }
    return (start, end, next)
  }

  /// Whether a word followed by a colon names a program rather than a format, as `CEF:0|` does.
  private func isProgram(_ word: UnsafeRawBufferPointer) -> Bool {
    guard let first = word.first, (first | 0x20) &- 0x61 < 26 else { return false }
    return word.allSatisfy { byte in
      byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || [0x2D, 0x2E, 0x2F, 0x3A, 0x5B, 0x5D, 0x5F].contains(byte)
    }
  }
}
