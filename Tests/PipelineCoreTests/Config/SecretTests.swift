import Foundation
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// A secret, wherever a file uses it, is never printed.
@Suite struct SecretTests {
  static let secret = "Qz7kPv3xWm"

  /// The forms of a value that a file may use, each containing the secret.
  static let values = [
    "\"${secret:TOK}\"", "\"'${secret:TOK}'\"", "\"5${secret:TOK}\"", "\"int('${secret:TOK}') > 1\"",
    "\"event == '${secret:TOK}'\"", "\"event['${secret:TOK}'].x > 1\"", "\"{'${secret:TOK}': 1}.${secret:TOK}\"",
    "\"matches(event, '(${secret:TOK}')\"", "\"nosuch('${secret:TOK}')\"", "\"1 + '${secret:TOK}'\"",
    "\"x{{ '${secret:TOK}' }}{{ int('${secret:TOK}') }}\"", "\"http://127.0.0.1:1/a/${secret:TOK}/b?c=${secret:TOK}\"",
    "\"http://${secret:TOK}/\"", "\"(?P<a>${secret:TOK}\"", "[\"${secret:TOK}\"]", "{ a: \"${secret:TOK}\" }",
    "{ a: [\"'${secret:TOK}'\"] }", "[{ a: \"${secret:TOK}\" }]",
  ]

  /// The parameters of a component and of its records, each as the mapping that sets it.
  static func places(_ parameters: [ParameterInfo], _ depth: Int = 0) -> [(String) -> String] {
    parameters.flatMap { info -> [(String) -> String] in
      var places: [(String) -> String] = [{ "{ \(info.name): \($0) }" }]
      guard depth < 3 else { return places }
      for fields in records(info.shape) {
        places += Self.places(fields, depth + 1).map { place in { "{ \(info.name): \(place($0)) }" } }
      }
      return places
    }
  }

  private static func records(_ shape: ParameterShape) -> [[ParameterInfo]] {
    switch shape {
    case .record(let fields): [fields]
    case .oneOf(let shapes): shapes.flatMap(records)
    case .list(let element), .table(let element): records(element)
    default: []
    }
  }

  /// A file with the component, whose arguments are `arguments`.
  static func file(_ entry: CatalogueEntry, _ arguments: String) -> String {
    let plain = "s: { values: [a, b] }"
    let inputs = entry.kind == .source ? "" : "inputs: { s: { marbles: \"-a-b|\" } }, "
    let requests = entry.name == "http" ? ", http.requests: [ { next: none } ]" : ""
    let tests = "\ntests: [ { name: t, \(inputs)expect: { o: [ { next: never } ]\(requests) } } ]"
    switch entry.kind {
    case .source:
      return "sources: { s: { \(entry.name): \(arguments) } }\nsinks: { o: { from: s, discard: {} } }" + tests
    case .operator:
      return """
        sources: { \(plain) }
        signals: { x: { from: s, chain: [ { \(entry.name): \(arguments) } ] } }
        sinks: { o: { from: x, discard: {} } }
        """ + tests
    case .combination:
      return """
        sources: { \(plain), t: { values: [a] } }
        signals: { x: { \(entry.name): \(arguments) } }
        sinks: { o: { from: x, discard: {} } }
        """ + tests
    case .command:
      return """
        sources: { \(plain) }
        commands: { c: \(arguments) }
        sinks: { o: { from: s, chain: [ { execute: c } ], discard: {} } }
        """ + tests
    case .function, .decoder, .encoder: return ""
    case .sink:
      return "sources: { \(plain) }\nsinks: { o: { from: s, \(entry.name): \(arguments) } }" + tests
    }
  }

  static let interpolation = Interpolation(
    variable: { _ in .missing }, secret: { $0 == "TOK" ? .found(Array(secret.utf8)) : .missing })

  static func isSecret(in text: String) -> Bool { text.withCString { strstr($0, secret) != nil } }

  /// Everything that can be printed about a file; `compiled`: whether there was a plan.
  static func printed(_ yaml: String) -> (text: String, compiled: Bool) {
    let result = FrontEnd(.builtIn, values: interpolation).compile(yaml, name: "t.yaml")
    let renderer = DiagnosticRenderer()
    // SARIF has the same texts among many others, and takes half of the total time, so it is written for every eighth file.
    let isWhole = yaml.utf8.count % 8 == 0
    func shown(_ all: [Diagnostic]) -> String {
      if all.isEmpty { return "" }
      return renderer.text(all) + renderer.json(all) + renderer.github(all) + (isWhole ? renderer.sarif(all) : "")
    }
    var text = shown(result.diagnostics)
    guard let plan = result.plan else { return (text, false) }
    text += PlanExplanation.text(plan)
    let drawing = PlanDrawing(plan)
    text += drawing.mermaid + drawing.dot + drawing.json.text
    text += GraphPicture(plan).svg()
    for report in plan.expressions {
      text += report.checked.compile().listing().map { $0.text + $0.source }.joined(separator: "\n")
    }
    var found = Diagnostics()
    let tests = result.tests(into: &found) { _ in nil }
    text += shown(found.all)
    var runner = TestRunner(plan)
    runner.turnLimit = 200
    runner.quietLimit = 200
    for test in tests where found.all.isEmpty {
      let result = runner.run(test)
      text += TestReport().text(.init(result, seconds: 0)) + shown(result.failures.map(\.diagnostic))
    }
    return (text, true)
  }

  /// Values that become events are printed as events are, so these are only checked.
  static func makesEvents(_ value: String) -> Bool {
    !value.contains("int(") && !value.contains("event") && !value.contains("http:")
  }

  @Test(arguments: Catalogue.builtIn.components) func noParameterShowsASecret(_ entry: CatalogueEntry) {
    var places = Self.places(entry.parameters)
    places.append { $0 }
    for place in places {
      for value in Self.values {
        var yaml = Self.file(entry, place(value))
        if Self.makesEvents(value), let tests = yaml.range(of: "\ntests:") {
          yaml = String(yaml[..<tests.lowerBound])
        }
        let printed = Self.printed(yaml).text
        #expect(!Self.isSecret(in: printed), "\(yaml)\n\(printed)")
      }
    }
  }

  /// Some of the checks above compile; otherwise they would show nothing.
  @Test(arguments: [
    ("filter", "\"event == '${secret:TOK}'\""), ("map", "\"{'a': event == '${secret:TOK}'}\""),
    ("log", "{ message: \"a {{ event }} ${secret:TOK}\" }"), ("try", "{ where: \"event == '${secret:TOK}'\" }"),
  ])
  func expressionsMayHoldThem(_ name: String, _ arguments: String) throws {
    let entry = try #require(Catalogue.builtIn.component(.operator, name))
    let (text, compiled) = Self.printed(Self.file(entry, arguments))
    #expect(compiled, "\(text)")
    #expect(!Self.isSecret(in: text))
  }

  /// The parameters of a preset, each with whether it is required, and a valid value.
  static func parameters(of preset: Preset) -> [(name: String, isRequired: Bool, plain: String)] {
    preset.text.matches(of: #/(?m)^      (\w+): \{ type: "?(\w+)(\??)"?(.*)$/#).map { match in
      let plain =
        switch (match.2, match.1) {
        case ("expression", _): "event"
        case ("mapping", _), ("any", _): "{ a: event }"
        case (_, "url"), (_, "queue"): "'http://127.0.0.1:1/x'"
        default: "abc"
        }
      return (String(match.1), match.3.isEmpty && !match.4.contains("default:"), plain)
    }
  }

  @Test(arguments: Preset.all.map(\.name)) func noPresetShowsASecret(_ name: String) throws {
    let parameters = Self.parameters(of: try #require(Preset.named(name)))
    #expect(parameters.count > 1 && parameters.contains { $0.isRequired })
    // Each parameter alone, and all of them together.
    var uses: [(String) -> String] = [{ value in "use: \(name), with: \(value)" }, { value in "use: \(value)" }]
    for parameter in parameters {
      let others = parameters.filter { $0.isRequired && $0.name != parameter.name }.map { "\($0.name): \($0.plain), " }
      uses.append { value in "use: \(name), with: { \(others.joined())\(parameter.name): \(value) }" }
    }
    let accounts = ["{ bearer: \"${secret:TOK}\" }", "{ basic: { user: a, password: \"${secret:TOK}\" } }"]
    var compiled = 0
    for use in uses {
      for value in Self.values + accounts {
        var yaml = "sources: { s: { values: [a, b] } }\nsinks: { o: { from: s, \(use(value)) } }"
        if !Self.makesEvents(value) {
          yaml += "\ntests: [ { name: t, inputs: { s: { marbles: \"-a-b|\" } }, expect: { o: [ { next: never } ] } } ]"
        }
        let printed = Self.printed(yaml)
        if printed.compiled { compiled += 1 }
        #expect(!Self.isSecret(in: printed.text), "\(yaml)\n\(printed.text)")
      }
    }
    #expect(compiled > 0)
  }

  /// Functions and templates, with the secret in any position.
  @Test(arguments: [
    "functions: { f: { value: VALUE } }", "functions: { f: { parameters: { x: dyn }, value: VALUE } }",
    "functions: { f: { description: VALUE, value: '1' } }", "functions: { f: { value: '1', returns: VALUE } }",
    "functions: { f: { value: '1', examples: [ VALUE ] } }",
    "functions: { f: { parameters: { x: VALUE }, value: '1' } }",
    "functions: { f: { parameters: { x: { type: dyn, description: VALUE } }, value: '1' } }",
    "functions: { VALUE: { value: '1' } }", "templates: { t: { chain: [ { map: VALUE } ] } }",
    "templates: { t: { chain: [ { filter: VALUE } ] } }", "templates: { t: { chain: [ { take: VALUE } ] } }",
    "templates: { t: { parameters: { p: { type: text, default: VALUE } }, chain: [ { log: { message: $(p) } } ] } }",
    "templates: { t: { parameters: { p: { type: int, default: VALUE } }, chain: [ { take: $(p) } ] } }",
    "templates: { t: { parameters: { p: { type: expression, default: VALUE } }, chain: [ { filter: $(p) } ] } }",
    "templates: { t: { parameters: { p: VALUE }, chain: [ { filter: $(p) } ] } }",
    "templates: { t: { description: VALUE, chain: [ { take: 1 } ] } }",
  ])
  func noFunctionOrTemplateShowsASecret(_ form: String) {
    var compiled = 0
    for value in Self.values {
      let step =
        form.hasPrefix("templates") ? "{ use: t }" : form.contains("{ x:") ? "{ filter: f(event) }" : "{ filter: f() }"
      let yaml = """
        \(form.replacing("VALUE", with: value))
        sources: { s: { values: [a, b] } }
        sinks: { o: { from: s, chain: [ \(step), { map: "{'a': event}" } ], discard: {} } }
        """
      let printed = Self.printed(yaml)
      if printed.compiled { compiled += 1 }
      #expect(!Self.isSecret(in: printed.text), "\(yaml)\n\(printed.text)")
    }
    if form.contains("value: VALUE") || form.contains("filter: VALUE") { #expect(compiled > 0, "\(form)") }
  }

  @Test func aURLIsShownWithoutIt() throws {
    let entry = try #require(Catalogue.builtIn.component(.source, "http"))
    let (text, compiled) = Self.printed(
      Self.file(
        entry,
        "{ url: \"http://127.0.0.1:1/bot${secret:TOK}/x\", headers: { X-Key: \"k${secret:TOK}\" }, auth: { basic: { user: \"${secret:TOK}\", password: \"${secret:TOK}\" } } }"
      ))
    #expect(compiled, "\(text)")
    #expect(text.contains("http://127.0.0.1:1/bot(secret)/x"), "\(text)")
    #expect(!Self.isSecret(in: text))
  }

  @Test(arguments: [
    "name: \"${secret:TOK}\"", "description: \"${secret:TOK}\"", "threads: \"${secret:TOK}\"",
    "tests: [ { name: a, inputs: { s: [ { next: \"${secret:TOK}\" } ] }, expect: {} } ]",
    "sources: { s: { interval: \"${secret:TOK}\" } }", "sources: { s: { file: \"/tmp/${secret:TOK}\" } }",
    "sources: { s: { values: [\"${secret:TOK}\"] } }",
    "sources: { s: { values: [1], description: \"${secret:TOK}\" } }",
    "sources: { s: { http: \"http://${secret:TOK}.example.com/x\" } }",
    "signals: { s: { values: [1], chain: [ { take: \"${secret:TOK}\" } ] } }",
  ])
  func whatIsPrintedCannotHoldOne(_ yaml: String) {
    let diagnostics = FrontEnd(.builtIn, values: Self.interpolation).compile(yaml, name: "t.yaml").diagnostics
    #expect(diagnostics.contains { $0.code == .misplacedSecret }, "\(diagnostics)")
    #expect(!Self.isSecret(in: DiagnosticRenderer().text(diagnostics)))
  }

  @Test func masksLieWhereTheSecretsAre() {
    var text = LocatedText("ab SECRET cd SECRET")
    text.secrets = [3..<9, 13..<19]
    #expect(String(decoding: text.shown, as: UTF8.self) == "ab (secret) cd (secret)")
    #expect(String(decoding: text.shown(0, 5), as: UTF8.self) == "ab (secret)")
    #expect(String(decoding: text.shown(10, 13), as: UTF8.self) == "cd ")
    #expect(text.slice(4, 12).secrets == [0..<5])
    #expect(!text.slice(9, 13).isSecret)
  }
}
