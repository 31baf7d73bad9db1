/// A mistake as small as can be and what to write in its place, for `rxd explain CODE`. Tests check both.
public struct CodeExample: Sendable {
  /// Which part of a file the texts are.
  public enum Place: Sendable {
    /// All of it.
    case file
    /// What stands behind `NAME:` under `sources:`.
    case source
    /// One step of a chain.
    case step
  }

  public var place: Place
  public var wrong: String
  public var right: String

  /// The example for a code; nil for what no small file shows: limits, failures while running, the environment.
  public static func of(_ code: Diagnostic.Code) -> CodeExample? { table[code.name] }

  /// A whole pipeline file around one of the texts.
  public func file(_ text: String) -> String {
    func indented(_ text: String, by spaces: Int) -> String {
      text.split(separator: "\n", omittingEmptySubsequences: false).map { String(repeating: " ", count: spaces) + $0 }
        .joined(separator: "\n")
    }
    switch place {
    case .file: return text
    case .source: return "sources:\n  s:\n\(indented(text, by: 4))\nsinks:\n  out: { from: s, stdout: {} }\n"
    case .step:
      let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
      let rest = lines.dropFirst().map { "        \($0)\n" }.joined()
      return """
        sources:
          s: { stdin: { decode: json } }
        sinks:
          out:
            from: s
            chain:
              - \(lines[0])
        \(rest)    stdout: {}

        """
    }
  }

  private static func file(_ wrong: String, _ right: String) -> CodeExample {
    CodeExample(place: .file, wrong: wrong, right: right)
  }
  private static func source(_ wrong: String, _ right: String) -> CodeExample {
    CodeExample(place: .source, wrong: wrong, right: right)
  }
  private static func step(_ wrong: String, _ right: String) -> CodeExample {
    CodeExample(place: .step, wrong: wrong, right: right)
  }

  private static let sound = "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }"

  /// Each line stands for ten of the line before it.
  private static let bomb: String = {
    var lines: [String] = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for (name, before) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e")] {
      lines.append("\(name): &\(name) [" + Array(repeating: "*" + before, count: 10).joined(separator: ", ") + "]")
    }
    return lines.joined(separator: "\n")
  }()

  private static let table: [String: CodeExample] = [
    // Text and YAML
    "RX105": file("# sources come later", sound),
    "RX106": file(sound + "\n---\n" + sound, sound),
    "RX107": file("%TAG ! !mine\n---\n" + sound, sound),
    "RX108": step("filter: event.name == 'a\u{202E}b'", "filter: event.name == 'ab'"),
    "RX113": file(bomb, sound),
    "RX114": source("values: &all [1, *all]", "values: [1, 2]"),
    "RX115": source("values: *numbers", "values: [1, 2]"),
    "RX116": file(
      "sources:\n  s: { <<: { decode: json }, stdin: {} }\nsinks: { out: { from: s, stdout: {} } }",
      "sources:\n  s: { stdin: { decode: json } }\nsinks: { out: { from: s, stdout: {} } }"),
    "RX119": file(
      "sources: { s: { stdin: {} } }\nsources: { t: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX120": source("values: [{ [a]: 1 }]", "values: [{ a: 1 }]"),
    "RX121": step("filter: !event.ok", "filter: \"!event.ok\""),
    "RX123": source("values: [&a 1, &a 2]", "values: [&a 1, &b 2]"),
    "RX131": step("filter: 'event.a == 1", "filter: 'event.a == 1'"),
    "RX132": step("filter: 'a' == event.name", "filter: \"'a' == event.name\""),
    "RX133": step("map: event.ok ? 'yes' : 'no'", "map: \"event.ok ? 'yes' : 'no'\""),
    "RX134": file(
      "sources:\n  s: { stdin: {} }\n t: { stdin: {} }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX135": file("sources:\n\ts: { stdin: {} }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX136": file("sources: { s: { stdin: {} } }\nsinks:\n  out: { from:s, stdout: {} }", sound),
    "RX137": step("filter: @name == 'a'", "filter: event.name == 'a'"),
    "RX138": step("filter: \"event.name.matches('\\d')\"", "filter: event.name.matches(r'\\d')"),
    "RX139": source("values: [1, 2", "values: [1, 2]"),
    "RX140": step("log: { message: {{ event.name }} }", "log: { message: \"{{ event.name }}\" }"),
    "RX141": step("filter: > 3", "filter: event > 3"),
    "RX142": step("filter: *.name == 'a'", "filter: event.name == 'a'"),
    "RX143": step("filter: event.name == 'a #1'", "filter: \"event.name == 'a #1'\""),
    "RX144": step("map: [event.a] + [1]", "map: \"[event.a] + [1]\""),
    "RX145": source("values: [1, [2, 3}]", "values: [1, [2, 3]]"),

    // Grammar
    "RX201": file("source: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX202": file("sources: { s: { stdin: {} } }\nsinks: { out: { stdout: {} } }", sound),
    "RX203": step("take: \"2\"", "take: 2"),
    "RX204": source("stdin: {}\nfile: a.log", "file: a.log"),
    "RX205": file("sources: { s: { stdin: {} } }\nsinks: { s: { from: s, stdout: {} } }", sound),
    "RX206": file("sources: { event: { stdin: {} } }\nsinks: { out: { from: event, stdout: {} } }", sound),
    "RX207": file(
      "sources: { s: { stdin: {} } }\nsignals: { x: { from: s, merge: [s] } }\nsinks: { out: { from: x, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsignals: { x: { from: s } }\nsinks: { out: { from: x, stdout: {} } }"),
    "RX208": file("sources: { s: { stdin: {} } }\nsinks: { out: { from: \"s, t\", stdout: {} } }", sound),
    "RX209": file(
      "sources: { s: { stdin: {}, chain: [ { take: 1 } ] } }\nsinks: { out: { from: s, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, chain: [ { take: 1 } ], stdout: {} } }"),
    "RX210": file(
      "sources: { s: { stdin: {} } }\nsignals: { x: { merge: [] } }\nsinks: { out: { from: x, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsignals: { x: { merge: [s, s] } }\nsinks: { out: { from: x, stdout: {} } }"),
    "RX220": step("debounce: 300ms", "throttle: 300ms"),
    "RX221": source("stdin: { format: json }", "stdin: { decode: json }"),
    "RX222": step("throttle", "throttle: 300ms"),
    "RX223": step("bufferWithCount: 0", "bufferWithCount: 10"),
    "RX224": source("stdin: { decode: jason }", "stdin: { decode: json }"),
    "RX226": step("log: { on: [error] }", "log: { when: [error] }"),
    "RX227": source(
      "http: { url: 'http://10.0.0.1/', headers: { Host: books.example } }", "http: { url: 'http://books.example/' }"),
    "RX230": source("interval: 5 minutes", "interval: 5m"),
    "RX250": source("file: \"${LOG-a.log}\"", "file: \"${LOG:-a.log}\""),
    "RX251": source("file: \"${LOG:-${NAME}}\"", "file: \"${LOG:-a.log}\""),
    "RX252": source("values: [{ \"${NAME:-a}\": 1 }]", "values: [{ name: \"${NAME:-a}\" }]"),
    "RX253": source("file: \"/srv/${secret:NAME}.log\"", "file: \"/srv/${NAME:-a}.log\""),

    // Names and wiring
    "RX301": file("sources: { s: { stdin: {} } }\nsinks: { out: { from: t, stdout: {} } }", sound),
    "RX302": file(
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s.values, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s.errors, stdout: {} } }"),
    "RX303": file(
      "sources: { s: { stdin: {} } }\nsignals: { x: { merge: [s, x] } }\nsinks: { out: { from: x, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsignals: { x: { from: s } }\nsinks: { out: { from: x, stdout: {} } }"),
    "RX304": file("sources: { s: { stdin: {} }, t: { values: [1] } }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX306": file(
      "sources: { s: { stdin: {} } }\nsignals: { x: { from: s, reduce: s + 1 } }\nsinks: { out: { from: x, stdout: {} } }",
      "sources: { s: { stdin: {} } }\nsignals: { x: { from: s, chain: [ { map: event + '!' } ] } }\nsinks: { out: { from: x, stdout: {} } }"
    ),
    "RX307": file("sources: { s: { stdin: {} } }", sound),
    "RX320": file("sources: { s: { stdin: {} } }\ndefaults: { a: 1 }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX336": file(
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, file: /nowhere/out.ndjson } }",
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, file: out.ndjson } }"),
    "RX337": file(
      "sources: { s: { stdin: {} }, t: { stdin: {} } }\nsinks: { a: { from: s, stdout: {} }, b: { from: t, stderr: {} } }",
      "sources: { s: { stdin: {} } }\nsinks: { a: { from: s, stdout: {} }, b: { from: s, stderr: {} } }"),
    "RX323": source("stdin: { decode: json }\nschema: { id: number }", "stdin: { decode: json }\nschema: { id: int }"),
    "RX326": file(
      "sources: { a: { httpServer: 8080 }, b: { httpServer: 8080 } }\nsinks: { out: { from: { merge: [a, b] }, discard: {} } }",
      "sources: { a: { httpServer: 8080 }, b: { httpServer: 8081 } }\nsinks: { out: { from: { merge: [a, b] }, discard: {} } }"
    ),
    "RX327": file(
      "sources: { a: { httpServer: 8080 } }\nsinks: { out: { from: a, discard: {} } }",
      "sources: { a: { httpServer: 8080 } }\nsinks: { out: { from: a, reply: {} } }"),
    "RX329": file(
      "sources: { a: { interval: 1ms } }\nsinks: { out: { from: a, chain: [ { join: { signal: a, within: 1h } } ], stdout: {} } }",
      "sources: { a: { interval: 1ms } }\nsinks: { out: { from: a, chain: [ { join: { signal: a, within: 1m } } ], stdout: {} } }"
    ),

    // Expressions
    "RX331": step("aggregate: { top: event.price }", "aggregate: { top: max(event.price) }"),
    "RX401": step("filter: event.level = 'error'", "filter: event.level == 'error'"),
    "RX402": step("filter: event.age > 30s", "filter: event.age > 30"),
    "RX404": step("map: if event.ok then 1 else 2", "map: \"event.ok ? 1 : 2\""),
    "RX405": step("filter: has(event)", "filter: has(event.name)"),
    "RX406": step("log: { message: \"{{ event.name\" }", "log: { message: \"{{ event.name }}\" }"),
    "RX411": step("filter: event.level == error", "filter: event.level == 'error'"),
    "RX412": step("filter: length(event.name) > 3", "filter: size(event.name) > 3"),
    "RX413": step("filter: size(event.name) > '3'", "filter: size(event.name) > 3"),
    "RX414": file(
      "sources: { s: { stdin: { decode: json }, schema: { id: int } } }\nsinks: { out: { from: s, chain: [ { filter: event.ib > 1 } ], stdout: {} } }",
      "sources: { s: { stdin: { decode: json }, schema: { id: int } } }\nsinks: { out: { from: s, chain: [ { filter: event.id > 1 } ], stdout: {} } }"
    ),
    "RX415": step("filter: size(event.name)", "filter: size(event.name) > 3"),
    "RX416": step("filter: event.name.matches('[a-z')", "filter: event.name.matches('[a-z]')"),
    "RX417": step("map: \"{1.5: event.name}\"", "map: \"{'name': event.name}\""),
    "RX418": step("filter: now > timestamp('2026-01-01')", "filter: now > timestamp('2026-01-01T00:00:00Z')"),
    "RX421": step("map: event.count / 2", "map: event.count / 2.0"),
    "RX422": step("filter: event.level != 'debug'", "filter: event.?level.orValue('') != 'debug'"),
    "RX423": step("filter: size(event.name) >= 0", "filter: size(event.name) > 0"),
    "RX424": step("startWith: \"{{ now }}\"", "startWith: first"),
    "RX425": step("startWith: \"''\"", "startWith: ''"),
  ]
}
