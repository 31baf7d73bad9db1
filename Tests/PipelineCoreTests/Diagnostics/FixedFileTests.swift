import Foundation
import PipelineRuntime
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// `rxd check --fix` never makes a file worse, and never chooses between two meanings.
@Suite struct FixedFileTests {
  private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().path

  private static func fixed(_ text: String) -> (before: [Diagnostic], after: FixedFile) {
    var inputs = PipelineLoader.Inputs()
    inputs.readsEnvironment = false
    let loader = PipelineLoader(inputs)
    let loaded = loader.compile("a.yaml", SourceText(name: "a.yaml", text: text))
    var file = FixedFile(loaded, loader)
    file.make()
    return (loaded.diagnostics, file)
  }

  private static func files(_ folder: String) -> [String] {
    let names = (try? FileManager.default.subpathsOfDirectory(atPath: root + "/" + folder)) ?? []
    return names.filter { $0.hasSuffix(".yaml") }.sorted().map { "\(root)/\(folder)/\($0)" }
  }

  /// Fixing leaves fewer errors and no new kind of error, and a second run changes nothing.
  private static func check(_ text: String, _ name: String) {
    let (before, file) = fixed(text)
    let after = file.loaded.diagnostics
    let result = file.loaded.source.map { String(decoding: $0.bytes, as: UTF8.self) } ?? text
    guard file.count > 0 else {
      #expect(result == text || file.loaded.source == nil, "\(name)")
      return
    }
    func errors(_ all: [Diagnostic]) -> [Diagnostic] { all.filter { $0.severity == .error } }
    let isFewer = (errors(after).count, after.count) < (errors(before).count, before.count)
    #expect(isFewer, "\(name): \(before.map(\.line)) became \(after.map(\.line))\n\(file.difference)")
    let kinds = Set(errors(before).map(\.code.name))
    #expect(
      errors(after).allSatisfy { kinds.contains($0.code.name) }, "\(name): \(after.map(\.line))\n\(file.difference)")
    #expect(fixed(result).after.count == 0, "\(name)")
  }

  @Test func theMistakesOfTheGoldenFiles() {
    let files = Self.files("Tests/Golden") + Self.files("Tests/Malformed")
    #expect(files.count > 200)
    for file in files {
      guard let data = FileManager.default.contents(atPath: file) else { continue }
      Self.check(String(decoding: data, as: UTF8.self), file)
    }
  }

  /// A valid pipeline with one typical mistake.
  private static func mistaken(_ text: String, _ random: inout SplitMix) -> String {
    var bytes = Array(text.utf8)
    func places(_ wanted: (Int) -> Bool) -> [Int] { bytes.indices.filter(wanted) }
    func word(from start: Int) -> Range<Int> {
      var end = start
      while end < bytes.count, ASCII.isLetterOrUnderscore(bytes[end]) { end += 1 }
      return start..<end
    }
    switch random.below(9) {
    case 0:
      // Swaps two letters of a word.
      let at = places {
        $0 > 0 && $0 + 1 < bytes.count && ASCII.isLetterOrUnderscore(bytes[$0])
          && ASCII.isLetterOrUnderscore(bytes[$0 + 1])
      }
      if !at.isEmpty {
        let index = random.pick(at)
        bytes.swapAt(index, index + 1)
      }
    case 1:
      let at = places { ASCII.isLetterOrUnderscore(bytes[$0]) }
      if !at.isEmpty { bytes.remove(at: random.pick(at)) }
    case 2:
      // Uses a tab for the indentation of one line, or of all.
      let all = random.below(2) == 0
      var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
      let indented = lines.indices.filter { lines[$0].hasPrefix("  ") }
      for index in all ? indented : indented.isEmpty ? [] : [random.pick(indented)] {
        lines[index] = "\t" + lines[index].drop { $0 == " " }
      }
      return lines.joined(separator: "\n")
    case 3:
      let at = places { bytes[$0] == 0x22 || bytes[$0] == 0x27 }
      if !at.isEmpty { bytes.remove(at: random.pick(at)) }
    case 4:
      let at = places { bytes[$0] == 0x3A && $0 + 1 < bytes.count && bytes[$0 + 1] == 0x20 }
      if !at.isEmpty { bytes.remove(at: random.pick(at) + random.below(2)) }
    case 5:
      // Writes a field in jq's syntax, or without its event.
      let found = text.ranges(of: "event.")
      if !found.isEmpty {
        let range = random.pick(found)
        return text.replacingCharacters(in: range, with: random.below(2) == 0 ? "." : "")
      }
    case 6:
      let found = text.ranges(of: "event.")
      if !found.isEmpty {
        let start = text[..<random.pick(found).lowerBound].utf8.count
        var end = start
        while end < bytes.count, ASCII.isLetterOrUnderscore(bytes[end]) || bytes[end] == 0x2E { end += 1 }
        bytes.insert(contentsOf: " }}".utf8, at: end)
        bytes.insert(contentsOf: "{{ ".utf8, at: start)
      }
    case 7:
      // Removes the quotes of a text.
      let at = places { bytes[$0] == 0x27 && $0 + 1 < bytes.count && ASCII.isLetterOrUnderscore(bytes[$0 + 1]) }
      if !at.isEmpty {
        let start = random.pick(at)
        let end = word(from: start + 1).upperBound
        if end < bytes.count, bytes[end] == 0x27 {
          bytes.remove(at: end)
          bytes.remove(at: start)
        }
      }
    default:
      // Uses a key of another tool.
      let keys = [
        "sources:": "input:", "signals:": "pipeline:", "sinks:": "output:", "chain:": "processors:",
        "filter:": "where:",
      ]
      for (ours, theirs) in keys.sorted(by: { $0.key < $1.key }) where text.contains(ours) && random.below(3) == 0 {
        return text.replacing(ours, with: theirs, maxReplacements: 1)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  @Test func twoHundredMistakesMore() throws {
    let files = Self.files("pipelines")
    try #require(!files.isEmpty)
    var random = SplitMix(19)
    var made = 0
    for number in 0..<200 {
      let file = random.pick(files)
      guard let data = FileManager.default.contents(atPath: file) else { continue }
      let text = Self.mistaken(String(decoding: data, as: UTF8.self), &random)
      Self.check(text, "mistake \(number) in \(file)")
      made += Self.fixed(text).after.count
    }
    // The fixes have an effect.
    #expect(made > 20)
  }

  /// If the report names two remedies, the file stays unchanged.
  @Test(arguments: [
    "sources: { s: { values: [ { level: error } ] } }\nsinks: { o: { from: s, chain: [ { filter: event.level == error } ], stdout: {} } }",
    "sources: { s: { values: [ { level: error } ] } }\nsinks: { o: { from: s, chain: [ { set: { env: production } } ], stdout: {} } }",
    "sources: { s: { values: [ { user: { name: ann } } ] } }\nsinks: { o: { from: s, chain: [ { map: \"{name: .user.name}\" } ], stdout: {} } }",
    "sources: { s: { stdin: { decode: json } } }\nsinks: { o: { from: s, chain: [ { filter: \"{{ event.status }} >= 500\" } ], stdout: {} } }",
    "sources: { s: { stdin: {} } }\nsinks: { o: { from: s, chain: [ { filter: event.a == 1 } ], stdout: {} } }",
    "input:\n  stdin: {}\npipeline:\n  processors:\n    - mapping: root = this\noutput:\n  stdout: {}\n",
  ]) func aChoiceIsTheAuthors(_ text: String) {
    let (before, file) = Self.fixed(text)
    #expect(before.contains { $0.severity == .error })
    #expect(file.count == 0, "\(file.difference)")
  }

  @Test func tabsAreReplacedOnAllLines() throws {
    let file = Self.fixed("sources:\n\ts:\n\t\tstdin: {}\nsinks:\n\to:\n\t\tfrom: s\n\t\tstdout: {}\n").after
    #expect(file.count == 5)
    #expect(file.loaded.diagnostics.isEmpty)
    let source = try #require(file.loaded.source)
    #expect(
      String(decoding: source.bytes, as: UTF8.self)
        == "sources:\n  s:\n    stdin: {}\nsinks:\n  o:\n    from: s\n    stdout: {}\n")
  }

  /// A fix with only one possible meaning is still applied.
  @Test func aSingleRemedyIsMade() {
    let file = Self.fixed(
      "sources: { s: { stdin: { decode: jsn } } }\nsinks: { o: { form: s, chain: [ { filter: \"{{ event.a }}\" } ], stdout: {} } }"
    ).after
    #expect(file.count == 3)
    #expect(file.loaded.diagnostics.isEmpty, "\(file.loaded.diagnostics.map(\.line))")
  }
}
