extension FunctionRegistry {
  private static let formDetails =
    "The form is a name or directives of strftime. Names: `rfc3339`, `iso8601`, `rfc1123` (as in HTTP), `rfc2822`, `rfc850`, `clf` (access logs), `ansic`, `syslog`, `unix`, `unixMillis`, `unixMicros`, `unixNanos`. Directives: `%Y %y %m %d %e %j %b %B %a %A %H %I %k %l %M %S %p %P %z %:z %Z %s %F %T %R %D %r %c %n %t %%`, with `%L`, `%f` and `%N` for the fraction of the second as 3, 6 and 9 digits, and only to write `%C %G %g %V %U %W %u %w`. Names of days and months are English."

  /// Timestamps as text in any format.
  static let timeFormats: [FunctionSpec] = [
    FunctionSpec(
      "parseTime", "The point in time that a text in a given form stands for.",
      [
        .global([.string, .string], .timestamp, prepare: { formFault($0, reading: 2) }) { read($0) },
        .global([.string, .string, .string], .timestamp, prepare: { formFault($0, reading: 3) }) { read($0) },
        .global([.string, .string, .string, .timestamp], .timestamp, prepare: { formFault($0, reading: 4) }) {
          read($0)
        },
      ],
      examples: [
        ("parseTime('10/Oct/2000:13:55:36 -0700', 'clf')", "timestamp('2000-10-10T20:55:36Z')"),
        ("parseTime('2026-01-31 12:00', '%Y-%m-%d %H:%M')", "timestamp('2026-01-31T12:00:00Z')"),
        (
          "parseTime('31.01.2026 12:00:00,250', '%d.%m.%Y %H:%M:%S,%L', 'Europe/Berlin')",
          "timestamp('2026-01-31T11:00:00.25Z')"
        ),
        (
          "parseTime('Dec 31 23:59:59', 'syslog', 'UTC', timestamp('2026-01-01T00:00:05Z'))",
          "timestamp('2025-12-31T23:59:59Z')"
        ), ("parseTime('1769860800123', 'unixMillis')", "timestamp('2026-01-31T12:00:00.123Z')"),
        ("parseTime('20260131T1200', 'iso8601')", "timestamp('2026-01-31T12:00:00Z')"),
      ],
      details:
        """
        \(formDetails)\n\nThe third argument is the zone of texts that name none; without it that is UTC. Where \
        the form has no year, the fourth argument, most often `now`, gives it: the result is the latest such time \
        up to a day behind it. White space in the form fits any white space. For a local time that occurs twice \
        the earlier one is used.
        """
    ),
    FunctionSpec(
      "formatTime", "A point in time as text in a given form, in UTC or a zone.",
      [
        .global([.timestamp, .string], .string, prepare: { formFault($0, reading: 0) }) { write($0) },
        .global([.timestamp, .string, .string], .string, prepare: { formFault($0, reading: 0) }) { write($0) },
      ],
      examples: [
        ("formatTime(timestamp('2026-01-31T12:00:00Z'), 'rfc1123')", "'Sat, 31 Jan 2026 12:00:00 GMT'"),
        (
          "formatTime(timestamp('2026-01-31T12:00:00.25Z'), '%F %T.%L %z', 'Asia/Kolkata')",
          "'2026-01-31 17:30:00.250 +0530'"
        ), ("formatTime(timestamp('2026-01-31T12:00:00Z'), 'iso8601', '-05:00')", "'2026-01-31T07:00:00-05:00'"),
        ("formatTime(timestamp('2026-01-01T00:00:00Z'), '%G-W%V-%u')", "'2026-W01-4'"),
        ("int(formatTime(timestamp('2026-01-31T12:00:00Z'), 'unixMillis'))", "1769860800000"),
      ], details: "\(formDetails) `%Z` is `UTC` or the offset."),
  ]

  /// `reading`: the number of arguments of a call that parses; 0 for one that formats.
  private static func formFault(_ constants: FunctionOverload.Constants, reading: Int) -> FunctionOverload.Preparation {
    if let zone = constants.count > 2 ? constants[2] : nil, zone.is(.string),
      TimeZones.offset(of: String(decoding: zone.rawBytes, as: UTF8.self), at: 0) == nil
    {
      return .fault(
        2, message: "there is no such time zone", help: "Write 'UTC', an IANA name such as 'Europe/Berlin' or '+02:00'."
      )
    }
    guard let form = constants[1], form.is(.string) else { return .none }
    do throws(TimeFormat.Fault) {
      let format = try TimeFormat(form.rawBytes)
      if reading > 0, let fault = format.readingFault { throw fault }
      if reading == 2 || reading == 3, format.lacksYear {
        throw TimeFormat.Fault(message: "this form of time has no year", help: TimeFormat.yearHelp)
      }
      return reading > 0 ? .body { read($0, format) } : .body { write($0, format) }
    } catch {
      return .fault(1, message: error.message, help: error.help)
    }
  }

  private static func read(_ arguments: Arguments, _ known: TimeFormat? = nil) -> Value {
    do throws(TimeFormat.Fault) {
      let format: TimeFormat
      if let known { format = known } else { format = try TimeFormat(arguments[1].rawBytes) }
      if let fault = format.readingFault { throw fault }
      let zone = arguments.count > 2 ? String(decoding: arguments[2].rawBytes, as: UTF8.self) : "UTC"
      let near = arguments.count > 3 ? arguments[3].asInt : nil
      let time = try format.read(arguments[0].rawBytes, zone: zone, near: near)
      return .timestamp(seconds: time.seconds, nanoseconds: time.nanoseconds)
    } catch {
      return arguments.context.failure(.invalidArgument, arguments[0], text: error.message)
    }
  }

  private static func write(_ arguments: Arguments, _ known: TimeFormat? = nil) -> Value {
    do throws(TimeFormat.Fault) {
      let format: TimeFormat
      if let known { format = known } else { format = try TimeFormat(arguments[1].rawBytes) }
      var offset: Int64 = 0
      if arguments.count > 2 {
        let zone = String(decoding: arguments[2].rawBytes, as: UTF8.self)
        guard let known = TimeZones.offset(of: zone, at: arguments[0].asInt) else {
          throw TimeFormat.Fault(message: "there is no time zone '\(zone)'")
        }
        offset = known
      }
      return arguments.context.build { format.append(arguments[0], offset: offset, to: $0) }
    } catch {
      return arguments.context.failure(.invalidArgument, .absent, text: error.message)
    }
  }
}
