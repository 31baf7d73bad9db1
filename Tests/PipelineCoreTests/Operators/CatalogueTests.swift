import Foundation
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore
@testable import PipelineTesting

extension CatalogueEntry: CustomTestStringConvertible {
  public var testDescription: String { "\(kind.rawValue) \(name)" }
}

/// The properties of every component on which the reference, `rxd describe` and the schema rely.
@Suite struct CatalogueTests {
  static let entries = Catalogue.builtIn.components

  @Test(arguments: entries) func summaryIsOneSentence(_ entry: CatalogueEntry) {
    #expect(entry.summary.hasSuffix("."))
    #expect(!entry.summary.dropLast().contains(". "))
    #expect(!entry.summary.contains("\n"))
    #expect(entry.summary.count <= 100)
    #expect(entry.summary.first?.isUppercase == true)
  }

  @Test(arguments: entries) func nameIsCamelCase(_ entry: CatalogueEntry) {
    #expect(Suggestion.camelCase(entry.name) == entry.name)
    #expect(entry.name.first?.isLowercase == true)
    #expect(Name.isValid(Array(entry.name.utf8)))
    #expect(!ReservedKeys.sink.contains(entry.name) && !ReservedKeys.source.contains(entry.name))
    #expect(!ReservedKeys.step.contains(entry.name), "a reserved key of a step cannot be an operator")
  }

  @Test(arguments: entries) func everyParameterHasHelp(_ entry: CatalogueEntry) {
    func check(_ parameters: [ParameterInfo]) {
      for parameter in parameters {
        #expect(parameter.help.count >= 8, "\(parameter.name)")
        #expect(parameter.help.hasSuffix("."), "\(parameter.name): \(parameter.help)")
        #expect(Suggestion.camelCase(parameter.name) == parameter.name)
        checkShape(parameter.shape, parameter.name)
      }
      #expect(Set(parameters.map(\.name)).count == parameters.count)
      #expect(parameters.filter(\.isPrimary).count <= 1)
    }
    func checkShape(_ shape: ParameterShape, _ name: String) {
      switch shape {
      case .choice(let choices):
        for choice in choices { #expect(!choice.help.isEmpty, "\(name): \(choice.name)") }
      case .list(let element), .table(let element): checkShape(element, name)
      case .record(let fields): check(fields)
      case .oneOf(let shapes): for shape in shapes { checkShape(shape, name) }
      default: break
      }
    }
    check(entry.parameters)
  }

  @Test(arguments: entries) func hasAnExample(_ entry: CatalogueEntry) {
    #expect(!entry.examples.isEmpty)
    #expect(Set(entry.examples.map(\.title)).count == entry.examples.count)
  }

  @Test(arguments: entries) func seeAlsoExists(_ entry: CatalogueEntry) {
    let known = Set(Self.entries.map(\.name))
    for name in entry.seeAlso {
      #expect(known.contains(name), "\(name)")
      #expect(name != entry.name)
    }
  }

  /// The default of a parameter, as the reference shows it, is accepted by the decoder.
  @Test(arguments: entries.filter { $0.kind == .operator }) func defaultsPassTheirOwnCheck(
    _ entry: CatalogueEntry
  ) throws {
    for parameter in entry.parameters {
      guard let text = parameter.defaultText, !parameter.isRequired, !parameter.isWhole else { continue }
      let others = entry.parameters.filter(\.isRequired).map { other -> String in
        switch other.shape {
        case .duration: "\(other.name): 1s"
        case .int: "\(other.name): 1"
        default: "\(other.name): '1'"
        }
      }
      let body = (others + ["\(parameter.name): \(text)"]).joined(separator: ", ")
      var diagnostics = Diagnostics()
      let source = SourceText(name: "default", text: "{ \(body) }")
      let node = try #require(YAMLReader.read(source, into: &diagnostics))
      var context = DecodingContext(at: node.location)
      _ = entry.decode(node, &context)
      let complaints = context.diagnostics.all.filter {
        $0.message.contains("'\(parameter.name)'") && !$0.message.contains("has no effect")
      }
      #expect(complaints.isEmpty, "\(parameter.name): \(text): \(complaints.map(\.message))")
    }
  }

  /// Examples that consist of a component alone compile without a report in a whole pipeline.
  @Test(arguments: entries) func snippetsCompile(_ entry: CatalogueEntry) throws {
    for example in entry.examples {
      guard case .snippet(var text) = example.body else { continue }
      if !text.contains(":") { text += ":" }
      let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map { "    \($0)\n" }
        .joined()
      let head = "name: t\nsources:\n  a: { stdin: { decode: json } }\n"
      let yaml =
        switch entry.kind {
        case .source: "name: t\nsources:\n  a:\n\(lines)sinks:\n  out: { from: a, discard: {} }\n"
        case .operator:
          head + "commands: { reindex: { run: { from: a } } }\nsinks:\n  out:\n    from: a\n    chain:\n    -\n"
            + lines.split(separator: "\n").map { "  \($0)\n" }.joined() + "    discard: {}\n"
        case .function, .decoder, .encoder: ""
        case .command:
          head + "commands:\n  x:\n\(lines)sinks:\n  out: { from: a, chain: [ { execute: x } ], discard: {} }\n"
        case .combination, .sink: head + "sinks:\n  out:\n    from: a\n\(lines)"
        }
      #expect(throws: Never.self, "\(example.title)") {
        _ = try PipelineRun.compile(yaml, catalogue: .builtIn)
      }
    }
  }

  /// Examples that are whole pipelines pass their own tests.
  @Test(arguments: entries) func pipelinesPassTheirTests(_ entry: CatalogueEntry) throws {
    for example in entry.examples {
      guard case .pipeline(let text) = example.body else { continue }
      let suite = try TestSuite(SourceText(name: example.title, text: text))
      #expect(!suite.tests.isEmpty)
      for result in suite.run() where !result.passed {
        Issue.record("\(TestReport().text(.init(result, seconds: 0)))")
      }
    }
  }

  @Test func namesDiffer() {
    for kind in ComponentKind.allCases {
      let names = Catalogue.builtIn.names(kind)
      #expect(Set(names).count == names.count)
    }
  }

  @Test func theListsAreUpToDate() throws {
    let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
      .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
    let process = Process()
    process.executableURL = package.appendingPathComponent("scripts/generate-lists")
    process.arguments = ["--check"]
    let output = Pipe()
    process.standardError = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(text)")
  }

  /// Outside of its own files, no file names an operator's type, except that the compiler must know two.
  @Test func layersHold() throws {
    let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
      .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
      .appendingPathComponent("Sources/PipelineCore")
    let folders = ["Config", "Event", "Codec", "Expression", "Graph", "Time", "Services", "Diagnostics"]
    let forbidden = ["Catalogue.operators", "import Foundation"]
    for folder in folders {
      let files = FileManager.default.enumerator(
        at: sources.appendingPathComponent(folder), includingPropertiesForKeys: nil)
      for case let file as URL in try #require(files) where file.pathExtension == "swift" {
        let text = try String(contentsOf: file, encoding: .utf8)
        for word in forbidden {
          #expect(!text.contains(word), "\(file.lastPathComponent) has \(word)")
        }
      }
    }
  }
}
