import Foundation
import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

/// The checker's reports on pipeline files, kept in Tests/Golden/Checking; RXD_UPDATE_GOLDEN=1 rewrites them.
@Suite struct CheckingTests {
  static let folder = PipelineFilesTests.folder.deletingLastPathComponent()
    .appendingPathComponent("Tests/Golden/Checking")

  static let schemas = SchemaFiles { path in
    guard let content = try? Data(contentsOf: folder.appendingPathComponent(path)) else {
      return .refused("cannot be read: No such file or directory")
    }
    return .found(name: path, bytes: Array(content))
  }

  static func check(_ bytes: [UInt8], _ name: String = "test.yaml") -> (plan: Plan?, diagnostics: [Diagnostic]) {
    let front = FrontEnd(
      .builtIn, schemas: schemas,
      files: FileProbe(
        problem: { $0.contains("missing") ? "No such file or directory" : nil },
        isMissingDirectory: { $0 == "/nowhere" }))
    let result = front.compile(SourceText(name: name, bytes: bytes))
    return (result.plan, result.diagnostics)
  }

  private static func read(_ name: String) throws -> [UInt8] {
    Array(try Data(contentsOf: folder.appendingPathComponent(name)))
  }

  private func compare(_ text: String, _ name: String) throws {
    let file = Self.folder.appendingPathComponent(name)
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(text.utf8).write(to: file) }
    #expect(text == (try? String(contentsOf: file, encoding: .utf8)), "\(name)")
  }

  @Test(arguments: ["mistakes", "warnings", "schemas", "requests", "delivery"])
  func reportIsAsKept(_ name: String) throws {
    let diagnostics = Self.check(try Self.read(name + ".yaml"), name + ".yaml").diagnostics
    try compare(DiagnosticRenderer().text(diagnostics), name + ".txt")
    if name == "warnings" { try compare(DiagnosticRenderer().json(diagnostics), name + ".json") }
  }

  @Test func explanationIsAsKept() throws {
    let (plan, diagnostics) = Self.check(try Self.read("explained.yaml"), "explained.yaml")
    #expect(
      diagnostics.map(\.message) == [
        "where event.customer.parent.name is absent this condition fails instead of being true"
      ])
    try compare(PlanExplanation.text(try #require(plan)), "explained.txt")
  }

  /// A fix never writes a value of the environment into the file.
  @Test(arguments: [
    ("take: { count: \"${LIMIT:-100}\" }", "RX203"), ("repeat: { count: 2, delay: \"${PAUSE:-5 minutes}\" }", "RX230"),
  ]) func fixesLeaveVariables(_ step: String, _ code: String) throws {
    let file = "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, chain: [ { \(step) } ], stdout: {} } }"
    let found = Self.check(Array(file.utf8)).diagnostics
    #expect(found.map(\.code.name) == [code], "\(found)")
    #expect(found.flatMap(\.fixIts) == [])
    let plain = file.replacing(#/\${\w+:-(.*?)}/#) { $0.output.1 }
    #expect(Self.check(Array(plain.utf8)).diagnostics.contains { !$0.fixIts.isEmpty })
  }

  /// Without the environment, an expression with a variable is taken for one of any type.
  @Test(arguments: ["event.n * ${FACTOR:?a number}", "event.n > ${LEAST} && true", "'${UNIT:?}' + string(event.n)"])
  func variablesThatAreNotReadAreNoErrors(_ expression: String) {
    let file = """
      sources: { s: { stdin: { decode: json } } }
      sinks: { out: { from: s, chain: [ { map: "\(expression)" } ], stdout: {} } }

      """
    #expect(Self.check(Array(file.utf8)).diagnostics.map(\.message) == [])
  }

  /// Beside a number, an unknown name is no text.
  @Test func unknownNamesBesideNumbersAreFields() throws {
    let file = """
      sources: { s: { stdin: { decode: json } } }
      sinks: { out: { from: s, chain: [ { filter: x == 1 } ], stdout: {} } }

      """
    let found = Self.check(Array(file.utf8)).diagnostics
    #expect(found.flatMap(\.fixIts).map(\.replacement) == ["event.x"])
  }

  /// Applying a fix removes the mistake.
  @Test(arguments: ["mistakes", "warnings", "schemas"])
  func fixesMend(_ name: String) throws {
    let bytes = try Self.read(name + ".yaml")
    let before = Self.check(bytes, name + ".yaml").diagnostics
    var count = 0
    for diagnostic in before {
      for fix in diagnostic.fixIts where fix.location.text.name == name + ".yaml" {
        var corrected = bytes
        corrected.replaceSubrange(
          fix.location.offset..<fix.location.offset + fix.location.length, with: Array(fix.replacement.utf8))
        let after = Self.check(corrected, name + ".yaml").diagnostics
        let isLeft = after.contains {
          $0.code == diagnostic.code && $0.location?.offset == diagnostic.location?.offset
        }
        #expect(!isLeft, "\(diagnostic.message): \(fix.replacement)")
        // A fix must not replace a warning by an error.
        if diagnostic.severity == .warning {
          #expect(
            after.filter { $0.severity == .error }.count <= before.filter { $0.severity == .error }.count,
            "\(fix.replacement): \(after.map(\.message))")
        }
        count += 1
      }
    }
    #expect(count > 2)
  }

  // MARK: Remedies

  /// The files of `remedies.yaml`, which are separated by `---`.
  private static func remedies() throws -> [[UInt8]] {
    String(decoding: try read("remedies.yaml"), as: UTF8.self).components(separatedBy: "---\n").map { Array($0.utf8) }
  }

  @Test func remediesAreAsKept() throws {
    var text = ""
    for (number, file) in try Self.remedies().enumerated() {
      let (_, diagnostics) = Self.check(file, "\(number + 1).yaml")
      #expect(!diagnostics.isEmpty, "\(number + 1).yaml has no mistake")
      #expect(diagnostics.allSatisfy { $0.help != nil || !$0.fixIts.isEmpty }, "\(number + 1).yaml")
      text += DiagnosticRenderer().text(diagnostics) + "\n"
    }
    try compare(text, "remedies.txt")
  }

  /// A fix removes its mistake and adds no other.
  @Test func everyFixMendsWithoutANewMistake() throws {
    var files = try Self.remedies()
    // In the other files one mistake hides another; see `fixesMend`.
    files.append(try Self.read("warnings.yaml"))
    files.append(
      Array(try Data(contentsOf: Self.folder.deletingLastPathComponent().appendingPathComponent("ten-mistakes.yaml"))))
    let malformed = Self.folder.deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent(
      "Malformed")
    for name in try FileManager.default.contentsOfDirectory(atPath: malformed.path).sorted()
    where name.hasSuffix(".yaml") {
      files.append(Array(try Data(contentsOf: malformed.appendingPathComponent(name))))
    }
    /// The errors without their locations, which a fix moves. YAML errors end the reading.
    func errors(_ bytes: [UInt8]) -> [String] {
      Self.check(bytes, "test.yaml").diagnostics.filter { $0.severity == .error }.map {
        "\($0.code.name) \($0.message)"
      }
    }
    var count = 0
    for bytes in files {
      let found = Self.check(bytes, "test.yaml").diagnostics
      let before = errors(bytes)
      // After a YAML error nothing else was checked.
      guard !found.contains(where: { $0.code.name.hasPrefix("RX1") && $0.severity == .error }) else { continue }
      for diagnostic in found {
        for fix in diagnostic.fixIts where fix.location.text.name == "test.yaml" {
          var corrected = bytes
          corrected.replaceSubrange(
            fix.location.offset..<fix.location.offset + fix.location.length, with: Array(fix.replacement.utf8))
          var left = errors(corrected)
          for error in before { if let at = left.firstIndex(of: error) { left.remove(at: at) } }
          let shown = String(decoding: bytes.prefix(400), as: UTF8.self)
          #expect(left.isEmpty, "\(diagnostic.message): \(fix.replacement) brings \(left) in\n\(shown)")
          let still = Self.check(corrected, "test.yaml").diagnostics.contains {
            $0.code == diagnostic.code && $0.message == diagnostic.message
              && $0.location?.offset == diagnostic.location?.offset
          }
          #expect(!still, "\(diagnostic.message) is left by \(fix.replacement) in\n\(shown)")
          count += 1
        }
      }
    }
    #expect(count > 50)
  }

  @Test func fixesStandInSARIF() throws {
    let diagnostics = Self.check(try Self.read("warnings.yaml"), "warnings.yaml").diagnostics
    let log = try #require(
      JSONSerialization.jsonObject(with: Data(DiagnosticRenderer().sarif(diagnostics).utf8)) as? [String: Any])
    let run = try #require((log["runs"] as? [[String: Any]])?.first)
    let results = try #require(run["results"] as? [[String: Any]])
    let fixes = results.compactMap { ($0["fixes"] as? [[String: Any]])?.first }
    #expect(fixes.count == diagnostics.count { !$0.fixIts.isEmpty })
    let changes = try #require(fixes.first?["artifactChanges"] as? [[String: Any]])
    #expect(try ((changes.item(0)["replacements"] as? [[String: Any]])?.first?["deletedRegion"]) != nil)
  }

  @Test func goodFilesAreQuiet() throws {
    let files = try FileManager.default.contentsOfDirectory(atPath: PipelineFilesTests.folder.path)
      .filter { $0.hasSuffix(".yaml") }
    #expect(files.count > 10)
    for file in files {
      let content = try Data(contentsOf: PipelineFilesTests.folder.appendingPathComponent(file))
      #expect(Self.check(Array(content), file).diagnostics.map(\.message) == [], "\(file)")
    }
  }

  @Test func secretsStayOut() throws {
    let yaml = """
      name: t
      sources: { a: { stdin: { decode: json } } }
      sinks:
        out: { from: a, chain: [ { filter: "contains(event.a, '${secret:PASSWORD}') && event.b / 2 == 1" } ], stdout: {} }
      """
    let values = Interpolation(variables: [:], secrets: ["PASSWORD": "hunter2"])
    let diagnostics = FrontEnd(.builtIn, values: values).compile(yaml).diagnostics
    #expect(diagnostics.count == 2)
    #expect(!DiagnosticRenderer().json(diagnostics).contains("hunter2"))
  }

  // MARK: Types along the graph

  private func messages(_ signals: String, schema: String = "{ n: int, s: string? }") -> [String] {
    let yaml = """
      name: t
      sources:
        a: { stdin: { decode: json }, schema: \(schema) }
        b: { file: { path: b, decode: json } }
      \(signals)
      sinks:
        out: { from: x, stdout: {} }
        other: { from: { merge: [a, b] }, stdout: {} }
      """
    return Self.check(Array(yaml.utf8)).diagnostics.map(\.message)
  }

  @Test(arguments: [
    ("{ from: a, chain: [ { map: { m: event.n } }, { filter: event.k > 1 } ] }", "there is no field 'k'"),
    ("{ from: a, chain: [ { set: { k: event.n } }, { filter: \"event.k == 'x'\" } ] }", "an int never equals a string"),
    ("{ from: a, chain: [ { set: { k.l: 1 } }, { filter: event.k.m == 1 } ] }", "there is no field 'm'"),
    ("{ from: a, chain: [ { unset: [n] }, { filter: event.n > 1 } ] }", "there is no field 'n'"),
    (
      "{ from: a, chain: [ { scan: { start: '', next: string(event.n) } }, { filter: event > 1 } ] }",
      "'>' is not defined for string and int"
    ),
    ("{ combineLatest: [a, b], reduce: a.k }", "there is no field 'k'"),
    (
      "{ zip: { p: a, q: b }, chain: [ { filter: \"event.n == 1\" } ] }",
      "the event is a list of 2 parts here, which has no fields"
    ),
    ("{ merge: [a, a], chain: [ { filter: event.k == 1 } ] }", "there is no field 'k'"),
    ("{ from: a, chain: [ { collect: {} }, { filter: \"event.exists(e, e.k == 1)\" } ] }", "there is no field 'k'"),
    (
      "{ from: a, chain: [ { groupBy: { key: event.n, chain: [ { filter: event.k == 1 } ] } } ] }",
      "there is no field 'k'"
    ),
    (
      "{ from: a, chain: [ { filter: event.n == 1, onError: keep }, { filter: event.k == 1 } ] }",
      "there is no field 'k'"
    ),
    ("{ from: a, chain: [ { map: event.n, onError: keep }, { filter: event.k == 1 } ] }", ""),
    ("{ from: a, chain: [ { startWith: { z: 1 } }, { filter: event.z == 1 } ] }", ""),
    ("{ merge: [a, b], chain: [ { filter: event.k == 1 } ] }", ""),
    ("{ from: b, chain: [ { set: { k: 1 } }, { filter: event.other == 1 && event.k == 1 } ] }", ""),
    ("{ from: b, chain: [ { filter: event.anything.at.all > 3 } ] }", ""),
    ("{ from: { values: [ { k: 1 }, { l: 2 } ] }, chain: [ { filter: event.m == 1 } ] }", ""),
    ("{ from: { values: [ { k: 1 } ] }, chain: [ { filter: has(event.user) && event.user.a == 1 } ] }", ""),
    ("{ from: a, chain: [ { filter: has(event.k) } ] }", ""),
    ("{ from: a, chain: [ { map: event.?k.orValue(1) } ] }", ""),
    ("{ from: a, chain: [ { map: event.?n.orValue(null) }, { filter: event == null || event > 1 } ] }", ""),
    ("{ from: a, chain: [ { map: \"[1, 2][?0].orValue(null)\" } ] }", ""),
    (
      "{ from: { http: { url: 'http://127.0.0.1/' }, schema: { k: int } }, chain: [ { filter: event.m == 1 } ] }",
      "there is no field 'm'"
    ),
  ])
  func typesFlow(_ signal: String, _ expected: String) {
    #expect(messages("signals: { x: \(signal) }") == (expected.isEmpty ? [] : [expected]), "\(signal)")
  }

  /// If a source reads texts, no event has a field, anywhere in the chain, until a step makes another event.
  @Test(
    arguments: [
      ("{ stdin: {} }", "{ filter: event.status > 400 }", "{ decode: json }"),
      ("{ stdin: { decode: text } }", "{ filter: event.status > 400 }", "json"),
      ("{ stdin: { decode: { lines: { invalidUTF8: replace } } } }", "{ filter: event.a.b }", nil),
      ("{ file: { path: a.log, decode: whole } }", "{ map: \"event['a']\" }", "json"),
      ("stdin", "{ map: event.a }", nil), ("{ file: a.log }", "{ log: { message: '{{ event.a }}' } }", nil),
      ("{ stdin: {} }", "{ throttle: 1s }, { take: 3 }, { groupBy: { key: event.a, chain: [] } }", "{ decode: json }"),
      ("{ stdin: { decode: bytes } }", "{ tryMap: event.a }", "json"),
    ] as [(String, String, String?)])
  func textsHaveNoFields(_ source: String, _ step: String, _ fix: String?) throws {
    let yaml = "sources: { a: \(source) }\nsinks: { out: { from: a, chain: [ \(step) ], stdout: {} } }\n"
    let found = Self.check(Array(yaml.utf8)).diagnostics
    #expect(found.map(\.message) == ["the event is a text here, which has no fields"], "\(yaml)")
    #expect(found.first?.help?.contains("'decode: json'") == true)
    #expect(found.first?.notes.first?.location?.line == 1)
    // Only the author knows the format of the input.
    #expect(
      found.flatMap { $0.fixIts.map(\.replacement) }
        == (fix.map { [$0, $0.replacingOccurrences(of: "json", with: "logfmt")] } ?? []))
  }

  /// Inner signals see the event as `outer`, the source that starts one as `event`.
  @Test(
    arguments: [
      (
        "stdin: {}", "{ from: a }", "{ values: [1], chain: [ { map: outer.user } ] }",
        "'outer' is a text here, which has no fields"
      ),
      (
        "stdin: {}", "{ from: a }", "{ from: { http: { url: 'http://127.0.0.1/{{ event.id }}' } } }",
        "the event is a text here, which has no fields"
      ),
      (
        "interval: 1s", "{ combineLatest: { user: a, tick: a } }", "{ values: [1], chain: [ { map: outer.user } ] }",
        "'outer' is a list of 2 parts here, which has no fields"
      ),
      ("stdin: { decode: json }", "{ from: a }", "{ values: [1], chain: [ { map: outer.user } ] }", nil),
    ] as [(String, String, String, String?)])
  func innerSignalsAreCheckedToo(_ source: String, _ signal: String, _ inner: String, _ message: String?) {
    let yaml = """
      sources: { a: { \(source) } }
      signals: { x: \(signal) }
      sinks: { out: { from: x, chain: [ { flattenMap: { signal: \(inner) } } ], stdout: {} } }

      """
    let found = Self.check(Array(yaml.utf8)).diagnostics.filter { $0.severity == .error }
    #expect(found.map(\.message) == (message.map { [$0] } ?? []), "\(yaml)")
  }

  @Test(arguments: [
    ("{ stdin: { decode: json } }", "{ filter: event.status > 400 }"), ("{ stdin: {} }", "{ filter: has(event.a) }"),
    ("{ stdin: {} }", "{ filter: event.?a.orValue(1) == 1 }"), ("{ stdin: {} }", "{ filter: event.trim() == '' }"),
    ("{ stdin: {} }", "{ map: parseJson(event) }, { filter: event.a == 1 }"),
    ("{ stdin: { decode: json }, schema: { a: int } }", "{ filter: event.a == 1 }"),
    ("{ stdin: {} }", "{ map: { a: event } }, { filter: event.a == '' }"),
    ("{ stdin: {} }", "materialize, { filter: event.kind == 'next' }"),
    ("{ stdin: {} }", "{ map: 'event.split(\",\").map(event, parseJson(event)).map(event, event.a)' }"),
    ("{ stdin: {} }", "{ startWith: { a: 1 } }, { filter: event.a == 1 }"),
    ("{ stdin: { decode: logfmt } }", "{ filter: event.a == 1 }"),
  ])
  func otherEventsMayHaveThem(_ source: String, _ step: String) {
    let yaml = "sources: { a: \(source) }\nsinks: { out: { from: a, chain: [ \(step) ], stdout: {} } }\n"
    #expect(Self.check(Array(yaml.utf8)).diagnostics.filter { $0.severity == .error }.map(\.message) == [], "\(yaml)")
  }

  /// A number in the schema would fail for every event.
  @Test func fieldsOfLogfmtAreTextsUnlessTheyHaveTypes() {
    func messages(_ decode: String, _ schema: String) -> [String] {
      let source = "{ stdin: { decode: \(decode) }, schema: \(schema) }"
      let yaml = "sources: { a: \(source) }\nsinks: { out: { from: a, discard: {} } }\n"
      return Self.check(Array(yaml.utf8)).diagnostics.map(\.message)
    }
    #expect(
      messages("logfmt", "{ n: int, s: string, t: timestamp, b: bool }")
        == ["'n' is declared as an int, but the source gives a text"])
    #expect(
      messages("{ logfmt: { types: { n: int } } }", "{ n: int, m: double? }")
        == ["'m' is declared as a double, but the source gives a text"])
  }

  /// The parts of the events of combineLatest and zip have names only in 'reduce'.
  @Test(arguments: [
    ("{ combineLatest: { user: a, tick: b }, chain: [ { map: user.n } ] }", "event[0]"),
    ("{ combineLatest: [a, b], chain: [ { filter: true }, { filter: b > 1 } ] }", "event[1]"),
    ("{ zip: { user: a, tick: b }, chain: [ { map: { u: event.user.n } } ] }", "event[0]"),
    ("{ combineLatest: { user: a, tick: b }, chain: [ { scan: { start: 0, next: running + tick } } ] }", "event[1]"),
    ("{ combineLatest: { user: a, tick: b }, reduce: event.user.n }", "user"),
  ])
  func partsHaveNamesInReduce(_ signal: String, _ fix: String) throws {
    let head = "sources: { a: { stdin: { decode: json } }, b: { interval: 1s } }\n"
    let yaml = head + "signals: { x: \(signal) }\nsinks: { out: { from: x, stdout: {} } }\n"
    let found = Self.check(Array(yaml.utf8)).diagnostics.filter { $0.severity == .error }
    #expect(found.count == 1, "\(found.map(\.message))")
    #expect(found.first?.help?.contains("reduce") == true)
    let place = try #require(found.first?.fixIts.first)
    #expect(place.replacement.contains(fix))
    var corrected = Array(yaml.utf8)
    corrected.replaceSubrange(
      place.location.offset..<place.location.offset + place.location.length, with: Array(place.replacement.utf8))
    #expect(
      Self.check(corrected).diagnostics.filter { $0.severity == .error }.map(\.message) == [],
      "\(String(decoding: corrected, as: UTF8.self))")
  }

  /// A key next to an operator is one of its parameters, or a mistake.
  @Test(
    arguments: [
      ("{ tryMap: int(event), message: 'no {{ event }}' }", nil),
      ("{ tryMap: { to: event.a, message: event.b }, message: no }", nil),
      ("{ map: int(event), message: no }", "'map' has no such parameter: remove it"),
      ("{ log: {}, message: no }", "It is a parameter: write 'log: { message: ... }'"),
    ] as [(String, String?)])
  func parametersBesideAnOperator(_ step: String, _ help: String?) {
    let yaml =
      "sources: { a: { stdin: { decode: json } } }\nsinks: { out: { from: a, chain: [ \(step) ], stdout: {} } }\n"
    let found = Self.check(Array(yaml.utf8)).diagnostics
    #expect(found.map(\.help) == (help.map { [$0] } ?? []))
    #expect(found.allSatisfy { $0.code == .misplacedKey })
  }

  /// An inserted value is marked as a whole, as written in the file.
  @Test(arguments: ["${secret:TOK}", "${VALUE}"]) func insertionsAreMarkedWhole(_ written: String) throws {
    let yaml =
      "sources: { a: { stdin: { decode: json } } }\n"
      + "sinks: { out: { from: a, chain: [ { filter: \"event.\(written) == 1\" } ], stdout: {} } }\n"
    let values = Interpolation(variables: ["VALUE": "a b"], secrets: ["TOK": "a b"])
    let place = try #require(FrontEnd(.builtIn, values: values).compile(yaml).diagnostics.first?.location)
    #expect(String(decoding: place.text.bytes[place.offset..<place.offset + place.length], as: UTF8.self) == written)
  }

  /// A word in snake_case suggests the correct spelling, wherever it belongs.
  @Test(
    arguments: [
      ("{ combine_latest: [a, a] }", "'combineLatest' begins a signal: 'NAME: { combineLatest: [a, b] }'", nil),
      (
        "{ distinct_until_changed: {} }", "Names are written in camelCase: 'distinctUntilChanged'",
        "distinctUntilChanged"
      ),
      ("{ http_server: {} }", "'httpServer' is a source", nil),
    ] as [(String, String, String?)])
  func snakeCaseLeadsToTheRightWord(_ step: String, _ help: String, _ fix: String?) {
    let yaml = "name: t\nsources: { a: { stdin: {} } }\nsinks: { out: { from: a, chain: [ \(step) ], stdout: {} } }\n"
    let found = Self.check(Array(yaml.utf8)).diagnostics
    #expect(found.map(\.help) == [help])
    #expect(found.flatMap { $0.fixIts.map(\.replacement) } == (fix.map { [$0] } ?? []))
  }

  /// Files that are written and read in a circle, invalid paths, and standard input that is read twice.
  @Test func filesThatGetInEachOthersWay() {
    let yaml = """
      name: files
      sources:
        logs: { file: { path: '/var/log/app/*.log', follow: true } }
        more: { file: [ /srv/in.ndjson, './data/../data/*.csv' ] }
        keys: { stdin: {} }
        typed: { stdin: { decode: json } }
        there: { file: /q/there.log }
        back: { file: '/q/b*.log' }
      signals:
        kept: { from: logs, chain: [ { filter: "event != ''" } ] }
        lost: { merge: [logs.errors, keys] }
      sinks:
        itself: { from: kept, file: { path: /var/log/./app//out.log } }
        inline: { from: { file: /srv/x.log }, file: /srv/x.log }
        table: { from: more, file: { path: data/back.csv, encode: csv } }
        errors: { from: lost, file: /var/log/app/errors.log }
        first: { from: there, file: /q/back.log }
        second: { from: back, file: /q/there.log }
        beside: { from: typed, file: /var/log/app/typed.log }
        deeper: { from: kept, file: /var/log/app/old/out.log }
        missing: { from: typed, file: /nowhere/typed.log }
        daily: { from: typed, file: "/nowhere/{{ event.day }}/out.ndjson" }
        around: { from: back, file: "/q/b{{ event[0] }}.log" }
      """
    let found = Self.check(Array(yaml.utf8)).diagnostics
    func itself(_ sink: String) -> String { "the sink '\(sink)' writes a file that its own events are read from" }
    #expect(
      Set(found.map { "\($0.location?.line ?? 0) \($0.code.name) \($0.severity) \($0.message)" }) == [
        "6 RX337 warning another source already reads standard input", "13 RX303 error \(itself("itself"))",
        "14 RX303 error \(itself("inline"))", "15 RX303 error \(itself("table"))", "16 RX303 error \(itself("errors"))",
        "17 RX303 error \(itself("first"))",
        "21 RX336 warning '/nowhere/typed.log' lies in a directory that does not exist",
        "22 RX336 warning '/nowhere/{{ event.day }}/out.ndjson' lies in a directory that does not exist",
        "23 RX351 warning the sink 'around' may write a file that its own events are read from",
      ])
    let first = found.first { $0.message == itself("first") }
    #expect(
      first?.notes.map(\.message) == [
        "'there' reads '/q/there.log' here", "the sink 'second' writes '/q/there.log' here",
        "'back' reads '/q/b*.log' here",
      ])
  }

  @Test func pathsAreComparedAsTheyLead() {
    for (path, normal) in [
      ("/a/./b//c", "/a/b/c"), ("./a", "a"), ("a/../b", "b"), ("../a", "../a"), ("/", "/"), ("a/..", ""), ("/a/", "/a"),
    ] {
      #expect(FileProbe.normal(path) == normal)
    }
  }

  @Test func formats() {
    func type(_ schema: String) -> String {
      let source = "{ stdin: { decode: json }, schema: \(schema) }"
      let yaml = "name: t\nsources: { a: \(source) }\nsinks: { out: { from: a, stdout: {} } }\n"
      let (plan, diagnostics) = Self.check(Array(yaml.utf8))
      return plan.map { PlanExplanation.name($0.named[0].body.type.type) }
        ?? diagnostics.map(\.message).joined(separator: "; ")
    }
    #expect(type("string") == "string")
    #expect(type("[int]") == "list of int")
    #expect(type("{ a: int?, b: [ { c: bool } ], '...': any }") == "{ a: int or null, b: list of { c: bool }, ... }")
    #expect(
      type("{ a?: string, m: 'map(string, list(double))' }") == "{ a: string or null, m: map(string, list(double)) }")
    #expect(type("integer") == "there is no type 'integer'")
    #expect(
      type("order.schema.json").hasPrefix("{ id: int, status: string, total: double, note: string or null, customer: {")
    )
  }
}
