/// One error or warning about the user's input, and what to do about it.
public struct Diagnostic: Error, Sendable, Equatable {
  /// The severity of a diagnostic.
  public enum Severity: String, Sendable, Comparable {
    case note, warning, error
    public static func < (a: Severity, b: Severity) -> Bool { a.rank < b.rank }
    private var rank: Int { self == .note ? 0 : self == .warning ? 1 : 2 }
  }

  /// A second location that helps to explain the first.
  public struct Note: Sendable, Equatable {
    /// The remark, as one sentence.
    public var message: String
    /// The location of what it describes, if any.
    public var location: SourceLocation?
    /// A remark about a location.
    public init(_ message: String, at location: SourceLocation? = nil) {
      self.message = message
      self.location = location
    }
  }

  /// A replacement that corrects the error.
  public struct FixIt: Sendable, Equatable {
    /// The text to replace; of length 0 for an insertion.
    public var location: SourceLocation
    /// The new text.
    public var replacement: String
    /// Replaces the text at `location`.
    public init(_ location: SourceLocation, _ replacement: String) {
      self.location = location
      self.replacement = replacement
    }
  }

  /// The kind of problem; `rxd explain CODE` describes it.
  public var code: Code
  /// Whether it is an error, a warning or a remark.
  public var severity: Severity
  /// One sentence without a full stop.
  public var message: String
  /// Nil only if the diagnostic is not about a file.
  public var location: SourceLocation?
  /// Other relevant locations.
  public var notes: [Note]
  /// The remedy, as one sentence.
  public var help: String?
  /// Replacements that correct the error; empty unless the correction is certain.
  public var fixIts: [FixIt]

  /// A diagnostic; the default for the severity is that of the code.
  public init(
    _ code: Code, _ message: String, at location: SourceLocation?, severity: Severity? = nil,
    notes: [Note] = [], help: String? = nil, fixIts: [FixIt] = []
  ) {
    self.code = code
    self.severity = severity ?? code.severity
    self.message = message
    self.location = location
    self.notes = notes
    self.help = help
    self.fixIts = fixIts
  }
}

extension Diagnostic {
  /// The diagnostic on one line, for a log: `search.yaml:12:7: error[RX203]: message; help`.
  public var line: String {
    (location.map { "\($0): " } ?? "") + "\(severity.rawValue)[\(code.name)]: \(message)"
      + (help.map { "; \(Self.continued($0))" } ?? "") + origins
  }

  /// The sentence as it continues after a semicolon: with a small first letter, unless it starts with an abbreviation.
  private static func continued(_ sentence: String) -> String {
    let letters = Array(sentence.utf8.prefix(2))
    guard letters.count == 2, 0x41...0x5A ~= letters[0], !(0x41...0x5A ~= letters[1]), !(0x30...0x39 ~= letters[1])
    else { return sentence }
    return String(decoding: [letters[0] | 0x20] + sentence.utf8.dropFirst(), as: UTF8.self)
  }

  /// The uses of templates and files that lead to the location, which alone would not identify the pipeline.
  private var origins: String {
    var text = ""
    var origin = location?.text.origin
    while let note = origin {
      text += " (\(note.message)\(note.location.map { ", \($0)" } ?? ""))"
      origin = note.location?.text.origin
    }
    return text
  }

  /// The stable code of a kind of error; never reused.
  ///
  /// Ranges: RX1xx text and YAML, RX2xx the grammar of the pipeline file, RX3xx names and wiring, RX4xx expressions,
  /// RX5xx events at run time, RX6xx tests, RX7xx the environment.
  public struct Code: Sendable, Hashable {
    /// `RX201`.
    public let name: String
    /// The meaning of the code as one sentence, shown by `rxd explain CODE` and in the reference.
    public let summary: String
    /// The severity of diagnostics with this code, unless they say otherwise.
    public let severity: Severity

    package init(_ name: String, _ summary: String, severity: Severity = .error) {
      self.name = name
      self.summary = summary
      self.severity = severity
    }

    public static func == (a: Code, b: Code) -> Bool { a.name == b.name }
    public func hash(into hasher: inout Hasher) { hasher.combine(name) }
  }
}

/// Collects the diagnostics of a phase. Phases continue after an error to find more.
package struct Diagnostics: Sendable {
  package private(set) var all: [Diagnostic] = []
  package init() {}
  package mutating func report(_ diagnostic: Diagnostic) { all.append(diagnostic) }
  package mutating func report(contentsOf other: [Diagnostic]) { all += other }
  package var hasErrors: Bool { all.contains { $0.severity == .error } }

  /// Collects the diagnostics that `body` reports about `text`, without quoting secrets in the text.
  package mutating func concealing<Result>(
    _ text: LocatedText, _ body: (inout Diagnostics) -> Result
  ) -> Result {
    guard text.isSecret else { return body(&self) }
    var found = Diagnostics()
    let result = body(&found)
    report(contentsOf: found.all.map(text.concealing))
    return result
  }
}
