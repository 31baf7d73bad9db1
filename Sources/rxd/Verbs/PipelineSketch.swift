import PipelineCore

/// A first pipeline file, built from a few choices: `rxd init`.
struct PipelineSketch {
  /// A choice, with the value that it needs.
  struct Choice {
    var name: String
    var help: String
    /// The question for the choice's value, and the default; nil: the choice has no value.
    var value: (question: String, usual: String)?
  }

  static let sources: [Choice] = [
    Choice(name: "stdin", help: "lines from standard input"),
    Choice(name: "file", help: "a file, once", value: ("Which file?", "events.ndjson")),
    Choice(name: "follow", help: "a file as it grows", value: ("Which file?", "/var/log/app.log")),
    Choice(
      name: "http", help: "a URL, polled every ten seconds", value: ("Which URL?", "http://127.0.0.1:8080/status")),
    Choice(name: "httpServer", help: "requests to this machine", value: ("Which address?", "127.0.0.1:8080")),
    Choice(
      name: "exec", help: "the output of a program, every ten seconds", value: ("Which program?", "cat /proc/loadavg")),
    Choice(name: "syslog", help: "syslog messages", value: ("Which address?", "127.0.0.1:5514")),
    Choice(name: "interval", help: "a tick", value: ("How often?", "10s")),
  ]
  static let formats: [Choice] = [
    Choice(name: "json", help: "a JSON document in each line"),
    Choice(name: "text", help: "text"),
  ]
  static let steps: [Choice] = [
    Choice(name: "pass", help: "nothing"),
    Choice(name: "filter", help: "keep some events"),
    Choice(name: "map", help: "choose or rename fields"),
    Choice(name: "distinct", help: "only changes"),
    Choice(name: "throttle", help: "only the newest, after a pause"),
    Choice(name: "count", help: "how many there are in ten seconds"),
  ]
  static let sinks: [Choice] = [
    Choice(name: "stdout", help: "the screen"),
    Choice(name: "file", help: "a file", value: ("Which file?", "out.ndjson")),
    Choice(name: "http", help: "a URL", value: ("Which URL?", "http://127.0.0.1:9000/events")),
    Choice(name: "syslog", help: "a syslog server, or /dev/log", value: ("Which address?", "/dev/log")),
    Choice(name: "tcp", help: "a TCP connection", value: ("Which address?", "127.0.0.1:9000")),
  ]

  /// A name with its value: `file:orders.ndjson`.
  struct Chosen {
    var name: String
    var value: String
  }

  var source = Chosen(name: "stdin", value: "")
  var format = "json"
  var steps = ["filter"]
  var sink = Chosen(name: "stdout", value: "")

  /// Whether the format determines how the source is decoded.
  static func hasFormat(_ source: String) -> Bool { !["syslog", "interval"].contains(source) }

  /// An example of an event.
  private enum Shape { case order, text, line, message, tick, total }

  private var shape: Shape {
    switch source.name {
    case "syslog": .message
    case "interval": .tick
    default: format == "json" ? .order : .text
    }
  }

  /// The file. The test expects nothing yet: `rxd init` fills in the results.
  var text: String {
    """
    # \(steps == ["pass"] ? "Passes events on" : "Sends what \(steps.joined(separator: ", ")) makes of events").
    #
    # 'rxd list' shows all sources, operators and sinks, and 'rxd describe NAME' describes one.
    sources:
      in:
        \(sourceText)
    \(signalText)
    sinks:
      out:
        from: \(chain.isEmpty ? "in" : "events")
        \(sinkText)

    tests:
      - name: what comes in goes out
        inputs:
          in:
            marbles: "ab 1s c 1s |"
            values:
    \(samples.map { "          \($0): \($1)\n" }.joined())\
        expect:
          out: [ { complete: true } ]

    """
  }

  private var decode: String { format == "json" ? "json" : "text" }

  private var sourceText: String {
    let value = Self.quoted(source.value)
    return switch source.name {
    case "file": "file: { path: \(value), decode: \(decode) }"
    case "follow": "file: { path: \(value), follow: true, decode: \(decode) }"
    case "http": "http: { url: \(value), every: 10s, decode: \(decode) }"
    case "httpServer": "httpServer: { address: \(value), decode: \(format == "json" ? "ndjson" : "lines") }"
    case "exec":
      "exec: { command: [\(source.value.split(separator: " ").map { Self.quoted(String($0)) }.joined(separator: ", "))], every: 10s, decode: \(format == "json" ? "ndjson" : "lines") }"
    case "syslog": "syslog: \(value)"
    case "interval": "interval: \(value)"
    default: "stdin: { decode: \(decode) }"
    }
  }

  private var sinkText: String {
    let value = Self.quoted(sink.value)
    return switch sink.name {
    case "file": "file: { path: \(value), encode: ndjson }"
    case "http": "http: { url: \(value), encode: ndjson, batch: { count: 100, every: 1s } }"
    case "syslog": "syslog: { address: \(value), appname: rxd }"
    case "tcp": "tcp: { address: \(value), encode: ndjson }"
    default: "stdout: { encode: json }"
    }
  }

  private var chain: [String] {
    var shape = shape
    return steps.flatMap { step -> [String] in
      switch step {
      case "filter":
        switch shape {
        case .order: return ["filter: event.total >= 100"]
        case .text: return ["filter: event.contains('error')"]
        case .line: return ["filter: event.length >= 5"]
        case .message: return ["filter: event.message.contains('error')"]
        case .tick: return ["filter: event.tick > 1"]
        case .total: return ["filter: event.events > 1"]
        }
      case "map":
        switch shape {
        case .order: return ["map: { order: event.id, total: event.total }"]
        case .text:
          shape = .line
          return ["map: { text: event, length: size(event) }"]
        case .line: return ["map: { text: event.text, length: event.length }"]
        case .message: return ["map: { message: event.message, severity: event.severity }"]
        case .tick: return ["map: { tick: event.tick }"]
        case .total: return ["map: { events: event.events }"]
        }
      case "distinct": return ["distinctUntilChanged"]
      case "throttle": return ["throttle: 300ms"]
      case "count":
        shape = .total
        return ["bufferWithTime: 10s", "map: { events: size(event) }"]
      default: return []
      }
    }
  }

  private var signalText: String {
    guard !chain.isEmpty else { return "" }
    return """

      signals:
        events:
          from: in
          chain:
      \(chain.map { "      - \($0)\n" }.joined())
      """
  }

  private var samples: [(String, String)] {
    switch shape {
    case .order:
      [("a", "{ id: 1, total: 20 }"), ("b", "{ id: 2, total: 250 }"), ("c", "{ id: 3, total: 120 }")]
    case .text, .line, .total: [("a", "started"), ("b", "\"error: no space left\""), ("c", "stopped")]
    case .message:
      [
        ("a", "{ message: started, severity: info }"), ("b", "{ message: \"error: no space left\", severity: err }"),
        ("c", "{ message: stopped, severity: info }"),
      ]
    case .tick:
      [
        ("a", "{ tick: 1, time: \"2026-01-01T00:00:10Z\", missed: 0 }"),
        ("b", "{ tick: 2, time: \"2026-01-01T00:00:20Z\", missed: 0 }"),
        ("c", "{ tick: 3, time: \"2026-01-01T00:00:30Z\", missed: 0 }"),
      ]
    }
  }

  /// A text between double quotes.
  private static func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": result += "\\" + String(scalar)
      case _ where scalar.value < 0x20: result += "\\u" + String(scalar.value + 0x10000, radix: 16).dropFirst()
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}
