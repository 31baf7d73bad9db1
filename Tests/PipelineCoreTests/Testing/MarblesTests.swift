import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

@Suite struct MarblesTests {
  private func times(_ text: String, tick: TimeSpan = .milliseconds(1)) throws -> [String] {
    SignalHistory(try Marbles(text, tick: tick)).entries.map { "\($0.at) \($0.moment)" }
  }

  @Test func oneCharacterIsOneTick() throws {
    #expect(try times("-a-1|") == ["1ms \"a\"", "3ms 1", "4ms the completion"])
    #expect(try times("a#", tick: .seconds(1)) == ["0s \"a\"", "1s the error 'error'"])
  }

  @Test func aGroupTakesOneTick() throws {
    #expect(try times("-(ab)c") == ["1ms \"a\"", "1ms \"b\"", "2ms \"c\""])
    #expect(try Marbles("(abc)--").length == .milliseconds(3))
  }

  @Test func pausesStandBetweenSpaces() throws {
    #expect(try times("a 300ms b") == ["0s \"a\"", "301ms \"b\""])
    #expect(try times("1h a") == ["1h \"a\""])
    #expect(try times("a 1h") == ["0s \"a\""])
    // Without spaces they are letters.
    #expect(try times("a1ms").count == 4)
  }

  @Test(arguments: [
    ("a(b", 1), ("a)", 1), ("((", 1), ("(a-)", 2), ("a?", 1), ("ä", 0), ("a.b", 1),
  ])
  func mistakesAreWhereTheyAre(_ text: String, _ offset: Int) {
    var found: Int?
    do { _ = try Marbles(text) } catch { found = error.offset }
    #expect(found == offset)
  }

  @Test func differencesAreMarked() throws {
    let expected = SignalHistory(try Marbles("--1-2-(34)|"))
    let actual = SignalHistory(try Marbles("--1-2-4|"))
    #expect(
      SignalHistory.difference(expected: expected, actual: actual) == """
          expected  --1-2-(34)|
          actual    --1-2-4   |
                          ^ at 6ms: 3 was expected, 4 came
        """)
    #expect(SignalHistory.difference(expected: expected, actual: expected) == nil)
  }

  @Test func valuesAreComparedByContent() {
    let arena = Arena()
    let json = Array(#"{"b": [1.0, "é"], "a": null, "b": 3}"#.utf8)
    let parsed = json.withUnsafeBytes { TestValue(JSONParser().open($0)) }
    #expect(parsed == TestValue(arena.map(["a": .null, "b": arena.list([.int(1), arena.string("é")])])))
    #expect(TestValue(.double(-0.0)) == .int(0))
    #expect(TestValue(.uint(7)) == .int(7))
    #expect(TestValue(.uint(.max)) == .number(18446744073709551616.0) ? false : true)
    #expect(TestValue(.double(.nan)) == .text("NaN"))
    #expect(TestValue(.timestamp(seconds: 0, nanoseconds: 0)) == .text("1970-01-01T00:00:00Z"))
    #expect(TestValue(.string(UnsafeRawBufferPointer(start: nil, count: 0))) == .text(""))
  }

  @Test func starsStandForAnything() {
    #expect(Glob.matches("*q=dune", "http://a/?q=dune"))
    #expect(Glob.matches("a*b*c", "aXbYbZc"))
    #expect(!Glob.matches("a*b", "ab?"))
    #expect(Glob.matches("", ""))
    #expect(Glob.matches("***", ""))
    #expect(!Glob.matches("?", "x"))
    #expect(Glob.distance("*q=a", "http://x/?q=b") == 1)
    #expect(Glob.distance("abc", "abc") == 0)
  }
}
