import PipelineTestSupport
import Testing

@testable import PipelineCore

/// A parameter with a condition is an error exactly if the condition does not hold.
@Suite struct ApplicabilityTests {
  /// Components in which conditions hold or do not hold; `@NAME` is replaced by a field of the record NAME.
  static let bases: [String: [String]] = [
    "source file": [
      "path: a", "path: a, follow: true", "path: a, decode: whole", "path: a, follow: true, join: { start: x, @join }",
      "path: a, join: { start: x, by: y, @join }",
      "path: a, join: { start: x, @join }", "path: a, charset: latin1",
    ],
    "source stdin": [
      "", "join: { start: x, @join }", "join: { start: x, by: y, @join }", "decode: whole",
      "decode: { whole: { invalidUTF8: bytes } }", "charset: latin1",
    ],
    "source udp": ["address: 1", "address: 1, charset: latin1"],
    "source exec": [
      "command: [a], charset: latin1", "command: [a], join: { start: x, @join }",
      "command: [a], join: { start: x, by: y, @join }", "command: [a]", "command: [a], every: 1s",
      "command: [a], streaming: true", "command: [a], emit: exit",
    ],
    "source http": [
      "url: 'http://h', charset: latin1",
      "url: 'http://h'", "url: 'https://h', every: 1s", "url: 'http://h', pages: { page: p, until: 'true', @pages }",
      "url: 'http://h', pages: { cursor: 'null', @pages }", "url: 'http://h', pages: { next: 'null', @pages }",
    ],
    "source sse": ["url: 'http://h'", "url: 'https://h'"],
    "source httpServer": ["address: 1", "address: 1, decode: json", "address: 1, charset: latin1"],
    "source interval": ["every: 1s", "cron: '* * * * *'"],
    "source sqlite": ["path: a, query: SELECT 1", "path: a, query: SELECT 1, every: 1s, key: k"],
    "source syslog": ["address: 1", "address: 1, transport: tcp", "address: /run/a"],
    "source statsd": ["address: 1", "address: 1, transport: tcp", "address: /run/a"],
    "source tcp": [
      "address: 1, charset: latin1", "address: 1, join: { start: x, @join }",
      "address: 1", "address: 1, framing: { by: lines, @framing }", "address: 1, framing: { by: length, @framing }",
    ],
    "source unix": [
      "path: /a, charset: latin1", "path: /a, join: { start: x, @join }",
      "path: /a", "path: /a, kind: datagram", "path: 'systemd:a'", "path: /a, framing: { by: length, @framing }",
      "path: /a, framing: { by: nul, @framing }",
    ],
    "source docker": ["", "emit: events"],
    "source host": ["", "collect: [cpu, cgroup]"],
    "source webSocket": ["url: 'ws://h'", "url: 'wss://h'", "listen: 1"],
    "sink webSocket": ["url: 'ws://h'", "url: 'wss://h'", "listen: 1"],
    "sink file": ["path: a", "path: 'a/{{ event.a }}'", "path: a, sync: interval", "path: a, mode: replace"],
    "sink http": [
      "url: 'http://h'", "url: 'http://h', batch: { count: 10, @batch }",
      "url: 'http://h/{{ event.a }}', batch: { count: 10, @batch }",
      "urls: ['https://h']", "url: 'http://h', compress: { format: none, @compress }",
      "url: 'http://h', compress: { format: gzip, @compress }",
      "url: 'http://h', headers: { a: '{{ event.a }}' }, batch: { count: 10, @batch }",
    ],
    "sink prometheusRemoteWrite": [
      "url: 'http://h'", "url: 'https://h'", "url: 'http://h', batch: { count: 1, @batch }",
      "url: 'http://h', batch: { @batch }",
    ],
    "sink syslog": ["address: 1", "address: 1, transport: tcp", "address: 1, transport: tcp, tls: {}"],
    "sink tcp": ["address: 1", "address: 1, tls: {}"],
    "sink udp": ["address: 1"],
    "sink unix": ["path: /a", "path: /a, kind: datagram"],
    "sink exec": ["command: [a]", "command: [a], onExit: fail"],
    "sink sqlite": [
      "path: a, table: t, columns: { a: event.a }", "path: a, table: t, columns: { a: event.a }, mode: upsert",
    ],
    "operator rateLimit": ["per: 1s", "per: 1s, mode: bucket", "per: 1s, mode: bucket, excess: wait"],
    "operator join": ["signal: a", "signal: a, asOf: true"],
    "operator window": ["every: 1s", "count: 1", "gap: 1s", "every: 1s, time: event.t", "every: 1d, time: event.t"],
    "operator flattenMap": ["list: event.a", "signal: a", "signal: a, policy: latest", "signal: a, policy: concat"],
    "operator topN": ["by: event.n, count: 2", "by: event.n, count: 2, per: event.k"],
    "operator gate": ["signal: a", "signal: a, whileClosed: hold"],
    "operator log": ["", "when: [completed]"],
    "operator aggregate": ["figures: { n: count() }", "next: running"],
    "operator retry": ["", "count: 1, delay: 1s, budget: 2"],
    "command command": ["run: a", "run: a, allowsConcurrentExecution: true", "run: a, whenBusy: queue"],
  ]

  static let samples: [String: String] = [
    "charset": "latin1", "timezone": "UTC", "cursor": "{ from: response.a, parameter: p }", "tls": "{}",
    "mode": "'0600'", "invalidUTF8": "replace",
    "join": "{ start: x }", "rotate": "1MB", "serverTLS": "{ certificate: a }", "path": "/a", "origins": "['*']",
    "headers": "{ a: b }", "key": "a", "wait": "2s", "start": "0", "proxy": "'http://h:1'", "framing": "lines",
    "step": "1",
    "pages.step": "2", "syslog.framing": "octets", "file.start": "end", "restart": "1s",
    "framing.bytes": "2", "source syslog.tls": "{ certificate: a }",
  ]

  static func sample(_ entry: CatalogueEntry, _ path: String, _ shape: ParameterShape) -> String {
    let name = path.split(separator: ".").last.map(String.init) ?? path
    if let sample = samples["\(entry.kind.rawValue) \(entry.name).\(path)"] ?? samples["\(entry.name).\(path)"]
      ?? samples[path] ?? samples[name]
    {
      return sample
    }
    func value(_ shape: ParameterShape) -> String {
      switch shape {
      case .bool: "true"
      case .int(let range): String(max(1, range?.lowerBound ?? 1))
      case .number: "2"
      case .duration: "1s"
      case .size: "1KiB"
      case .choice(let choices): choices.last?.name ?? ""
      case .list(let element): "[\(value(element))]"
      case .oneOf(let shapes): shapes.first.map(value) ?? ""
      case .expression, .mapping: "'1'"
      default: "a"
      }
    }
    return value(shape)
  }

  /// All parameters with conditions, by path.
  static func conditional(_ infos: [ParameterInfo], _ prefix: String = "") -> [(
    path: String, info: ParameterInfo, among: [ParameterInfo]
  )] {
    infos.flatMap { info -> [(path: String, info: ParameterInfo, among: [ParameterInfo])] in
      (info.applies == nil ? [] : [(prefix + info.name, info, infos)])
        + SpecText.records(info.shape).flatMap { conditional($0, "\(prefix)\(info.name).") }
    }
  }

  static let entries = Catalogue.builtIn.components.filter { !conditional($0.parameters).isEmpty }

  private static func text(_ base: String, _ path: String, _ value: String) -> String? {
    let parts = path.split(separator: ".").map(String.init)
    var filled: String
    if parts.count == 1 {
      filled = "\(base), \(path): \(value)"
    } else if parts.count == 3 {
      // The option of a codec.
      guard !base.contains("\(parts[0]):") else { return nil }
      filled = "\(base), \(parts[0]): { \(parts[1]): { \(parts[2]): \(value) } }"
    } else {
      let mark = "@\(parts[0])"
      guard parts.count == 2, base.contains(mark) || !base.contains("\(parts[0]):") else { return nil }
      filled =
        base.contains(mark)
        ? base.replacing(mark, with: "\(parts[1]): \(value)") : "\(base), \(parts[0]): { \(parts[1]): \(value) }"
    }
    for mark in ["@batch", "@pages", "@framing", "@compress", "@join"] { filled = filled.replacing(mark, with: "") }
    return "{ \(filled) }".replacing("{ ,", with: "{").replacing(",  }", with: " }").replacing(", }", with: " }")
  }

  @Test(arguments: entries) func aSettingWithoutEffectIsAnError(_ entry: CatalogueEntry) throws {
    let bases = try #require(Self.bases["\(entry.kind.rawValue) \(entry.name)"], "this component needs bases")
    for (path, info, infos) in Self.conditional(entry.parameters) {
      let condition = try #require(info.applies)
      var refused = 0
      var taken = 0
      for base in bases {
        guard let text = Self.text(base, path, Self.sample(entry, path, info.shape)) else { continue }
        var diagnostics = Diagnostics()
        guard let node = YAMLReader.read(SourceText(name: "test", text: text), into: &diagnostics) else {
          // The base already sets the parameter.
          continue
        }
        let parent = path.split(separator: ".").dropLast().reduce(Optional(node)) { $0?[String($1)] }
        let holds = condition.holds { name in
          let isRoot = name.hasPrefix("/") || !path.contains(".")
          var at: YAMLNode? = isRoot ? node : parent
          let name = name.hasPrefix("/") ? String(name.dropFirst()) : name
          for part in name.split(separator: ".") { at = at?[String(part)] }
          let siblings = isRoot ? entry.parameters : infos
          return ParameterSetting(node: at, defaultText: siblings.first { $0.name == name }?.defaultText)
        }
        var context = DecodingContext(at: node.location)
        _ = entry.decode(node, &context)
        let complaint = context.diagnostics.all.first {
          $0.message.contains("has no effect") && $0.code.name == "RX225"
        }
        // The enclosing record has no effect in this base.
        let parents = path.split(separator: ".").dropLast()
        if let complaint, parents.contains(where: { complaint.message.hasPrefix("'\($0)' of") }) { continue }
        #expect(
          (complaint != nil) ? !holds : holds || context.diagnostics.hasErrors,
          "\(path): \(text): \(context.diagnostics.all.map(\.message))")
        if complaint?.message.hasPrefix("'\(info.name)' of") == true { refused += 1 }
        if holds, !context.diagnostics.hasErrors { taken += 1 }
      }
      #expect(refused > 0, "\(path): no base shows the error")
      if case .never = condition { continue }
      #expect(taken > 0, "\(path): no base takes it")
    }
  }

  /// A condition is in the spec, where it is checked, and not only in the help.
  @Test(arguments: Catalogue.builtIn.components) func noConditionIsWordsAlone(_ entry: CatalogueEntry) {
    func check(_ infos: [ParameterInfo]) {
      for info in infos {
        let isConditional = ["With `", "Without `", "Client: ", "Server: "].contains { info.help.hasPrefix($0) }
        #expect(!isConditional || info.applies != nil, "\(info.name): \(info.help)")
        for fields in SpecText.records(info.shape) { check(fields) }
      }
    }
    check(entry.parameters)
  }

  /// The names in a condition are parameters.
  @Test(arguments: entries) func conditionsNameParameters(_ entry: CatalogueEntry) {
    for (path, info, infos) in Self.conditional(entry.parameters) {
      for name in info.applies?.names ?? [] {
        let siblings = name.hasPrefix("/") ? entry.parameters : infos
        let first = name.drop { $0 == "/" }.prefix { $0 != "." }
        #expect(siblings.contains { $0.name == first }, "\(path): \(name)")
      }
    }
  }

  @Test func theMessageSaysWhatToDo() throws {
    var diagnostics = Diagnostics()
    let node = try #require(
      YAMLReader.read(SourceText(name: "test", text: "{ path: a, start: end }"), into: &diagnostics))
    var context = DecodingContext(at: node.location)
    _ = Catalogue.builtIn.component(.source, "file")?.decode(node, &context)
    let diagnostic = try #require(context.diagnostics.all.first)
    #expect(diagnostic.message == "'start' of 'file' has no effect without 'follow: true'")
    #expect(diagnostic.help == "Write 'follow: true', or leave 'start' out")
    #expect(diagnostic.location?.column == 19)
  }

  /// The sentences of the reference and of `rxd describe`.
  @Test(
    arguments: [
      (.on("follow"), "Only with `follow: true`.", "with 'follow: true'"),
      (.off("follow"), "Not with `follow: true`.", "without 'follow: true'"),
      (
        .word("policy", ["merge", "concat"]), "Only with `policy: merge` or `concat`.",
        "with 'policy: merge' or 'concat'"
      ),
      (
        .notWord("decode", ["whole", "bytes", "json"]), "Not with `decode: whole`, `bytes` or `json`.",
        "without 'decode: whole', 'bytes' or 'json'"
      ),
      (
        .all([.with("signal"), .word("policy", ["merge"])]), "Only with `signal` and `policy: merge`.",
        "with 'signal' and 'policy: merge'"
      ),
      (
        .all([.with("every"), .notWord("mode", ["a"])]), "Only with `every`, not with `mode: a`.",
        "with 'every' and without 'mode: a'"
      ),
      (.any([.template("url"), .with("/key")]), "Only with {{ }} in `url` or `key`.", "with {{ }} in 'url' or 'key'"),
      (
        .begins("url", ["https:", "wss:"]), "Only with `url` that begins with `https:` or `wss:`.",
        "with 'url' that begins with 'https:' or 'wss:'"
      ),
      (.without("join"), "Not with `join`.", "without 'join'"),
      (.all([.with("a"), .without("/join")]), "Only with `a`, not with `join`.", "with 'a' and without 'join'"),
      (.never("a reason"), "Has no effect here: a reason.", ""),
    ] as [(Applicability, String, String)])
  func sentences(_ condition: Applicability, _ sentence: String, _ phrase: String) {
    #expect(condition.sentence == sentence)
    #expect(condition.phrase("'") == phrase)
  }

  // MARK: Codecs and presets

  /// Options of decoders and encoders that have no effect together with other parameters.
  @Test(arguments: [
    (
      "sources: { a: { file: { path: a, charset: latin1, decode: { text: { invalidUTF8: replace } } } } }\nsinks: { o: { from: a, discard: {} } }",
      "'invalidUTF8' of 'decode.text' has no effect with 'charset: latin1'"
    ),
    (
      "sources: { a: { file: { path: a, charset: Latin1, decode: { text: { invalidUTF8: replace } } } } }\nsinks: { o: { from: a, discard: {} } }",
      "'invalidUTF8' of 'decode.text' has no effect with 'charset: Latin1'"
    ),
    (
      "sources: { a: { stdin: { charset: shift_jis, decode: { lines: { invalidUTF8: bytes } } } } }\nsinks: { o: { from: a, discard: {} } }",
      "'invalidUTF8: bytes' has no effect with 'charset: shift_jis': bytes that are invalid in it are rejected"
    ),
    (
      "sources: { a: { stdin: {} } }\nsinks: { o: { from: a, tcp: { address: 1, encode: { csv: { header: false } } } } }",
      "'header' of 'encode.csv' has no effect here: receivers could not distinguish a header from an event, so none is sent"
    ),
  ])
  func optionsOfCodecs(_ yaml: String, _ message: String) {
    let found = CheckingTests.check(Array(("name: t\n" + yaml).utf8), "t.yaml").diagnostics
    #expect(found.filter { $0.severity == .error }.map(\.message) == [message])
  }

  /// No use of a preset gives an ineffective setting in its text, whatever its parameters; an ineffective argument of the use is located at the
  /// use.
  @Test(arguments: Preset.all.map(\.name)) func presets(_ name: String) throws {
    let parameters = SecretTests.parameters(of: try #require(Preset.named(name)))
    var checked = 0
    for given in [nil] + parameters.map(Optional.some) {
      for value in given == nil
        ? [""] : ["1", "500", "1s", "gzip", "none", "''", "event", "{ a: event }", "{ bearer: x }"]
      {
        let all =
          parameters.filter { $0.isRequired && $0.name != given?.name }.map { "\($0.name): \($0.plain)" }
          + (given.map { ["\($0.name): \(value)"] } ?? [])
        let yaml =
          "name: t\nsources: { s: { values: [1] } }\nsinks: { o: { from: s, use: \(name), with: { \(all.joined(separator: ", ")) } } }\n"
        let found = CheckingTests.check(Array(yaml.utf8), "t.yaml").diagnostics
        checked += 1
        #expect(
          !found.contains { $0.message.contains("has no effect") }, "\(yaml)\n\(DiagnosticRenderer().text(found))")
      }
    }
    #expect(checked > 10)
  }

  @Test func aParameterOfAPresetWithoutEffect() {
    let yaml = """
      name: t
      sources: { s: { values: [1] } }
      sinks: { o: { from: s, use: clickhouse, with: { url: 'http://127.0.0.1:1', table: t, tls: { ca: a.pem } } } }

      """
    let text = DiagnosticRenderer().text(CheckingTests.check(Array(yaml.utf8), "t.yaml").diagnostics)
    #expect(text.contains("'tls' of 'http' has no effect"), "\(text)")
    #expect(text.contains("t.yaml:3:"), "\(text)")
  }

  /// A value that is unknown before the file runs may be anything.
  @Test func aPlaceholderIsNoError() throws {
    let plan = try PipelineRun.compile(
      """
      name: t
      sources:
        a:
          file:
            path: a
            follow: ${FOLLOW:-true}
            start: end
      sinks: { out: { from: a, discard: {} } }
      """, catalogue: .builtIn)
    #expect(plan.sinks.count == 1)
  }
}
