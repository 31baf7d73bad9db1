import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Conditions over slots have their own code path, which must give the results of the operations.
@Suite struct ConditionTests {
  private static let values = [
    "null", "true", "false", "0", "1", "-1", "7", "8", "500", "9223372036854775807", "-9223372036854775808",
    "18446744073709551615", "7.0", "7.5", "-0.0", "1e300", "\"\"", "\"a\"", "\"ab\"", "\"abc\"", "\"abd\"",
    "\"GET\"", "\"POST\"", "\"POSTS\"", "\"12345678\"", "\"123456789\"", "\"1234567890123456\"",
    "\"12345678901234567\"", "\"12345678901234568\"", "\"a\\u0062c\"", "[1]", "{\"x\": 1}",
  ]
  private static let constants = [
    "null", "true", "false", "0", "1", "-1", "7", "500", "9223372036854775807", "-9223372036854775808", "7u",
    "18446744073709551615u", "7.0", "7.5", "0.0", "1e300", "''", "'a'", "'ab'", "'abc'", "'abd'", "'GET'", "'POST'",
    "'POSTS'", "'12345678'", "'123456789'", "'1234567890123456'", "'12345678901234567'",
  ]
  private static let relations = ["==", "!=", "<", "<=", ">", ">="]

  /// Every comparison of every value with every constant, in both orders.
  @Test func comparisons() throws {
    for constant in Self.constants {
      for relation in Self.relations {
        for text in [
          "event.a \(relation) \(constant)", "\(constant) \(relation) event.a", "!(event.a \(relation) \(constant))",
        ] {
          try compare(text)
        }
      }
      try compare("event.?a.orValue(\(constant)) == 7")
      try compare("event.?a.orValue(7) != \(constant)")
      try compare("event.a in [\(constant), 7, 'abc']")
      try compare("!(event.a in [\(constant)])")
    }
    for text in ["event.a", "!event.a", "has(event.a)", "!has(event.a)", "event.?a.orValue('abc') <= 'abd'"] {
      try compare(text)
    }
  }

  /// An earlier step may have computed a NaN.
  @Test func notANumber() throws {
    for text in [
      "event.a < 1.0", "event.a > 1.0", "event.a >= 1.0", "event.a <= 1", "event.a > 1", "!(event.a < 1)",
      "event.a == 1", "event.a != 1.0", "event.a in [1, 2.0]", "!(event.a >= 1)",
    ] {
      var diagnostics = Diagnostics()
      let checked = try #require(
        ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?
          .check(in: ExpressionScope([.init("event")]), into: &diagnostics), "\(text)")
      let projection = Projection()
      let program = checked.compile(projection: projection)
      projection.freeze()
      let arena = Arena()
      let frame = EvaluationFrame(variables: 1, slots: projection.slotCount, arena: arena, json: JSONParser())
      frame[0] = arena.map(["a": .double(.nan)])
      _ = projection.fill(frame[0], frame)
      let value = program.evaluate(frame)
      #expect(value.is(.bool))
      #expect(program.evaluateBool(frame) == (value.asBool ? .yes : .no), "\(text)")
    }
  }

  /// Terms that are true, are false, fail and need the operations, under `&&`, `||` and `!` in every order.
  @Test func logic() throws {
    var random = SplitMix(11)
    let terms = [
      "event.yes", "event.no", "event.missing", "event.yes == true", "event.n > 5", "event.n < 5", "event.s == 'GET'",
      "event.s != 'GET'", "event.missing > 1", "has(event.missing)", "has(event.n)", "event.n + 1 == 8",
      "event.s.startsWith('G')", "event.n / 0 == 1", "event.s", "event.n in [1, 7]", "event.n in [1, 2]",
      "event.missing in [1]", "event.l.exists(x, x == 2)", "event.?missing.orValue(3) == 3",
    ]
    func tree(_ depth: Int) -> String {
      let choice = random.next() % 8
      if depth == 0 || choice == 0 { return terms[Int(random.next() % UInt64(terms.count))] }
      if choice == 1 { return "!(\(tree(depth - 1)))" }
      let parts = (0..<2 + random.next() % 3).map { _ in "(\(tree(depth - 1)))" }
      return parts.joined(separator: choice % 2 == 0 ? " && " : " || ")
    }
    for _ in 0..<3000 {
      let text = tree(3)
      _ = try #require(
        Evaluation(text, #"{"yes": true, "no": false, "n": 7, "s": "GET", "l": [1, 2, 3]}"#), "\(text)")
    }
  }

  /// `Evaluation` compares the outcome as a condition with the value.
  private func compare(_ text: String) throws {
    var diagnostics = Diagnostics()
    let scope = ExpressionScope([.init("event")])
    let checked = try #require(
      ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?.check(in: scope, into: &diagnostics), "\(text)")
    let projection = Projection()
    let program = checked.compile(projection: projection)
    projection.freeze()
    let frame = EvaluationFrame(variables: 1, slots: projection.slotCount, arena: Arena(), json: JSONParser())
    for event in Self.values.map({ "{\"a\": \($0)}" }) + ["{}"] {
      let slab = Slab(Array(event.utf8))
      frame[0] = frame.json.open(slab.bytes)
      #expect(!projection.fill(frame[0], frame).isError)
      let value = program.evaluate(frame)
      let truth: Program.Tri = !value.is(.bool) ? .failed : value.asBool ? .yes : .no
      #expect(program.evaluateBool(frame) == truth, "\(text) for \(event)")
      guard let (tests, count, last) = program.comparisons else { continue }
      let compared = SlotTest.compare(tests, count, last: last, UnsafePointer(frame.slots))
      // Comparisons are decided correctly, or not at all.
      #expect(
        compared == Truth.failed || compared == (truth == .yes ? Truth.yes : truth == .no ? Truth.no : .max),
        "\(text) for \(event)")
    }
  }
}
