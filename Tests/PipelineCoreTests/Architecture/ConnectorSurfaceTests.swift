import Foundation
import Testing

/// Connectors use only the kit that other packages can see, and the core names no connector. Today's exceptions are counted in
/// Tests/Golden/connectors.txt: new ones fail, and removed ones are deleted there.
@Suite struct ConnectorSurfaceTests {
  private static let sources = packageRoot.appending(path: "Sources")

  private static func files(_ folder: String) throws -> [(path: String, text: String)] {
    try FileManager.default.subpathsOfDirectory(atPath: sources.appending(path: folder).path)
      .filter { $0.hasSuffix(".swift") }.sorted()
      .map { ("\(folder)/\($0)", try String(contentsOf: sources.appending(path: "\(folder)/\($0)"), encoding: .utf8)) }
  }

  /// The files of connectors: those with a conformance, and those that extend such a type.
  private static func connectors() throws -> [(path: String, text: String)] {
    try (files("Sinks") + files("PluginHost")).filter {
      $0.text.contains(#/: (?:Delivery|Lasting)Connector\b/#) || $0.text.contains(#/extension \w+\.Connector\b/#)
    }
  }

  /// The kit's internals can change without changing a connector.
  @Test func connectorsDoNotSeeTheInsidesOfTheKit() throws {
    let kit = try Self.files("Transport/Delivering")
    #expect(kit.count > 6)
    let offered = Set(kit.flatMap { SwiftNames($0.text).offeredTypes })
    let shown = Set(
      kit.flatMap { file in
        file.text.matches(of: #/\b(?:public|open) (?:final )?(?:class|struct|enum|protocol) (\w+)/#).map {
          String($0.1)
        }
      })
    #expect(shown.isSuperset(of: ["DeliveryConnector", "DeliveryOutcome", "DeliveryTraits", "DeliveryBatch"]))
    // Connectors that continue over a reload are offered to plugins' sinks only.
    let hidden = offered.subtracting(shown).subtracting(["LastingConnector"])
    #expect(hidden.isSuperset(of: ["DeliverySink", "DeliveryQueue", "DeliveryPace"]))
    let found = try Self.connectors()
    #expect(found.count >= 5)
    for file in found {
      let used = SwiftNames(file.text).usedTypes.intersection(hidden)
      #expect(used.isEmpty, "\(file.path) uses \(used.sorted())")
    }
  }

  /// Names of connectors in code of the core: user-visible texts, names of services. `statsd` and `prometheus` are also formats.
  nonisolated(unsafe) private static let named =
    #/(?i)docker|journald|sqlite|websocket|remotewrite|exporter/#

  @Test func whatIsMoreThanTheKitIsCounted() throws {
    let hidden = Set(
      try (Self.files("Transport") + Self.files("PipelineCore")).flatMap { file in
        file.text.matches(
          of: #/^package (?:indirect )?(?:final )?(?:class|struct|enum|protocol) (\w+)/#.anchorsMatchLineEndings()
        ).map { String($0.1) }
      })
    #expect(hidden.count > 100)
    var present: [String] = []
    for file in try Self.connectors() where file.path.hasPrefix("Sinks/") {
      let used = SwiftNames(file.text).usedTypes.intersection(hidden)
      if !used.isEmpty { present.append("\(file.path) uses \(used.sorted().joined(separator: ", "))") }
    }
    // The generated list of plugins has what they say of themselves.
    for file in try Self.files("PipelineCore") where !file.path.hasSuffix("KnownPlugins+Generated.swift") {
      let lines = file.text.split(separator: "\n").filter { line in
        !line.drop(while: { $0 == " " }).hasPrefix("//") && line.contains(Self.named)
      }
      if !lines.isEmpty { present.append("\(file.path) names connectors: \(lines.count)") }
    }
    let file = packageRoot.appending(path: "Tests/Golden/connectors.txt")
    let kept = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map(String.init)
    let head = kept.filter { $0.hasPrefix("#") }
    let lines = kept.filter { !$0.hasPrefix("#") }
    let added = Set(present).subtracting(lines).sorted()
    let gone = Set(lines).subtracting(present).sorted()
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" {
      try Data((head + present).joined(separator: "\n").appending("\n").utf8).write(to: file)
    }
    #expect(added.isEmpty && gone.isEmpty, "new or more: \(added); gone or fewer, strike them: \(gone)")
  }

  /// The page on the kit shows the complete connector that is built and run, and the page is short.
  @Test func thePageShowsTheConnectorThatRuns() throws {
    let folder = packageRoot.appending(path: "Tests/Connector")
    let files = try ["Package.swift", "Sources/RedisStream/main.swift", "Sources/RedisStream/RedisStream.swift"].map {
      try String(contentsOf: folder.appending(path: $0), encoding: .utf8)
    }
    let page = try String(contentsOf: packageRoot.appending(path: "docs/connectors.md"), encoding: .utf8)
    let blocks = page.matches(of: #/```swift\n([\s\S]*?)```/#).map { String($0.output.1) }
    #expect(blocks.count == 3)
    for block in blocks { #expect(files.contains { $0.contains(block) }, "\(block)") }
    #expect(blocks.contains(files[1]))
    #expect(blocks.contains { $0.contains("struct RedisStream: SinkComponent") && $0.contains("func close(handsOver") })
    #expect(files[2].split(separator: "\n", omittingEmptySubsequences: false).count <= 150)
    // Fifteen minutes, at 250 words a minute.
    #expect(page.split { $0.isWhitespace }.count < 3_500)
    // The declarations of the kit that the page names exist.
    let kit = try Self.files("Transport/Delivering").map(\.text).joined()
    for name in page.matches(of: #/`traits\.(\w+)/#) { #expect(kit.contains("public var \(name.1)"), "\(name.1)") }
    for name in page.matches(of: #/^\| `\.(\w+)/#.anchorsMatchLineEndings()) {
      #expect(kit.contains("  case \(name.1)"), "\(name.1)")
    }
  }
}
