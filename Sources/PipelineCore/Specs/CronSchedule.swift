/// A schedule in cron's five fields: minute, hour, day of month, month, day of week.
///
/// Fields take `*`, numbers, ranges `1-5`, lists `1,15`, steps `*/10`, and the English names of months and days in
/// three letters; Sunday is 0 or 7. If both day fields are restricted, either suffices; a field that starts with `*` is
/// not restricted, as in Vixie's cron. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are allowed.
package struct CronSchedule: Sendable, Equatable {
  private var minutes: UInt64 = 0
  private var hours: UInt64 = 0
  private var daysOfMonth: UInt64 = 0
  private var months: UInt64 = 0
  private var daysOfWeek: UInt64 = 0
  private var anyDayOfMonth = false
  private var anyDayOfWeek = false
  /// Whether the minute or the hour starts with `*`: such a schedule follows every change of the clock. Any other
  /// schedule names times of day, each of which runs once a day, even if the clock skips or repeats it.
  package private(set) var followsClock = false
  package let text: String

  /// The reason why a text is not a schedule.
  package struct Mistake: Error, Sendable, Equatable {
    package var message: String
  }

  private struct Field {
    var name: String
    var range: ClosedRange<Int>
    var names: [String]
  }

  private static let fields = [
    Field(name: "minute", range: 0...59, names: []),
    Field(name: "hour", range: 0...23, names: []),
    Field(name: "day of month", range: 1...31, names: []),
    Field(
      name: "month", range: 1...12,
      names: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    Field(name: "day of week", range: 0...7, names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
  ]

  private static let shortcuts = [
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
  ]

  package init(_ text: String) throws(Mistake) {
    self.text = text
    let parts = (Self.shortcuts[text.lowercased()] ?? text).utf8.split(separator: UInt8(ascii: " "))
    guard parts.count == 5 else {
      throw Mistake(
        message: "a schedule has five fields (minute, hour, day of month, month, day of week), not \(parts.count)")
    }
    var sets: [UInt64] = []
    for (part, field) in zip(parts, Self.fields) {
      sets.append(try Self.set(String(decoding: part, as: UTF8.self), field))
    }
    minutes = sets[0]
    hours = sets[1]
    daysOfMonth = sets[2]
    months = sets[3]
    daysOfWeek = sets[4] & 0x7F | (sets[4] >> 7 & 1)
    followsClock = parts[0].first == UInt8(ascii: "*") || parts[1].first == UInt8(ascii: "*")
    anyDayOfMonth = parts[2].first == UInt8(ascii: "*")
    anyDayOfWeek = parts[4].first == UInt8(ascii: "*")
    guard next(after: 0, in: "UTC") != nil else {
      throw Mistake(message: "the schedule '\(text)' never fires: there is no such date")
    }
  }

  private static func set(_ text: String, _ field: Field) throws(Mistake) -> UInt64 {
    var result: UInt64 = 0
    for item in text.split(separator: ",", omittingEmptySubsequences: false) {
      let halves = item.split(separator: "/", omittingEmptySubsequences: false)
      guard halves.count <= 2, let first = halves.first else { throw mistake(text, field) }
      var step = 1
      if halves.count == 2 {
        guard let number = Int(halves[1]), number >= 1, number <= 59 else { throw mistake(text, field) }
        step = number
      }
      var low = field.range.lowerBound
      var high = field.name == "day of week" ? 6 : field.range.upperBound
      if first != "*" {
        let ends = first.split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count <= 2, let start = number(ends[0], field) else { throw mistake(text, field) }
        low = start
        high = halves.count == 2 && ends.count == 1 ? high : start
        if ends.count == 2 {
          guard let end = number(ends[1], field), end >= start else { throw mistake(text, field) }
          high = end
        }
      }
      for value in stride(from: low, through: high, by: step) { result |= 1 << UInt64(value) }
    }
    return result
  }

  private static func number(_ text: Substring, _ field: Field) -> Int? {
    if let at = field.names.firstIndex(of: text.lowercased()) {
      return field.name == "month" ? at + 1 : at
    }
    guard text.utf8.allSatisfy({ (48...57).contains($0) }), let number = Int(text),
      field.range.contains(number)
    else { return nil }
    return number
  }

  private static func mistake(_ text: String, _ field: Field) -> Mistake {
    Mistake(
      message:
        "'\(Printable.cut(Array(text.utf8)))' is not a valid \(field.name): it takes \(field.range.lowerBound) to \(field.range.upperBound), ranges, lists and steps"
    )
  }

  /// Whether the time zone exists.
  package static func isTimeZone(_ name: String) -> Bool { TimeZones.offset(of: name, at: 0) != nil }

  // MARK: Times

  private static let day: Int64 = 86_400

  /// The first time of the schedule after `wallTime`, both in nanoseconds since 1970; nil if there is none within eight
  /// years, or no such time zone.
  ///
  /// If the schedule names times of day (not ``followsClock``), a time that a change of the clock skips runs at the
  /// moment of the change, and a repeated time runs the first time.
  package func next(after wallTime: Int64, in zone: String) -> Int64? {
    let after = Self.floor(wallTime, 1_000_000_000)
    guard let offset = TimeZones.offset(of: zone, at: after) else { return nil }
    let found = followsClock ? nextReal(after, zone) : nextLocal(after, offset, zone)
    return found.map { $0 &* 1_000_000_000 }
  }

  private static func floor(_ a: Int64, _ b: Int64) -> Int64 {
    let (quotient, rest) = a.quotientAndRemainder(dividingBy: b)
    return rest < 0 ? quotient - 1 : quotient
  }

  /// Searches minute by minute in real time, and skips whole days whose date does not match.
  private func nextReal(_ after: Int64, _ zone: String) -> Int64? {
    var time = (Self.floor(after, 60) + 1) * 60
    let end = after + 8 * 366 * Self.day
    while time <= end {
      let local = time + (TimeZones.offset(of: zone, at: time) ?? 0)
      let day = Self.floor(local, Self.day)
      if !fits(day: day) {
        time += max(60, (day + 1) * Self.day - local)
        // After a change of the clock the minute may no longer be whole.
        time = Self.floor(time + 59, 60) * 60
        continue
      }
      let hour = (local - day * Self.day) / 3600
      let minute = (local - day * Self.day) / 60 % 60
      if hours >> UInt64(hour) & 1 == 1, minutes >> UInt64(minute) & 1 == 1 { return time }
      time += 60
    }
    return nil
  }

  private func nextLocal(_ after: Int64, _ offset: Int64, _ zone: String) -> Int64? {
    // Starts a day earlier: if the clock was set back, earlier local times may still lie ahead.
    var day = Self.floor(after + offset, Self.day) - 1
    let end = day + 8 * 366
    while day <= end {
      if fits(day: day) {
        for hour in 0..<24 where hours >> UInt64(hour) & 1 == 1 {
          for minute in 0..<60 where minutes >> UInt64(minute) & 1 == 1 {
            let time = Self.real(day * Self.day + Int64(hour * 3600 + minute * 60), zone)
            if time > after { return time }
          }
        }
      }
      day += 1
    }
    return nil
  }

  /// The real time of a local time.
  private static func real(_ local: Int64, _ zone: String) -> Int64 {
    let before = TimeZones.offset(of: zone, at: local - day) ?? 0
    let behind = TimeZones.offset(of: zone, at: local + day) ?? 0
    if before == behind { return local - before }
    let valid = [local - before, local - behind].filter {
      $0 + (TimeZones.offset(of: zone, at: $0) ?? 0) == local
    }
    if let first = valid.min() { return first }
    // For a skipped local time, finds the moment of the change by bisection.
    var low = local - day - before
    var high = local + day - behind
    while high - low > 1 {
      let middle = low + (high - low) / 2
      if TimeZones.offset(of: zone, at: middle) == before { low = middle } else { high = middle }
    }
    return high
  }

  /// Whether the schedule includes a day, counted from 1970-01-01.
  private func fits(day: Int64) -> Bool {
    let date = Self.date(day)
    guard months >> UInt64(date.month) & 1 == 1 else { return false }
    let weekday = UInt64(((day + 4) % 7 + 7) % 7)
    let byMonth = daysOfMonth >> UInt64(date.day) & 1 == 1
    let byWeek = daysOfWeek >> weekday & 1 == 1
    if anyDayOfMonth || anyDayOfWeek { return byMonth && byWeek }
    return byMonth || byWeek
  }

  /// The Gregorian date of a day counted from 1970-01-01, by counting from March of year 0.
  private static func date(_ day: Int64) -> (month: Int, day: Int) {
    let shifted = day + 719_468
    let era = floor(shifted, 146_097)
    let inEra = shifted - era * 146_097
    let year = (inEra - inEra / 1460 + inEra / 36_524 - inEra / 146_096) / 365
    let inYear = inEra - (365 * year + year / 4 - year / 100)
    let shiftedMonth = (5 * inYear + 2) / 153
    let dayOfMonth = inYear - (153 * shiftedMonth + 2) / 5 + 1
    return (Int(shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9), Int(dayOfMonth))
  }
}

/// A schedule as a parameter.
package struct CronParameter: ParameterValue {
  package let schedule: CronSchedule
  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  package var defaultText: String? { schedule.text }
  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> CronParameter? {
    guard let text = String.decode(node, &context) else { return nil }
    do throws(CronSchedule.Mistake) {
      return CronParameter(schedule: try CronSchedule(text))
    } catch {
      context.badValue(node, error.message, help: "e.g. '30 6 * * 1-5', '*/5 * * * *' or '@hourly'")
      return nil
    }
  }
}
