extension FunctionRegistry {
  /// Parts of timestamps and durations.
  static let time: [FunctionSpec] = [
    part("getFullYear", "The year.", "2009") { $0.date.year },
    part("getMonth", "The month, from 0.", "1") { $0.date.month - 1 },
    part("getDayOfMonth", "The day of the month, from 0.", "12") { $0.date.day - 1 },
    part("getDate", "The day of the month, from 1.", "13") { $0.date.day },
    part("getDayOfWeek", "The day of the week; Sunday is 0.", "5") {
      Calendar.floor($0.days + 4, 7).remainder
    },
    part("getDayOfYear", "The day of the year, from 0.", "43") {
      $0.days - Calendar.days(.init(year: $0.date.year, month: 1, day: 1))
    },
    part("getHours", "The hour, 0 to 23; of a duration all its whole hours.", "23", of: 3_600_000_000_000) {
      $0.second / 3600
    },
    part("getMinutes", "The minute, 0 to 59; of a duration all its whole minutes.", "31", of: 60_000_000_000) {
      $0.second / 60 % 60
    },
    part("getSeconds", "The second, 0 to 59; of a duration all its whole seconds.", "30", of: 1_000_000_000) {
      $0.second % 60
    },
    part("getMilliseconds", "The milliseconds within the second.", "0", of: 1_000_000, modulo: 1000) {
      $0.nanoseconds / 1_000_000
    },
  ]

  /// A timestamp split into its parts, in its zone's local time.
  private struct Moment {
    var days: Int64
    /// The second of the day.
    var second: Int64
    var nanoseconds: Int64
    var date: Calendar.Date { Calendar.date(days: days) }

    init(_ value: Value, offset: Int64) {
      (days, second) = Calendar.floor(value.asInt + offset, 86_400)
      nanoseconds = Int64(value.length)
    }
  }

  private static func part(
    _ name: String, _ summary: String, _ example: String, of unit: Int64? = nil, modulo: Int64? = nil,
    _ read: @escaping @Sendable (Moment) -> Int64
  ) -> FunctionSpec {
    var overloads: [FunctionOverload] = [
      .member([.timestamp], .int) { .int(read(Moment($0[0], offset: 0))) },
      .member([.timestamp, .string], .int) { arguments in
        let zone = String(decoding: arguments[1].rawBytes, as: UTF8.self)
        guard let offset = TimeZones.offset(of: zone, at: arguments[0].asInt) else {
          return arguments.context.failure(.invalidArgument, arguments[1], "there is no such time zone")
        }
        return .int(read(Moment(arguments[0], offset: offset)))
      },
    ]
    if let unit {
      overloads.append(
        .member([.duration], .int) {
          let count = $0[0].asInt / unit
          return .int(modulo.map { count % $0 } ?? count)
        })
    }
    return FunctionSpec(
      name, summary, overloads, examples: [("timestamp('2009-02-13T23:31:30Z').\(name)()", example)])
  }
}
