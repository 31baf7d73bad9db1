import Testing

@testable import PipelineCore

@Suite struct ExpressionDiagnosticsTests {
  @Test(
    arguments: [
      ("", "RX401 0+0 the expression is empty"),
      ("event.a >== 1", "RX401 8+3 there is no operator '>==' | Comparison has"),
      ("event.a <== 1", "RX401 8+3 there is no operator '<==' | Comparison has"),
      ("event.a = 1", "RX401 8+1 a single '=' is not an operator | Compare with '=='"),
      ("event.a === 1", "RX401 8+3 there is no operator '==='"),
      ("event.a and event.b", "RX401 8+3 expected an operator or the end, found 'and' | Write '&&'"),
      ("'abc", "RX401 0+1 this string has no closing quote"),
      ("(1 + 2", "RX401 0+1 ')' is missing"),
      ("1 +", "RX401 3+0 expected a value, found the end"),
      ("a ? b", "RX401 2+1 '?' has no ':'"),
      (#"'\d'"#, "RX402 1+2 there is no such escape sequence | For a pattern write a raw string"),
      ("300ms", "RX402 0+5 '300ms' is not a number | Write duration('300ms')"),
      ("99999999999999999999", "RX402 0+20 this number is too large"),
      ("for", "RX404 0+3 'for' is a reserved word"),
      ("has(event)", "RX405 0+10 has() takes one selection"),
      ("has(event.h['a-b'])", "RX405 0+19 has() takes a field, not an index | Write event.h[?'a-b'].hasValue()"),
      ("[1].map(1, 2)", "RX405 8+1 the first argument of map() must be a name"),
      ("evnt.a", "RX411 0+4 there is nothing called 'evnt' here | Did you mean 'event'?"),
      ("status > 1", "RX411 0+6 there is nothing called 'status' here | Write event.status"),
      ("event.a.startWith('x')", "RX412 8+9 there is no function 'startWith' | Did you mean 'startsWith'?"),
      ("event.a.toLowerCase()", "RX412 8+11 there is no function 'toLowerCase' | Write .lower()"),
      ("math.min(1, 2)", "RX412 5+3 there is no function 'math.min' | Write math.least"),
      ("len(event.a)", "RX412 0+3 there is no function 'len' | Write size(...)"),
      ("'a' + 1", "RX413 0+7 '+' is not defined for string and int"),
      ("1 == 'a'", "RX413 0+8 an int never equals a string"),
      (
        "'a'.substring('b')",
        "RX413 4+14 string.substring(string) does not exist | It is called as string.substring(int)"
      ),
      ("size('a',)", "RX401 8+1 arguments cannot end with a comma | Only lists and maps can."),
      ("[,,]", "RX401 1+1 expected a value, found ',' | Remove the comma."),
      ("-duration('1s')", "RX413 0+15 '-' is not defined for duration"),
      ("math.greatest(1, 'a')", "RX413 5+16 math.greatest(int, string) does not exist"),
      ("math.least(1, 2, 3) == 1.0", "RX413 0+26 an int never equals a double | "),
      ("!1", "RX413 1+1 '!' needs a bool, not an int"),
      ("1.5 in 'abc'", "RX413 0+12 'in' is not defined for double and string"),
      ("{'a': 1}.b", "RX414 9+1 there is no field 'b' | Did you mean 'a'?"),
      ("event.a.matches('(')", "RX416 16+3 the pattern does not compile"),
      ("{1.5: 2}", "RX417 1+3 a double cannot be the key of a map"),
      ("{'a': 1, 'a': 2}", "RX417 9+3 the map already has this key"),
      ("timestamp('yesterday')", "RX418 10+11 this is not a timestamp"),
      ("duration('1 day')", "RX418 9+7 this is not a duration"),
      ("event.x / 2", "RX421 0+11 this is whole-number division whenever event.x is a whole number"),
    ] as [(String, String)])
  func message(_ expression: String, _ expected: String) {
    let got = diagnose(expression)
    #expect(got.count == 1)
    #expect(got.first?.hasPrefix(expected) == true, "\(expression): \(got)")
  }

  /// In YAML flow style, a comma ends an unquoted text.
  @Test func cutByYAML() {
    let source = SourceText(name: "p.yaml", text: "{ a: f(event.a, 2), b: 1 }")
    var text = LocatedText(text: Array("f(event.a".utf8), source: source, offsets: (5...14).map { $0 })
    text.quoting = .plain
    var diagnostics = Diagnostics()
    #expect(ExpressionSyntax.parse(text, into: &diagnostics) == nil)
    #expect(diagnostics.all.first?.help?.hasPrefix("Quote the expression") == true)
  }

  @Test func whatMayBeNull() {
    let shape = ExpressionType.object([("note", .wrapper(.string))])
    #expect(
      diagnose("event.note == 7", event: shape).first?.contains("a string or null never equals an int") == true)
  }

  @Test func expectedTypes() {
    #expect(
      diagnose("1 + 1", expecting: .bool).first?.hasPrefix("RX415 0+5 a bool is needed here, but this is an int")
        == true
    )
    #expect(diagnose("event.a", expecting: .bool).isEmpty)
    #expect(diagnose("'a'", expecting: .string).isEmpty)
    #expect(diagnose("event.?a", expecting: .bool).first?.contains("End with .orValue") == true)
  }

  @Test func declaredShapes() {
    let shape = ExpressionType.object([("user", .object([("name", .string), ("age", .int)]))])
    #expect(
      diagnose("event.user.nmae == 'x'", event: shape)
        == ["RX414 11+4 there is no field 'nmae' | Did you mean 'name'?"])
    #expect(diagnose("event.user.age + 1 > 2 && event['user'].name.size() > 1", event: shape).isEmpty)
    #expect(diagnose("event.user.age == 'x'", event: shape).count == 1)
    #expect(diagnose("event.map(k, k + 'x')", event: shape).isEmpty)
  }

  /// The reports on a failing expression name the fields whose absence makes it fail.
  @Test(
    arguments: [
      ("event.a.?b.orValue(1)", ["event.a"]), ("event.a[?'b'].orValue(1)", ["event.a"]),
      ("event.?a.?b.orValue(1)", []), ("event.a.b.?c.d.orValue(1)", ["event.a.b"]), ("has(event.a.b)", ["event.a"]),
      ("has(event.a)", []), ("has(event.a) && event.a.?b.hasValue()", []), ("has(event.a) && has(event.a.b)", []),
      ("has(event.a) && event.a.b == 1", ["event.a.b"]), ("event.?a.orValue(event.b)", ["event.b"]),
      ("event.?a.value()", ["event.a"]), ("has(event.a) ? event.?a.value() : 1", []),
      ("has(event.?a.b) ? event.a.c : 1", ["event.a.c"]),
    ] as [(String, [String])])
  func fields(_ expression: String, _ needed: [String]) throws {
    var diagnostics = Diagnostics()
    let syntax = try #require(ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics))
    let checked = try #require(syntax.check(in: ExpressionScope([.init("event")]), into: &diagnostics))
    #expect(checked.reads.filter(\.canBeMissing).map(\.neededPath) == needed)
  }

  @Test func reads() throws {
    func reads(_ expression: String) throws -> [String] {
      var diagnostics = Diagnostics()
      let checked = try #require(
        ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
          .check(in: ExpressionScope([.init("event")]), into: &diagnostics))
      return checked.reads.map {
        $0.path + ($0.canBeMissing ? "!" : "") + ($0.underNegation ? "~" : "") + ($0.isSizeOnly ? "#" : "")
      } + (checked.canFail ? ["fails"] : [])
    }
    #expect(try reads("event.a.b == 1") == ["event.a.b!", "fails"])
    #expect(try reads("event.?a.b.orValue(1) == 1") == ["event.a.b"])
    #expect(try reads("has(event.a) && event.a == 1") == ["event.a", "event.a"])
    #expect(try reads("!has(event.a) || event.a == 1") == ["event.a~", "event.a"])
    #expect(try reads("has(event.a) ? event.a : 1") == ["event.a", "event.a"])
    #expect(try reads("!(event.level == 'debug')") == ["event.level!~", "fails"])
    #expect(try reads("event.level != 'debug'") == ["event.level!~", "fails"])
    #expect(try reads("event['a b'].c == 1") == ["event['a b'].c!", "fails"])
    #expect(try reads("event == 1") == ["event"])
    #expect(try reads("event.l.map(x, x.y)") == ["event.l!", "fails"])
    #expect(try reads("event.a.?b.orValue(1) == 1") == ["event.a.b!", "fails"])
    #expect(try reads("event.?a.value() == 1") == ["event.a!", "fails"])
    #expect(try reads("optional.try(event.?a.value()).orValue(1) == 1") == ["event.a"])
    #expect(try reads("has(event.?a.b) && event.a == 1") == ["event.a.b", "event.a"])
    #expect(try reads("event.?a.b.hasValue() && event.a.b == 1") == ["event.a.b", "event.a.b"])
    #expect(try reads("event.?a.hasValue() || event.a == 1") == ["event.a", "event.a!", "fails"])
    #expect(try reads("size(event) + event.size()") == ["event#", "event#", "fails"])
    #expect(try reads("size(event.map(x, x.y))") == ["event", "fails"])
    #expect(try reads("[size(event.a), event]") == ["event.a!#", "event", "fails"])
  }

  @Test func locationsFollowTheFile() throws {
    let source = SourceText(name: "p.yaml", text: "a:\n  filter: event.a +\n    nope\n")
    let text = Array("event.a + nope".utf8)
    let offsets = (0..<9).map { Int32(13 + $0) } + [22] + (0...4).map { Int32(27 + $0) }
    var diagnostics = Diagnostics()
    _ = ExpressionSyntax.parse(
      LocatedText(text: text, source: source, offsets: offsets), into: &diagnostics)?
      .check(in: ExpressionScope([.init("event")]), into: &diagnostics)
    #expect(diagnostics.all.first?.location?.description == "p.yaml:3:5")
  }

  @Test func limits() {
    #expect(diagnose(String(repeating: "(", count: 2000) + "1").first?.hasPrefix("RX403") == true)
    #expect(diagnose(String(repeating: "[", count: 249) + "1" + String(repeating: "]", count: 249)).isEmpty)
    #expect(diagnose(String(repeating: "!", count: 5000) + "true").first?.hasPrefix("RX403") == true)
    #expect(diagnose("1" + String(repeating: " + 1", count: 1000)).first?.hasPrefix("RX403") == true)
    #expect(diagnose("true" + String(repeating: " && true", count: 1000)).isEmpty)
    #expect(diagnose(String(repeating: " ", count: 70_000) + "1").first?.hasPrefix("RX403") == true)
    #expect(diagnose("event" + String(repeating: ".a", count: 600)).first?.hasPrefix("RX403") == true)
  }
}
