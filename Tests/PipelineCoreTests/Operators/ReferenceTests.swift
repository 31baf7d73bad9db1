import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// The promises of the reference pages for every component.
@Suite struct ReferenceTests {
  static let entries = CatalogueTests.entries
  static let operators = entries.filter { $0.kind == .operator }

  @Test(arguments: entries) func nameIsThatOfTheSpec(_ entry: CatalogueEntry) {
    #expect(entry.name == entry.nameInSpec)
  }

  @Test(arguments: entries) func meaningHasTwoSentences(_ entry: CatalogueEntry) {
    #expect(!entry.details.isEmpty, "the summary is the first sentence, the details begin with the second")
  }

  @Test(arguments: entries) func isWanted(_ entry: CatalogueEntry) {
    #expect(!entry.useCases.isEmpty, "no question leads to it")
    for useCase in entry.useCases {
      #expect(useCase.text.first?.isLowercase == true && !useCase.text.hasSuffix("."), "\(useCase.text)")
      #expect(!useCase.text.hasPrefix("to "), "\(useCase.text)")
      #expect(useCase.yaml.contains(entry.name) || entry.kind == .command, "\(useCase.yaml)")
      #expect(!useCase.yaml.contains("\n"))
    }
  }

  @Test func questionsAreManyAndDiffer() {
    let questions = Self.entries.flatMap(\.useCases).map(\.text)
    #expect(questions.count >= 120)
    let twice = Dictionary(grouping: questions) { $0 }.filter { $0.value.count > 1 }.keys
    #expect(twice.isEmpty, "\(twice)")
    #expect(Set(Self.entries.flatMap(\.useCases).map(\.topic)).count >= 10)
  }

  /// The answer to a question compiles.
  @Test(arguments: entries) func answersCompile(_ entry: CatalogueEntry) throws {
    let names = ["a", "b", "other"]
    let sources = names.map { "  \($0): { file: { path: x, decode: json } }\n" }.joined()
    for useCase in entry.useCases {
      let yaml =
        switch entry.kind {
        case .source: "sources:\n  x: { \(useCase.yaml) }\nsinks: { out: { from: x, discard: {} } }\n"
        case .sink:
          "sources:\n  a: { httpServer: 47808 }\n  b: { values: [1] }\nsinks: { out: { from: a, \(useCase.yaml) } }\n"
        case .function, .decoder, .encoder: ""
        case .command:
          "sources:\n\(sources)commands:\n  x: \(useCase.yaml)\n"
            + "sinks: { out: { from: a, chain: [ { execute: x } ], discard: {} } }\n"
        case .combination:
          "sources:\n\(sources)signals:\n  x: \(flow(useCase.yaml))\nsinks: { out: { from: x, discard: {} } }\n"
        case .operator where useCase.yaml.hasPrefix("{"):
          "sources:\n\(sources)signals:\n  x: \(useCase.yaml)\nsinks: { out: { from: x, discard: {} } }\n"
        case .operator:
          "sources:\n\(sources)commands: { reindex: { run: { from: other } } }\nsignals:\n  x:\n    from: a\n"
            + "    chain:\n      - \(useCase.yaml)\nsinks: { out: { from: x, discard: {} } }\n"
        }
      #expect(throws: Never.self, "\(useCase.text): \(useCase.yaml)") {
        _ = try PipelineRun.compile("name: t\n" + yaml, catalogue: .builtIn)
      }
    }
  }

  private func flow(_ yaml: String) -> String { yaml.hasPrefix("{") ? yaml : "{ \(yaml) }" }

  /// Steps whose page describes only the usual behaviour at the edges have that behaviour.
  @Test(arguments: operators) func usualEdgesAreTrue(_ entry: CatalogueEntry) throws {
    func check(_ step: String, _ input: String, _ output: String) throws {
      let verdict = try MarbleCase(step, isSignal: false, inputs: [("a", input)], output: output).verdict()
      if let verdict { Issue.record("\(verdict)") }
    }
    for example in entry.examples {
      guard case .marble(let step, let inputs, _, _) = example.body, inputs.count == 1,
        !MarbleCase.isWholeSignal(step)
      else { continue }
      if entry.edges.empty == EdgeCases.passesEmpty { try check(step, "--|", "--|") }
      if entry.edges.error == EdgeCases.passesError { try check(step, "--#", "--#") }
      if entry.edges.completion == EdgeCases.passesCompletion { try check(step, "---|", "---|") }
    }
  }

  @Test(arguments: entries) func edgesAreSentences(_ entry: CatalogueEntry) {
    for edge in entry.edges.rows {
      #expect(edge.text.hasSuffix(".") && edge.text.first?.isUppercase == true, "\(edge.title): \(edge.text)")
    }
    #expect(entry.memory.isEmpty || entry.memory.hasSuffix("."))
    if entry.kind == .operator || entry.kind == .combination {
      #expect(entry.edges.rows.count == 4)
      #expect(!entry.knownAs.isEmpty, "nobody else's name leads here")
    }
  }
}
