import Testing

@testable import PipelineCore

@Suite struct InterpolationTests {
  static let values = [
    "HOST": "example.com", "PORT": "8080", "EMPTY": "", "EVIL": "x\nsinks: {}\n- {a: b}",
    "QUOTE": "\"'", "DOLLAR": "${HOST}",
  ]
  static let environment = Interpolation(
    variable: { name in
      if name == "BINARY" { return .found([0xFF]) }
      if name == "HUGE" { return .found(Array(repeating: 0x61, count: 70_000)) }
      return values[name].map { .found(Array($0.utf8)) } ?? .missing
    },
    secret: { name in
      name == "token"
        ? .found(Array("hunter2".utf8))
        : name == "open" ? .refused("may be read by others") : .missing
    })

  private func value(
    _ yaml: String, _ interpolation: Interpolation = environment
  ) -> (YAMLScalar?, [Diagnostic]) {
    var diagnostics = Diagnostics()
    let node = YAMLReader.read(SourceText(name: "t", text: "a: " + yaml), into: &diagnostics)
    let result = node.map { interpolation.apply(to: $0, into: &diagnostics) }
    return (result?["a"]?.scalar, diagnostics.all)
  }

  @Test(arguments: [
    ("${HOST}", "example.com"), ("http://${HOST}:${PORT}/", "http://example.com:8080/"),
    ("${MISSING:-x}", "x"), ("${EMPTY:-x}", "x"),
    ("${MISSING:-}", ""), ("${HOST:?needed}", "example.com"), ("$${HOST}", "${HOST}"),
    ("$$$${HOST}", "$${HOST}"), ("$HOST $5", "$HOST $5"), ("'^a$'", "^a$"),
    ("${MISSING:-a$$b}", "a$b"), ("${EVIL}", "x\nsinks: {}\n- {a: b}"), ("${QUOTE}", "\"'"),
    ("${DOLLAR}", "${HOST}"), ("${MISSING:-http://h:1/{id}/x", "http://h:1/{id/x"),
  ])
  func replaces(_ written: String, _ expected: String) {
    let (scalar, diagnostics) = value(written)
    #expect(scalar?.string == expected)
    #expect(diagnostics.isEmpty)
  }

  @Test(
    arguments: [
      ("${PORT}", .int), ("'${PORT}'", .string), ("${MISSING:-true}", .bool), ("${EVIL}", .string),
      ("${MISSING:-1.5}", .float), ("${EMPTY}", .null), ("'${EMPTY}'", .string),
      ("${MISSING:-[a, b]}", .string),
    ] as [(String, YAMLScalar.Kind)])
  func plainValuesAreResolvedAgain(_ written: String, _ kind: YAMLScalar.Kind) {
    #expect(value(written).0?.kind == kind)
  }

  @Test(arguments: [
    ("${MISSING}", "RX701"), ("${MISSING:?set it}", "RX702"), ("${EMPTY:?}", "RX702"),
    ("${BINARY}", "RX704"), ("${HUGE}", "RX704"), ("${secret:none}", "RX703"),
    ("${secret:open}", "RX703"), ("${A:-${B}}", "RX251"), ("${A", "RX250"), ("'${ A}'", "RX250"),
    ("${A:=b}", "RX250"), ("${secret:../x}", "RX250"), ("${A-b}", "RX250"), ("${HOST-}", "RX250"),
  ])
  func refuses(_ written: String, _ code: String) {
    let (_, diagnostics) = value(written)
    #expect(diagnostics.map(\.code.name) == [code])
    #expect(
      diagnostics.first?.location?.offset == (written.hasPrefix("'") ? 4 : code == "RX251" ? 8 : 3))
    // The name may be printed, the value never.
    #expect(
      diagnostics.allSatisfy { !$0.message.contains("aaaa") && !$0.message.contains("hunter2") })
  }

  /// The shell's form without a colon has another meaning there; here only one form exists.
  @Test func aDefaultWithoutAColonLeadsToTheOneWith() throws {
    let diagnostic = try #require(value("${HOST-x}").1.first)
    #expect(diagnostic.help?.contains("${HOST:-x}") == true)
    #expect(diagnostic.fixIts.map(\.replacement) == [":"])
    #expect(diagnostic.fixIts.first?.location.offset == 9)
  }

  @Test func insertedBytesStandAtTheirReference() throws {
    let scalar = try #require(value("x${HOST}y").0)
    #expect(scalar.text.offsets.first == 3)
    #expect(scalar.text.offsets[1...11].allSatisfy { $0 == 4 })
    #expect(scalar.text.offsets[12] == 11)
    #expect(scalar.text.offsets.last == 12)
    #expect(scalar.insertions == [1..<12])
  }

  @Test func secretsAreNeverShown() throws {
    let scalar = try #require(value("Bearer ${secret:token}").0)
    #expect(scalar.string == "Bearer hunter2")
    #expect(scalar.containsSecret)
    var dumped = ""
    dump(YAMLNode(.scalar(scalar), at: scalar.location), to: &dumped)
    for text in ["\(scalar)", String(reflecting: scalar), scalar.shown] {
      #expect(text == "(secret)")
    }
    #expect(!dumped.contains("hunter2"))
    let node = YAMLNode(.scalar(scalar), at: scalar.location)
    for failure in [
      node.decodeBool("p").failure, node.decodeInt("p").failure, node.decodeDuration("p").failure,
      node.decodeSize("p").failure, node.decodeChoice("p", ["a"]).failure,
    ] {
      let text = DiagnosticRenderer().text([try #require(failure)])
      #expect(!text.contains("hunter2"))
    }
  }

  @Test func withoutEnvironmentDefaultsCount() throws {
    let (opaque, diagnostics) = value("x${MISSING}", .noEnvironment)
    #expect(diagnostics.isEmpty)
    #expect(opaque?.isPlaceholder == true)
    #expect(opaque?.string == "x${MISSING}")
    #expect(value("${HOST:-d}", .noEnvironment).0?.string == "d")
    #expect(value("${HOST:?m}", .noEnvironment).0?.isPlaceholder == true)
    let secret = try #require(value("${secret:token}", .noEnvironment).0)
    #expect(secret.isPlaceholder && secret.containsSecret)
  }

  @Test func keysStayAsTheyAre() {
    var diagnostics = Diagnostics()
    let node = YAMLReader.read(SourceText(name: "t", text: "${HOST}: 1"), into: &diagnostics)
    let result = node.map { Self.environment.apply(to: $0, into: &diagnostics) }
    #expect(result?["${HOST}"]?.int == 1)
    #expect(diagnostics.all.map(\.code.name) == ["RX252"])
  }
}

extension Result {
  var failure: Failure? {
    if case .failure(let failure) = self { failure } else { nil }
  }
}
