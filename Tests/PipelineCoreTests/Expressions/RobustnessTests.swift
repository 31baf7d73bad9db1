import Foundation
import PipelineCore
import PipelineTestSupport
import Synchronization
import Testing

/// No text and no event may trap; random, but the same in every run.
@Suite struct RobustnessTests {
  private static let words = [
    "event", ".a", ".b", ".?a", "[0]", "[?'k']", "['k']", "(", ")", "[", "]", "{", "}", ",", ":", "?", "!", "-",
    "+", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", " in ", "1", "0", "2u", "1.5", "'x'", "\"\\n\"", "b'\\xff'",
    "true", "null", "has(event.a)", ".map(x, x)", ".exists(x, x == 1)", ".filter(k, k > 0)", "x", "size(", ".size()",
    "int(", "string(", "duration('1s')", "timestamp(0)", ".format([1])", "math.greatest(", "optional.of(1)",
    ".orValue(1)",
    ".split('')", ".substring(1)", ".charAt(9)", "9223372036854775807", "-9223372036854775808", "1e308",
    ".matches('a+')",
    "cel.bind(x, event, x)", ".transformMap(k, v, v)", "merge(event, event)", ".sort()", ".flatten()", "ip('::1')",
    "parseJson('[1]')", ".reverse()", ".replace('', 'y')", ".getHours('Europe/Berlin')", ".sortBy(x, x)",
    ".groupBy(x, x)", ".join()",
    ".without(['a'])", "toJson(event)", ".first()", "regex.extractAll('aab', 'a')", " ", "//", "'", "`", "\\", "é",
  ]

  private static let events = [
    "{}", "null", "1", #""text""#, "[1, [2], {\"a\": 3}]", #"{"a": 1, "b": null, "k": {"a": [1, "x", 2.5]}}"#,
    #"{"a": {"b": {"a": "\ud83d\u0000\n"}}, "b": [[], {}], "k": -0, "big": 18446744073709551615, "x": 1e400}"#,
  ]

  @Test func randomTokens() {
    var dice = SplitMix(1)
    var evaluated = 0
    for _ in 0..<6000 {
      var text = ""
      for _ in 0..<Int.random(in: 1...14, using: &dice) {
        text += Self.words.randomElement(using: &dice) ?? ""
      }
      evaluated += run(text, Self.events.randomElement(using: &dice) ?? "{}")
    }
    #expect(evaluated > 200, "too few of the texts are expressions")
  }

  @Test func randomBytes() {
    var dice = SplitMix(2)
    var reported = 0
    for _ in 0..<3000 {
      let bytes = (0..<Int.random(in: 0...40, using: &dice)).map { _ in UInt8.random(in: 0...255, using: &dice) }
      var diagnostics = Diagnostics()
      let text = LocatedText(
        text: bytes, source: SourceText(name: "f", bytes: bytes), offsets: (0...Int32(bytes.count)).map { $0 })
      _ = ExpressionSyntax.parse(text, into: &diagnostics)?.check(in: ExpressionScope(), into: &diagnostics)
      _ = ExpressionTemplate.parse(text, into: &diagnostics)?.check(in: ExpressionScope(), into: &diagnostics)
      for location in diagnostics.all.compactMap(\.location) {
        #expect(location.offset >= 0 && location.length >= 0 && location.offset + location.length <= bytes.count)
      }
      if !diagnostics.all.isEmpty { reported += 1 }
    }
    #expect(reported > 2000, "random bytes are hardly ever an expression")
  }

  @Test func damagedEvents() {
    var dice = SplitMix(3)
    let projection = Projection()
    for path in [["a"], ["a", "b"], ["a", "b", "a"], ["k", "a"], ["b"], ["x"], ["nope"]] {
      _ = projection.slot(for: path, needs: path.count == 1 ? .presence : .value)
    }
    projection.freeze()
    let frame = EvaluationFrame(slots: projection.slotCount, arena: Arena(), json: JSONParser())
    for _ in 0..<20_000 {
      var bytes = Array((Self.events.randomElement(using: &dice) ?? "{}").utf8)
      for _ in 0..<Int.random(in: 0...3, using: &dice) where !bytes.isEmpty {
        bytes[Int.random(in: 0..<bytes.count, using: &dice)] = UInt8.random(in: 0...255, using: &dice)
      }
      if Bool.random(using: &dice) { bytes.removeLast(Int.random(in: 0...bytes.count, using: &dice)) }
      let slab = Slab(bytes)
      let event = Value(kind: .jsonMap, pointer: slab.start, length: slab.count)
      _ = projection.fill(event, frame)
      for slot in 0..<projection.slotCount where frame.slots[slot].kind == Value.Kind.string.rawValue {
        let value = frame.slots[slot]
        #expect(UInt(value.payload) >= UInt(bitPattern: slab.start))
        #expect(UInt(value.payload) + UInt(value.length) <= UInt(bitPattern: slab.start) + UInt(slab.count))
      }
    }
  }

  @Test func deepExpressionsEvaluateOnASmallStack() {
    let shapes: [(String, String, String)] = [
      ("(", "event.a", ")"), ("[", "event.a", "]"), ("-", "event.a", ""), ("size([", "event.a", "])"),
      ("true ? ", "event.a", " : 1"), ("{'a': ", "event.a", "}"), ("", "event.a", " + 1"), ("!", "event.b", ""),
      ("[1].map(x, ", "event.a", ")"), ("optional.of(1).optMap(y, ", "event.a", ")"), ("", "event", ".a"),
    ]
    let evaluated = Mutex(0)
    let thread = Thread {
      for (open, inner, close) in shapes {
        for depth in [60, 120, 245] {
          let count = run(
            String(repeating: open, count: depth) + inner + String(repeating: close, count: depth),
            #"{"a": 1, "b": true}"#)
          evaluated.withLock { $0 += count }
        }
      }
    }
    // Without optimization four are enough.
    thread.stackSize = 6 << 20
    thread.start()
    while !thread.isFinished { sched_yield() }
    #expect(evaluated.withLock { $0 } > shapes.count)
  }

  @Test func memoryIsBounded() {
    for text in [
      "lists.range(10000).map(x, event.a + event.a).size()",
      "'x'.replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy').replace('', 'yyyyyyyyyyyyyyyy')",
    ] {
      let evaluation = Evaluation(text, "{\"a\": \"\(String(repeating: "z", count: 100_000))\"}")
      #expect(evaluation?.text.contains("larger than allowed") == true, "\(text.prefix(40))")
    }
  }
}

/// Evaluates a text as an expression and as a condition, in all modes, which must agree. Returns the number of modes that accept
/// it.
private func run(_ text: String, _ event: String) -> Int {
  var evaluated = 0
  var diagnostics = Diagnostics()
  for mode in [ExpressionScope.Mode.lenient, .strict] {
    for checks in [true, false] {
      let scope = ExpressionScope([.init("event")], mode: mode, checksTypes: checks)
      guard
        let checked = ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?
          .check(in: scope, into: &diagnostics)
      else { continue }
      let projection = Projection()
      let program = checked.compile(projection: projection)
      projection.freeze()
      let frame = EvaluationFrame(
        variables: 1, slots: projection.slotCount, arena: Arena(), json: JSONParser())
      let slab = Slab(Array(event.utf8))
      frame[0] = frame.json.open(slab.bytes)
      if frame[0].isError { return evaluated }
      _ = projection.fill(frame[0], frame)
      let value = program.evaluate(frame)
      let written = OutputBuffer()
      if value.isError {
        #expect(!program.failureMessage(value, frame).isEmpty)
        _ = program.failureLocation(value)
      } else {
        JSONWriter.append(value, to: written)
      }
      let shown = String(decoding: written.bytes, as: UTF8.self)
      #expect(program.evaluateBool(frame) == (shown == "true" ? .yes : shown == "false" ? .no : .failed), "\(text)")
      evaluated += 1
    }
  }
  return evaluated
}
