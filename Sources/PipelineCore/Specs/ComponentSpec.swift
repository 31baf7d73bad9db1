/// The single definition of a component's name, parameters and meaning. Decoding, `rxd check`, `rxd list`, `rxd
/// describe`, the JSON schema, the reference and the tests of the examples all read it.
public struct ComponentSpec<C: Component>: Sendable {
  package var name: String
  /// One sentence with a full stop.
  package var summary: String
  /// Further paragraphs for the reference, Markdown.
  package var details: String
  package var parameters: [Parameter<C>]
  package var examples: [Example]
  /// The behaviour on empty input, error, completion and disposal.
  package var edges: EdgeCases
  /// The contents of a running component's memory, and how long they are kept; empty: none.
  package var memory: String
  /// The part of ``memory`` that outlives the process.
  package var persistence: Persistence
  /// The rule for `whenLate`; nil: the component does not depend on time.
  package var lateness: LatenessRule<C>?
  /// The names in other libraries and daemons: `RxJS debounceTime`.
  package var knownAs: [String]
  /// The tasks of users, for the index of the reference.
  package var useCases: [UseCase]
  package var seeAlso: [String]
  /// Makes a component with the defaults.
  var make: @Sendable () -> C = { C() }

  /// Defines a component. The properties of the same names describe each part; all but name and summary may be omitted.
  public init(
    _ name: String, summary: String, details: String = "", parameters: [Parameter<C>] = [],
    examples: [Example] = [], edges: EdgeCases = EdgeCases(), memory: String = "", persistence: Persistence = .nothing,
    lateness: LatenessRule<C>? = nil,
    knownAs: [String] = [], useCases: [UseCase] = [], seeAlso: [String] = []
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

/// An example: the reference shows it and a test runs it.
public struct Example: Sendable {
  /// The kind of an example, with its text.
  package enum Body: Sendable {
    /// One step over marbles; `inputs` are `a` and further named signals.
    case marble(step: String, inputs: [(name: String, marbles: String)], output: String, values: [(String, String)])
    /// A whole pipeline file; it is checked, and its own `tests:` run.
    case pipeline(String)
    /// A component as written under `sources:` or `sinks:`; it is checked.
    case snippet(String)
  }

  package var title: String
  package var body: Body
  package var file: StaticString
  package var line: UInt

  /// `step` over the input `a`; the values are YAML: `["1": "{x: 1}"]`. A letter that is not listed means its own text,
  /// a digit the number.
  public static func marble(
    _ title: String, _ step: String, in input: String, out: String,
    values: KeyValuePairs<String, String> = [:], file: StaticString = #filePath, line: UInt = #line
  ) -> Example {
    Example(
      title: title,
      body: .marble(
        step: step, inputs: [("a", input)], output: out, values: values.map { ($0.key, $0.value) }),
      file: file, line: line)
  }

  /// Several named inputs; `signal` is a whole signal, e.g. `merge: [a, b]`.
  public static func marbles(
    _ title: String, _ signal: String, in inputs: KeyValuePairs<String, String>, out: String,
    values: KeyValuePairs<String, String> = [:], file: StaticString = #filePath, line: UInt = #line
  ) -> Example {
    Example(
      title: title,
      body: .marble(
        step: signal, inputs: inputs.map { ($0.key, $0.value) }, output: out,
        values: values.map { ($0.key, $0.value) }),
      file: file, line: line)
  }

  /// A whole pipeline file; it is checked, and its own `tests:` run.
  public static func pipeline(
    _ title: String, _ yaml: String, file: StaticString = #filePath, line: UInt = #line
  ) -> Example {
    Example(title: title, body: .pipeline(yaml), file: file, line: line)
  }

  /// The component as written under `sources:` or `sinks:`; it is checked.
  public static func snippet(
    _ title: String, _ yaml: String, file: StaticString = #filePath, line: UInt = #line
  ) -> Example {
    Example(title: title, body: .snippet(yaml), file: file, line: line)
  }
}

/// One parameter of a component.
public struct Parameter<C: Component>: Sendable {
  package var info: ParameterInfo
  let decode: @Sendable (YAMLNode, inout C, inout DecodingContext) -> Void
  let bind: @Sendable (inout C, inout Binder) -> Void
  /// The signals and chains in the parameter's value; nil: it can have none.
  let inner: (@Sendable (C) -> [SignalPlan])?

  /// - Parameters:
  ///   - formerly: A former name; files may still use it, with a warning.
  ///   - primary: The parameter of the short form (`throttle: 300ms`).
  ///   - whole: With `primary`: the value of the component key is this parameter, even if it is a mapping.
  ///   - beside: The parameter is written next to the component key, as `onError` is, because the value of the key is
  ///     the whole primary parameter.
  ///   - variables: Further variables of the parameter's expressions.
  ///   - typing: The types of variables that follow from parameters before this one and the type of `event`, by name; `event` may be
  ///     one of them.
  ///   - expecting: The type that the expressions must have.
  ///   - applies: When the parameter has an effect; nil: always. Otherwise the parameter is an error.
  ///   - nested: Conditions for fields of its value, in addition to those that the fields have wherever the record is
  ///     used.
  public init<Value: ParameterValue>(
    _ name: String, _ path: WritableKeyPath<C, Value> & Sendable, formerly: String? = nil, primary: Bool = false,
    required: Bool = false, whole: Bool = false, beside: Bool = false, range: ClosedRange<Int64>? = nil,
    variables: [(String, ExpressionType)] = [],
    typing: (@Sendable (C, ExpressionType) -> [String: ExpressionType])? = nil,
    expecting: ExpressionType? = nil, applies: Applicability? = nil, nested: [String: Applicability] = [:],
    _ help: String
  ) {
    let initial = C()[keyPath: path]
    info = ParameterInfo(
      name: name, help: help, isPrimary: primary, isRequired: required, isWhole: whole && primary,
      shape: Value.shape(range: range).adding(nested), defaultText: required ? nil : initial.defaultText, range: range,
      variables: variables.map(\.0), formerName: formerly, isBeside: beside, applies: applies)
    let usage = ExpressionUse(
      variables: variables.map { .init(name: $0.0, type: $0.1) }, expecting: expecting)
    decode = { node, component, context in
      context.parameter(name, at: node, range, shape: Value.shape) { context in
        if let value = Value.decode(node, &context) { component[keyPath: path] = value }
      }
    }
    bind = { component, binder in
      var usage = usage
      usage.types = typing?(component, binder.inputs.first?.type ?? .dyn) ?? [:]
      component[keyPath: path].bind(&binder, usage)
    }
    let plans: @Sendable (C) -> [SignalPlan] = { $0[keyPath: path].innerPlans }
    inner = info.shape.holdsSignals ? plans : nil
  }
}

/// How an expression parameter is used.
public struct ExpressionUse: Sendable {
  package var variables: [Variable]
  package var expecting: ExpressionType?
  /// The types of variables that other parameters decide, by name.
  package var types: [String: ExpressionType] = [:]
  /// A variable that the expression sees.
  package struct Variable: Sendable {
    package var name: String
    package var type: ExpressionType
  }
}

/// The description of a parameter in the catalogue.
public struct ParameterInfo: Sendable {
  package var name: String
  package var help: String
  package var isPrimary: Bool
  package var isRequired: Bool
  /// Whether the value of the component key is this parameter.
  package var isWhole: Bool
  package var shape: ParameterShape
  /// The default as a pipeline file would write it; nil: none.
  package var defaultText: String?
  package var range: ClosedRange<Int64>?
  package var variables: [String]
  /// A former name; files may still use it, with a warning. Nil: none.
  package var formerName: String?
  /// Whether the parameter is written next to the component key and not in its value.
  package var isBeside = false
  /// When the parameter has an effect; nil: always.
  package var applies: Applicability?
}

/// The form of a parameter's values, for humans and for the JSON schema.
public indirect enum ParameterShape: Sendable, Equatable {
  case bool
  case int(ClosedRange<Int64>?)
  case number
  case text
  /// A text that is never shown: `(secret)` is printed instead.
  case secret
  case duration
  case size
  case expression
  case template
  case literal
  case choice([Choice])
  case list(ParameterShape)
  case table(ParameterShape)
  case signalName
  case signal
  case chain
  /// A mapping from field to expression, nested like the result.
  case mapping
  case record([ParameterInfo])
  case oneOf([ParameterShape])

  /// Whether a value of this shape can contain signals or chains.
  var holdsSignals: Bool {
    switch self {
    case .signal, .chain: true
    case .list(let element), .table(let element): element.holdsSignals
    case .record(let fields): fields.contains(where: \.shape.holdsSignals)
    case .oneOf(let shapes): shapes.contains(where: \.holdsSignals)
    default: false
    }
  }

  /// The part of `node` that contains a secret where a value of this shape must not have one, because such values are
  /// printed, as paths and durations are. Nil: there is none. Signals, chains and records are checked when they are
  /// decoded themselves.
  func misplacedSecret(in node: YAMLNode) -> YAMLNode? {
    switch self {
    case .secret, .template, .expression, .mapping, .signal, .chain, .record: return nil
    case .list(let element):
      for item in node.items ?? [node] { if let found = element.misplacedSecret(in: item) { return found } }
      return nil
    case .table(let element):
      for entry in node.entries ?? [] { if let found = element.misplacedSecret(in: entry.value) { return found } }
      return nil
    case .oneOf(let shapes):
      let misplaced = shapes.compactMap { $0.misplacedSecret(in: node) }
      let isTaken = misplaced.count < shapes.count && (node.scalar == nil || shapes.contains(where: \.takesSecretText))
      return isTaken ? nil : misplaced.first
    default: return node.firstSecret
    }
  }

  /// Whether a plain text of this shape may contain a secret.
  private var takesSecretText: Bool {
    switch self {
    case .secret, .template, .expression, .mapping: true
    case .oneOf(let shapes): shapes.contains(where: \.takesSecretText)
    case .list(let element): element.takesSecretText
    default: false
    }
  }

  /// A value that a parameter can have.
  public struct Choice: Sendable, Equatable {
    /// The word as a file writes it.
    public var name: String
    /// The meaning of the word, a phrase.
    public var help: String
    /// One word of a choice.
    public init(_ name: String, _ help: String) {
      self.name = name
      self.help = help
    }
  }

  public static func == (a: ParameterShape, b: ParameterShape) -> Bool { a.description == b.description }
}

extension ParameterShape: CustomStringConvertible {
  public var description: String {
    switch self {
    case .bool: "boolean"
    case .int: "whole number"
    case .number: "number"
    case .text: "text"
    case .secret: "secret text"
    case .duration: "duration"
    case .size: "size"
    case .expression: "expression"
    case .template: "template"
    case .literal: "JSON value"
    case .choice(let choices): choices.map { "`\($0.name)`" }.joined(separator: " or ")
    case .list(let element): "list of \(element)"
    case .table(let element): "mapping of name to \(element)"
    case .signalName: "name of a signal"
    case .signal: "signal"
    case .chain: "chain"
    case .mapping: "mapping of field to expression"
    case .record: "mapping"
    case .oneOf(let shapes): shapes.map(\.description).joined(separator: ", or ")
    }
  }
}
