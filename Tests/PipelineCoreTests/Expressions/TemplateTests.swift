import PipelineCore
import Testing

@Suite struct TemplateTests {
  private func render(_ template: String, _ event: String = "{}") throws -> String {
    var diagnostics = Diagnostics()
    let checked = try #require(
      ExpressionTemplate.parse(LocatedText(template), into: &diagnostics)?
        .check(in: ExpressionScope([.init("event")]), into: &diagnostics))
    let projection = Projection()
    let program = checked.compile(projection: projection)
    projection.freeze()
    let frame = EvaluationFrame(
      variables: 1, slots: projection.slotCount, arena: Arena(), json: JSONParser())
    let slab = Slab(Array(event.utf8))
    frame[0] = frame.json.open(slab.bytes)
    #expect(!projection.fill(frame[0], frame).isError)
    let buffer = OutputBuffer()
    if let error = program.render(frame, into: buffer) {
      return "error: " + program.failureMessage(error, frame)
    }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  @Test func renders() throws {
    let event = #"{"id": 7, "t": "a\"b", "n": null, "l": [1, 2], "f": 1.5, "b": true}"#
    #expect(try render("plain") == "plain")
    #expect(try render("") == "")
    #expect(try render("x/{{ event.id }}/{{event.t}}.{{ event.f }}", event) == "x/7/a\"b.1.5")
    #expect(
      try render("{{ event.n }}|{{ event.l }}|{{ {'a': {'b': event.b}} }}", event)
        == "|[1, 2]|{\"a\":{\"b\":true}}")
    #expect(try render("{{ '}}' }}{{ \"{{\" }}") == "}}{{")
    #expect(try render("{{ event.x }}", event) == "error: no such key: 'x' (event.x)")
    #expect(try render("{{ event.?x }}-{{ event.?id }}", event) == "-7")
    #expect(try render("a { b } }}", event) == "a { b } }}")
    let numbers = #"{"a": 1.50, "b": 7.0, "c": 1234567.5, "d": 1e400, "e": 18446744073709551615}"#
    #expect(
      try render("{{ event.a }} {{ event.b }} {{ event.c }} {{ event.d }} {{ event.e }}", numbers)
        == "1.50 7.0 1234567.5 1e400 18446744073709551615")
    #expect(
      try render("{{ event.a * 2.0 }} {{ event.c * 10.0 }} {{ event.d * 1.0 }}", numbers) == "3.0 12345675.0 Infinity")
    #expect(try render("{{ string(event.a) }} {{ string(event.c) }}", numbers) == "1.5 1.2345675e+06")
  }

  @Test func constants() throws {
    var diagnostics = Diagnostics()
    #expect(ExpressionTemplate.parse(LocatedText("a{b}"), into: &diagnostics)?.isConstant == true)
    #expect(ExpressionTemplate.parse(LocatedText("a/{{ 1 }}"), into: &diagnostics)?.literalPrefix == "a/")
    #expect(ExpressionTemplate.parse(LocatedText("a{{ 1"), into: &diagnostics) == nil)
    #expect(diagnostics.all.map(\.code) == [.templateUnclosed])
    #expect(ExpressionTemplate.parse(LocatedText("ab{{ 1 + }}"), into: &diagnostics) == nil)
    #expect(diagnostics.all.last?.location?.offset == 9, "where the expression ends")
  }
}
