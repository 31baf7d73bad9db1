import PipelineCore
import Sinks
import Sources_

/// Compiles pipeline texts with everything that the program has, and `probe` sinks beside.
public enum PipelineText {
  public static let catalogue = Catalogue.operators.adding(.sources).adding(.sinks)
    .adding(Catalogue([CatalogueEntry(sink: ProbeSink.self)]))

  /// What a text was refused for.
  public struct Refused: Error, CustomStringConvertible {
    public var diagnostics: [Diagnostic]
    public var description: String { DiagnosticRenderer().text(diagnostics) }
  }

  public static func compile(
    _ yaml: String, name: String = "test.yaml", environment: [String: String] = [:]
  ) throws -> Plan {
    var diagnostics = Diagnostics()
    let text = SourceText(name: name, text: yaml)
    if let root = YAMLReader.read(text, into: &diagnostics), !diagnostics.hasErrors {
      let values = Interpolation(
        variable: { name in environment[name].map { .found(Array($0.utf8)) } ?? .missing },
        secret: { _ in .missing })
      let node = values.apply(to: root, into: &diagnostics)
      let file = PipelineFileParser.parse(node, into: &diagnostics)
      if !diagnostics.hasErrors,
        let plan = PipelineCompiler(catalogue, environment: environment)
          .compile(file, into: &diagnostics)
      {
        return plan
      }
    }
    throw Refused(diagnostics: diagnostics.all)
  }

  /// What a text is refused for, one `line:column: message` each; empty if it is not.
  public static func complaints(_ yaml: String) -> [String] {
    do {
      _ = try compile(yaml)
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
  public var events: [String] {
    moments.compactMap { if case .next(let value) = $0.moment { value.json } else { nil } }
  }

  /// Events, `|` for completion and `#message` for a failure, each with its time since the start.
  public var timeline: [String] {
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
  public var json: String {
    let buffer = OutputBuffer()
    if JSONWriter.append(value, to: buffer) != nil { return "(not writable)" }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }
}
