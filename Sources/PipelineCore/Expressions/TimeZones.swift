import Synchronization

#if canImport(Glibc)
  import Glibc
#endif

/// Offsets of time zones: `+02:00`, `-09:30`, `02:00`, and names from the IANA database.
///
/// Each zone is one file of the system's `zoneinfo` directory and is read once.
enum TimeZones {
  /// The offsets of one zone: each applies from the start with the same index (seconds since 1970).
  private struct Zone: Sendable {
    var starts: [Int64]
    var offsets: [Int64]
    /// The offset before the first start.
    var first: Int64
    /// The rule for times after the last start, as in POSIX `TZ`.
    var rule: Rule?

    func offset(at time: Int64) -> Int64 {
      if let last = starts.last, time >= last, let rule { return rule.offset(at: time) }
      var low = 0
      var high = starts.count
      while low < high {
        let middle = (low + high) / 2
        if starts[middle] <= time { low = middle + 1 } else { high = middle }
      }
      return low == 0 ? first : offsets[low - 1]
    }
  }

  private static let known = Mutex<[String: Zone?]>([:])

  /// Seconds to add to UTC at a time (seconds since 1970); nil if there is no such zone.
  static func offset(of name: String, at time: Int64) -> Int64? {
    if let fixed = fixed(name) { return fixed }
    let zone = known.withLock { table -> Zone? in
      if let zone = table[name] { return zone }
      let zone = read(name)
      if table.count < 1000 { table[name] = .some(zone) }
      return zone
    }
    return zone?.offset(at: time)
  }

  private static func fixed(_ name: String) -> Int64? {
    if name == "UTC" || name == "GMT" || name == "Z" || name.isEmpty { return 0 }
    var bytes = Array(name.utf8)
    var sign: Int64 = 1
    if let first = bytes.first, first == 0x2B || first == 0x2D {
      if first == 0x2D { sign = -1 }
      bytes.removeFirst()
    }
    guard bytes.count == 5, bytes[2] == 0x3A,
      [0, 1, 3, 4].allSatisfy({ ASCII.isDigit(bytes[$0]) })
    else { return nil }
    let digits = bytes.map { Int64($0) - 0x30 }
    let (hours, minutes) = (digits[0] * 10 + digits[1], digits[3] * 10 + digits[4])
    guard hours < 24, minutes < 60 else { return nil }
    return sign * (hours * 3600 + minutes * 60)
  }

  // MARK: The database

  private static func read(_ name: String) -> Zone? {
    let bytes = Array(name.utf8)
    guard !bytes.isEmpty, bytes.count <= 64, bytes[0] != 0x2F, !name.contains(".."),
      bytes.allSatisfy({
        ASCII.isLetterOrUnderscore($0) || ASCII.isDigit($0) || $0 == 0x2F || $0 == 0x2D
          || $0 == 0x2B
      })
    else { return nil }
    let file = open("/usr/share/zoneinfo/\(name)", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var content: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 8192)
    while content.count < 1 << 20 {
      let count = Glibc.read(file, &chunk, chunk.count)
      guard count > 0 else { break }
      content += chunk[0..<count]
    }
    return parse(content)
  }

  /// Parses a TZif file (RFC 8536) of version 2 or later.
  private static func parse(_ bytes: [UInt8]) -> Zone? {
    func number(_ at: Int, _ size: Int) -> Int64? {
      guard at >= 0, at + size <= bytes.count else { return nil }
      var value: Int64 = size == 4 && bytes[at] >= 0x80 ? -1 : 0
      for index in 0..<size { value = value << 8 | Int64(bytes[at + index]) }
      return value
    }
    func header(_ at: Int) -> (size: Int, counts: [Int])? {
      guard at + 44 <= bytes.count, bytes[at..<at + 4].elementsEqual("TZif".utf8) else { return nil }
      let counts = (0..<6).compactMap { number(at + 20 + $0 * 4, 4).flatMap { Int(exactly: $0) } }
      guard counts.count == 6, counts.allSatisfy({ $0 >= 0 && $0 < 1 << 16 }) else { return nil }
      return (44, counts)
    }
    // isutc, isstd, leap, time, type, char
    guard let first = header(0), bytes[4] >= UInt8(ascii: "2") else { return nil }
    let c = first.counts
    let second = 44 + c[3] * 5 + c[4] * 6 + c[5] + c[2] * 8 + c[1] + c[0]
    guard let next = header(second) else { return nil }
    let counts = next.counts
    let times = second + 44
    let indexes = times + counts[3] * 8
    let types = indexes + counts[3]
    var starts: [Int64] = []
    var offsets: [Int64] = []
    func offset(_ type: Int) -> Int64? { type < counts[4] ? number(types + type * 6, 4) : nil }
    for index in 0..<counts[3] {
      guard let start = number(times + index * 8, 8), indexes + index < bytes.count,
        let offset = offset(Int(bytes[indexes + index]))
      else { return nil }
      starts.append(start)
      offsets.append(offset)
    }
    let footer = types + counts[4] * 6 + counts[5] + counts[2] * 12 + counts[1] + counts[0]
    var rule: Rule?
    if footer < bytes.count {
      rule = Rule(String(decoding: bytes[footer...].filter { $0 != 10 }, as: UTF8.self))
    }
    if starts.isEmpty, let fixed = rule?.offset(at: 0) {
      return Zone(starts: [.min], offsets: [fixed], first: fixed, rule: rule)
    }
    return Zone(starts: starts, offsets: offsets, first: offset(0) ?? 0, rule: rule)
  }

  /// A POSIX `TZ` string: `CET-1CEST,M3.5.0,M10.5.0/3`.
  private struct Rule: Sendable {
    var standard: Int64
    var summer: Int64?
    var begin: Change?
    var end: Change?

    /// A day of each year, and the time of that day in seconds of local time.
    struct Change: Sendable {
      var month: Int64
      var week: Int64
      var weekday: Int64
      /// The day of the year, counted from 0, if the rule gives one; `skipsLeapDay` counts as if no year had a leap
      /// day.
      var dayOfYear: Int64?
      var skipsLeapDay = false
      var second: Int64

      func time(in year: Int64) -> Int64 {
        let newYear = Calendar.days(.init(year: year, month: 1, day: 1))
        if let dayOfYear {
          let leap = skipsLeapDay && Calendar.isLeap(year) && dayOfYear >= 59 ? 1 : 0 as Int64
          return (newYear + dayOfYear + leap) * 86_400 + second
        }
        let first = Calendar.days(.init(year: year, month: month, day: 1))
        let weekdayOfFirst = Calendar.floor(first + 4, 7).remainder
        var day = Calendar.floor(weekday - weekdayOfFirst, 7).remainder + (week - 1) * 7
        if day >= Calendar.daysInMonth(year, month) { day -= 7 }
        return (first + day) * 86_400 + second
      }
    }

    init?(_ text: String) {
      let parts = text.split(separator: ",", omittingEmptySubsequences: false)
      guard let names = parts.first else { return nil }
      var bytes = Array(names.utf8)[...]
      guard Self.name(&bytes), let west = Self.time(&bytes) else { return nil }
      standard = -west
      if bytes.isEmpty { return }
      guard Self.name(&bytes) else { return nil }
      summer = bytes.isEmpty ? standard + 3600 : Self.time(&bytes).map { -$0 }
      guard parts.count == 3, let begin = Self.change(parts[1]), let end = Self.change(parts[2]) else {
        return nil
      }
      self.begin = begin
      self.end = end
    }

    private static func name(_ bytes: inout ArraySlice<UInt8>) -> Bool {
      let before = bytes.count
      if bytes.first == 0x3C {
        while let byte = bytes.popFirst() { if byte == 0x3E { return true } }
        return false
      }
      while let byte = bytes.first, ASCII.isLetterOrUnderscore(byte) { bytes.removeFirst() }
      return bytes.count < before
    }

    /// Parses `[+-]h[:m[:s]]` to seconds.
    private static func time(_ bytes: inout ArraySlice<UInt8>) -> Int64? {
      var sign: Int64 = 1
      if let first = bytes.first, first == 0x2B || first == 0x2D {
        if first == 0x2D { sign = -1 }
        bytes.removeFirst()
      }
      var total: Int64 = 0
      for unit in [3600, 60, 1] as [Int64] {
        var value: Int64 = 0
        var digits = 0
        while let byte = bytes.first, ASCII.isDigit(byte), digits < 3 {
          value = value * 10 + Int64(byte - 0x30)
          digits += 1
          bytes.removeFirst()
        }
        guard digits > 0 else { return nil }
        total += value * unit
        guard bytes.first == 0x3A else { break }
        bytes.removeFirst()
      }
      return sign * total
    }

    private static func change(_ text: Substring) -> Change? {
      let halves = text.split(separator: "/", maxSplits: 1)
      guard let day = halves.first else { return nil }
      var second: Int64 = 7200
      if halves.count == 2 {
        var bytes = Array(halves[1].utf8)[...]
        guard let time = time(&bytes) else { return nil }
        second = time
      }
      if day.first == "M" {
        let numbers = day.dropFirst().split(separator: ".").compactMap { Int64($0) }
        guard numbers.count == 3, (1...12).contains(numbers[0]), (1...5).contains(numbers[1]),
          (0...6).contains(numbers[2])
        else { return nil }
        return Change(month: numbers[0], week: numbers[1], weekday: numbers[2], second: second)
      }
      let skips = day.first == "J"
      guard let number = Int64(skips ? day.dropFirst() : day), (0...366).contains(number) else {
        return nil
      }
      return Change(
        month: 1, week: 1, weekday: 0, dayOfYear: skips ? number - 1 : number, skipsLeapDay: skips,
        second: second)
    }

    func offset(at time: Int64) -> Int64 {
      guard let summer, let begin, let end else { return standard }
      let year = Calendar.date(days: Calendar.floor(time + standard, 86_400).quotient).year
      let from = begin.time(in: year) - standard
      let to = end.time(in: year) - summer
      let isSummer = from < to ? time >= from && time < to : time >= from || time < to
      return isSummer ? summer : standard
    }
  }
}
