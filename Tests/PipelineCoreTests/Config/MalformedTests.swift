import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Every file of Tests/Malformed names in its first line, or in a file `.expect` next to it, the code that comes first and its location:
/// `# RX131 2:7`. A text that takes more than linear time to read exceeds the time limit.
@Suite(.timeLimit(.minutes(1))) struct MalformedTests {
  struct Case: CustomTestStringConvertible {
    var name: String
    var bytes: [UInt8]
    var expected: String
    var testDescription: String { name }
  }

  static let folder = packageRoot.appending(path: "Tests/Malformed")

  static let files: [Case] = {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
    return names.filter { $0.hasSuffix(".yaml") }.sorted().compactMap { name in
      let file = folder.appending(path: name)
      guard let data = try? Data(contentsOf: file) else { return nil }
      let beside = file.deletingPathExtension().appendingPathExtension("expect")
      let header =
        (try? String(contentsOf: beside, encoding: .utf8))
        ?? String(decoding: data.prefix { $0 != 0x0A }.dropFirst(2), as: UTF8.self)
      return Case(
        name: name, bytes: Array(data),
        expected: header.trimmingCharacters(in: .whitespacesAndNewlines))
    }
  }()

  @Test func thereAreManyFiles() { #expect(Self.files.count >= 250) }

  @Test(arguments: files) func fileIsRefusedAtItsPlace(_ file: Case) {
    let reading = readPipeline(SourceText(name: file.name, bytes: file.bytes))
    let first = reading.errors.first
    let found = first.map {
      "\($0.code.name) \($0.location?.line ?? 0):\($0.location?.column ?? 0)"
    }
    #expect(found == file.expected, "\(reading.diagnostics.map(\.message))")
    checkReport(reading.diagnostics)
  }

  /// The rules for every report, whatever the file.
  private func checkReport(_ diagnostics: [Diagnostic]) {
    for diagnostic in diagnostics {
      #expect(!diagnostic.message.hasSuffix("."), "\(diagnostic.message)")
      #expect(!(diagnostic.help ?? "").hasSuffix("."))
      let places = [diagnostic.location] + diagnostic.notes.map(\.location)
      for place in places.compactMap({ $0 }) {
        #expect(place.offset >= 0 && place.length >= 0)
        #expect(place.offset + place.length <= place.text.bytes.count)
      }
    }
    let text = DiagnosticRenderer().text(diagnostics)
    #expect(text.utf8.count <= 70_000)
    #expect(text.unicodeScalars.allSatisfy { $0 == "\n" || $0.value >= 0x20 && $0.value != 0x7F })
    let json = Data(DiagnosticRenderer().json(diagnostics).utf8)
    #expect((try? JSONSerialization.jsonObject(with: json) as? [Any])?.count == diagnostics.count)
  }

  /// Texts that are too large to be stored as files.
  static let large: [(name: String, code: String, text: @Sendable () -> String)] = [
    ("file over 1 MiB", "RX102", { String(repeating: "# x\n", count: 300_000) }),
    ("scalar of 10 MB", "RX102", { "a: " + String(repeating: "x", count: 10_000_000) }),
    ("100,000 brackets", "RX110", { String(repeating: "[", count: 100_000) }),
    ("100,000 braces", "RX110", { "a: " + String(repeating: "{a: ", count: 100_000) }),
    ("100,000 brackets, one a line", "RX110", { String(repeating: "[\n", count: 100_000) }),
    ("100,000 dashes", "RX110", { String(repeating: "- ", count: 100_000) }),
    ("100,000 question marks", "RX110", { String(repeating: "? ", count: 100_000) }),
    (
      "deep block", "RX110",
      { (0..<1_000).map { String(repeating: " ", count: $0) + "a:\n" }.joined() }
    ),
    ("200,000 values", "RX111", { "a: [" + String(repeating: "1,", count: 200_000) + "]" }),
    ("100,001 keys", "RX111", { (0..<60_000).map { "k\($0): 1\n" }.joined() }),
    ("2,000 anchors", "RX112", { (0..<2_000).map { "- &a\($0) 1\n" }.joined() }),
    (
      "100,000 aliases of 2 values", "RX113",
      { "a: &a [1]\nb: [" + String(repeating: "*a,", count: 60_000) + "]" }
    ),
    ("plain scalar over 64 KiB", "RX117", { "a: " + String(repeating: "x", count: 70_000) }),
    (
      "quoted scalar over 64 KiB", "RX117",
      { "a: \"" + String(repeating: "x", count: 70_000) + "\"" }
    ),
    (
      "1,000,000 spaces before a value", "RX203",
      { "a" + String(repeating: " ", count: 1_000_000) }
    ),
    (
      "30,000 tag directives", "RX107",
      { (0..<30_000).map { "%TAG !a\($0)! x:\n" }.joined() + "---\na: b\n" }
    ),
    (
      "tag directives behind the document", "RX130",
      { "a: b\n...\n" + (0..<30_000).map { "%TAG !a\($0)! x:\n" }.joined() + "---\n" }
    ),
    ("10,000 duplicate keys", "RX119", { String(repeating: "a: 1\n", count: 10_000) }),
    ("unclosed quote over 1 MB", "RX131", { "a: \"" + String(repeating: "x\n", count: 500_000) }),
    (
      "simple keys without colon", "RX136",
      { "a: 1\n" + String(repeating: "b ", count: 500_000) + "\nc" }
    ),
    (
      "3,000 operators", "RX211",
      {
        "signals:\n  a:\n    from: b\n    chain:\n"
          + String(repeating: "      - map: x\n", count: 3_000)
      }
    ),
    (
      "500,000 errors on one line", "RX119",
      { "a: {" + String(repeating: "b: 1, ", count: 80_000) + "}" }
    ),
    ("a million carriage returns", "RX104", { String(repeating: "\r", count: 1_000_000) }),
    ("a comment of 1 MB", "RX105", { "#" + String(repeating: "x", count: 1_000_000) }),
    ("a million dashes", "RX117", { String(repeating: "-", count: 1_000_000) }),
    ("200,000 commas", "RX145", { "a: [" + String(repeating: ",", count: 200_000) }),
  ]

  @Test(arguments: large.indices) func largeTextEndsSoon(_ index: Int) {
    let (name, code, make) = Self.large[index]
    let source = SourceText(name: name, text: make())
    let reading = readPipeline(source)
    #expect(reading.errors.first?.code.name == code, "\(name): \(reading.found.prefix(3))")
    checkReport(reading.diagnostics)
  }

  /// Damaged files give a report or a tree, and decoded scalars can always locate their bytes.
  @Test func damagedFiles() throws {
    var random = SplitMix(42)
    let seeds = Self.files.map(\.bytes).filter { $0.count < 3_000 } + [Array(Self.whole.utf8)]
    let marks = Array("[]{}:,&*!|>'\"%@`#?-~ \n\t\\$.0a".utf8)
    for _ in 0..<4_000 {
      var bytes = try #require(seeds.randomElement(using: &random))
      for _ in 0...Int.random(in: 0..<4, using: &random) where !bytes.isEmpty {
        let at = Int.random(in: 0..<bytes.count, using: &random)
        switch Int.random(in: 0..<5, using: &random) {
        case 0: bytes.remove(at: at)
        case 1: bytes.insert(marks.randomElement(using: &random) ?? 0, at: at)
        case 2: bytes[at] = UInt8.random(in: 0...255, using: &random)
        case 3: bytes[at] = marks.randomElement(using: &random) ?? 0
        default:
          let other = try #require(seeds.randomElement(using: &random))
          let from = Int.random(in: 0...other.count, using: &random)
          bytes.insert(contentsOf: other[from..<min(from + 40, other.count)], at: at)
        }
      }
      let reading = readPipeline(SourceText(name: "damaged", bytes: bytes))
      #expect(reading.node != nil || !reading.errors.isEmpty)
      if let node = reading.node { checkPlaces(node) }
      for diagnostic in reading.diagnostics {
        let places = [diagnostic.location] + diagnostic.notes.map(\.location)
        for place in places.compactMap({ $0 }) {
          #expect(place.offset >= 0 && place.length >= 0)
          #expect(place.offset + place.length <= bytes.count)
        }
      }
      _ = DiagnosticRenderer().text(reading.diagnostics)
    }
  }

  private func checkPlaces(_ node: YAMLNode) {
    switch node.content {
    case .sequence(let items): for item in items { checkPlaces(item) }
    case .mapping(let entries): for entry in entries { checkPlaces(entry.value) }
    case .scalar(let scalar):
      let offsets = scalar.text.offsets
      #expect(offsets.count == scalar.text.text.count + 1)
      #expect(zip(offsets, offsets.dropFirst()).allSatisfy { $0 <= $1 })
      // If all bytes had one offset, the text could not have been decoded again.
      if offsets.count > 6 { #expect(offsets.first != offsets.last, "\(scalar)") }
    }
  }

  static let whole = """
    # search as you type
    name: search
    sources:
      typed: { stdin: { decode: text } }
    signals:
      query:
        from: typed
        chain:
          - map: event.trim()
          - filter: "size(event) >= 3 && event != \\"\\u00e9\\""
          - throttle: 300ms
          - distinctUntilChanged
      books:
        combineLatest: { a: query, b: typed.errors }
        reduce: >-
          a + b
            ? 1

            : 2
    sinks:
      screen:
        from: books
        stdout: { encode: 'js''on' }
    tests:
      - name: |2-
            odd
           name
        expect: { screen: [ &x { at: 1ms }, *x ] }
    """

  @Test func theWholeFileIsSound() {
    let reading = readPipeline(Self.whole)
    #expect(reading.found.isEmpty)
    #expect(reading.file?.signals.count == 2)
  }
}
