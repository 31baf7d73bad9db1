/// Writes the JSON Schema (draft 2020-12) of pipeline files, for editors: every key, every component of a catalogue
/// with its parameters, and nothing else.
///
/// The schema describes the file before `${...}` is replaced, so every scalar may also be such a text. `rxd check`
/// checks what a schema cannot: references to names, expressions.
package struct SchemaWriter {
  private let catalogue: Catalogue

  package static func schema(_ catalogue: Catalogue) -> JSONText {
    SchemaWriter(catalogue: catalogue).file()
  }

  // MARK: Building blocks

  typealias Members = [(String, JSONText)]

  private static func string(_ text: String) -> JSONText { .string(text) }

  static func reference(_ name: String) -> JSONText {
    .object([("$ref", .string("#/$defs/\(name)"))])
  }

  static func any(_ schemas: [JSONText]) -> JSONText {
    schemas.count == 1 ? schemas[0] : .object([("anyOf", .array(schemas))])
  }

  static func type(_ names: String...) -> JSONText {
    .object([("type", names.count == 1 ? .string(names[0]) : .array(names.map { .string($0) }))])
  }

  private static func pattern(_ pattern: String, _ description: String) -> JSONText {
    .object([
      ("type", .string("string")), ("pattern", .string(pattern)),
      ("description", .string(description)),
    ])
  }

  private static func named(_ value: JSONText) -> JSONText {
    .object([
      ("type", .string("object")),
      ("propertyNames", .object([("pattern", .string("^[A-Za-z_][A-Za-z0-9_-]*$"))])),
      ("additionalProperties", value),
    ])
  }

  /// A mapping with exactly these keys.
  static func closed(
    _ properties: Members, required: [String] = [], more: Members = []
  ) -> JSONText {
    var members: Members = [
      ("type", .string("object")), ("properties", .object(properties)),
      ("additionalProperties", .bool(false)),
    ]
    if !required.isEmpty { members.append(("required", .array(required.map { .string($0) }))) }
    return .object(members + more)
  }

  static func described(_ schema: JSONText, _ text: String, _ fallback: JSONText? = nil) -> JSONText {
    var more: Members = [("description", .string(text))]
    if let fallback { more.append(("default", fallback)) }
    guard case .object(let members) = schema, !members.contains(where: { $0.0 == "description" })
    else { return .object([("allOf", .array([schema]))] + more) }
    return .object(members + more)
  }

  /// One of these words, each with its meaning.
  private static func choice(_ words: [(name: String, help: String)], _ description: String) -> JSONText {
    described(
      any([.object([("enum", .array(words.map { .string($0.name) }))]), reference("placeholder")]),
      description + " " + words.map { "\($0.name): \($0.help)." }.joined(separator: " "))
  }

  private static var lateWords: [(name: String, help: String)] { WhenLate.allCases.map { ($0.rawValue, $0.help) } }

  /// Exactly one of these keys.
  private static func exactlyOne(_ keys: [String]) -> JSONText {
    .array(keys.map { .object([("required", .array([.string($0)]))]) })
  }

  // MARK: The file

  private func file() -> JSONText {
    let text = Self.reference("text")
    let properties: Members = [
      ("name", Self.described(text, "The pipeline's name; default: the file's stem.")),
      ("description", Self.described(text, "What the pipeline does.")),
      (
        "threads",
        Self.described(
          Self.any([
            .object([
              ("type", .string("integer")), ("minimum", .int(PipelineFile.threadRange.lowerBound)),
              ("maximum", .int(PipelineFile.threadRange.upperBound)),
            ]), Self.reference("placeholder"),
          ]),
          """
          How many threads may decode one input at the same time; 1: the pipeline thread decodes. Default: the \
          number of processors.
          """
        )
      ),
      (
        "delivery",
        Self.choice(
          Delivery.allCases.map { ($0.rawValue, $0.help) },
          "The data on disk, if there is a state directory. Default: the lightest mode that loses no event.")
      ),
      (
        "require",
        Self.choice(
          DeliveryRequirement.allCases.map { ($0.rawValue, $0.help) },
          "The least guarantee that every path from a source to a sink must have; less is an error.")
      ),
      (
        "whenLate",
        Self.choice(Self.lateWords, "How time that passed while the pipeline was down is treated. Default: fire.")
      ),
      ("state", Self.state),
      ("sources", Self.described(Self.named(Self.reference("source")), "Where events come from.")),
      (
        "tables",
        Self.described(
          Self.named(Self.reference("table")), "Rows that expressions read by key: NAME[KEY], an optional.")
      ),
      ("signals", Self.described(Self.named(Self.reference("signal")), "What happens to them.")),
      ("commands", Self.described(Self.named(Self.reference("command")), "Run on demand.")),
      ("sinks", Self.described(Self.named(Self.reference("sink")), "Where events go.")),
      (
        "tests",
        .object([
          ("type", .string("array")), ("items", Self.reference("test")),
          ("description", .string("Tests of the pipeline, run by 'rxd test'.")),
        ])
      ),
      (
        "patterns",
        .object([
          ("type", .string("object")), ("additionalProperties", Self.reference("text")),
          ("description", .string("Named grok patterns, which 'grok' and 'redact' use as %{NAME}.")),
        ])
      ),
      (
        "functions",
        Self.described(
          Self.named(
            Self.closed([
              ("description", text), ("parameters", Self.type("object")),
              ("returns", .object([("type", .array([.string("string"), .string("array"), .string("object")]))])),
              ("value", Self.described(Self.type("string", "number", "boolean"), "The expression.")),
              ("examples", .object([("type", .array([.string("array"), .string("string")]))])),
            ])), "Functions of expressions: typed parameters and a value.")
      ),
      ("plugins", .bool(true)),
      (
        "templates",
        Self.described(
          Self.named(
            Self.closed([
              ("description", text), ("parameters", Self.type("object")), ("chain", Self.type("array")),
              ("signal", Self.type("object")), ("source", Self.type("object")), ("sink", Self.type("object")),
            ])), "Parts with parameters, inserted by 'use'; $(NAME) is the value of a parameter.")
      ),
      (
        "include",
        .object([
          ("type", .array([.string("string"), .string("array")])), ("items", Self.type("string")),
          (
            "description", .string("Files with templates and further parts, in the directory of this file or below it.")
          ),
        ])
      ),
      (
        "foreach",
        .object([
          ("type", .array([.string("object"), .string("array")])),
          ("description", .string("Sections that are repeated for the values of a list; $(NAME) is the value.")),
        ])
      ),
    ]
    return .object([
      ("$schema", .string("https://json-schema.org/draft/2020-12/schema")),
      ("title", .string("rxd pipeline")),
      ("type", .string("object")), ("properties", .object(properties)),
      ("patternProperties", .object([("^x-", .bool(true))])),
      ("additionalProperties", .bool(false)), ("$defs", .object(scalars() + signalsAndChains() + components())),
    ])
  }

  private func scalars() -> Members {
    let placeholder = Self.reference("placeholder")
    func or(_ schema: JSONText) -> JSONText { Self.any([schema, placeholder]) }
    return [
      ("placeholder", Self.pattern("\\$\\{", "A value from the environment or a secret.")),
      ("boolean", or(Self.type("boolean"))),
      ("integer", or(Self.type("integer"))),
      ("number", or(Self.type("number"))),
      ("text", Self.type("string", "number", "boolean")),
      ("expression", Self.type("string", "number", "boolean", "null")),
      (
        "duration",
        or(
          Self.pattern(
            "^\\s*([0-9]+(\\.[0-9]+)?(d|h|m|s|ms|us|ns)\\s*)+$|^0$",
            "A duration with its unit: 300ms, 5s, 1h30m."))
      ),
      (
        "size",
        or(
          Self.pattern(
            "^\\s*[0-9]+(\\.[0-9]+)?\\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)\\s*$",
            "A size with its unit: 512B, 64KiB, 10MB."))
      ),
      (
        "mapping",
        Self.described(
          Self.any([
            Self.reference("expression"),
            .object([
              ("type", .string("object")), ("additionalProperties", Self.reference("mapping")),
            ]),
            .object([("type", .string("array")), ("items", Self.reference("mapping"))]),
          ]), "An expression, or a mapping or list of them that builds a value.")
      ),
      (
        "eventSchema",
        Self.described(
          Self.any([
            Self.type("string"),
            .object([
              ("type", .string("object")), ("additionalProperties", Self.reference("eventSchema")),
            ]),
            .object([
              ("type", .string("array")), ("items", Self.reference("eventSchema")),
              ("minItems", .int(1)), ("maxItems", .int(1)),
            ]),
          ]),
          """
          The type of the events: a type (int, string?, list(double), map(string, int), any ...), a mapping of \
          fields to types, or the path of a JSON Schema file.
          """
        )
      ),
      (
        "reference",
        Self.pattern(
          "^[A-Za-z_][A-Za-z0-9_-]*(\\.[A-Za-z]+)?$|\\$\\{",
          "The name of a source or signal, or NAME.errors, of a sink too.")
      ),
    ]
  }

  private static let tableParameters: Members = [
    ("key", described(reference("expression"), "By what a row is found.")),
    ("row", described(reference("mapping"), "The stored part of an event; by default the whole event.")),
    ("every", described(reference("duration"), "How often its source is read again.")),
    ("delete", described(reference("expression"), "Whether an event removes the row with its key.")),
    ("maxRows", described(reference("integer"), "The largest number of rows.", .int(1_000_000))),
  ]

  private func signalsAndChains() -> Members {
    let sources = catalogue.names(.source)
    let combinations = catalogue.names(.combination)
    let chain: JSONText = .object([
      ("type", .string("array")), ("items", Self.reference("step")),
      ("description", .string("Operators, one after the other.")),
    ])
    let from = Self.any([
      Self.reference("reference"), Self.reference("source"),
    ])
    let input = Self.any([
      Self.reference("reference"), Self.reference("signal"),
      Self.closed(
        [("each", Self.type("string")), ("in", .bool(true)), ("do", .bool(true))], required: ["each", "in", "do"]),
    ])
    var signal: Members = [
      ("from", Self.described(from, "Where the events come from.")), ("chain", chain),
      ("reduce", Self.reference("operator.reduce")),
    ]
    if catalogue.component(.operator, "reduce") == nil { signal.removeLast() }
    signal += options(ReservedKeys.signal.without(ReservedKeys.Later.signal))
    signal += combinations.map { ($0, Self.reference("combination.\($0)")) }
    signal += sources.map { ($0, Self.reference("source.\($0)")) }
    let sink: Members =
      [("from", Self.described(input, "Where the events come from.")), ("chain", chain)]
      + options(ReservedKeys.sink.without(ReservedKeys.Later.sink))
    var step = component(.operator, ReservedKeys.step)
    step.append(.object([("enum", .array(bareWords(.operator)))]))
    let use: Members = [
      ("use", Self.described(Self.type("string"), "The template to insert.")),
      ("with", Self.described(Self.type("object"), "The values of its parameters.")),
    ]
    step.append(Self.closed(use, required: ["use"]))
    let each: Members = [("each", Self.type("string")), ("in", .bool(true)), ("do", .bool(true))]
    step.append(Self.closed(each, required: ["each", "in", "do"]))
    signal += use
    let table =
      signal.filter {
        !["cold", "share"].contains($0.0) && !ReservedKeys.eventTime.contains($0.0)
      }
      + options(["schema"]) + Self.tableParameters
    let sourceKeys = ReservedKeys.source.without(ReservedKeys.Later.source)
    var source = component(.source, sourceKeys)
    source.append(.object([("enum", .array(bareWords(.source)))]))
    source.append(Self.closed(use + options(sourceKeys), required: ["use"]))
    let sinkKeys = catalogue.names(.sink)
    return [
      ("input", input), ("chain", chain), ("source", Self.any(source)), ("step", Self.any(step)),
      (
        "signal",
        Self.closed(
          signal,
          more: [
            (
              "anyOf",
              .array([
                .object([("required", .array([.string("use")]))]),
                .object([("oneOf", Self.exactlyOne(["from"] + combinations + sources))]),
              ])
            )
          ])
      ),
      (
        "table",
        Self.closed(
          table, required: ["key"],
          more: [
            (
              "anyOf",
              .array([
                .object([("required", .array([.string("use")]))]),
                .object([("oneOf", Self.exactlyOne(["from"] + combinations + sources))]),
              ])
            )
          ])
      ),
      (
        "sink",
        Self.closed(
          sink + use + sinkKeys.map { ($0, Self.reference("sink.\($0)")) }, required: ["from"],
          more: [("oneOf", Self.exactlyOne(sinkKeys + ["use"]))])
      ),
      (
        "command",
        Self.closed(
          catalogue.components.filter { $0.kind == .command }.flatMap(\.parameters).map { info in
            let shape = info.name == "run" ? Self.reference("signal") : schema(info.shape)
            return (info.name, Self.described(shape, info.help, fallback(info)))
          } + [("enabled", input), ("description", Self.reference("text")), ("movedFrom", .bool(true))],
          required: ["run"])
      ),
      (
        "test",
        Self.closed(
          [
            ("name", Self.reference("text")), ("description", Self.reference("text")),
            ("inputs", Self.type("object")), ("tables", Self.type("object")), ("stubs", Self.type("object")),
            ("expect", Self.type("object")), ("env", Self.type("object")), ("now", Self.type("string")),
            ("tick", Self.reference("duration")),
            ("until", Self.reference("duration")),
          ], required: ["name", "expect"])
      ),
    ]
  }

  /// The reserved keys next to a component key, except `from`, `chain`, `run` and `enabled`.
  private func options(_ keys: [String]) -> Members {
    keys.filter { !["from", "chain", "run", "enabled"].contains($0) }.map { key in
      switch key {
      case "onError":
        let policies: [JSONText] = ErrorPolicy.allCases.map { .string($0.rawValue) }
        return (
          key,
          .object([
            ("enum", .array(policies)),
            ("description", .string("What happens to an event for which the step fails.")),
          ])
        )
      case "delivery":
        return (
          key,
          Self.choice(
            [(Delivery.bestEffort.rawValue, "its events count as delivered at once")],
            "Takes the source or sink out of the pipeline's delivery guarantee.")
        )
      case "whenLate":
        return (
          key,
          Self.choice(
            Self.lateWords, "How time that passed while the pipeline was down is treated. Default: that of the file.")
        )
      case "whenFull":
        return (
          key,
          Self.choice(
            OutboxLimit.Policy.allCases.map { ($0.rawValue, $0.help) },
            "What happens when the events that wait for the sink on disk exceed 'buffer'.")
        )
      case "buffer":
        return (
          key,
          .object([
            ("type", .string("string")),
            ("description", .string("How many bytes of waiting events the sink may have on disk. Default: 1GiB.")),
          ])
        )
      case "time":
        return (
          key, Self.described(Self.reference("expression"), "When an event happened: gives the events event time.")
        )
      case "lateness":
        return (key, Self.described(Self.reference("duration"), "How far events may be out of order, by their 'time'."))
      case "idle":
        return (
          key, Self.described(Self.reference("duration"), "After how long without events it holds up no window.")
        )
      case "maxAhead":
        return (
          key, Self.described(Self.reference("duration"), "How far ahead of the clock the 'time' of an event may be.")
        )
      case "cold": return (key, Self.reference("boolean"))
      case "schema": return (key, Self.reference("eventSchema"))
      case "description", "name": return (key, Self.reference("text"))
      default: return (key, .bool(true))
      }
    }
  }

  private func component(_ kind: ComponentKind, _ reserved: [String]) -> [JSONText] {
    let names = catalogue.names(kind)
    var more: Members = [("oneOf", Self.exactlyOne(names))]
    let beside = parametersBeside(kind).filter { reserved.contains($0.name) }
    if !beside.isEmpty {
      more.append(
        (
          "dependentSchemas",
          .object(beside.map { ($0.name, .object([("anyOf", Self.exactlyOne($0.components))])) })
        ))
    }
    return [
      Self.closed(
        options(reserved.filter { key in !beside.contains { $0.name == key } })
          + beside.map { ($0.name, $0.schema) }
          + names.map { ($0, Self.reference("\(kind.rawValue).\($0)")) },
        more: more)
    ]
  }

  /// The parameters written next to a component's key, and the components that they belong to.
  private func parametersBeside(
    _ kind: ComponentKind
  ) -> [(name: String, components: [String], schema: JSONText)] {
    var found: [(name: String, components: [String], schema: JSONText)] = []
    for entry in catalogue.components where entry.kind == kind {
      for info in entry.parameters where info.isBeside {
        if let at = found.firstIndex(where: { $0.name == info.name }) {
          found[at].components.append(entry.name)
        } else {
          found.append((info.name, [entry.name], Self.described(schema(info.shape), info.help, fallback(info))))
        }
      }
    }
    return found
  }

  /// Components without required parameters.
  private func bareWords(_ kind: ComponentKind) -> [JSONText] {
    catalogue.components.filter { entry in
      entry.kind == kind && !entry.parameters.contains(where: \.isRequired)
    }.map { .string($0.name) }
  }

  // MARK: Components

  private func components() -> Members {
    catalogue.components.map { entry in
      let schema = entry.kind == .combination ? combination(entry) : arguments(entry)
      return ("\(entry.kind.rawValue).\(entry.name)", Self.described(schema, entry.summary))
    }
  }

  /// The value of a component key: the primary parameter, or a mapping of parameters.
  private func arguments(_ entry: CatalogueEntry) -> JSONText {
    let primary = entry.parameters.first(where: \.isPrimary)
    if let primary, primary.isWhole { return schema(primary.shape) }
    var forms = [parameters(entry.parameters)]
    if let primary { forms.append(schema(primary.shape)) }
    if !entry.parameters.contains(where: \.isRequired) { forms.append(Self.type("null")) }
    return Self.any(forms)
  }

  private func parameters(_ infos: [ParameterInfo]) -> JSONText {
    let infos = infos.filter { !$0.isBeside }
    let former = infos.compactMap { info in
      info.formerName.map { ($0, Self.deprecated(schema(info.shape), $0, info.name)) }
    }
    let conditions = infos.compactMap { info in
      info.applies.flatMap { Self.condition($0, among: infos) }.map { (info.name, $0) }
    }
    return Self.closed(
      infos.map { info in
        (
          info.name,
          Self.described(
            schema(info.shape), [info.help, SpecText.condition(info)].compactMap { $0 }.joined(separator: " "),
            fallback(info))
        )
      } + former, required: infos.filter(\.isRequired).map(\.name),
      more: conditions.isEmpty ? [] : [("dependentSchemas", .object(conditions))])
  }

  /// A renamed key.
  private static func deprecated(_ schema: JSONText, _ name: String, _ newName: String) -> JSONText {
    .object([
      ("allOf", .array([schema])), ("description", .string("'\(name)' is called '\(newName)' now.")),
      ("deprecated", .bool(true)),
    ])
  }

  private func fallback(_ info: ParameterInfo) -> JSONText? {
    guard let text = info.defaultText else { return nil }
    switch info.shape {
    case .bool: return .bool(text == "true")
    case .int: return Int(text).map { .int($0) }
    case .number, .literal, .list, .table, .record, .oneOf: return nil
    default: return .string(text)
    }
  }

  private func combination(_ entry: CatalogueEntry) -> JSONText {
    let input = Self.reference("input")
    switch entry.name {
    case "if":
      return Self.closed(
        [("condition", input), ("then", input), ("else", input)],
        required: ["condition", "then", "else"])
    case "switch":
      return Self.closed(
        [
          ("by", input), ("on", Self.deprecated(input, "on", "by")), ("cases", Self.named(input)), ("default", input),
        ], required: ["cases"], more: [("oneOf", Self.exactlyOne(["by", "on"]))])
    default:
      let list: JSONText = .object([
        ("type", .string("array")), ("items", input), ("minItems", .int(entry.minimumInputs)),
      ])
      var named: Members = [("type", .string("object")), ("additionalProperties", input)]
      named.append(("minProperties", .int(entry.minimumInputs)))
      var beside: Members = [("signals", .bool(false))]
      // A switch may be combined with the names; listing the names alone adds nothing.
      for info in entry.parameters {
        switch info.shape {
        case .bool, .int: beside.append((info.name, Self.any([schema(info.shape), input])))
        default: break
        }
      }
      named.append(("properties", .object(beside)))
      let signals = Self.any([list, .object(named)])
      let long = Self.closed(
        [("signals", signals)]
          + entry.parameters.map {
            ($0.name, Self.described(schema($0.shape), $0.help, fallback($0)))
          },
        required: ["signals"] + entry.parameters.filter(\.isRequired).map(\.name))
      return Self.any([list, .object(named), long])
    }
  }

  private func schema(_ shape: ParameterShape) -> JSONText {
    switch shape {
    case .bool: return Self.reference("boolean")
    case .int(let range):
      guard let range else { return Self.reference("integer") }
      var members: Members = [
        ("type", .string("integer")), ("minimum", .int(Int(range.lowerBound))),
      ]
      if range.upperBound != .max { members.append(("maximum", .int(Int(range.upperBound)))) }
      return Self.any([.object(members), Self.reference("placeholder")])
    case .number: return Self.reference("number")
    case .text, .secret, .template: return Self.reference("text")
    case .duration: return Self.reference("duration")
    case .size: return Self.reference("size")
    case .expression: return Self.reference("expression")
    case .literal: return .object([])
    case .choice(let choices):
      return Self.any([
        .object([("enum", .array(choices.map { .string($0.name) }))]), Self.reference("placeholder"),
      ])
    case .list(let element):
      let element = schema(element)
      return Self.any([.object([("type", .string("array")), ("items", element)]), element])
    case .table(let element):
      return .object([("type", .string("object")), ("additionalProperties", schema(element))])
    case .signalName: return Self.reference("reference")
    case .signal: return Self.reference("signal")
    case .chain: return Self.reference("chain")
    case .mapping: return Self.reference("mapping")
    case .record(let fields): return parameters(fields)
    case .oneOf(let shapes): return Self.any(shapes.map(schema))
    }
  }
}
