/// A minimal error and its correction, for `rxd explain CODE`. Every code has one; tests check those that are texts of
/// a file.
package struct CodeExample: Sendable {
  /// The part of a file that the texts of an example are.
  package enum Context: Sendable {
    /// The whole file.
    case file
    /// The value of `NAME:` under `sources:`.
    case source
    /// One step of a chain.
    case step
    /// No text: `wrong` is a sentence about the situation in which the code is reported, `right` one about the remedy.
    case situation
  }

  package var context: Context
  package var wrong: String
  package var right: String
  /// JSON events of the source `s`, one millisecond apart, that cause the error at run time.
  package var events: [String] = []

  /// The example for a code.
  package static func of(_ code: Diagnostic.Code) -> CodeExample? { table[code.name] }

  /// A complete pipeline file that contains one of the texts.
  package func file(_ text: String) -> String {
    func indented(_ text: String, by spaces: Int) -> String {
      text.split(separator: "\n", omittingEmptySubsequences: false).map { String(repeating: " ", count: spaces) + $0 }
        .joined(separator: "\n")
    }
    switch context {
    case .file, .situation: return text
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
    CodeExample(context: .file, wrong: wrong, right: right)
  }
  private static func source(_ wrong: String, _ right: String) -> CodeExample {
    CodeExample(context: .source, wrong: wrong, right: right)
  }
  private static func step(_ wrong: String, _ right: String) -> CodeExample {
    CodeExample(context: .step, wrong: wrong, right: right)
  }

  private static func running(_ wrong: String, _ right: String, _ events: String...) -> CodeExample {
    CodeExample(context: .step, wrong: wrong, right: right, events: events)
  }
  private static func running(file wrong: String, _ right: String, _ events: String...) -> CodeExample {
    CodeExample(context: .file, wrong: wrong, right: right, events: events)
  }
  private static func when(_ situation: String, do remedy: String) -> CodeExample {
    CodeExample(context: .situation, wrong: situation, right: remedy)
  }
  /// A file with a command and a sink that executes it.
  private static func command(_ command: String, _ more: String = "") -> String {
    """
    sources: { s: { stdin: { decode: json } }\(more) }
    commands: { work: { \(command) } }
    sinks: { out: { from: s, chain: [ { execute: work } ], stdout: {} } }
    """
  }
  /// A file with a test.
  private static func test(_ test: String, chain: String = "map: event", source: String = "") -> String {
    """
    sources: { s: { stdin: { decode: json } }\(source) }
    signals: { x: { from: s, chain: [ { \(chain) } ] } }
    sinks: { out: { from: x, stdout: {} } }
    tests: [ { name: t, \(test) } ]
    """
  }

  /// A file that starts with `head` and whose sink has one step.
  private static func reusing(_ step: String, in head: String) -> String {
    "\(head)\nsinks: { out: { from: s, chain: [ { \(step) } ], stdout: {} } }"
  }
  private static let large = """
    templates: { large: { parameters: { size: int }, chain: [ { filter: size(event) > $(size) } ] } }
    sources: { s: { stdin: { decode: text } } }
    """
  private static let sound = "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }"

  /// Each line expands to ten times the previous line.
  private static let bomb: String = {
    var lines: [String] = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for (name, before) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e")] {
      lines.append("\(name): &\(name) [" + Array(repeating: "*" + before, count: 10).joined(separator: ", ") + "]")
    }
    return lines.joined(separator: "\n")
  }()

  private static let table: [String: CodeExample] = [
    // Text and YAML
    "RX101": when(
      "A file is saved as Latin-1 or UTF-16.", do: "Save it as UTF-8: iconv -f latin1 -t utf-8 old.yaml > new.yaml"),
    "RX102": when(
      "A pipeline file has more than 1 MiB.",
      do: "Split it: each file of a directory is a pipeline of its own. Keep data in files that sources read."),
    "RX103": when(
      "A value contains a raw control character, such as a bell or an escape.",
      do: "Write it as an escape between double quotes: \"a\\x07b\""),
    "RX104": when(
      "A text contains a Unicode line separator (U+2028), a form feed, or a carriage return without a line feed.",
      do: "End lines with LF; within a value write an escape between double quotes: \"a\\u2028b\""),
    "RX105": file("# sources come later", sound),
    "RX106": file(sound + "\n---\n" + sound, sound),
    "RX107": file("%TAG ! !mine\n---\n" + sound, sound),
    "RX108": step("filter: event.name == 'a\u{202E}b'", "filter: event.name == 'ab'"),
    "RX109": when(
      "The machine runs out of memory while a file is read.", do: "Free memory, or raise the limit of the service."),
    "RX110": when(
      "Lists or mappings are nested more than 64 levels deep.", do: "Give inner signals names and refer to them."),
    "RX111": when("A file has more than 100,000 values.", do: "Read data from a file source instead of 'values'."),
    "RX112": when("A file has more than 1,000 anchors (&name).", do: "Write the values out, or split the file."),
    "RX113": file(bomb, sound),
    "RX114": source("values: &all [1, *all]", "values: [1, 2]"),
    "RX115": source("values: *numbers", "values: [1, 2]"),
    "RX116": file(
      "sources:\n  s: { <<: { decode: json }, stdin: {} }\nsinks: { out: { from: s, stdout: {} } }",
      "sources:\n  s: { stdin: { decode: json } }\nsinks: { out: { from: s, stdout: {} } }"),
    "RX117": when(
      "A value has more than 64 KiB, or a block scalar more than 1 MiB.", do: "Read data from a file source."),
    "RX118": when("A key has more than 256 bytes.", do: "Shorten it; a key is a name."),
    "RX119": file(
      "sources: { s: { stdin: {} } }\nsources: { t: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }", sound),
    "RX120": source("values: [{ [a]: 1 }]", "values: [{ a: 1 }]"),
    "RX121": step("filter: !event.ok", "filter: \"!event.ok\""),
    "RX122": source("values: [{ \"a\\tb\": 1 }]", "values: [{ a_b: 1 }]"),
    "RX123": source("values: [&a 1, &a 2]", "values: [&a 1, &b 2]"),
    "RX130": when(
      "The YAML reader rejects the text, and no other code describes the error.",
      do: "Look at the marked position; most values are accepted between double quotes."),
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
    "RX211": when(
      "A pipeline has more than 2,500 operators.", do: "Split it into several files, which run in one process."),
    "RX215": when(
      "An option is --set sources.typed.stdin.decode, without a value.",
      do: "Write --set PATH=VALUE: --set sources.typed.stdin.decode=lines"),
    "RX216": when(
      "An option is --set sources.typd.stdin.decode=lines, and the file has no source 'typd'.",
      do: "Name the parts of the path as the file does: --set sources.typed.stdin.decode=lines"),
    "RX217": when(
      "A file with a source 'httpServer' is run with --once.",
      do: "Leave --once out, and end the run with --limit or a signal; or take another source."),
    "RX218": when(
      "'rxd fmt' is given a file whose layout cannot be changed without changing its meaning.",
      do: "Correct the errors that 'rxd check' reports, or leave the file as it is."),
    "RX220": step("debounce: 300ms", "throttle: 300ms"),
    "RX221": source("stdin: { format: json }", "stdin: { decode: json }"),
    "RX222": step("throttle", "throttle: 300ms"),
    "RX223": step("bufferWithCount: 0", "bufferWithCount: 10"),
    "RX224": source("stdin: { decode: jason }", "stdin: { decode: json }"),
    "RX225": step("sample: {}", "sample: { every: 1s }"),
    "RX226": step("log: { on: [error] }", "log: { when: [error] }"),
    "RX227": source(
      "http: { url: 'http://10.0.0.1/', headers: { Host: books.example } }", "http: { url: 'http://books.example/' }"),
    "RX230": source("interval: 5 minutes", "interval: 5m"),
    "RX231": source("file: { path: a.log, maxLine: 1000 }", "file: { path: a.log, maxLine: 1000B }"),
    "RX233": source("file: { path: a.log, follow: yes }", "file: { path: a.log, follow: true }"),
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
    "RX305": file(
      "require: atLeastOnce\nsources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }",
      "require: atLeastOnce\nsources: { s: { file: in.log } }\nsinks: { out: { from: s, stdout: {} } }"),
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
    "RX350": file(
      "sources: { s: { stdin: { decode: json } } }\nsinks: { out: { from: s, file: \"/{{ event.name }}.ndjson\" } }",
      "sources: { s: { stdin: { decode: json } } }\nsinks: { out: { from: s, file: \"/tmp/{{ event.name }}.ndjson\" } }"
    ),
    "RX351": file(
      "sources: { s: { file: /tmp/in/a.log } }\nsinks: { out: { from: s, file: \"/tmp/in/{{ event }}.log\" } }",
      "sources: { s: { file: /tmp/in/a.log } }\nsinks: { out: { from: s, file: \"/tmp/out/{{ event }}.log\" } }"),
    "RX321": when(
      "Inner signals lie in each other more than 16 deep.", do: "Give inner signals names and refer to them."),
    "RX323": source("stdin: { decode: json }\nschema: { id: number }", "stdin: { decode: json }\nschema: { id: int }"),
    "RX324": source(
      "stdin: { decode: json }\nschema: missing.schema.json", "stdin: { decode: json }\nschema: { id: int }"),
    "RX325": when(
      "A JSON Schema refers to another file or uses a keyword that does not describe types.",
      do: "Bring the definition into the file, below '$defs', or leave it: the part is taken for any value."),
    "RX343": source(
      "file: { path: a.csv, decode: csv }\nschema: { id: int }",
      "file: { path: a.csv, decode: { csv: { types: infer } } }\nschema: { id: int }"),
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

    "RX339": file(
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {}, delivery: durable } }",
      "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {}, delivery: bestEffort } }"),
    "RX340": step("{ timeout: 5s, whenLate: skip }", "{ timeout: 5s, whenLate: resume }"),
    "RX352": file(
      reusing("use: late", in: "sources: { s: { stdin: {} } }"),
      reusing(
        "use: large",
        in: "templates: { large: { chain: [ { filter: size(event) > 80 } ] } }\nsources: { s: { stdin: {} } }")),
    "RX353": file("templates: { large: { steps: [] } }\n" + sound, "templates: { large: { chain: [] } }\n" + sound),
    "RX354": file(
      reusing("use: large, with: { sise: 80 }", in: large), reusing("use: large, with: { size: 80 }", in: large)),
    "RX355": file(
      "templates: { lines: { chain: [ { filter: event != '' } ] } }\nsources: { s: { use: lines } }\nsinks: { out: { from: s, stdout: {} } }",
      "templates: { lines: { source: { stdin: {} } } }\nsources: { s: { use: lines } }\nsinks: { out: { from: s, stdout: {} } }"
    ),
    "RX356": file(
      reusing("use: large, with: { size: 80 }", in: large.replacing("$(size)", with: "$(length)")),
      reusing("use: large, with: { size: 80 }", in: large)),
    "RX357": file(
      reusing("use: a", in: "templates: { a: { chain: [ { use: a } ] } }\nsources: { s: { stdin: {} } }"),
      reusing("use: a", in: "templates: { a: { chain: [ { skip: 1 } ] } }\nsources: { s: { stdin: {} } }")),
    "RX358": file(
      "foreach: { in: [a, b], sources: { $(x): { stdin: {} } } }\n" + sound,
      "foreach: { each: x, in: [out1, out2], sinks: { $(x): { from: s, stdout: {} } } }\n" + sound),
    "RX359": file("include: ../shared.yaml\n" + sound, sound),
    "RX365": when(
      "A file that another one includes has 'name', 'delivery' or another setting of a whole pipeline.",
      do: "Move the setting to the file that is run; an included file has templates, sources, signals and sinks."),
    "RX366": file(
      "functions: { size: { parameters: { x: dyn }, value: 1 } }\n" + sound,
      "functions: { width: { parameters: { x: string }, value: x.size() } }\n" + sound),
    "RX367": file(
      "functions: { down: { parameters: { n: int }, value: \"n < 1 ? 0 : down(n - 1)\" } }\n" + sound,
      "functions: { down: { parameters: { n: int }, value: \"n < 1 ? 0 : n - 1\" } }\n" + sound),
    "RX643": file(
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
      sinks:
        out: { from: s, chain: [ { takeLast: 100 }, { window: 1m } ], stdout: { encode: json } }
      """,
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
      sinks:
        out: { from: s, chain: [ { window: 1m } ], stdout: { encode: json } }
      """),
    "RX644": file(
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
        rates: { file: { path: rates.ndjson, decode: json } }
      sinks:
        out: { from: s, chain: [ { join: { signal: rates, asOf: true } } ], stdout: { encode: json } }
      """,
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
        rates: { file: { path: rates.ndjson, decode: json }, time: event.since }
      sinks:
        out: { from: s, chain: [ { join: { signal: rates, asOf: true } } ], stdout: { encode: json } }
      """),
    "RX645": file(
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
        rates: { file: { path: rates.ndjson, decode: json } }
      sinks:
        out: { from: s, chain: [ { join: { signal: rates, within: 1m } } ], stdout: { encode: json } }
      """,
      """
      sources:
        s: { stdin: { decode: json }, time: event.at }
        rates: { file: { path: rates.ndjson, decode: json }, time: event.at }
      sinks:
        out: { from: s, chain: [ { join: { signal: rates, within: 1m } } ], stdout: { encode: json } }
      """),
    "RX646": file(
      """
      sources:
        s: { stdin: { decode: json } }
      sinks:
        out: { from: s, chain: [ { aggregate: { figures: { n: count() }, emit: update } }, { filter: event.n < 9 } ], stdout: {} }
      """,
      """
      sources:
        s: { stdin: { decode: json } }
      sinks:
        out:
          from: s
          chain: [ { aggregate: { figures: { n: count() }, emit: { update: 1s, pairs: true } } }, { filter: event.n < 9 } ]
          stdout: {}
      """),
    "RX647": file(
      """
      sources:
        s: { stdin: { decode: json } }
      sinks:
        out: { from: s, chain: [ { topN: { by: event.n, count: 9 } }, { aggregate: max(event.n) } ], stdout: {} }
      """,
      """
      sources:
        s: { stdin: { decode: json } }
      sinks:
        out: { from: s, chain: [ { topN: { by: event.n, count: 9 } }, { aggregate: sum(event.n) } ], stdout: {} }
      """),
    "RX368": file(
      "functions: { twice: { parameters: { n: int }, value: n * 2, examples: [ twice(2) == 5 ] } }\n" + sound,
      "functions: { twice: { parameters: { n: int }, value: n * 2, examples: [ twice(2) == 4 ] } }\n" + sound),
    "RX369": when(
      "A 'sqlite' source names a file that does not exist when the pipeline is checked.",
      do: "Create the database first, or correct the path: a source never creates one."),
    "RX341": file(
      "delivery: light\nsources: { s: { file: a.log } }\nsinks: { out: { from: s, stdout: {}, whenFull: dropOldest } }",
      "delivery: durable\nsources: { s: { file: a.log } }\nsinks: { out: { from: s, stdout: {}, whenFull: dropOldest } }"
    ),
    "RX342": file(
      "delivery: bestEffort\nstate: { memory: 64MiB }\nsources: { s: { file: a.log } }\nsinks: { out: { from: s, chain: [distinct], stdout: {} } }",
      "delivery: light\nstate: { memory: 64MiB }\nsources: { s: { file: a.log } }\nsinks: { out: { from: s, chain: [distinct], stdout: {} } }"
    ),
    "RX338": when(
      "Two files that run together both have 'name: shop', or differ only in their directories.",
      do: "Give each its own 'name': state and statistics are stored under it."),

    // Expressions
    "RX331": step("aggregate: { top: event.price }", "aggregate: { top: max(event.price) }"),
    "RX401": step("filter: event.level = 'error'", "filter: event.level == 'error'"),
    "RX402": step("filter: event.age > 30s", "filter: event.age > 30"),
    "RX403": when(
      "An expression has more than 64 KiB, 250 levels or 20,000 parts.", do: "Split it into several steps."),
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

    // While a pipeline runs
    "RX501": when(
      "A source with 'decode: json' reads the line {\"a\": 1",
      do:
        "Correct the program that writes the lines, or decode their actual format. 'from: NAME.errors' reads the rejected lines."
    ),
    "RX502": when(
      "An expression reads event.a of {\"a\": tru}: 'decode: json' looks at the outline of a line only.",
      do:
        "Correct the program that writes the lines. 'decode: { json: { validate: true } }' refuses them at once, as RX501."
    ),
    "RX503": running("map: event.a + 1", "map: event.?a.orValue(0) + 1", "{ \"b\": 1 }"),
    "RX504": when(
      "The server of an 'http' sink answers an event with 400, and would do so again.",
      do:
        "Read the response in the log. 'from: NAME.errors', with the name of the sink, reads the rejected events."
    ),
    "RX505": running("flattenMap: event.items", "flattenMap: \"[event.items]\"", "{ \"items\": \"a\" }"),
    "RX506": running(
      "window: { every: 1m, max: 1 }", "window: { every: 1m, max: 1000 }", "1", "2"),
    "RX507": when(
      "A step was changed, and the saved state belongs to the old version.",
      do:
        "Nothing, if the step may start without state. A step that was only moved, and a source, signal or sink that was only renamed, keep their state with 'movedFrom: OLD-NAME'."
    ),
    "RX508": running(
      file: command("run: { values: [1], chain: [ { delay: 10ms } ] }"),
      command("whenBusy: queue, run: { values: [1], chain: [ { delay: 10ms } ] }"), "1", "2"),
    "RX509": running(
      file: command("run: { values: [1] }, enabled: ready", ", ready: { values: [false] }"),
      command("run: { values: [1] }, enabled: ready", ", ready: { values: [true] }"), "1"),
    "RX510": running(
      file: command("run: { values: [1], chain: [ { try: outer > 0 } ] }"),
      command("run: { values: [1], chain: [ { try: outer > 0 }, { catch: { values: [none] } } ] }"), "0"),
    "RX511": when(
      "A plugin answers an event with an error, or its process ends three times while it handles the same event.",
      do: "Read 'error' of the event in the errors output; if the plugin is the cause, report it to its author."),
    "RX550": when(
      "The rxd process has crashed three times while it handled the same event of a file.",
      do: "Look at the event with 'rxd deadletters show' and report the crash; all other events flow."),
    "RX551": when(
      "The program of 'exec: { command: [...] }' in a chain ends, or does not answer within 'timeout', while it handles the line of an event.",
      do: "Its standard error is in the log. It is restarted, and receives later events."),
    "RX552": when(
      "The disk fails while a step looks for a key that 'state: { memory: SIZE }' has moved there.",
      do: "Look at the disk and the log. The event is in the errors output, and what the step remembers is unchanged."),
    "RX520": running(
      "try: { where: event.n < 3, message: \"{{ event.n }} is too much\" }\nonError: route", "filter: event.n < 3",
      "{ \"n\": 5 }"),
    "RX521": running(
      "window: { every: 10s, time: timestamp(event) }", "window: { every: 10s, time: timestamp(event), lateness: 10s }",
      "3", "13", "7"),
    "RX522": running(
      "circuitBreaker: { signal: { values: [1], chain: [ { try: outer > 0 } ] } }",
      "circuitBreaker: { signal: { values: [1], chain: [ { try: outer > 0 } ] }, fallback: { values: [none] } }", "0"),
    "RX523": running(
      "circuitBreaker: { failures: 1, signal: { values: [1], chain: [ { try: outer > 0 } ] } }",
      "circuitBreaker: { failures: 1, signal: { values: [1], chain: [ { try: outer > 0 } ] }, fallback: { values: [none] } }",
      "0", "1"),
    "RX534": when(
      "A durable pipeline has acknowledged events, and before they were delivered its sink, its name or its file was changed or removed.",
      do: "Restore the names of the pipeline and the sink to deliver them, or move or drop them with 'rxd state'."),
    "RX524": when(
      "An event is inserted into a URL whose host is a link-local address, or into a header with a line break.",
      do: "Insert only what belongs in the path or the query: {{ event.id }}, not {{ raw(event.id) }}."
    ),
    "RX525": when(
      "A source 'http: { every: 10s }' gets a 500 response, or cannot connect.",
      do: "Nothing: the next poll follows. 'from: NAME.errors' reads the failed polls."),
    "RX526": when(
      "An event with the value '-f' comes to 'flattenMap: { signal: { exec: { command: [cat, \"{{ event }}\"] } } }'.",
      do: "Put the argument '--' before it: [cat, --, \"{{ event }}\"]. Then '-f' is a name, not an option."),
    "RX527": when(
      "The program of 'exec: { every: 10s, ... }' exits with 1, or cannot be started.",
      do:
        "Nothing: the next run follows. 'from: NAME.errors' reads the failed runs; 'success: [0, 1]' makes 1 a success."
    ),
    "RX528": when(
      "A source 'sqlite: { every: 10s, ... }' finds the database locked, or two rows with the same 'key'.",
      do:
        "Nothing if the database was locked: the next query follows. Rows with the same key need a further column: 'key: [changed, id]'."
    ),

    // Tests
    "RX601": file(
      test("inputs: { s: \"-a-(bc)\" }, expect: { out: \"-a-(bc-)\" }"),
      test("inputs: { s: \"-a-(bc)\" }, expect: { out: \"-a-(bc)\" }")),
    "RX602": file(test("expect: { oout: \"\" }"), test("expect: { out: \"\" }")),
    "RX603": file(
      test("inputs: { s: \"-a\" }, expect: { out: \"-b\" }"), test("inputs: { s: \"-a\" }, expect: { out: \"-a\" }")),
    "RX604": file(
      test("inputs: { s: [ { nxt: 1 } ] }, expect: { out: [ { next: 1 } ] }"),
      test("inputs: { s: [ { next: 1 } ] }, expect: { out: [ { next: 1 } ] }")),
    "RX605": file(
      test("inputs: { s: \"-a\" }, expect: { out: [] }", chain: "flattenMap: { signal: { http: http://10.0.0.1/ } }"),
      test(
        "inputs: { s: \"-a\" }, stubs: { http: [ { url: \"*\", reply: { text: ok } } ] }, expect: { out: [ { next: ok } ] }",
        chain: "flattenMap: { signal: { http: { url: http://10.0.0.1/, decode: text } } }")),
    "RX606": when(
      "A test's pipeline sends without end at one instant, or a test without 'until' waits for something that never happens.",
      do: "Give the test 'until: 1m', or find the signal that triggers itself."),
    "RX607": when(
      "'rxd test --update' finds an expectation that it cannot rewrite in place, such as an alias.",
      do: "Write the expectation out, or change it by hand."),

    // The environment
    "RX701": source("file: \"${LOG}\"", "file: \"${LOG:-a.log}\""),
    "RX702": source("file: \"${LOG:?the file to read}\"", "file: \"${LOG:-a.log}\""),
    "RX703": when(
      "'${secret:token}' is in a pipeline file, but no secrets directory has a file 'token', or the file is empty or readable by everybody.",
      do:
        "Write the secret into a file of that name, with 'chmod 600', in a directory that '--secrets-dir DIR' names; for a service, 'LoadCredential=token:/etc/rxd/secrets/token'. Do not write it into the pipeline file, and give it no default there."
    ),
    "RX650": when(
      "A pipeline with 'throttle' is exported to Flink SQL, which has no such step.",
      do: "Follow the help of the message, or leave the step to rxd: the export translates exactly, or not at all."),
    "RX704": when(
      "A variable or secret is not UTF-8, or has more than 64 KiB.", do: "Keep such data in a file, and name the file."),
    "RX710": when(
      "A file that is named on the command line is missing, or its permissions do not let you read it.",
      do: "Check the path and 'ls -l'; a service runs as a different user."),
    "RX711": when(
      "A plugin is missing, may be written by others, or does not start.",
      do: "Follow the message; 'rxd plugin check FILE' tries it."),
    "RX713": when(
      "A plugin's spec lacks a member, or one has the wrong type.",
      do: "Report it to the author of the plugin; docs/plugin-contract.md describes specs."),
    "RX714": when(
      "A file in the plugin directory may be written by others, is not a plugin, or its spec is not known yet.",
      do: "Run 'rxd plugin check FILE', or remove the file."),
    "RX712": source(
      "http: { url: 'https://books.example/', tls: { ca: missing.pem } }", "http: { url: 'https://books.example/' }"),
  ]
}
