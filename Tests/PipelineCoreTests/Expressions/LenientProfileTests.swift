import PipelineCore
import Testing

/// The additions of the profile for JSON events to the language.
@Suite struct LenientProfileTests {
  static let event = #"""
    {"n": null, "s": "x", "i": 7, "d": 7.5, "big": 18446744073709551615, "m": {"a": 1, "s": "t\"u"},
     "l": [1, {"k": "v"}, "a\nb"], "esc\"key": 1, "i": 8, "z": -0, "b": true, "é": "ü", "e": ""}
    """#

  @Test(
    arguments: [
      // Reading.
      ("event.i", "7"), ("event.m", #"{"a": 1, "s": "t\"u"}"#), ("event.m.a", "1"), ("event.m.s == 't\"u'", "true"),
      ("event.m.s.size()", "3"), ("event.l[1].k", #""v""#), ("event['esc\"key']", "1"),
      ("event['é']", #""ü""#), ("event.big", "18446744073709551615"), ("type(event.big) == uint", "true"),
      ("type(event.z) == double", "true"), ("event.b && event.i > 6", "true"), ("event.l.size()", "3"),
      ("size(event.m)", "2"), ("event.l[2] == 'a\\nb'", "true"), ("event.l[2].size()", "3"),
      ("'k' in event.l[1]", "true"), ("'a' in event.m", "true"), ("1.0 in event.l", "true"),
      ("event.m == {'s': 't\"u', 'a': 1.0}", "true"), ("event.s + event.m.s", #""xt\"u""#),
      // Missing.
      ("event.x", "error: no such key: 'x' (event.x)"), ("event.m.x", "error: no such key: 'x' (event.m.x)"),
      ("has(event.x)", "false"), ("has(event.n)", "true"), ("has(event.m.a)", "true"), ("has(event.m.x)", "false"),
      ("has(event.n.x)", "false"), ("has(event.s.x)", "false"),
      ("has(event.x.y)", "error: no such key: 'x' (has(event.x.y))"),
      ("event.?x.orValue(1)", "1"), ("event.?n.orValue(1)", "null"), ("event.?i.orValue(1)", "7"),
      ("event.?x.?y.orValue(1)", "1"), ("event.?x.y.orValue(1)", "1"), ("event.?n.y.orValue(1)", "1"),
      ("event.?m.a.orValue(0)", "1"), ("event.?m.?a.hasValue()", "true"), ("event.?x.hasValue()", "false"),
      ("event.m.?a.orValue(0)", "1"), ("event[?'x'].orValue(1)", "1"),
      ("event.x.?y.orValue(1)", "error: no such key: 'x' (event.x.?y.orValue(1))"),
      ("event.?i.value()", "7"), ("event.?x.or(event.?s).value()", #""x""#),
      ("optional.ofNonNull(event.n).orValue(3)", "3"), ("event.?l[0].orValue(9)", "1"), ("event.?l[9].orValue(9)", "9"),
      ("event.?m.optMap(m, m.a + 1).value()", "2"), ("event.?i.optFlatMap(i, optional.of(i)).value()", "7"),
      // Absorbing.
      ("event.x == 1 || event.i == 7", "true"), ("event.i == 7 || event.x == 1", "true"),
      ("event.x == 1 && event.i == 0", "false"), ("event.i == 7 && event.x == 1", "error: no such key: 'x' (event.x)"),
      ("event.s && event.i == 0", "false"),
      // Null and kinds.
      ("event.n == null", "true"), ("event.n == 'x'", "false"), ("event.s == 1", "false"), ("event.n != 'x'", "true"),
      (
        "event.n > 1",
        "error: '>' is not defined for null and int; write optional.ofNonNull(...).orValue(...) for what may be null (event.n > 1)"
      ),
      (
        "1 < event.n",
        "error: '<' is not defined for int and null; write optional.ofNonNull(...).orValue(...) for what may be null (1 < event.n)"
      ),
      ("event.i == 7.0", "true"), ("event.i > 6.5", "true"), ("6.5 < event.i", "true"), ("7 <= event.d", "true"),
      // Mixed arithmetic.
      ("event.i * 2.0", "14.0"), ("event.d + 1", "8.5"), ("event.i / 2", "3"), ("event.d / 2", "3.75"),
      ("event.i - event.d", "-0.5"), ("event.big + 0u", "18446744073709551615"),
      // Building.
      ("{'a': event.i, ?'x': event.?x, ?'s': event.?s}", #"{"a":7,"s":"x"}"#),
      ("[event.i, ?event.?x]", "[7]"), ("merge(event.m, {'b': 2}).without(['s'])", #"{"a":1,"b":2}"#),
      ("event.pick(['s', 'i'])", #"{"s":"x","i":7}"#),
      // Loops.
      ("event.l.exists(x, x == 1)", "true"), ("event.l.filter(x, type(x) == map).map(x, x.k)", #"["v"]"#),
      ("event.m.map(k, k)", #"["a","s"]"#), ("event.m.transformMap(k, v, k == 'a', v + 1)", #"{"a":2}"#),
      ("event.l.transformList(i, x, i)", "[0,1,2]"), ("event.l.map(x, event.i)", "[7,7,7]"),
      ("[3, 1, 2].sortBy(x, -x)", "[3,2,1]"), ("[1, 2].map(x, [3].map(x, x))", "[[3],[3]]"),
      ("event.l.groupBy(x, 1)[0].values == event.l", "true"),
      ("[1, 2, 3].groupBy(x, x % 2)", #"[{"key":1,"values":[1,3]},{"key":0,"values":[2]}]"#),
      ("[1, 2, 3].groupBy(x, x > 1, x * x)", #"[{"key":false,"values":[1]},{"key":true,"values":[4,9]}]"#),
      ("[{'a': 1}, {'a': 1.0}, {'a': null}].groupBy(x, x)[0].values", #"[{"a":1},{"a":1.0}]"#),
      ("[].groupBy(x, x.a)", "[]"), ("event.m.groupBy(k, size(k)).map(g, g.values)", #"[["a","s"]]"#),
      ("['a', 'b'].transformMapEntry(i, v, {v: i})", #"{"a":0,"b":1}"#),
      ("cel.bind(x, event.i, x * x)", "49"), ("parseJson('{\"a\": [1]}').a[0]", "1"),
      ("toJson(event.m)", #""{\"a\":1,\"s\":\"t\\\"u\"}""#),
      ("meta.source", #""test""#), ("now == timestamp(0)", "true"), ("event.i > 0 ? null : 'x'", "null"),
    ] as [(String, String)])
  func expression(_ expression: String, _ expected: String) {
    let got = evaluate(expression, Self.event)
    // JSON text passes through unchanged.
    #expect(got == dense(expected), "\(expression)")
  }

  @Test func scalarEvents() {
    #expect(evaluate("event.trim()", #"" a ""#) == #""a""#)
    #expect(evaluate("size(event) >= 3", #""d\u00fcn""#) == "true")
    #expect(evaluate("event + 1", "41") == "42")
    #expect(evaluate("has(event.x)", "41") == "false")
    #expect(evaluate("event.?x.orValue(1)", "null") == "1")
    #expect(evaluate("event.x", "[1]")?.hasPrefix("error: ") == true)
    #expect(evaluate("event[0]", "[1]") == "1")
    #expect(evaluate("urlEncode(event)", #""a\nb""#) == #""a%0Ab""#)
  }

  @Test func firstOfDuplicateKeysCounts() {
    #expect(evaluate("event.a.y", #"{"a": {"x": 1}, "a": {"y": 2}}"#)?.hasPrefix("error") == true)
    #expect(evaluate("event.a", #"{"a": 1, "a": 2}"#) == "1")
    #expect(evaluate("event.\u{61}", #"{"\u0061": 3, "a": 2}"#) == "3")
  }

  @Test func pathsWithinEachOther() {
    let event = #"{"p": 0, "a": {"b": {"c": [1, 2] , "d": "x"} , "e": 2} , "f": 3}"#
    #expect(
      evaluate("[event.a.b.d, event.a.b.c, event.f, event.a.e, has(event.a.b)]", event)
        == #"["x",[1,2],3,2,true]"#)
    let whole = evaluate("[event.f, event.a, event.a.b, event.a.b.d, event.a.e]", event)
    #expect(
      whole
        == #"[3,{"b":{"c":[1,2],"d":"x"},"e":2},{"c":[1,2],"d":"x"},"x",2]"#)
  }

  private func isRefused(_ event: String) -> Bool {
    let projection = Projection()
    _ = projection.slot(for: ["b"], needs: .value)
    _ = projection.slot(for: ["a"], needs: .value)
    projection.freeze()
    let frame = EvaluationFrame(slots: projection.slotCount, arena: Arena(), json: JSONParser())
    let slab = Slab(Array(event.utf8))
    let value = Value(kind: .jsonMap, pointer: slab.start, length: slab.count)
    return projection.fill(value, frame).isError
  }

  @Test func malformedEventsAreErrorsWhereTheyAreRead() {
    for event in [
      #"{"a": tru, "b": 1}"#, #"{"a": 01}"#, #"{"a": 1"#, #"{"a": }"#, #"{"a": 1 "b": 2}"#, #"{"c": 1 "a": 2}"#,
      #"{"c":"a": 1}"#, #"{a": 1}"#, #"{"a": {]}"#, #"{"c": [}, "a": 1}"#, #"{"a": "x" 1}"#, #"{: 1}"#,
    ] {
      #expect(isRefused(event), "\(event)")
    }
    // Parts that are not read are not checked, except for strings and brackets.
    for event in [#"{"c": tru, "a": 1, "b": 2}"#, #"{"c" 1}"#, #"{"c": }"#, #"{"b": 1, "a": 2, "c" 3}"#] {
      #expect(!isRefused(event), "\(event)")
    }
  }

  @Test func triesWhatMayFail() {
    #expect(evaluate("optional.try(event.a.b).orValue(7)", #"{"a": 1}"#) == "7")
    #expect(evaluate("optional.try(event.a.b).orValue(7)", #"{"a": {"b": 2}}"#) == "2")
    #expect(evaluate("optional.try(grok('x', '%{INT:n:int}')).orValue({})") == "{}")
    #expect(evaluate("optional.try(optional.try(1 / 0).value()).hasValue()") == "false")
    #expect(evaluate("[1, 0, 2].map(x, optional.try(4 / x)).unwrapOpt()") == "[4,2]")
    // Exceeding a limit gives no answer.
    #expect(
      evaluate("optional.try(lists.range(200).map(x, lists.range(200).map(y, y))).hasValue()")?.hasPrefix("error")
        == true)
  }

  @Test func boundNamesFailWhereTheyAreUsed() {
    #expect(evaluate("cel.bind(x, event.a, 1)") == "1")
    #expect(evaluate("cel.bind(x, event.a, has(event.a) ? x : 2)") == "2")
    #expect(evaluate("cel.bind(x, event.a, x || true)") == "true")
    #expect(evaluate("cel.bind(x, event.a, x)") == "error: no such key: 'a' (event.a)")
    #expect(evaluate("cel.bind(x, event.a, [x])") == "error: no such key: 'a' (event.a)")
    #expect(evaluate("cel.bind(x, event.a, {'k': x})") == "error: no such key: 'a' (event.a)")
  }

  @Test func failureSaysWhere() throws {
    let evaluation = try #require(Evaluation("event.a.b + 1 > 2", #"{"a": {}}"#))
    let location = evaluation.program.failureLocation(evaluation.value)
    #expect(location.offset == 0 && location.length == 9)
    #expect(evaluation.program.evaluateBool(evaluation.frame) == .failed)
    #expect(
      evaluation.program.failureKey(evaluation.value) == evaluation.program.failureKey(evaluation.frame.lastError))
  }

  /// A long list that is still JSON text: one iteration per element never exceeds the limit, whatever the document
  /// contains.
  @Test func longListsOfJSON() throws {
    let numbers = "{\"l\": [" + (0..<100_000).map { "\($0)" }.joined(separator: ", ") + "]}"
    #expect(evaluate("event.l.map(x, x + 1).size()", numbers) == "100000")
    #expect(evaluate("event.l.filter(x, x % 2 == 0).map(x, string(x)).join(',').size()", numbers) == "294444")
    #expect(evaluate("event.l.exists(x, x == 99999) && event.l.sum() == 4999950000", numbers) == "true")
    let objects = "{\"l\": [" + (0..<100_000).map { "{\"a\": \($0)}" }.joined(separator: ",") + "]}"
    #expect(evaluate("event.l.map(x, x.a).sum()", objects) == "4999950000")
    #expect(evaluate("event.l.all(x, event.l[0].a == 0)", "{\"l\": []}") == "true")
    let map = "{\"m\": {" + (0..<100_000).map { "\"k\($0)\": \($0)" }.joined(separator: ",") + "}}"
    #expect(evaluate("event.m.filter(k, k.endsWith('9')).size()", map) == "10000")
    #expect(evaluate("event.m.transformMap(k, v, v + 1).size()", map) == "100000")
  }

  @Test func loopsAreBounded() throws {
    let nested = "lists.range(200).map(x, lists.range(200).map(y, x * y))"
    #expect(evaluate(nested) == "error: the loops ran more often than allowed (lists.range(200).map(y, x * y))")
    #expect(evaluate("lists.range(100000000).size()")?.hasPrefix("error") == true)
    let evaluation = try #require(Evaluation("lists.range(9000).map(x, x).map(x, x).size()"))
    #expect(evaluation.text == "9000")
    evaluation.frame.outerIterationLimit = 17_999
    #expect(evaluation.program.evaluate(evaluation.frame).isError)
    evaluation.frame.outerIterationLimit = 18_000
    #expect(!evaluation.program.evaluate(evaluation.frame).isError)
  }
}
