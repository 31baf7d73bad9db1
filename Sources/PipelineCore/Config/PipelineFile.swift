/// The contents of a pipeline file, as a tree with locations. Whether components, parameters and referenced names exist
/// is checked later.
package struct PipelineFile: Sendable {
  package var source: SourceText
  /// The name in the file; without one the file's stem, located at the start of the file.
  package var name: Located<String>
  package var description: Located<String>?
  /// How many threads may decode one input; nil: as many as there are processors.
  package var threads: Located<Int>?
  /// The delivery mode; nil: the lightest mode that loses no event.
  package var delivery: Located<Delivery>?
  /// The guarantee that every path must have at least; nil: none is required.
  package var require: Located<DeliveryRequirement>?
  /// The treatment of timers that came due while the pipeline was down; nil: ``WhenLate/fire``.
  package var whenLate: Located<WhenLate>?
  /// The bytes of keys in memory beyond which steps move keys to the disk; nil: all stay in memory.
  package var stateMemory: Located<Int>?
  /// The range of `state: { memory: ... }`, in bytes.
  package static let stateMemoryRange = 16 << 20...1 << 40
  /// The range of `threads`.
  static let threadRange = 1...256
  package var sources: [NamedNode<SourceNode>] = []
  package var signals: [NamedNode<SignalNode>] = []
  package var commands: [NamedNode<CommandNode>] = []
  package var tables: [NamedNode<TableNode>] = []
  package var sinks: [NamedNode<SinkNode>] = []
  package var tests: [TestNode] = []
  /// The grok patterns by name.
  package var patterns: [NamedNode<Located<String>>] = []
  /// The functions that the file defines for expressions, by name.
  package var functions: [NamedNode<FunctionNode>] = []
  /// The section `functions` as written, merged with those of included files.
  var functionSection: YAMLNode?
  package var plugins: [NamedNode<YAMLNode>] = []
  /// Defaults by key, uninterpreted.
  package var defaults: [NamedNode<YAMLNode>] = []
  /// The names of definitions with errors: a reference to one of them is not another error.
  package var broken: Set<String> = []
  /// The names of tables with errors.
  var brokenTables: Set<String> = []
  /// The names of functions with errors.
  var brokenFunctions: Set<String> = []
  /// False if the parser has reported an error: parts that are missing in the tree may then exist in the file.
  package var isWhole = true

  package init(source: SourceText, name: Located<String>) {
    self.source = source
    self.name = name
  }
}

/// `celsius: { parameters: { f: double }, value: (f - 32.0) * 5.0 / 9.0 }`.
package struct FunctionNode: Sendable {
  package var description: Located<String>?
  /// The parameters with their types.
  package var parameters: [(name: Located<String>, type: YAMLNode)] = []
  /// The declared type of the result.
  package var returns: YAMLNode?
  package var value: LocatedText
  /// Conditions that must be true.
  package var examples: [LocatedText] = []
}

/// A definition with its name.
package struct NamedNode<Node: Sendable>: Sendable {
  package var name: Located<String>
  package var node: Node

  package init(_ name: Located<String>, _ node: Node) {
    self.name = name
    self.node = node
  }
}

/// `stdin: { decode: text }`, `throttle: 300ms`, `distinctUntilChanged`.
package struct ComponentNode: Sendable {
  /// The component key.
  package var keyword: Located<String>
  /// The value of the key; nil for a bare word. The short form is a scalar or list, the long form a mapping of
  /// parameters; the component's spec decides which are allowed.
  package var arguments: YAMLNode?
  /// The reserved keys alongside the component key.
  package var options: [OptionNode]
  /// The location of the whole node.
  package var location: SourceLocation

  package init(
    keyword: Located<String>, arguments: YAMLNode? = nil, options: [OptionNode] = [],
    location: SourceLocation
  ) {
    self.keyword = keyword
    self.arguments = arguments
    self.options = options
    self.location = location
  }

  package subscript(option: String) -> YAMLNode? { options[option] }
}

/// A reserved key with its value.
package struct OptionNode: Sendable {
  package var key: Located<String>
  package var value: YAMLNode

  package init(key: Located<String>, value: YAMLNode) {
    self.key = key
    self.value = value
  }
}

extension [OptionNode] {
  package subscript(key: String) -> YAMLNode? { first { $0.key.value == key }?.value }
}

/// A source is its component; `options` has `onError`, `buffer`, `cold`, `share`, `schema` and so on.
package typealias SourceNode = ComponentNode

/// `NAME` or `NAME.output`, as a reference to a signal.
package struct ReferenceNode: Sendable, Equatable {
  package var name: Located<String>
  /// `errors`, `executing`, `key` and so on; nil for the signal's events.
  package var output: Located<String>?
  package var location: SourceLocation

  package init(name: Located<String>, output: Located<String>? = nil, location: SourceLocation) {
    self.name = name
    self.output = output
    self.location = location
  }

  /// The reference as written.
  package var text: String { name.value + (output.map { "." + $0.value } ?? "") }
}

/// A signal: the origin of its events, and its steps. Inner signals, which are created for each event, have the same
/// form.
package struct SignalNode: Sendable {
  /// The first element of a signal.
  package indirect enum Origin: Sendable {
    case reference(ReferenceNode)
    /// A source defined in the signal itself; it is cold.
    case inline(SourceNode)
    case combining(CombiningNode)
  }

  package var origin: Origin
  /// The steps. A `reduce` alongside a combining key comes first.
  package var chain: [ComponentNode]
  package var options: [OptionNode]
  package var location: SourceLocation

  package init(
    origin: Origin, chain: [ComponentNode] = [], options: [OptionNode] = [],
    location: SourceLocation
  ) {
    self.origin = origin
    self.chain = chain
    self.options = options
    self.location = location
  }
}

/// `merge: [a, b]`, `combineLatest: { user: account, pass: password }`, `if`, `switch`.
package struct CombiningNode: Sendable {
  /// The key of a combination.
  package enum Keyword: String, Sendable, CaseIterable {
    case merge, concat, zip, combineLatest, race
    case `if`, `switch`
  }

  package var keyword: Located<Keyword>
  /// The inputs as written.
  package var inputs: [InputNode]
  /// The keys of the long form alongside its inputs, uninterpreted.
  package var arguments: [OptionNode]
  package var location: SourceLocation

  package init(
    keyword: Located<Keyword>, inputs: [InputNode], arguments: [OptionNode] = [],
    location: SourceLocation
  ) {
    self.keyword = keyword
    self.inputs = inputs
    self.arguments = arguments
    self.location = location
  }
}

/// One input of a combining signal.
package struct InputNode: Sendable {
  /// The role of an input in its combination.
  package enum Role: Sendable, Equatable {
    case input
    /// `if`'s `condition`, `switch`'s `by`.
    case selector
    case then, `else`
    /// A case of `switch`; its name is the value that selects it.
    case `case`
    case `default`
  }

  package var role: Role
  /// The key in a mapping, otherwise the name of the referenced signal with dots replaced by `_`; nil for an inline
  /// signal in a list. The names within one combination differ.
  package var name: Located<String>?
  package var signal: SignalInput

  package init(role: Role = .input, name: Located<String>?, signal: SignalInput) {
    self.role = role
    self.name = name
    self.signal = signal
  }
}

/// An input signal: a name, or an inline definition.
package indirect enum SignalInput: Sendable {
  case reference(ReferenceNode)
  case inline(SignalNode)

  package var location: SourceLocation {
    switch self {
    case .reference(let reference): reference.location
    case .inline(let signal): signal.location
    }
  }
}

/// A sink with its input and its steps.
package struct SinkNode: Sendable {
  package var from: SignalInput
  package var chain: [ComponentNode]
  /// The sink's component; its options are those of the sink, except `from` and `chain`.
  package var component: ComponentNode
  package var location: SourceLocation

  package init(
    from: SignalInput, chain: [ComponentNode], component: ComponentNode, location: SourceLocation
  ) {
    self.from = from
    self.chain = chain
    self.component = component
    self.location = location
  }
}

/// A command, known elsewhere as ReactiveCocoa's RACCommand.
package struct CommandNode: Sendable {
  /// The signal of an execution, created for each one; its `event` is the input.
  package var run: SignalNode
  package var enabled: SignalInput?
  /// `run` and the parameters, in the form that the component `command` decodes.
  package var arguments: YAMLNode
  package var options: [OptionNode]
  package var location: SourceLocation

  package init(
    run: SignalNode, enabled: SignalInput?, arguments: YAMLNode, options: [OptionNode],
    location: SourceLocation
  ) {
    self.arguments = arguments
    self.run = run
    self.enabled = enabled
    self.options = options
    self.location = location
  }
}

/// A table: the signal whose events are its rows, and how they become rows.
package struct TableNode: Sendable {
  package var signal: SignalNode
  /// `key` and the other parameters, in the form that the component `table` decodes.
  package var arguments: YAMLNode
  package var location: SourceLocation
}

/// One test of the pipeline; marbles and lists are not parsed here.
package struct TestNode: Sendable {
  package var name: Located<String>
  package var inputs: [NamedNode<YAMLNode>]
  /// The rows of tables.
  package var tables: [NamedNode<YAMLNode>] = []
  package var stubs: [NamedNode<YAMLNode>]
  package var expect: [NamedNode<YAMLNode>]
  /// `tick`, `until`, `env`, `now`, `description`.
  package var options: [OptionNode]
  package var location: SourceLocation

  package init(
    name: Located<String>, inputs: [NamedNode<YAMLNode>], stubs: [NamedNode<YAMLNode>],
    expect: [NamedNode<YAMLNode>], options: [OptionNode], location: SourceLocation
  ) {
    self.name = name
    self.inputs = inputs
    self.stubs = stubs
    self.expect = expect
    self.options = options
    self.location = location
  }
}
