/// The single definition of a component's name, parameters and documentation. rxd receives it as the JSON document of
/// docs/plugin-contract.md; parameters are decoded by it.
public struct ComponentSpec<C: Component>: Sendable {
  public var name: String
  /// One sentence with a full stop.
  public var summary: String
  /// Further paragraphs for the reference, Markdown.
  public var details: String
  public var parameters: [Parameter<C>]
  public var examples: [Example]
  /// The behaviour at the start and the end of a signal.
  public var edges: EdgeCases
  /// The events that a running component holds in memory, and how long; empty: none.
  public var memory: String
  /// The part of that memory that outlives the process.
  public var persistence: Persistence
  /// Set if a running component sets timers; nil otherwise.
  public var lateness: LatenessRule<C>?
  /// The names in other libraries and daemons: `RxJS debounceTime`.
  public var knownAs: [String]
  /// The use cases.
  public var useCases: [UseCase]
  public var seeAlso: [String]

  public init(
    _ name: String, summary: String, details: String = "", parameters: [Parameter<C>] = [],
    examples: [Example] = [], edges: EdgeCases = EdgeCases(), memory: String = "", persistence: Persistence = .nothing,
    lateness: LatenessRule<C>? = nil, knownAs: [String] = [], useCases: [UseCase] = [], seeAlso: [String] = []
  ) {
    self.name = name
    self.summary = summary
    self.details = details
    self.parameters = parameters
    self.examples = examples
    self.edges = edges
    self.memory = memory
    self.persistence = persistence
    self.lateness = lateness
    self.knownAs = knownAs
    self.useCases = useCases
    self.seeAlso = seeAlso
  }
}

/// An example: the reference shows it, and `rxd plugin check` checks it.
public struct Example: Sendable {
  enum Body: Sendable {
    case marble(step: String, input: String, output: String, values: [(String, String)])
    case snippet(String)
  }

  public var title: String
  var body: Body

  /// An example of `step` with the input `a`; the values are YAML: `["1": "{x: 1}"]`. An unlisted letter stands for
  /// its own text, a digit for its number. `rxd plugin test` runs it.
  public static func marble(
    _ title: String, _ step: String, in input: String, out: String, values: KeyValuePairs<String, String> = [:]
  ) -> Example {
    Example(
      title: title, body: .marble(step: step, input: input, output: out, values: values.map { ($0.key, $0.value) }))
  }

  /// A component as written under `sources:`, `sinks:` or in a chain.
  public static func snippet(_ title: String, _ yaml: String) -> Example { Example(title: title, body: .snippet(yaml)) }
}

/// One parameter of a component: its property, its spec and its decoder.
public struct Parameter<C: Component>: Sendable {
  let name: String
  let help: String
  let isPrimary: Bool
  let isRequired: Bool
  let range: ClosedRange<Int64>?
  let expecting: ExpressionType?
  let shape: ParameterShape
  /// The default as JSON; nil: none.
  let fallback: String?
  /// The values on which declarations of the component may depend.
  let cases: [(document: String, set: @Sendable (inout C) -> Void)]
  let decode: @Sendable (Value, inout C, inout DecodingContext) -> Void
  let bind: @Sendable (inout C, inout Binder) -> Void

  /// - Parameters:
  ///   - primary: Whether it is the parameter of the short form (`throttle: 300ms`).
  ///   - range: For a duration, in nanoseconds.
  ///   - expecting: The required type of the expression.
  public init<Value_: ParameterValue>(
    _ name: String, _ path: WritableKeyPath<C, Value_> & Sendable, primary: Bool = false, required: Bool = false,
    range: ClosedRange<Int64>? = nil, expecting: ExpressionType? = nil, _ help: String
  ) {
    self.name = name
    self.help = help
    isPrimary = primary
    isRequired = required
    self.range = range
    self.expecting = expecting
    shape = Value_.shape(range: range)
    fallback = required ? nil : C()[keyPath: path].document
    cases = Value_.cases.compactMap { value in value.document.map { ($0, { $0[keyPath: path] = value }) } }
    decode = { value, component, context in
      context.parameter = name
      context.range = range
      if let value = Value_.decode(value, &context) { component[keyPath: path] = value }
      context.range = nil
    }
    bind = { component, binder in component[keyPath: path].bind(&binder) }
  }
}

/// The behaviour of a component at the start and the end of a signal, one sentence each.
public struct EdgeCases: Sendable {
  public var empty: String
  public var error: String
  public var completion: String
  public var disposal: String

  public static let passesEmpty = "Completes too."
  public static let passesError = "Passed on at once."
  public static let passesCompletion = "Passed on at once."
  public static let leaves = "Unsubscribes from the input at once; nothing more is sent."

  public init(
    empty: String = passesEmpty, error: String = passesError, completion: String = passesCompletion,
    disposal: String = leaves
  ) {
    self.empty = empty
    self.error = error
    self.completion = completion
    self.disposal = disposal
  }
}

/// A use case of a component: it completes "I want to ...".
public struct UseCase: Sendable {
  /// The heading under which the reference lists a use case.
  public enum Topic: String, Sendable, CaseIterable {
    case reading, choosing, shaping, time, gathering, combining, asking, failing, living, sharing, commanding, writing,
      operating
  }
  public var topic: Topic
  /// Completes "I want to", without a full stop.
  public var text: String
  /// The YAML as written in a pipeline file, on one line; empty: the component alone.
  public var yaml: String
  public init(_ topic: Topic, _ text: String, _ yaml: String = "") {
    self.topic = topic
    self.text = text
    self.yaml = yaml
  }
}

/// The meanings that a component can give to `whenLate`. rxd delivers every due timer to a plugin, so `skip` is not one of them.
public struct LatenessRule<C: Component>: Sendable {
  public static func leavesOut(_ skip: String) -> LatenessRule { LatenessRule() }
  public static func always(_ reason: String) -> LatenessRule { LatenessRule() }
}

/// The type of events.
public struct EventType: Sendable, Equatable {
  public var type: ExpressionType
  public init(_ type: ExpressionType) { self.type = type }
  public static let dyn = EventType(.dyn)
}

/// The types of expressions.
public indirect enum ExpressionType: Sendable, Equatable {
  /// Known only at run time.
  case dyn
  case null, bool, int, uint, double, string, bytes, timestamp, duration
  case list(ExpressionType)
  case map(ExpressionType, ExpressionType)
  /// The type or null.
  case wrapper(ExpressionType)
  /// `open`: further fields are allowed.
  case object(fields: [Field], open: Bool)

  /// A field of a map type.
  public struct Field: Sendable, Equatable {
    public var name: String
    public var type: ExpressionType
    public init(_ name: String, _ type: ExpressionType) {
      self.name = name
      self.type = type
    }
  }

  /// The type in the notation of `schema:`.
  var text: String {
    switch self {
    case .dyn: "any"
    case .null: "null"
    case .bool: "bool"
    case .int: "int"
    case .uint: "uint"
    case .double: "double"
    case .string: "string"
    case .bytes: "bytes"
    case .timestamp: "timestamp"
    case .duration: "duration"
    case .list(let element): "list(\(element.text))"
    case .map(_, let value): "map(string, \(value.text))"
    case .wrapper(let inner): inner.text + "?"
    case .object: "map"
    }
  }

  /// The type as a JSON Schema, which has no types for times, durations and bytes.
  var schema: JSONDocument {
    switch self {
    case .dyn, .bytes, .timestamp, .duration: .object([])
    case .null: .object([("type", .text("null"))])
    case .bool: .object([("type", .text("boolean"))])
    case .int, .uint: .object([("type", .text("integer"))])
    case .double: .object([("type", .text("number"))])
    case .string: .object([("type", .text("string"))])
    case .list(let element): .object([("type", .text("array")), ("items", element.schema)])
    case .map(_, .dyn): .object([("type", .text("object"))])
    case .map(_, let value): .object([("type", .text("object")), ("additionalProperties", value.schema)])
    case .wrapper(let inner): .object([("anyOf", .list([inner.schema, ExpressionType.null.schema]))])
    case .object(let fields, let open):
      .object(
        [
          ("type", .text("object")), ("properties", .object(fields.map { ($0.name, $0.type.schema) })),
          ("required", .list(fields.filter { !$0.type.mayBeNull }.map { .text($0.name) })),
        ] + (open ? [("additionalProperties", .raw("true"))] : []))
    }
  }

  private var mayBeNull: Bool {
    switch self {
    case .wrapper, .null: true
    default: false
    }
  }
}
