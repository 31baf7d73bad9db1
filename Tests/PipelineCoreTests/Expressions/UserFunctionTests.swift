import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// Functions that a pipeline file defines: results of calls, reads, and reports on mistakes.
@Suite struct UserFunctionTests {
  private static let ends = """

    sources: { s: { stdin: { decode: json } } }
    sinks: { out: { from: s, chain: [ STEPS ], stdout: {} } }
    """

  /// A file with these functions, one per line, and these steps.
  private static func compile(_ functions: String, _ steps: String = "", files: [String: String] = [:])
    -> FrontEnd.Result
  {
    var front = FrontEnd(.builtIn)
    front.included = IncludedFiles { path, _ in
      files[path].map { .found(name: path, bytes: Array($0.utf8)) } ?? .refused("is not there")
    }
    let section = functions.isEmpty ? "" : "functions:\n  " + functions.replacing("\n", with: "\n  ")
    let head = files.isEmpty ? "" : "include: [\(files.keys.sorted().joined(separator: ", "))]\n"
    return front.compile(
      SourceText(name: "test.yaml", text: head + section + ends.replacing("STEPS", with: steps)))
  }

  private static func defined(_ functions: String) throws -> UserFunctions {
    let result = compile(functions)
    return try #require(result.plan, "\(result.diagnostics.map(\.line))").functions
  }

  /// `code: message` of each diagnostic, without warnings about unused definitions.
  private static func problems(_ functions: String, _ steps: String = "") -> [String] {
    compile(functions, steps).diagnostics.filter { $0.code != .unusedName }.map { "\($0.code.name): \($0.message)" }
  }

  private static let celsius = "celsius: { parameters: { f: double }, value: (f - 32.0) * 5.0 / 9.0 }"

  // MARK: What a call gives

  @Test(arguments: [
    ("celsius(212.0)", "100.0"), ("celsius(event.heat)", "37.0"), ("event.heat.celsius()", "37.0"),
    ("celsius(event.whole)", "100.0"), ("celsius(212)", "100.0"), ("celsius(size(event.user) + 210)", "100.0"),
    ("[32.0, 212.0].map(x, celsius(x))", "[0.0,100.0]"),
    ("celsius(event.heat) > 30.0 && event.whole == 212", "true"), (".celsius(212.0)", "100.0"),
    ("warm(event.heat, 30.0)", "true"), ("full({'first': 'A', 'last': 'B'})", "\"AB\""),
    ("full(event.user)", "\"AnnLee\""), ("event.users.map(u, full(u))", "[\"AB\"]"),
    ("members(event.user)", "2"), ("nothing()", "7"), ("second([1, 2])", "2"),
    ("cel.bind(f, 212.0, celsius(f) + f)", "312.0"), ("twice(twice(2))", "8"),
    ("twice(cel.bind(x, 3, x + 1)) + cel.bind(x, 1, twice(x))", "10"),
    ("later(twice(event.n), cel.bind(q, 5, q))", "[4,5]"),
    ("either(event.gone, true)", "error: no such key: 'gone' (event.gone)"),
    ("either(true, event.gone)", "error: no such key: 'gone' (event.gone)"),
    ("either(event.gone, true) || true", "true"),
    ("optional.try(either(event.gone, true)).hasValue()", "false"),
    ("ignores(event.gone)", "error: no such key: 'gone' (event.gone)"),
    ("ignores(event.user)", "1"), ("maybe(event.user)", "true"), ("maybe({})", "false"),
    ("celsius(event.text)", "error: 'celsius' needs a double for 'f', not a string (event.text)"),
    ("full(event.n)", "error: 'full' needs a map(string, dyn) for 'u', not an int (event.n)"),
    ("result(event.text)", "error: 'result' returns an int, not a string (x)"), ("result(event.whole)", "212"),
  ]) func aCallGives(_ expression: String, _ expected: String) throws {
    let functions = try Self.defined(
      """
      \(Self.celsius)
      warm: { parameters: { f: double, than: double }, value: celsius(f) > than }
      full: { parameters: { u: map }, value: u.first + u.last }
      members: { parameters: { u: dyn }, value: size(u) }
      nothing: { value: 7 }
      second: { parameters: { all: list(int) }, value: "all[1]", returns: int }
      twice: { parameters: { n: int }, value: n * 2 }
      later: { parameters: { a: int, b: int }, value: "[a, b]" }
      either: { parameters: { a: bool, b: bool }, value: a || b }
      ignores: { parameters: { x: dyn }, value: "size([x]) > 5 ? 2 : 1" }
      maybe: { parameters: { u: map }, value: has(u.first) }
      result: { parameters: { x: dyn }, value: x, returns: int }
      """)
    let event =
      #"{"heat":98.6,"whole":212,"text":"hot","n":2,"user":{"first":"Ann","last":"Lee"},"users":[{"first":"A","last":"B"}]}"#
    #expect(evaluate(expression, event, functions: functions) == expected)
  }

  /// A call equals its body with the arguments bound once, for any body; a failing argument makes it fail.
  @Test(arguments: 0..<300) func aCallEqualsItsBodyWithBoundArguments(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let event = #"{"n":3,"x":1.5,"t":"abc","b":true,"u":{"a":1,"s":"q","deep":{"k":[1,2]}},"l":[1,2.5,"x"],"o":null}"#
    let arguments = [
      "event.n", "event.x", "event.t", "event.b", "event.u", "event.u.a", "event.u.deep", "event.missing", "2", "'lit'",
      "event.n + 1", "event.l", "[1, 2].map(e, e + event.n)", "1 / 0", "event", "event.o", "{'a': event.n}",
      "event.u.missing", "event.b ? event.u : event.l", "cel.bind(w, event.n, w * w)",
    ]
    func body(_ depth: Int, _ random: inout SplitMix) -> String {
      let p = random.pick(["p", "q"])
      if depth == 0 {
        return random.pick([p, p, "\(p).a", "\(p).deep.k", "1", "true", "'s'", "has(\(p).a)", "\(p)['a']"])
      }
      let one = body(depth - 1, &random)
      let two = body(depth - 1, &random)
      return random.pick([
        "(\(one) + \(two))", "(\(one) == \(two))", "(\(one) && \(two))", "(\(one) || \(two))", "!(\(one))",
        "(\(one) ? \(two) : \(p))", "\(p).?a.orValue(\(one))", "optional.try(\(one)).hasValue()",
        "[1, 2].map(i, \(p) == i ? \(one) : \(two))", "cel.bind(z, \(one), [z, \(two)])", "{'k': \(one)}.k",
        "size(\(one))", "[\(one), \(p)]", "(\(one) > \(two))", "(\(p) in [\(one)])",
        "\(p).deep.k.exists(e, e == \(one))",
      ])
    }
    let value = body(2, &random)
    let (first, second) = (random.pick(arguments), random.pick(arguments))
    let quoted = value.replacing("\"", with: "\\\"")
    guard
      let functions = Self.compile("f: { parameters: { p: dyn, q: dyn }, value: \"\(quoted)\" }").plan?.functions
    else { return }
    let call = "f(\(first), \(second))"
    // The names of the body must not be those of the second argument.
    let bound = "cel.bind(p, \(first), cel.bind(q, \(second), \(value)))"
    func checks(_ expression: String) -> Bool {
      var diagnostics = Diagnostics()
      var scope = ExpressionScope([.init("event"), .init("meta"), .init("now", .timestamp)])
      scope.functions = functions
      return ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?.check(in: scope, into: &diagnostics)
        != nil
    }
    #expect(checks(call) == checks(bound), "\(bound)")
    guard checks(bound) else { return }
    for (projects, tree) in [(true, false), (true, true), (false, false)] {
      func text(_ expression: String) -> String {
        Evaluation(expression, event, projects: projects, tree: tree, functions: functions)?.text ?? "unchecked"
      }
      let fails = [first, second].contains { text($0).hasPrefix("error") }
      let expected = fails ? "error" : text(bound)
      let actual = text(call)
      #expect(
        expected.hasPrefix("error") ? actual.hasPrefix("error") : actual == expected,
        "\(call) with \(value): \(actual), not \(expected)")
    }
  }

  /// Typed parameters, in conditions that are compiled to slot comparisons: the outcome is that for the converted values, and an argument of
  /// another kind fails the call whatever the condition.
  @Test(arguments: 0..<300) func typedArgumentsAreCheckedInConditions(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let event = #"{"n":3,"x":1.5,"t":"abc","e":"a\u0062c","b":true,"w":3.0,"big":503,"o":null,"l":[1]}"#
    let ints = ["event.n": "3", "event.w": "3", "event.big": "503"]
    let doubles = ["event.n": "3.0", "event.w": "3.0", "event.x": "1.5", "event.big": "503.0"]
    let strings = ["event.t": "'abc'", "event.e": "'abc'"]
    let fields = [
      "event.n", "event.x", "event.t", "event.e", "event.b", "event.w", "event.big", "event.o", "event.l", "event.gone",
    ]
    func pick(_ fitting: [String: String], _ random: inout SplitMix) -> String {
      random.below(5) == 0 ? random.pick(fields) : random.pick(fitting.keys.sorted())
    }
    let (a, b, s, t) = (
      pick(ints, &random), pick(doubles, &random), pick(strings, &random), pick(["event.b": ""], &random)
    )
    let all = [
      "a >= 500", "a == 3", "500 < a", "a != 503", "b < 1.5", "b == 3.0", "b >= 3.0", "s == 'abc'", "s != ''",
      "'abc' == s", "t", "!t",
      "a in [1, 3]", "b + 1.0 > 2.0", "size(s) == 3", "a + a == 6", "s in ['abc', 'd']", "true", "false",
    ]
    func condition(_ depth: Int, _ random: inout SplitMix) -> String {
      if depth == 0 { return random.pick(all) }
      let (one, two) = (condition(depth - 1, &random), condition(depth - 1, &random))
      return random.pick(["(\(one) && \(two))", "(\(one) || \(two))", "!(\(one))", "(\(one) ? \(two) : t)"])
    }
    let value = condition(2, &random)
    let functions = try Self.defined(
      "f: { parameters: { a: int, b: double, s: string, t: bool }, value: \"\(value)\" }")
    let isTyped = ints[a] != nil && doubles[b] != nil && strings[s] != nil && t == "event.b"
    let bound =
      "cel.bind(a, \(ints[a] ?? "0"), cel.bind(b, \(doubles[b] ?? "0.0"), cel.bind(s, \(strings[s] ?? "''"), cel.bind(t, true, \(value)))))"
    let call = "f(\(a), \(b), \(s), \(t))"
    for expression in [call, "\(call) && event.n == 3", "!(\(call))"] {
      let plain = expression.replacing(call, with: bound)
      let expected = isTyped ? evaluate(plain, event) : "error"
      let actual = evaluate(expression, event, functions: functions)
      #expect(
        isTyped ? actual == expected : actual?.hasPrefix("error") == true,
        "\(expression) with \(value): \(actual ?? "")")
    }
  }

  // MARK: What a call reads

  @Test func fieldsAreReadThroughACall() throws {
    let functions = try Self.defined(
      """
      full: { parameters: { u: map }, value: u.first + u.last }
      greeting: { parameters: { u: map }, value: "'Hello ' + full(u)" }
      error: { parameters: { status: dyn }, value: status >= 500 }
      """)
    func reads(_ expression: String) throws -> (reads: [String], paths: [String], operations: Int) {
      var diagnostics = Diagnostics()
      var scope = ExpressionScope([.init("event")])
      scope.functions = functions
      let checked = try #require(
        ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?.check(in: scope, into: &diagnostics))
      let projection = Projection()
      let program = checked.compile(projection: projection)
      return (
        checked.reads.map(\.path), projection.slotPaths.map { $0.path + ($0.isPresenceOnly ? "?" : "") },
        program.listing().count
      )
    }
    let greeting = try reads("greeting(event.user)")
    #expect(greeting.reads == ["event.user.first", "event.user.last"])
    #expect(greeting.paths.sorted() == ["event.user.first", "event.user.last", "event.user?"])
    // A required parameter of any type leaves no trace.
    let error = try reads("error(event.status)")
    #expect(try error.paths == ["event.status"] && error.operations == reads("event.status >= 500").operations)
    #expect(try reads("error(503)").operations == 1)
  }

  @Test func aSchemaHoldsThroughACall() {
    let schema = "{ parameters: { r: dyn }, value: r.temp + 1.5 }"
    func errors(_ call: String) -> [String] {
      FrontEnd(.builtIn).compile(
        """
        functions: { warmer: \(schema) }
        sources: { s: { stdin: { decode: json }, schema: { inside: { temp: double }, name: string } } }
        sinks: { out: { from: s, chain: [ { filter: "\(call) > 2.0" } ], stdout: {} } }
        """
      ).diagnostics.map { "\($0.line)" }
    }
    #expect(errors("warmer(event.inside)") == [])
    #expect(errors("warmer(event)").first?.contains("there is no field 'temp'") == true)
    #expect(errors("warmer(event)").first?.contains("by this call of 'warmer'") == true)
  }

  // MARK: Mistakes

  @Test(arguments: [
    (
      "size: { parameters: { x: dyn }, value: 1 }",
      "RX366: 'size' is a function of the expression language, which would be hidden"
    ),
    ("exists: { value: 1 }", "RX366: 'exists' is a macro of the expression language, which would be hidden"),
    ("count: { value: 1 }", "RX366: 'count' is an aggregate of expressions over many events"),
    ("a-b: { value: 1 }", "RX366: 'a-b' cannot be the name of a function"),
    ("if: { value: 1 }", "RX366: 'if' cannot be the name of a function"),
    ("f: { parameters: { x: dubble }, value: x }", "RX323: there is no type 'dubble'"),
    ("f: { parameters: { x: }, value: x }", "RX366: the parameter 'x' needs a type"),
    ("f: { parameters: { x: int } }", "RX366: the function 'f' has no value"),
    ("f: { value: [1] }", "RX366: the value of the function 'f' is an expression, not a list"),
    ("f: { parameters: { x: int }, valu: x }", "RX201: a function has no key 'valu'"),
    ("f: 3", "RX366: a function is a mapping, not a number"),
    ("f: { parameters: { x: int }, value: x + y }", "RX411: there is nothing called 'y' here"),
    ("f: { value: event.a }", "RX411: there is nothing called 'event' here"),
    ("f: { value: now }", "RX411: there is nothing called 'now' here"),
    ("f: { parameters: { x: int }, value: x + 'a' }", "RX413: '+' is not defined for int and string"),
    (
      "f: { parameters: { x: int }, value: x, returns: string }", "RX415: 'f' returns a string, but its value is an int"
    ),
    ("f: { parameters: { n: int }, value: f(n - 1) }", "RX367: the function 'f' calls itself"),
    (
      "f: { value: g() }\ng: { value: h() }\nh: { value: f() }",
      "RX367: the function 'f' calls itself, through 'g' and 'h'"
    ),
    (
      "f: { value: 1, examples: [ f() == 2 ] }",
      "RX368: the example is not true: the left side is 1, and the right side is 2"
    ),
    ("f: { value: 1, examples: [ \"1 == 1\" ] }", "RX368: the example does not call 'f'"),
    (
      "f: { parameters: { x: int }, value: 1 / x, examples: [ f(0) == 2 ] }",
      "RX368: the example fails: division by zero (1 / x)"
    ),
    ("f: { value: 1, examples: [ f() ] }", "RX415: a bool is needed here, but this is an int"),
    ("f: { value: 1, examples: [ f() == event.a ] }", "RX411: there is nothing called 'event' here"),
    ("f: { value: 1 }\nf: { value: 2 }", "RX119: the key 'f' is defined twice"),
  ]) func aDefinitionIsRefused(_ functions: String, _ expected: String) {
    let problems = Self.problems(functions, "{ map: event }")
    #expect(problems == [expected])
  }

  @Test(arguments: [
    ("celsius('a')", "RX413: 'celsius' needs a double for 'f', not a string"),
    ("half(2.0)", "RX413: 'half' needs an int for 'n', not a double"),
    ("celsius()", "RX413: 'celsius' takes 1 argument, and 0 are given"),
    ("celsius(1.0, 2.0)", "RX413: 'celsius' takes 1 argument, and 2 are given"),
    ("celcius(1.0)", "RX412: there is no function 'celcius'"),
    ("event.heat.celcius()", "RX412: there is no function 'celcius'"),
    ("celsius(gone)", "RX411: there is nothing called 'gone' here"),
    ("sum(event.l) + plus('a')", "RX413: '+' is not defined for string and int"),
  ]) func aCallIsRefused(_ expression: String, _ expected: String) {
    let functions =
      Self.celsius + "\nplus: { parameters: { x: dyn }, value: x + 1 }\nhalf: { parameters: { n: int }, value: n / 2 }"
    let expression = expression.replacing("sum(event.l) + ", with: "")
    #expect(Self.problems(functions, "{ map: \"\(expression)\" }") == [expected])
  }

  @Test func misspeltCallsAreCorrected() throws {
    let found = Self.compile(Self.celsius, "{ map: celcius(event.a) }").diagnostics
    let diagnostic = try #require(found.first { $0.code.name == "RX412" })
    #expect(diagnostic.help == "Did you mean 'celsius'?" && diagnostic.fixIts.map(\.replacement) == ["celsius"])
    let literal = try #require(
      Self.compile("half: { parameters: { n: int }, value: n / 2 }", "{ map: half(2.0) }").diagnostics.first {
        $0.severity == .error
      })
    #expect(literal.fixIts.map(\.replacement) == ["2"])
    #expect(literal.notes.first?.location?.line == 2)
  }

  /// Both locations are named, and fifty uses of one mistake give one diagnostic.
  @Test func aMistakeOfManyCallsIsReportedOnce() throws {
    let steps = (0..<50).map { "{ set: { f\($0): \"plus('a')\" } }" }.joined(separator: ", ")
    let found = Self.compile("plus: { parameters: { x: dyn }, value: x + 1 }", steps).diagnostics
    let diagnostic = try #require(found.first)
    #expect(found.count == 1 && diagnostic.location?.line == 2)
    #expect(diagnostic.notes.first?.message == "by this call of 'plus'" && diagnostic.notes.first?.location?.line == 4)
    #expect(diagnostic.notes.last?.message == "the same for 49 more")
    // A mistake in the definition itself is reported without a call, and not again for calls.
    let broken = Self.compile("plus: { parameters: { x: int }, value: x + 'a' }", steps).diagnostics
    #expect(broken.map(\.code.name) == ["RX413"] && broken.first?.notes.isEmpty == true)
  }

  @Test func theCircleIsShown() throws {
    let found = Self.compile("f: { value: g() }\ng: { value: f() }").diagnostics
    let diagnostic = try #require(found.first)
    #expect(found.count == 1)
    #expect(diagnostic.notes.map(\.message) == ["'f' calls 'g' here", "'g' calls 'f' here"])
    #expect(diagnostic.notes.map { $0.location?.line } == [2, 3])
  }

  @Test func whatIsUnusedIsAWarning() {
    func warnings(_ functions: String, _ steps: String, files: [String: String] = [:]) -> [String] {
      Self.compile(functions, steps, files: files).diagnostics.map(\.message)
    }
    #expect(warnings(Self.celsius, "") == ["nothing calls the function 'celsius'"])
    #expect(warnings(Self.celsius, "{ map: celsius(event) }") == [])
    #expect(
      warnings("f: { parameters: { x: int, y: int }, value: x }", "{ map: \"f(1, 2)\" }") == [
        "the value of 'f' does not use the parameter 'y'"
      ])
    // An included file may define unused functions.
    #expect(warnings("", "", files: ["lib.yaml": "functions: { \(Self.celsius) }"]) == [])
  }

  @Test func includedFunctionsAreShared() throws {
    let files = ["lib.yaml": "functions: { \(Self.celsius), bad: { value: \"celsius('x')\" } }"]
    let result = Self.compile(
      "warm: { parameters: { f: double }, value: celsius(f) > 30.0 }", "{ filter: warm(event.heat) }", files: files)
    #expect(result.diagnostics.map { $0.location?.text.name } == ["lib.yaml"])
    #expect(result.diagnostics.first?.line.contains("(included here, test.yaml:1:11)") == true)
  }

  /// Functions that call each other cannot make a small expression large or deep.
  @Test func expansionIsBounded() {
    var wide = "f0: { parameters: { x: int }, value: x + x }"
    for level in 1...20 {
      wide += "\nf\(level): { parameters: { x: int }, value: f\(level - 1)(x) + f\(level - 1)(x) }"
    }
    #expect(Self.problems(wide, "{ map: f20(1) }").first?.hasPrefix("RX403") == true)
    var deep = "f0: { parameters: { x: int }, value: x + 1 }"
    for level in 1...200 { deep += "\nf\(level): { parameters: { x: int }, value: f\(level - 1)(x) }" }
    #expect(Self.problems(deep, "{ map: f200(1) }").first?.hasPrefix("RX403") == true)
    // At the maximum depth it is evaluated.
    var allowed = "f0: { parameters: { x: int }, value: x + 1 }"
    for level in 1...60 { allowed += "\nf\(level): { parameters: { x: int }, value: f\(level - 1)(x) + 1 }" }
    #expect(Self.problems(allowed, "{ map: f60(event.n) }") == [])
  }

  // MARK: State and meaning

  @Test func aChangedFunctionIsAChangedPipeline() throws {
    func meaning(_ functions: String) throws -> UInt64 {
      try #require(Self.compile(functions, "{ map: f(event.a) }").plan != nil)
      return Self.compile(functions, "{ map: f(event.a) }").meaning
    }
    let one = "f: { parameters: { x: int }, value: g(x) }\ng: { parameters: { x: int }, value: x + 1 }"
    #expect(try meaning(one) == meaning(one.replacing("x + 1", with: "(x  + 1)")))
    #expect(try meaning(one) == meaning(one.replacing("value: g(x)", with: "value: g(x), description: a")))
    #expect(try meaning(one) != meaning(one.replacing("x + 1", with: "x + 2")))
    #expect(try meaning(one) != meaning(one.replacing("x: int", with: "x: dyn")))
    func fingerprint(_ functions: String) throws -> [UInt64] {
      try #require(Self.compile(functions, "{ map: f(event.a) }").plan).steps.map(\.fingerprint)
    }
    #expect(try fingerprint(one) != fingerprint(one.replacing("x + 1", with: "x + 2")))
  }

  @Test func explainShowsFunctions() throws {
    let plan = try #require(
      Self.compile(
        "full: { parameters: { u: map }, description: Joins., value: u.first + u.last }", "{ map: full(event.user) }"
      ).plan)
    let text = PlanExplanation.text(plan)
    #expect(
      text.contains(
        "  full(u: map(string, dyn)) -> dyn (line 2)\n    Joins.\n    is u.first + u.last\n    a part of 1 expression"))
    #expect(text.contains("reads event.user.first (may be missing), event.user.last (may be missing)"))
  }

  /// A secret in the value of a function is never printed, whatever calls the function.
  @Test(arguments: [
    "token: { value: \"'${secret:TOK}'\", examples: [ token() == 'x' ] }",
    "token: { value: \"'${secret:TOK}' + 1\" }",
    "token: { value: \"int('${secret:TOK}')\", examples: [ token() == 1 ] }",
    "token: { parameters: { x: dyn }, value: \"x['${secret:TOK}']\" }",
    "token: { parameters: { x: dyn }, value: \"{'${secret:TOK}': x}\", returns: int }",
    "token: { parameters: { x: dyn }, value: \"x.${secret:TOK}.y + nosuch\" }",
  ]) func aSecretOfAFunctionIsNotPrinted(_ function: String) {
    let secret = "Qz7kPv3xWm"
    let values = Interpolation(variables: [:], secrets: ["TOK": secret])
    let call = function.contains("parameters") ? "token(event)" : "token()"
    let result = FrontEnd(.builtIn, values: values).compile(
      "functions: { \(function) }"
        + Self.ends.replacing(
          "STEPS",
          with: "{ map: \"{'t': \(call)}\" }, { filter: \"!(\(call) == 1)\" }, { log: { message: 'a {{ \(call) }}' } }")
    )
    var shown = result.diagnostics.map(\.line).joined(separator: "\n") + DiagnosticRenderer().text(result.diagnostics)
    if let plan = result.plan { shown += PlanExplanation.text(plan) }
    #expect(!shown.contains(secret) && !shown.contains("Qz7k"), "\(shown)")
  }

  @Test func aSecretOfAFunctionIsMaskedInLogs() throws {
    let values = Interpolation(variables: [:], secrets: ["TOK": "Qz7kPv3xWm"])
    let result = FrontEnd(PipelineRun.catalogue, values: values).compile(
      """
      functions: { token: { value: "'${secret:TOK}'" } }
      sources: { s: { values: [ 1 ] } }
      sinks: { out: { from: s, chain: [ { log: { message: 'a {{ token() }}' } } ], probe: {} } }
      """)
    let run = PipelineRun(try #require(result.plan), sources: [:])
    #expect(run.log.contains { $0.contains("a (secret)") } && !run.log.contains { $0.contains("Qz7k") }, "\(run.log)")
  }
}
