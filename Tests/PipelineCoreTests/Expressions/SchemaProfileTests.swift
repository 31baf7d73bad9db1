import PipelineCore
import Testing

/// Reads of declared fields: through the scanner, over the raw event and over a tree.
@Suite struct SchemaProfileTests {
  private static let shape: ExpressionType = {
    func field(_ name: String, _ type: ExpressionType) -> ExpressionType.Field {
      var field = ExpressionType.Field(name, type)
      field.isDeclared = true
      return field
    }
    return .object(
      fields: [
        field("d", .double), field("i", .int), field("u", .uint), field("n", .wrapper(.int)), field("t", .timestamp),
        field("p", .wrapper(.duration)), field("s", .wrapper(.string)),
        field("o", .wrapper(.object(fields: [field("x", .wrapper(.int)), field("y", .string)], open: false))),
        field("r", .object(fields: [field("z", .wrapper(.double))], open: false)),
      ], open: false)
  }()

  @Test(arguments: [
    // A whole number in a double field becomes a double, and vice versa.
    ("event.d / 2.0", #"{"d": 7}"#, "3.5"), ("event.i / 2", #"{"i": 7.0}"#, "3"), ("event.u + 1u", #"{"u": 7}"#, "8"),
    ("event.d > 6.5 && event.d == 7.0", #"{"d": 7}"#, "true"), ("math.round(event.d)", #"{"d": 7}"#, "7.0"),
    // Other values are unchanged, and operations on them fail.
    ("event.i + 1", #"{"i": "x"}"#, "error"), ("event.i + 1", #"{"i": 1.5}"#, "2.5"),
    // A nullable field reads as null if it is absent.
    ("event.n == null", "{}", "true"), ("event.n == null", #"{"n": null}"#, "true"), ("event.n == 3", "{}", "false"),
    ("event.n != 3", "{}", "true"), ("event.s != 'debug'", "{}", "true"), ("!(event.s == 'debug')", "{}", "true"),
    ("event.n > 3", "{}", "error"), ("event.n > 3", #"{"n": 4}"#, "true"), ("has(event.n)", "{}", "false"),
    ("event.?n.orValue(5)", "{}", "5"), ("[event.n, event.s]", "{}", "[null, null]"),
    // A nullable object that is null has no fields.
    ("event.o == null", "{}", "true"), ("event.o.x", "{}", "error"), ("event.o.x", #"{"o": {}}"#, "null"),
    ("event.o.y", #"{"o": {}}"#, "error"), ("event.?o.x.orValue(1)", "{}", "1"), ("event.r.z", #"{"r": {}}"#, "null"),
    ("event.r.z", #"{"r": {"z": 2}}"#, "2"), ("event['r']['z']", #"{"r": {"z": 2}}"#, "2"),
    // An unchanged number is written with its original text.
    ("event.d", #"{"d": -9223372036854775808}"#, "-9223372036854775808"), ("string(event.d)", #"{"d": 7}"#, #""7""#),
    ("event.d + 0.5", #"{"d": 18446744073709551615}"#, "18446744073709552000.0"), ("event.i", #"{"i": 7.0}"#, "7"),
    ("[event.d, event.r]", #"{"d": 1e3, "r": {"z": 2.50}}"#, #"[1e3,{"z": 2.50}]"#),
    // Times arrive as texts.
    ("event.t.getFullYear()", #"{"t": "2026-01-31T12:00:00Z"}"#, "2026"),
    ("event.t > timestamp('2026-01-01T00:00:00Z')", #"{"t": "2026-01-31T12:00:00Z"}"#, "true"),
    ("event.t", #"{"t": "noon"}"#, "error"), ("event.p < duration('2s')", #"{"p": "1500ms"}"#, "true"),
    ("event.p == null", "{}", "true"),
  ])
  func reads(_ expression: String, _ event: String, _ expected: String) throws {
    var diagnostics = Diagnostics()
    let scope = ExpressionScope([.init("event", Self.shape)])
    let checked = try #require(
      ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?.check(in: scope, into: &diagnostics),
      "\(diagnostics.all.map(\.message))")
    for way in 0..<3 {
      let projection = way == 0 ? Projection() : nil
      let program = checked.compile(projection: projection)
      projection?.freeze()
      let arena = Arena()
      let frame = EvaluationFrame(variables: 1, slots: projection?.slotCount ?? 0, arena: arena, json: JSONParser())
      let slab = Slab(Array(event.utf8))
      let opened = frame.json.open(slab.bytes)
      frame[0] = way == 2 ? frame.json.expand(opened, into: arena) : opened
      _ = projection?.fill(frame[0], frame)
      let value = program.evaluate(frame)
      let text = OutputBuffer()
      if !value.isError { JSONWriter.append(value, to: text) }
      let got = value.isError ? "error" : dense(String(decoding: text.bytes, as: UTF8.self))
      #expect(got == dense(expected), "\(expression), way \(way)")
    }
  }
}
