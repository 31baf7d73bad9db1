import Foundation
import PipelineCore

/// The root of the package.
let packageRoot = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent().deletingLastPathComponent()

/// The front end's result for a text.
struct Reading {
  var node: YAMLNode?
  var file: PipelineFile?
  var diagnostics: [Diagnostic]

  /// Each diagnostic as `RX203 5:3`.
  var found: [String] {
    diagnostics.map { "\($0.code.name) \($0.location?.line ?? 0):\($0.location?.column ?? 0)" }
  }
  var errors: [Diagnostic] { diagnostics.filter { $0.severity == .error } }
}

/// Reads only the YAML.
func readYAML(_ text: String, name: String = "test.yaml") -> Reading {
  var diagnostics = Diagnostics()
  let node = YAMLReader.read(SourceText(name: name, text: text), into: &diagnostics)
  return Reading(node: node, diagnostics: diagnostics.all)
}

/// Reads, interpolates without an environment, and parses.
func readPipeline(_ source: SourceText) -> Reading {
  let result = FrontEnd(Catalogue([])).parse(source)
  return Reading(node: result.node, file: result.file, diagnostics: result.diagnostics)
}

func readPipeline(_ text: String, name: String = "test.yaml") -> Reading {
  readPipeline(SourceText(name: name, text: text))
}
