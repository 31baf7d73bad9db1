import PipelineCore
import PipelineTestSupport
import Testing

/// One example of one component, as a test's argument.
struct CatalogueExample: Sendable, CustomTestStringConvertible {
  var component: String
  var example: Example
  var testDescription: String { "\(component): \(example.title)" }

  /// The source location of the example.
  var location: Testing.SourceLocation {
    let path = "\(example.file)"
    let name = path.split(separator: "/").last.map(String.init) ?? path
    return Testing.SourceLocation(
      fileID: "PipelineCore/\(name)", filePath: path, line: Int(example.line), column: 1)
  }

  static let marbles = Catalogue.operators.components.flatMap { entry in
    entry.examples.compactMap { example in
      if case .marble = example.body {
        return CatalogueExample(component: entry.name, example: example)
      }
      return nil
    }
  }
}

@Suite struct ExampleTests {
  @Test(arguments: CatalogueExample.marbles)
  func exampleHolds(_ example: CatalogueExample) throws {
    let verdict = try MarbleCase(example.example).verdict()
    if let verdict { Issue.record("\(verdict)", sourceLocation: example.location) }
  }
}
