import Foundation
import Testing

/// A class with many stored properties should be several: each part of its state belongs, with its invariant, in its
/// own type.
@Suite struct ClassSizeTests {
  /// The most stored properties of a class that `large` names.
  private static let most = 30
  /// The most of any other class.
  private static let usual = 25
  /// Classes with more than `usual`. No class joins them; one that has been divided is struck here.
  private static let large: Set = [
    "Committer", "Compilation", "CurlExchange", "DeliverySink", "Execution", "Executor", "FollowerWork", "OutboxSink",
    "PipelineSlot", "ServerConnection", "Supervisor", "TaggedAutomaton", "TemplatedFileSink",
  ]
  /// The longest file that a person writes, in lines.
  private static let longest = 600

  /// The types of one file with their stored properties, recognized by the indentation of formatted code.
  struct StoredProperties {
    struct Declared {
      var keyword: String
      var name: String
      var line: Int
      var count = 0
      fileprivate var indent: Int
    }

    private(set) var types: [Declared] = []

    nonisolated(unsafe) private static let type =
      #/^(?:@\w+(?:\([^)]*\))? )*(?:(?:public|package|private|fileprivate|internal|open|final|indirect) )*(class|struct|enum|actor|extension|protocol) ([\w.]+)/#
    nonisolated(unsafe) private static let property =
      #/^(?:@\w+(?:\([^)]*\))? )*(?:(?:public|package|private|fileprivate|internal|open|final|lazy|weak|unowned|nonisolated)(?:\([^)]*\))? )*(?:let|var) (.*)/#

    init(_ text: String) {
      let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
      var open: [Int] = []
      var isText = false
      for (number, line) in lines.enumerated() {
        if line.matches(of: #/"""/#).count % 2 == 1 {
          isText.toggle()
          continue
        }
        if isText { continue }
        let code = line.drop { $0 == " " }
        let indent = line.count - code.count
        while let last = open.last, code.hasPrefix("}"), indent <= types[last].indent { open.removeLast() }
        if let found = try? Self.type.prefixMatch(in: code), !["func", "var", "let"].contains(found.output.2) {
          types.append(
            Declared(
              keyword: String(found.output.1), name: String(found.output.2), line: number + 1, indent: indent))
          if !code.hasSuffix("}") { open.append(types.count - 1) }
        } else if let last = open.last, indent == types[last].indent + 2,
          let found = try? Self.property.prefixMatch(in: code)
        {
          let next = number + 1 < lines.count ? lines[number + 1] : ""
          types[last].count += Self.stored(String(found.output.1), next)
        }
      }
    }

    /// How many properties a declaration stores. `rest`: what follows `let` or `var`; `next`: the next line.
    private static func stored(_ rest: String, _ next: Substring) -> Int {
      if rest.hasPrefix("(") { return rest.prefix { $0 != ")" }.count { $0 == "," } + 1 }
      let brace = rest.firstIndex(of: "{") ?? rest.endIndex
      let value = rest.firstIndex(of: "=") ?? rest.endIndex
      if brace < value {
        let body = (rest[rest.index(after: brace)...] + " " + next).drop { $0 == " " }
        guard body.hasPrefix("didSet") || body.hasPrefix("willSet") else { return 0 }
      }
      return 1
    }
  }

  private static let files: [(path: String, text: String)] = {
    let root = packageRoot.appending(path: "Sources")
    let paths = (try? FileManager.default.subpathsOfDirectory(atPath: root.path)) ?? []
    return paths.filter { $0.hasSuffix(".swift") && !$0.contains("+Generated") }.sorted().compactMap { path in
      (try? String(contentsOf: root.appending(path: path), encoding: .utf8)).map { (path, $0) }
    }
  }()

  @Test func noClassStoresTooMuch() {
    var classes = 0
    var large: Set<String> = []
    for file in Self.files {
      for type in StoredProperties(file.text).types where type.keyword == "class" {
        classes += 1
        if type.count > Self.usual { large.insert(type.name) }
        let most = Self.large.contains(type.name) ? Self.most : Self.usual
        #expect(
          type.count <= most,
          "\(file.path):\(type.line): '\(type.name)' stores \(type.count) properties; \(most) are possible")
      }
    }
    #expect(classes > 500)
    #expect(Self.large.subtracting(large) == [], "these are divided: strike them")
  }

  @Test func noFileIsTooLong() {
    #expect(Self.files.count > 700)
    for file in Self.files {
      let lines = file.text.count { $0 == "\n" }
      #expect(lines <= Self.longest, "\(file.path) has \(lines) lines; \(Self.longest) are possible")
    }
  }

  /// The check itself: what counts as stored.
  @Test func storedPropertiesAreCounted() {
    let types = StoredProperties(
      #"""
      final class Outer {
        private(set) var one = 1
        @exclusivity(unchecked) lazy var two = { 2 }()
        static let none = 0
        var computed: Int { one }
        let (three, four): (Int, Int)
        var five = 5 {
          didSet { changed() }
        }
        var alsoComputed: Int {
          get { 0 }
        }

        struct Inner {
          weak var six: Outer?
        }
        class func make() {}

        func method() {
          let local = 1
        }
        unowned(unsafe) let seven: Outer
      }
      """#
    ).types
    #expect(types.map(\.name) == ["Outer", "Inner"])
    #expect(types.map(\.count) == [6, 1])
  }
}
