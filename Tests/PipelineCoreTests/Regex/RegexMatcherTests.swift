import Testing

@testable import PipelineCore

/// The matcher's result equals RE2's, to the byte; RE2 runs for each pattern and text.
@Suite struct RegexMatcherTests {
  /// Random patterns and texts, the same in every run.
  private struct Generator {
    var state: UInt64

    mutating func below(_ bound: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % bound
    }

    mutating func pick(_ all: [String]) -> String { all[below(all.count)] }

    private static let items = [
      "a", "b", "c", "0", "1", "-", " ", ".", "\\w", "\\d", "\\s", "[ab]", "[^a]", "[0-9a]", "é", "[é-ü]", "\\b", "^",
      "$", "\\W", "[^\\w]", "\\n", "[[:alpha:]]", "[^[:digit:]b]", "k", "s", "\\A", "\\z", "(?i)", "(?s)", "(?m)",
      "(?-i)", "x{0}", "\\x{e9}", "",
    ]
    private static let quantifiers = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}"]

    mutating func pattern(_ depth: Int) -> String {
      guard depth > 0 else { return pick(Self.items) }
      switch below(8) {
      case 0, 1, 2: return pattern(depth - 1) + pattern(depth - 1)
      case 3: return "(?:" + pattern(depth - 1) + "|" + pattern(depth - 1) + ")"
      case 4: return "(" + pattern(depth - 1) + (below(2) == 0 ? "|" + pattern(depth - 1) : "") + ")"
      case 5: return "(?:" + pattern(depth - 1) + ")" + pick(Self.quantifiers)
      case 6: return "(" + pattern(depth - 1) + ")" + pick(Self.quantifiers)
      default: return (below(4) == 0 ? "(?i:" : "(?:") + pattern(depth - 1) + pattern(depth - 1) + ")"
      }
    }

    mutating func text() -> String {
      let characters = [
        "a", "b", "c", "0", "1", "-", " ", ".", "é", "ü", "\n", "A", "B", "k", "K", "\u{212A}", "s", "ſ", "x", "日",
      ]
      return (0..<below(14)).map { _ in pick(characters) }.joined()
    }
  }

  /// `limit`: bytes of an automaton; a low limit makes it discard its states repeatedly.
  @Test(arguments: [(1, 2 << 20), (2, 2 << 20), (3, 400)])
  func findsWhatRE2Finds(seed: Int, limit: Int) throws {
    var generator = Generator(state: UInt64(seed))
    var compared = 0
    var matched = 0
    for _ in 0..<500 {
      let source = Array(generator.pattern(1 + generator.below(5)).utf8)
      let pattern = source.withUnsafeBytes { Pattern($0) }
      let texts = (0..<8).map { _ in generator.text() }
      let places = generator.below(1000)
      guard pattern.failure == nil, let program = pattern.matcher?.program else { continue }
      let automaton = TaggedAutomaton(program, limit: limit)
      for (index, text) in texts.enumerated() {
        let bytes = Array(text.utf8)
        // Only offsets between code points.
        let starts = (0...bytes.count).filter { $0 == bytes.count || bytes[$0] & 0xC0 != 0x80 }
        let start = starts[(places + index) % starts.count]
        let isAnchored = index % 4 == 0
        var expected = [Int](repeating: -1, count: program.slotCount)
        var got = expected
        let found = bytes.withUnsafeBytes { text in
          // RE2 does not accept a null pointer for an empty text.
          var one: UInt8 = 0
          let text =
            text.baseAddress == nil ? withUnsafeBytes(of: &one) { UnsafeRawBufferPointer(rebasing: $0[..<0]) } : text
          let first = expected.withUnsafeMutableBufferPointer {
            pattern.findWithRE2(text, from: start, into: $0, anchored: isAnchored)
          }
          let second = got.withUnsafeMutableBufferPointer {
            automaton.find(text, from: start, anchored: isAnchored, mayGiveUp: false, into: $0)
          }
          return (first, second)
        }
        compared += 1
        if found.0 { matched += 1 }
        #expect(
          found.0 == found.1 && (!found.0 || expected == got),
          "\(String(decoding: source, as: UTF8.self).debugDescription) in \(text.debugDescription) from \(start): RE2 \(found.0) \(expected), here \(found.1 ?? false) \(got)"
        )
      }
    }
    #expect(compared > 2500 && matched > 1000, "\(compared) compared, \(matched) matched")
  }

  /// A pattern for which a deterministic automaton needs 4,096 states: memory stays bounded, and the result is correct.
  @Test func statesAreBounded() throws {
    let source = Array("(a|b)*a(?P<x>[ab]{12})$".utf8)
    let pattern = source.withUnsafeBytes { Pattern($0) }
    let program = try #require(pattern.matcher?.program)
    let automaton = TaggedAutomaton(program, limit: 20_000)
    var generator = Generator(state: 11)
    for _ in 0..<20 {
      let text = Array((0..<400).map { _ in generator.pick(["a", "b"]) }.joined().utf8)
      var groups = [Int](repeating: -1, count: program.slotCount)
      let found = text.withUnsafeBytes { text in
        groups.withUnsafeMutableBufferPointer {
          automaton.find(text, from: 0, anchored: false, mayGiveUp: false, into: $0)
        }
      }
      let isThere = text[text.count - 13] == UInt8(ascii: "a")
      #expect(found == isThere)
      if isThere { #expect(groups[4] == text.count - 12 && groups[5] == text.count) }
    }
    #expect(automaton.clearings > 0)
    // RE2 takes over if the automaton does not help, which the caller does not notice.
    let text = Array(String(repeating: "ab", count: 2000).utf8) + Array("abbbbbbbbbbbbb".utf8.prefix(13))
    var groups = [Int](repeating: -1, count: program.slotCount)
    let found = text.withUnsafeBytes { text in
      groups.withUnsafeMutableBufferPointer { pattern.find(text, from: 0, into: $0) }
    }
    #expect(found && groups[5] == text.count)
  }

  /// Several threads match with one pattern.
  @Test func isSharedBetweenThreads() async throws {
    let source = Array("(?P<k>[a-z]+)=(?P<v>[0-9]+)".utf8)
    let pattern = source.withUnsafeBytes { Pattern($0) }
    try await withThrowingTaskGroup(of: Bool.self) { group in
      for task in 0..<8 {
        group.addTask {
          for round in 0..<200 {
            let text = Array(" ;\(String(repeating: "x", count: 1 + round % 7))=\(task * 1000 + round);".utf8)
            var groups = [Int](repeating: -1, count: 6)
            let found = text.withUnsafeBytes { text in
              groups.withUnsafeMutableBufferPointer { pattern.find(text, from: 0, into: $0) }
            }
            guard found, String(decoding: text[groups[4]..<groups[5]], as: UTF8.self) == "\(task * 1000 + round)"
            else { return false }
          }
          return true
        }
      }
      for try await isRight in group { #expect(isRight) }
    }
  }
}
