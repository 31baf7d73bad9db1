import PipelineCore
import PipelineTestSupport
import Testing

/// Sums of several terms, concatenated in one step if they look like texts, compared with successive additions.
@Suite struct SumTests {
  @Test(
    arguments: [
      ("event.a + ' ' + event.b", #"{"a": "x", "b": "y"}"#, #""x y""#),
      ("'<' + event.a + '>'", #"{"a": "t\"\u00fc"}"#, #""<t\"ü>""#),
      ("'' + '' + event.a", #"{"a": ""}"#, #""""#),
      ("'a' + 'b' + event.a + 'c' + 'd'", #"{"a": "-"}"#, #""ab-cd""#),
      ("event.a + event.b + '!'", #"{"a": 1, "b": 2}"#, "error: '+' is not defined for int and string"),
      ("event.a + '!' + event.x", #"{"a": 1}"#, "error: '+' is not defined for int and string"),
      ("event.a + '!' + event.x", #"{"a": "1"}"#, "error: no such key: 'x' (event.x)"),
      ("event.a + '!' + event.b", #"{"a": "1", "b": null}"#, "error: '+' is not defined for string and null"),
      ("event.a + event.b + 'x'", #"{"a": [1], "b": [2]}"#, "error: '+' is not defined for list and string"),
    ]) func isWhatAdditionsGive(_ expression: String, _ event: String, _ expected: String)
  {
    let text = Evaluation(expression, event)?.text ?? ""
    if expected.hasPrefix("error") {
      #expect(text.hasPrefix(expected), "\(expression): \(text)")
    } else {
      #expect(dense(text) == dense(expected), "\(expression)")
    }
  }

  /// The part that failed is the one that would have failed by itself.
  @Test func aFailureNamesItsAddition() {
    #expect(
      Evaluation("event.a + ' ' + event.b + event.c", #"{"a": "x", "b": 1, "c": "y"}"#)?.text.hasSuffix(
        "(event.a + ' ' + event.b)") == true)
    #expect(
      Evaluation("event.a + 1 + ' ' + event.c", #"{"a": "x", "c": "y"}"#)?.text.hasSuffix("(event.a + 1)") == true)
  }

  /// Random terms of all kinds: each step by itself, over the result of the one before, must come to the same.
  @Test(arguments: [1, 2, 3, 4]) func equalsOneAdditionAfterTheOther(seed: UInt64) {
    let kinds = [
      #""a""#, #""""#, #""b\"c""#, #""\u00e9😀""#, "1", "2.5", "[1]", #"["x"]"#, "null", "true", "18446744073709551615",
    ]
    var random = SplitMix(seed)
    for _ in 0..<300 {
      let count = 3 + random.below(17)
      // Mostly texts, or most sums would fail.
      let terms = (0..<count).map { _ in
        random.below(12) > 0 ? kinds[random.below(4)] : kinds[random.below(kinds.count)]
      }
      let literal = random.below(count)
      let event = "{" + terms.enumerated().map { "\"t\($0)\": \($1)" }.joined(separator: ", ") + "}"
      let expression = (0..<count).map { $0 == literal ? "'-'" : "event.t\($0)" }.joined(separator: " + ")
      var expected = literal == 0 ? #""-""# : terms[0]
      for at in 1..<count where !expected.hasPrefix("error") {
        let next = at == literal ? #""-""# : terms[at]
        expected = Evaluation("event.l + event.r", "{\"l\": \(expected), \"r\": \(next)}")?.text ?? "error"
      }
      let text = Evaluation(expression, event)?.text ?? ""
      if expected.hasPrefix("error") {
        // The rest names the expression, if it is short.
        let message = expected.split(separator: " (")[0].split(separator: ";")[0]
        #expect(text.hasPrefix(message), "\(expression) of \(event): \(text)")
      } else {
        #expect(dense(text) == dense(expected), "\(expression) of \(event)")
      }
    }
  }

  /// Values that are readily available are added without a call; the result must equal that of the call.
  @Test(arguments: ["+", "-", "*", "/", "%"]) func quickArithmeticIsArithmetic(_ op: String) {
    let numbers = [
      "0", "1", "-1", "2", "-2", "7", "9223372036854775807", "-9223372036854775808", "0.5", "-0.0", "1e308",
      "18446744073709551615",
    ]
    for a in numbers {
      for b in numbers {
        let event = "{\"a\": \(a), \"b\": \(b)}"
        let quick = Evaluation("event.a \(op) event.b", event)?.text ?? ""
        // The element of a list is read by an operation that the fast path does not support.
        let slow = Evaluation("[event.a][0] \(op) [event.b][0]", event)?.text ?? ""
        #expect(quick.prefix { $0 != "(" } == slow.prefix { $0 != "(" }, "\(a) \(op) \(b)")
      }
    }
  }
}
