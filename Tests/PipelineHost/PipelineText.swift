import PipelineCore
import PipelineTesting
import Sinks
import Sources_

/// Compiles pipeline texts with all components of the program, and with `probe` sinks.
package enum PipelineText {
  package static let catalogue = Catalogue.operators.adding(.sources).adding(.sinks)
    .adding(Catalogue([CatalogueEntry(sink: ProbeSink.self)]))

  /// Why a text was refused.
  package struct Refused: Error, CustomStringConvertible {
    package var diagnostics: [Diagnostic]
    package var description: String { DiagnosticRenderer().text(diagnostics) }
  }

  package static func compile(
    _ yaml: String, name: String = "test.yaml", environment: [String: String] = [:], secrets: [String: String] = [:],
    plugins: any PluginProvider = NoPlugins()
  ) throws -> Plan {
    var front = FrontEnd(
      catalogue, values: Interpolation(variables: environment, secrets: secrets), environment: environment)
    front.plugins = plugins
    let result = front.compile(yaml, name: name)
    guard let plan = result.plan else { throw Refused(diagnostics: result.diagnostics) }
    return plan
  }

  /// The messages of all diagnostics of a text, warnings included.
  package static func remarks(_ yaml: String) -> [String] {
    FrontEnd(catalogue).compile(yaml).diagnostics.map(\.message)
  }

  /// Why a text is refused, one `line:column: message` for each error; empty if it is accepted.
  package static func complaints(_ yaml: String, plugins: any PluginProvider = NoPlugins()) -> [String] {
    do {
      _ = try compile(yaml, plugins: plugins)
      return []
    } catch let refused as Refused {
      return refused.diagnostics.map { diagnostic in
        let place = diagnostic.location.map { "\($0.line):\($0.column): " } ?? ""
        return place + diagnostic.message
      }
    } catch { return ["\(error)"] }
  }
}

/// What a probe recorded, as JSON.
extension ProbeSink.Recording {
  package var events: [String] {
    moments.compactMap { if case .next(let value) = $0.moment { value.json } else { nil } }
  }

  /// Events, `|` for completion and `#message` for a failure, each with its time since the start.
  package var timeline: [String] {
    moments.map { moment in
      let time = TimeSpan(nanoseconds: moment.at.nanoseconds)
      switch moment.moment {
      case .next(let value): return "\(time) \(value.json)"
      case .complete: return "\(time) |"
      case .fail(let failure): return "\(time) #\(failure.message)"
      case .subscribe: return "\(time) ^"
      case .cancel: return "\(time) !"
      }
    }
  }
}

extension OwnedValue {
  package var json: String {
    let buffer = OutputBuffer()
    if JSONWriter.append(value, to: buffer) != nil { return "(not writable)" }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }
}
