import Foundation
import PipelineCore

/// The root of the package.
let packageRoot = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent().deletingLastPathComponent()

/// What the front end makes of a text.
struct Reading {
  var node: YAMLNode?
  var file: PipelineFile?
  var diagnostics: [Diagnostic]

  /// Each as `RX203 5:3`.
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

/// Reads, interpolates without an environment, parses.
func readPipeline(_ source: SourceText) -> Reading {
  var diagnostics = Diagnostics()
  guard let node = YAMLReader.read(source, into: &diagnostics) else {
    return Reading(diagnostics: diagnostics.all)
  }
  let interpolated = Interpolation.noEnvironment.apply(to: node, into: &diagnostics)
  let file = PipelineFileParser.parse(interpolated, into: &diagnostics)
  return Reading(node: interpolated, file: file, diagnostics: diagnostics.all)
}

func readPipeline(_ text: String, name: String = "test.yaml") -> Reading {
  readPipeline(SourceText(name: name, text: text))
}
