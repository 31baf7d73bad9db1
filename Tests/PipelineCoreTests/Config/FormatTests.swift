import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// `rxd fmt`: one layout, and an unchanged meaning.
@Suite struct FormatTests {
  private static func format(_ text: String) throws -> String {
    var diagnostics = Diagnostics()
    let file = FormattedFile(SourceText(name: "t.yaml", text: text), into: &diagnostics)
    return String(decoding: try #require(file, "\(diagnostics.all)\n\(text)").bytes, as: UTF8.self)
  }

  @Test func theLayoutIsOne() throws {
    let text = """
      # What it is for.
      sinks: {out: {from: large , stdout: 'json'}}   # to the screen
      sources:

          typed:    # keyboard
            stdin: {decode: text}


          "other":
              values:
              - 'a'
              - 'b "c"'
              - "d \\"e\\""   # quoted
      # The signals.
      signals:
        large:
          from:   typed
          chain:
          - filter: size(event) >= 3
          # after the pause
          - throttle: 300ms   # a pause

          -  flattenMap: { policy: latest, maxConcurrent: 4, signal: { from: { http: "http://127.0.0.1:8899/search.json?q={{ urlEncode(event) }}" } } }
            # nothing else
      name: shop

      """
    let expected = """
      # What it is for.
      name: shop

      sources:
        typed:    # keyboard
          stdin: { decode: text }

        "other":
          values:
            - "a"
            - 'b "c"'
            - 'd "e"'   # quoted

      # The signals.
      signals:
        large:
          from: typed
          chain:
            - filter: size(event) >= 3
            # after the pause
            - throttle: 300ms   # a pause

            - flattenMap:
                policy: latest
                maxConcurrent: 4
                signal: { from: { http: "http://127.0.0.1:8899/search.json?q={{ urlEncode(event) }}" } }
            # nothing else

      sinks: { out: { from: large, stdout: "json" } }   # to the screen

      """
    let formatted = try Self.format(text)
    #expect(formatted == expected)
    #expect(try Self.format(formatted) == formatted)
  }

  /// Each form keeps its meaning, and a second pass changes nothing.
  @Test(arguments: [
    "a: |\n      x\n        y\n\n      z\nb: >-\n   folded\n   text\n",
    "a: &x { b: 1 }\nc: *x\nd: [ *x, *x ]\n",
    "a: !!str 5\nb: !!int \"5\"\nc: &t \"text\"\n",
    "a:\n- - 1\n  - 2\n- - 3\n-\n  - 4\n",
    "a: one\n  two\n\n  three\nb: \"one\n  two\"\n",
    "a:\nb: ~\nc: ''\nd: \"\"\ne: {}\nf: []\n",
    "a: {b, c: , d: 1}\n",
    "a: [b: 1, c]\n",
    "- # first\n  a: 1\n- b: 2 # two\n  # tail\n- {c: 3, # three\n   d: 4}\n",
    "a:\n  # before\n  b:\n    - 1\n\n    # between\n    - 2\n    # behind\n  # outer\n# last\nc: 1\n# end\n",
    "---\n# c\na: 1\n", "a: 1\r\nb:\r\n    c: 2\r\n",
    "\"quoted key\": 1\n'it''s': 'it''s'\n\"umlaut\": \"\\u00e4\"\n",
    "? a\n: 1\n? b\n: 2\n",
    "a: [\n  1, # one\n  2\n  # two\n]\n",
    "a:\n    |\n    text\n",
    "key: # note\n  value\n", "key:\n  # note\n  value\n",
    "tests:\n  - name: x\n    expect: { a: 1 }\nsources: { s: &s { values: [1] } }\nsinks: { out: { from: s, stdout: {} } }\n",
    "{ sources: { s: { values: [1] } }, sinks: { out: { from: s, stdout: {} } } }\n",
  ]) func aFormKeepsItsMeaning(_ text: String) throws {
    let once = try Self.format(text)
    #expect(try Self.format(once) == once, "\(once)")
  }

  @Test(arguments: ["a: |2\n    x\nb: 1\n", "a: |+\n  x\n\n\nb: 1\n"]) func whatCannotBeKeptIsRefused(_ text: String) {
    var diagnostics = Diagnostics()
    #expect(FormattedFile(SourceText(name: "t.yaml", text: text), into: &diagnostics) == nil)
    #expect(diagnostics.all.map(\.code) == [.notFormatted])
    #expect(diagnostics.all.first?.location?.line == 1)
  }

  @Test func errorsOfTheTextAreReported() {
    var diagnostics = Diagnostics()
    #expect(FormattedFile(SourceText(name: "t.yaml", text: "a: [1\n"), into: &diagnostics) == nil)
    #expect(diagnostics.hasErrors)
  }

  // MARK: Files

  /// The pipelines, and the examples of the tests, the guides and the reference.
  private static let texts: [(name: String, text: String)] = {
    var texts: [(String, String)] = []
    for folder in ["pipelines", "Tests", "docs", "Benchmarks", "Plugins"] {
      let root = packageRoot.appending(path: folder)
      guard let files = FileManager.default.enumerator(atPath: root.path) else { continue }
      for case let path as String in files where !path.contains(".build/") && !path.contains("Malformed/") {
        guard path.hasSuffix(".yaml") || path.hasSuffix(".md"),
          let text = try? String(contentsOf: root.appending(path: path), encoding: .utf8)
        else { continue }
        if path.hasSuffix(".yaml") {
          texts.append(("\(folder)/\(path)", text))
        } else {
          for (number, block) in text.components(separatedBy: "\n```").enumerated() where block.hasPrefix("yaml\n") {
            texts.append(("\(folder)/\(path) \(number)", String(block.dropFirst(5)) + "\n"))
          }
        }
      }
    }
    return texts
  }()

  @Test func everyFileKeepsItsMeaning() throws {
    var count = 0
    for (name, text) in Self.texts {
      let source = SourceText(name: "t.yaml", text: text)
      var diagnostics = Diagnostics()
      // Skips examples of errors, and those shortened by dots.
      guard YAMLReader.read(source, into: &diagnostics) != nil, !diagnostics.hasErrors else { continue }
      guard let formatted = FormattedFile(source, into: &diagnostics) else {
        Issue.record("\(name): \(diagnostics.all)")
        continue
      }
      count += 1
      let after = String(decoding: formatted.bytes, as: UTF8.self)
      #expect(try Self.format(after) == after, "\(name)")
      #expect(Self.plan(text) == Self.plan(after), "\(name)")
    }
    #expect(count > 60)
  }

  /// The compiled form of a text, without line numbers; or its errors.
  private static func plan(_ text: String) -> String {
    let result = FrontEnd(.builtIn).compile(text)
    guard let plan = result.plan else {
      return result.diagnostics.map { "\($0.code.name) \($0.message)" }.sorted().joined()
    }
    return "\(result.meaning)\n"
      + PlanExplanation.text(plan).replacing(/[a-z.]+yaml:[0-9]+(:[0-9]+)?/, with: "")
      .replacing(/line [0-9]+/, with: "")
  }

  // MARK: Made files

  /// Makes values of all forms, in every style, with comments wherever they are allowed.
  private struct Maker {
    var random: SplitMix
    var comments = 0

    mutating func pick(_ count: Int) -> Int { Int(random.next() % UInt64(count)) }
    mutating func comment(_ indent: Int) -> String {
      guard pick(4) == 0 else { return "" }
      comments += 1
      return (pick(3) == 0 ? "\n" : "") + String(repeating: " ", count: indent) + "# c\(comments)\n"
    }
    mutating func end() -> String {
      guard pick(5) == 0 else { return "\n" }
      comments += 1
      return String(repeating: " ", count: 1 + pick(3)) + "# c\(comments)\n"
    }
    mutating func scalar() -> String {
      [
        "1", "text", "'a b'", "\"a \\\" b\"", "'it''s'", "true", "~", "3.5",
        "a # b".replacingOccurrences(of: " #", with: "#"), "\"\\u00e4\"",
      ][pick(10)]
    }
    mutating func flow(_ depth: Int) -> String {
      switch pick(depth > 2 ? 1 : 3) {
      case 0: return scalar()
      case 1:
        return "[" + (0..<pick(4)).map { _ in flow(depth + 1) }.joined(separator: pick(2) == 0 ? "," : " , ") + "]"
      default: return "{" + (0..<pick(4)).map { "k\($0): \(flow(depth + 1))" }.joined(separator: ", ") + "}"
      }
    }
    /// The text after `key:` or `-`, with its line endings.
    mutating func value(_ indent: Int, _ depth: Int) -> String {
      let inner = indent + 1 + pick(4)
      let pad = String(repeating: " ", count: inner)
      switch pick(depth > 4 ? 3 : 6) {
      case 0: return " " + scalar() + end()
      case 1: return " " + flow(depth) + end()
      case 2: return (pick(2) == 0 ? " |\n" : " >-\n") + "\(pad)line # one\n\(pad)  two\n"
      case 3:
        return end() + (0...pick(3)).map { _ in comment(inner) + pad + "-" + value(inner, depth + 1) }.joined()
      default: return end() + mapping(inner, depth + 1)
      }
    }
    mutating func mapping(_ indent: Int, _ depth: Int) -> String {
      let pad = String(repeating: " ", count: indent)
      var text = ""
      for key in 0...pick(4) { text += comment(indent) + "\(pad)k\(key):" + value(indent, depth) }
      return text + comment(indent)
    }
  }

  @Test(arguments: 0..<20) func madeFilesKeepTheirMeaning(_ seed: UInt64) throws {
    var refused = 0
    for round in 0..<50 {
      var maker = Maker(random: SplitMix(seed &* 1000 &+ UInt64(round)))
      let text = maker.mapping(0, 0)
      var diagnostics = Diagnostics()
      let source = SourceText(name: "t.yaml", text: text)
      _ = try #require(YAMLReader.read(source, into: &diagnostics), "\(diagnostics.all.map(\.line))\n\(text)")
      guard let formatted = FormattedFile(source, into: &diagnostics) else {
        refused += 1
        continue
      }
      let once = String(decoding: formatted.bytes, as: UTF8.self)
      for number in 0..<maker.comments { #expect(once.contains("# c\(number + 1)\n"), "\(text)\n\(once)") }
      #expect(try Self.format(once) == once, "\(text)\nbecame\n\(once)")
    }
    // A refusal must stay the exception.
    #expect(refused <= 1)
  }
}
