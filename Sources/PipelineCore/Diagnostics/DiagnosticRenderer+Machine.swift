extension DiagnosticRenderer {
  /// One JSON document: an array of objects with `file`, `line`, `column`, `endLine`, `endColumn` (one past the last
  /// code point), `code`, `severity`, `message`, `help`, `notes`, `fixes`. Unknown values are null.
  public func json(_ diagnostics: [Diagnostic]) -> String {
    let items = Self.ordered(diagnostics).map { diagnostic -> JSONText in
      .object(
        Self.region(diagnostic.location) + [
          ("code", .string(diagnostic.code.name)),
          ("severity", .string(diagnostic.severity.rawValue)),
          ("message", .string(diagnostic.message)),
          ("help", diagnostic.help.map(JSONText.string) ?? .null),
          (
            "notes",
            .array(
              diagnostic.notes.map {
                .object(Self.region($0.location) + [("message", .string($0.message))])
              })
          ),
          (
            "fixes",
            .array(
              diagnostic.fixIts.map {
                .object(Self.region($0.location) + [("replacement", .string($0.replacement))])
              })
          ),
        ])
    }
    return JSONText.array(items).text + "\n"
  }

  private static func region(_ location: SourceLocation?) -> [(String, JSONText)] {
    guard let location else {
      return ["file", "line", "column", "endLine", "endColumn"].map { ($0, .null) }
    }
    let (start, end) = ends(location)
    return [
      ("file", .string(location.text.name)), ("line", .int(start.line)),
      ("column", .int(start.column)), ("endLine", .int(end.line)), ("endColumn", .int(end.column)),
    ]
  }

  private typealias Position = (line: Int, column: Int)

  private static func ends(_ location: SourceLocation) -> (Position, Position) {
    let text = location.text
    return (
      text.position(at: location.offset), text.position(at: location.offset + location.length)
    )
  }

  /// A SARIF 2.1.0 log with one run, whose rules are all codes.
  package func sarif(_ diagnostics: [Diagnostic]) -> String {
    var rules = Diagnostic.Code.all
    var index: [String: Int] = [:]
    for (position, rule) in rules.enumerated() { index[rule.name] = position }
    for diagnostic in diagnostics where index[diagnostic.code.name] == nil {
      index[diagnostic.code.name] = rules.count
      rules.append(diagnostic.code)
    }
    let results = Self.ordered(diagnostics).map { diagnostic -> JSONText in
      var result: [(String, JSONText)] = [
        ("ruleId", .string(diagnostic.code.name)),
        ("ruleIndex", .int(index[diagnostic.code.name] ?? 0)),
        ("level", .string(diagnostic.severity.rawValue)),
        (
          "message",
          .object([
            ("text", .string(diagnostic.message + (diagnostic.help.map { ". " + $0 } ?? "")))
          ])
        ),
      ]
      if let location = diagnostic.location {
        result.append(("locations", .array([.object([Self.physical(location)])])))
      }
      let related = diagnostic.notes.compactMap { note in
        note.location.map {
          JSONText.object([
            Self.physical($0), ("message", .object([("text", .string(note.message))])),
          ])
        }
      }
      if !related.isEmpty { result.append(("relatedLocations", .array(related))) }
      if !diagnostic.fixIts.isEmpty {
        result.append(("fixes", .array(diagnostic.fixIts.map(Self.sarifFix))))
      }
      return .object(result)
    }
    var driver: [(String, JSONText)] = [("name", .string("rxd"))]
    if !toolVersion.isEmpty { driver.append(("version", .string(toolVersion))) }
    driver.append(("rules", .array(rules.map(Self.sarifRule))))
    let run = JSONText.object([
      ("tool", .object([("driver", .object(driver))])),
      ("columnKind", .string("unicodeCodePoints")), ("results", .array(results)),
    ])
    let log = JSONText.object([
      ("$schema", .string("https://json.schemastore.org/sarif-2.1.0.json")),
      ("version", .string("2.1.0")), ("runs", .array([run])),
    ])
    return log.text + "\n"
  }

  private static func sarifRule(_ code: Diagnostic.Code) -> JSONText {
    .object([
      ("id", .string(code.name)),
      ("shortDescription", .object([("text", .string(code.summary))])),
      (
        "defaultConfiguration", .object([("level", .string(code.severity.rawValue))])
      ),
    ])
  }

  private static func sarifFix(_ fix: Diagnostic.FixIt) -> JSONText {
    let replacement = JSONText.object([
      ("deletedRegion", sarifRegion(fix.location)),
      ("insertedContent", .object([("text", .string(fix.replacement))])),
    ])
    return .object([
      ("description", .object([("text", .string(words(fix)))])),
      (
        "artifactChanges",
        .array([
          .object([
            ("artifactLocation", .object([("uri", .string(uri(fix.location.text.name)))])),
            ("replacements", .array([replacement])),
          ])
        ])
      ),
    ])
  }

  private static func physical(_ location: SourceLocation) -> (String, JSONText) {
    (
      "physicalLocation",
      .object([
        ("artifactLocation", .object([("uri", .string(uri(location.text.name)))])),
        ("region", sarifRegion(location)),
      ])
    )
  }

  private static func sarifRegion(_ location: SourceLocation) -> JSONText {
    let (start, end) = ends(location)
    return .object([
      ("startLine", .int(start.line)), ("startColumn", .int(start.column)),
      ("endLine", .int(end.line)), ("endColumn", .int(end.column)),
    ])
  }

  /// A path as a relative or absolute URI reference (RFC 3986).
  private static func uri(_ path: String) -> String {
    var result = path.utf8.first == UInt8(ascii: "/") ? "file://" : ""
    for byte in path.utf8 {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "."),
        UInt8(ascii: "_"), UInt8(ascii: "~"), UInt8(ascii: "/"):
        result.unicodeScalars.append(Unicode.Scalar(byte))
      default: result += "%" + Printable.hex(UInt32(byte), digits: 2)
      }
    }
    return result
  }

  /// GitHub workflow commands, one per line; GitHub shows them alongside the changed lines.
  package func github(_ diagnostics: [Diagnostic]) -> String {
    var page = ""
    for diagnostic in Self.ordered(diagnostics) {
      switch diagnostic.severity {
      case .error: page += "::error "
      case .warning: page += "::warning "
      case .note: page += "::notice "
      }
      if let location = diagnostic.location {
        let (start, end) = Self.ends(location)
        page += "file=\(Self.escaped(location.text.name, isProperty: true)),line=\(start.line),"
        page += "endLine=\(end.line),col=\(start.column),"
        // GitHub accepts an end column only within one line.
        if end.line == start.line { page += "endColumn=\(max(end.column - 1, start.column))," }
      }
      page += "title=\(diagnostic.code.name)::"
      page += Self.escaped(diagnostic.message, isProperty: false)
      if let help = diagnostic.help { page += "%0A" + Self.escaped(help, isProperty: false) }
      page += "\n"
    }
    return page
  }

  private static func escaped(_ text: String, isProperty: Bool) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "%": result += "%25"
      case "\r": result += "%0D"
      case "\n": result += "%0A"
      case ":" where isProperty: result += "%3A"
      case "," where isProperty: result += "%2C"
      default: Printable.append(scalar, to: &result)
      }
    }
    return result
  }
}
