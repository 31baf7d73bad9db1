/// The spec of a plugin and of its components; docs/plugin-contract.md describes the document.
package struct PluginSpec: Sendable {
  /// The plugin's name: letters, digits, `-`, `_`.
  package var name: String
  package var version: String
  /// One sentence with a full stop.
  package var summary: String
  package var components: [PluginComponentSpec]
  /// Further files that the plugin consists of; relative paths start at the directory of its file.
  package var uses: [String] = []
  /// The document that the spec was read from.
  package var document: [UInt8]

  /// The version of the newest contract between rxd and plugins.
  package static let contract = 1
}

/// The spec of one component of a plugin.
package struct PluginComponentSpec: Sendable {
  /// How an operator answers.
  package enum Form: Sendable {
    /// A pure function of one event, called in its turn.
    case row
    /// A stream of events, whose answers are emitted in later turns.
    case stream
  }

  package var kind: ComponentKind
  package var name: String
  package var summary: String
  package var details = ""
  package var parameters: [PluginParameter] = []
  package var form = Form.stream
  /// For a decoder: how its input is split into the units that it decodes. For an encoder: whether a line feed ends
  /// each event.
  package var framing = PluginFraming.whole
  /// For a decoder: whether it returns a list of events for each unit.
  package var makesList = false
  /// For an encoder: the media type of its output.
  package var mediaType = "application/octet-stream"
  /// Whether a pure function may end its output before the input ends; any other operator may.
  package var finishes = false
  /// The type of its input events.
  package var input = ExpressionType.dyn
  /// The type of its output events.
  package var output = ExpressionType.dyn
  package var memory = ""
  /// The version of the component's saved state, from 1; 0: it has none.
  package var stateVersion = 0
  package var setsTimers = false
  /// Whether each input carries the time.
  package var hasClock = false
  package var recovery = SourceRecovery.never
  /// For a source: whether it reports when it has sent the data that existed when it was opened.
  package var loads = false
  /// Whether a source names its events.
  package var names = false
  package var confirmation = SinkConfirmation.nothing
  /// The cases in which ``recovery`` or ``confirmation`` depends on a parameter; the first case that applies counts.
  package var cases: [Case] = []
  /// The maximum number of unanswered inputs.
  package var credit = 1024
  package var examples: [PluginExample] = []
  /// The behaviour on empty input, error, completion and disposal.
  package var edges = EdgeCases()
  package var useCases: [UseCase] = []
  package var knownAs: [String] = []
  package var seeAlso: [String] = []
  /// The plugin, for messages.
  package var plugin = ""

  package init(kind: ComponentKind, name: String, summary: String) {
    self.kind = kind
    self.name = name
    self.summary = summary
  }

  /// The ``recovery`` or ``confirmation`` that applies if a parameter has a value.
  package struct Case: Sendable {
    /// The index of the parameter: a boolean, an integer, a text or a choice.
    package var parameter: Int
    package var value: PluginValue
    /// The recovery; set for a source.
    package var recovery: SourceRecovery?
    /// The confirmation; set for a sink.
    package var confirmation: SinkConfirmation?
  }

  /// The spec with the ``recovery`` and the ``confirmation`` of a component with these parameters.
  package func resolved(_ arguments: PluginArguments) -> PluginComponentSpec {
    let found = cases.first { one in
      guard let given = arguments.values[one.parameter] else { return false }
      return given.isSame(as: one.value)
    }
    guard let found else { return self }
    var spec = self
    spec.recovery = found.recovery ?? recovery
    spec.confirmation = found.confirmation ?? confirmation
    return spec
  }

  /// Whether a source has positions, with some of its parameters.
  var mayHavePosition: Bool { recovery == .position || cases.contains { $0.recovery == .position } }

  /// The effect of a crash on the events of a source or sink: with the defaults, and with other values of a parameter.
  var afterCrash: String {
    func meaning(_ spec: PluginComponentSpec) -> String {
      spec.kind == .source ? spec.recovery.meaning : spec.confirmation.meaning
    }
    let usual = meaning(resolved(PluginArguments(of: self)))
    var text = usual
    for one in cases {
      var spec = self
      spec.recovery = one.recovery ?? recovery
      spec.confirmation = one.confirmation ?? confirmation
      guard meaning(spec) != usual else { continue }
      text += " With `\(parameters[one.parameter].name): \(one.value.defaultText ?? "")`: \(meaning(spec))"
    }
    if meaning(self) != usual { text += " Otherwise: \(meaning(self))" }
    return text
  }

  /// The parameters whose results are sent with each event, in the order of the spec.
  package var perEvent: [PluginParameter] { parameters.filter { $0.type.isPerEvent } }
}

/// An example of a plugin's component.
package struct PluginExample: Sendable {
  package var title: String
  /// The component as it is written in a pipeline file.
  package var yaml: String
  /// The input and output of an operator; nil: the example is only checked.
  package var marbles: Marbles?
  /// For a function: an expression with the same value as the call in ``yaml``. For a decoder: the events, as a list in
  /// JSON. For an encoder: the text.
  package var result: String?
  /// For a decoder: the input. For an encoder: the event in JSON.
  package var input: [UInt8] = []

  /// Input and output as marble diagrams.
  package struct Marbles: Sendable {
    package var input: String
    package var output: String
    /// The values of letters, as YAML.
    package var values: [(String, String)]
  }

  /// The example as the reference shows it.
  var example: Example {
    guard let marbles else { return .snippet(title, yaml) }
    return Example(
      title: title,
      body: .marble(step: yaml, inputs: [("a", marbles.input)], output: marbles.output, values: marbles.values),
      file: #filePath, line: #line)
  }
}

/// One parameter of a plugin's component.
package struct PluginParameter: Sendable {
  package var name: String
  package var type: PluginParameterType
  package var help: String
  package var isRequired = false
  package var isPrimary = false
  package var fallback: PluginValue?

  package init(name: String, type: PluginParameterType, help: String) {
    self.name = name
    self.type = type
    self.help = help
  }
}

/// The type of a plugin's parameter. Ranges are inclusive; those of durations in nanoseconds.
package indirect enum PluginParameterType: Sendable {
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

  /// Whether rxd evaluates the parameter for each event.
  package var isPerEvent: Bool {
    switch self {
    case .expression, .template: true
    default: false
    }
  }

  /// Whether ``PluginComponentSpec/Case`` can depend on a parameter of this type.
  var isComparable: Bool {
    switch self {
    case .boolean, .integer, .text, .choice: true
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
package indirect enum PluginValue: Sendable {
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

  /// Compares values of the types that a ``PluginComponentSpec/Case`` can depend on.
  func isSame(as other: PluginValue) -> Bool {
    switch (self, other) {
    case (.boolean(let one), .boolean(let two)): one == two
    case (.integer(let one), .integer(let two)): one == two
    case (.text(let one), .text(let two)): one == two
    default: false
    }
  }

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
