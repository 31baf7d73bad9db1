/// What a plugin says of itself and of its components; docs/plugin-contract.md has the document that it is read from.
public struct PluginSpec: Sendable {
  /// Its name: letters, digits, `-`, `_`.
  public var name: String
  public var version: String
  /// One sentence with a full stop.
  public var summary: String
  public var components: [PluginComponentSpec]
  /// The document that it was read from.
  public var document: [UInt8]

  /// The newest contract between rxd and plugins, and the only one so far.
  public static let contract = 1
}

/// What a plugin says of one component.
public struct PluginComponentSpec: Sendable {
  /// How an operator answers.
  public enum Form: Sendable {
    /// A pure function of one event, called in its turn.
    case row
    /// Answers come in later turns.
    case stream
  }

  public var kind: ComponentKind
  public var name: String
  public var summary: String
  public var details = ""
  public var parameters: [PluginParameter] = []
  public var form = Form.stream
  /// The type of the events that it takes.
  public var input = ExpressionType.dyn
  /// The type of its events.
  public var output = ExpressionType.dyn
  public var memory = ""
  /// The version of its saved state, from 1; 0: it has none.
  public var stateVersion = 0
  public var setsTimers = false
  /// Whether it is told the time with each input.
  public var hasClock = false
  public var recovery = SourceRecovery.never
  public var confirmation = SinkConfirmation.nothing
  /// How many unanswered inputs it takes at once.
  public var credit = 1024
  public var examples: [(title: String, yaml: String)] = []
  public var knownAs: [String] = []
  public var seeAlso: [String] = []
  /// The plugin, for messages.
  public var plugin = ""

  public init(kind: ComponentKind, name: String, summary: String) {
    self.kind = kind
    self.name = name
    self.summary = summary
  }

  /// The parameters whose results come with each event, in the order of the spec.
  public var perEvent: [PluginParameter] { parameters.filter { $0.type.isPerEvent } }
}

/// One parameter of a plugin's component.
public struct PluginParameter: Sendable {
  public var name: String
  public var type: PluginParameterType
  public var help: String
  public var isRequired = false
  public var isPrimary = false
  public var fallback: PluginValue?

  public init(name: String, type: PluginParameterType, help: String) {
    self.name = name
    self.type = type
    self.help = help
  }
}

/// The type of a plugin's parameter. Ranges are inclusive; those of durations in nanoseconds.
public indirect enum PluginParameterType: Sendable {
  case boolean
  case integer(ClosedRange<Int64>?)
  case number
  case text
  case secret
  case duration(ClosedRange<Int64>?)
  case size
  case json
  case choice([ParameterShape.Choice])
  case list(PluginParameterType)
  case table(PluginParameterType)
  /// `result`: the type that the expression must have; nil: any.
  case expression(result: ExpressionType?)
  case template

  /// Whether rxd evaluates it for each event.
  public var isPerEvent: Bool {
    switch self {
    case .expression, .template: true
    default: false
    }
  }

  var range: ClosedRange<Int64>? {
    switch self {
    case .integer(let range), .duration(let range): range
    default: nil
    }
  }

  var shape: ParameterShape {
    switch self {
    case .boolean: .bool
    case .integer(let range): .int(range)
    case .number: .number
    case .text: .text
    case .secret: .secret
    case .duration: .duration
    case .size: .size
    case .json: .literal
    case .choice(let choices): .choice(choices)
    case .list(let element): .list(element.shape)
    case .table(let element): .table(element.shape)
    case .expression: .expression
    case .template: .template
    }
  }
}

/// The value of a plugin's parameter in a pipeline file.
public indirect enum PluginValue: Sendable {
  case boolean(Bool)
  case integer(Int)
  case number(Double)
  case text(String)
  case secret(Secret)
  case duration(TimeSpan)
  case size(ByteSize)
  case json(LiteralParameter)
  case list([PluginValue])
  case table([(name: String, value: PluginValue)])
  case expression(ExpressionParameter)
  case template(TemplateParameter)

  /// The value as a pipeline file would write it; nil: nothing to show.
  var defaultText: String? {
    switch self {
    case .boolean(let value): value.defaultText
    case .integer(let value): value.defaultText
    case .number(let value): value.defaultText
    case .text(let value): value.defaultText
    case .secret: nil
    case .duration(let value): value.defaultText
    case .size(let value): value.defaultText
    case .json(let value): value.defaultText
    case .list(let values): "[" + values.compactMap(\.defaultText).joined(separator: ", ") + "]"
    case .table(let entries): entries.isEmpty ? "{}" : nil
    case .expression, .template: nil
    }
  }
}
