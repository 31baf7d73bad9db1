/// One component of a plugin with its type erased.
public struct CatalogueEntry: Sendable {
  enum Form { case row, stream, source, sink }
  let form: Form
  let name: String
  /// The spec of the contract.
  let document: @Sendable () throws -> JSONDocument
  /// Opens an instance.
  let open: @Sendable (Opening) throws -> Instance

  public init<C: SourceComponent>(source: C.Type) {
    self.init(C.self, .source) {
      Self.sourceMembers(C.self)
    } open: {
      try SourceInstance($0.component(C.self), $0)
    }
  }
  public init<C: OperatorComponent>(operator: C.Type) {
    self.init(C.self, .stream) {
      Self.operatorMembers(C.self)
    } open: {
      try StreamInstance($0.component(C.self), $0)
    }
  }
  public init<C: FusableOperator>(row: C.Type) {
    guard C.isPure else {
      self.init(operator: C.self)
      return
    }
    self.init(C.self, .row) {
      Self.operatorMembers(C.self) + [("form", .text("row"))]
    } open: {
      let component = try $0.component(C.self)
      return RowInstance { component.makeStep() }
    }
  }
  public init<C: SinkComponent>(sink: C.Type) {
    self.init(C.self, .sink) {
      Self.sinkMembers(C.self)
    } open: {
      try SinkInstance($0.component(C.self), $0)
    }
  }

  private init<C: Component>(
    _ type: C.Type, _ form: Form, _ members: @escaping @Sendable () -> [(String, JSONDocument)],
    open: @escaping @Sendable (Opening) throws -> Instance
  ) {
    self.form = form
    name = C.spec.name
    self.open = open
    document = {
      let spec = C.spec
      var all: [(String, JSONDocument)] = [
        ("kind", .text(form.kind)), ("name", .text(spec.name)), ("summary", .text(spec.summary)),
      ]
      func add(_ name: String, _ text: String) { if !text.isEmpty { all.append((name, .text(text))) } }
      func add(_ name: String, _ list: [JSONDocument]) { if !list.isEmpty { all.append((name, .list(list))) } }
      add("details", spec.details)
      add("parameters", try spec.parameters.map { try $0.specified() })
      all += members()
      add("memory", spec.memory)
      // rxd saves the position of a source itself, so only a state is declared.
      if form == .stream, case .state(let version) = spec.persistence {
        all.append(("state", .object([("version", .raw(String(version)))])))
      }
      if form == .stream, spec.lateness != nil { all.append(("timers", .raw("true"))) }
      if C.credit != 1024 { all.append(("credit", .raw(String(C.credit)))) }
      add("examples", spec.examples.map(\.document))
      let edges = spec.edges.document
      if !edges.isEmpty { all.append(("edges", .object(edges))) }
      add("useCases", spec.useCases.map(\.document))
      add("knownAs", spec.knownAs.map(JSONDocument.text))
      add("seeAlso", spec.seeAlso.map(JSONDocument.text))
      return .object(all)
    }
  }

  private static func operatorMembers<C: OperatorComponent>(_ type: C.Type) -> [(String, JSONDocument)] {
    typeMembers(C.inputType, C().outputType([C.inputType]))
  }

  private static func sourceMembers<C: SourceComponent>(_ type: C.Type) -> [(String, JSONDocument)] {
    typeMembers(.dyn, C().outputType) + varying(C.self, "recovery") { $0.recovery.rawValue }
      + (C.namesEvents ? [("names", .raw("true"))] : [])
  }

  private static func sinkMembers<C: SinkComponent>(_ type: C.Type) -> [(String, JSONDocument)] {
    typeMembers(C.inputType, .dyn) + varying(C.self, "confirmation") { $0.confirmation.rawValue }
  }

  private static func typeMembers(_ input: EventType, _ output: EventType) -> [(String, JSONDocument)] {
    [("input", input), ("output", output)].filter { $0.1 != .dyn }.map { ($0.0, $0.1.type.schema) }
  }

  /// A member of the spec, with the cases in which it depends on one parameter.
  private static func varying<C: Component>(
    _ type: C.Type, _ name: String, _ value: (C) -> String
  ) -> [(String, JSONDocument)] {
    let usual = value(C())
    var cases: [JSONDocument] = []
    for parameter in C.spec.parameters {
      for (document, set) in parameter.cases {
        var component = C()
        set(&component)
        guard value(component) != usual else { continue }
        cases.append(
          .object([("parameter", .text(parameter.name)), ("is", .raw(document)), (name, .text(value(component)))]))
      }
    }
    return [(name, .text(usual))] + (cases.isEmpty ? [] : [("when", .list(cases))])
  }
}

extension CatalogueEntry.Form {
  var kind: String {
    switch self {
    case .row, .stream: "operator"
    case .source: "source"
    case .sink: "sink"
    }
  }
}

/// A declaration that the contract cannot express.
struct SpecFault: Error {
  var message: String
}

extension Parameter {
  func specified() throws -> JSONDocument {
    var members: [(String, JSONDocument)] = [("name", .text(name)), ("type", .text(shape.name)), ("help", .text(help))]
    if isPrimary { members.append(("primary", .raw("true"))) }
    if isRequired { members.append(("required", .raw("true"))) }
    if let fallback { members.append(("default", .raw(fallback))) }
    switch shape {
    case .int, .duration:
      func bound(_ number: Int64) -> JSONDocument {
        shape == .duration ? .text(TimeSpan(nanoseconds: number).description) : .raw(String(number))
      }
      if let range, range.lowerBound != .min { members.append(("minimum", bound(range.lowerBound))) }
      if let range, range.upperBound != .max { members.append(("maximum", bound(range.upperBound))) }
    case .choice(let choices):
      members.append(
        ("choices", .list(choices.map { .object([("name", .text($0.name)), ("help", .text($0.help))]) })))
    case .list(let element), .table(let element):
      guard element.isElement else {
        throw SpecFault(message: "'\(name)' of '\(C.spec.name)' is a \(shape.name) of \(element.name), which cannot be")
      }
      members.append(("of", .text(element.name)))
    case .expression:
      if let expecting, expecting != .dyn { members.append(("result", .text(expecting.text))) }
    default: break
    }
    return .object(members)
  }
}

extension Example {
  var document: JSONDocument {
    switch body {
    case .snippet(let yaml): .object([("title", .text(title)), ("yaml", .text(yaml))])
    case .marble(let step, let input, let output, let values):
      .object(
        [("title", .text(title)), ("yaml", .text(step)), ("in", .text(input)), ("out", .text(output))]
          + (values.isEmpty ? [] : [("values", .object(values.map { ($0, .text($1)) }))]))
    }
  }
}

extension EdgeCases {
  /// Settings other than the defaults.
  var document: [(String, JSONDocument)] {
    [
      ("empty", empty, Self.passesEmpty), ("error", error, Self.passesError),
      ("completion", completion, Self.passesCompletion), ("disposal", disposal, Self.leaves),
    ].filter { $0.1 != $0.2 }.map { ($0.0, .text($0.1)) }
  }
}

extension UseCase {
  var document: JSONDocument {
    .object(
      [("topic", .text(topic.rawValue)), ("text", .text(text))] + (yaml.isEmpty ? [] : [("yaml", .text(yaml))]))
  }
}
