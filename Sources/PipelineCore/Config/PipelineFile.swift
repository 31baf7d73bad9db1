/// The contents of a pipeline file, as a tree with locations. Neither the components and their parameters nor the
/// existence of referenced names are checked here.
public struct PipelineFile: Sendable {
  public var source: SourceText
  /// As written, otherwise the file's stem, located at the start of the file.
  public var name: Located<String>
  public var description: Located<String>?
  /// How many threads may decode one input; nil: as many as there are processors.
  public var threads: Located<Int>?
  /// Nil: the lightest mode that loses no event.
  public var delivery: Located<Delivery>?
  /// The least guarantee of every path; nil: none is required.
  public var require: Located<DeliveryRequirement>?
  /// The treatment of time that passed while the pipeline was down; nil: ``WhenLate/fire``.
  public var whenLate: Located<WhenLate>?
  /// The range of `threads`.
  static let threadRange = 1...256
  public var sources: [NamedNode<SourceNode>] = []
  public var signals: [NamedNode<SignalNode>] = []
  public var commands: [NamedNode<CommandNode>] = []
  public var sinks: [NamedNode<SinkNode>] = []
  public var tests: [TestNode] = []
  /// The grok patterns by name.
  public var patterns: [NamedNode<Located<String>>] = []
  /// The functions of expressions, by name.
  public var functions: [NamedNode<FunctionNode>] = []
  /// The section as it is written, with those of included files.
  var functionSection: YAMLNode?
  public var plugins: [NamedNode<YAMLNode>] = []
  /// Defaults by key, uninterpreted.
  public var defaults: [NamedNode<YAMLNode>] = []
  /// The names of definitions with errors: referring to them is no further error.
  public var broken: Set<String> = []
  /// The names of functions with errors.
  var brokenFunctions: Set<String> = []
  /// False if the parser has reported an error: something missing in the tree may then exist in the file.
  public var isWhole = true

  public init(source: SourceText, name: Located<String>) {
    self.source = source
    self.name = name
  }
}

/// `celsius: { parameters: { f: double }, value: (f - 32.0) * 5.0 / 9.0 }`.
public struct FunctionNode: Sendable {
  public var description: Located<String>?
  /// The parameters with their types.
  public var parameters: [(name: Located<String>, type: YAMLNode)] = []
  /// The type of the result, if it is given.
  public var returns: YAMLNode?
  public var value: LocatedText
  /// Conditions that hold.
  public var examples: [LocatedText] = []
}

/// A definition with its name.
public struct NamedNode<Node: Sendable>: Sendable {
  public var name: Located<String>
  public var node: Node

  public init(_ name: Located<String>, _ node: Node) {
    self.name = name
    self.node = node
  }
}

/// `stdin: { decode: text }`, `throttle: 300ms`, `distinctUntilChanged`.
public struct ComponentNode: Sendable {
  /// The component key.
  public var keyword: Located<String>
  /// The value of the key; nil for a bare word. The short form is a scalar or list, the long form a mapping of
  /// parameters; the component's spec decides which are allowed.
  public var arguments: YAMLNode?
  /// The reserved keys beside the component key.
  public var options: [OptionNode]
  /// The location of the whole node.
  public var location: SourceLocation

  public init(
    keyword: Located<String>, arguments: YAMLNode? = nil, options: [OptionNode] = [],
    location: SourceLocation
  ) {
    self.keyword = keyword
    self.arguments = arguments
    self.options = options
    self.location = location
  }

  public subscript(option: String) -> YAMLNode? { options[option] }
}

/// A reserved key with its value.
public struct OptionNode: Sendable {
  public var key: Located<String>
  public var value: YAMLNode

  public init(key: Located<String>, value: YAMLNode) {
    self.key = key
    self.value = value
  }
}

extension [OptionNode] {
  public subscript(key: String) -> YAMLNode? { first { $0.key.value == key }?.value }
}

/// A source is its component; `options` has `onError`, `buffer`, `cold`, `share`, `schema` and so on.
public typealias SourceNode = ComponentNode

/// `NAME` or `NAME.output`, as a reference to a signal.
public struct ReferenceNode: Sendable, Equatable {
  public var name: Located<String>
  /// `errors`, `executing`, `key` and so on; nil for the signal's events.
  public var output: Located<String>?
  public var location: SourceLocation

  public init(name: Located<String>, output: Located<String>? = nil, location: SourceLocation) {
    self.name = name
    self.output = output
    self.location = location
  }

  /// The reference as written.
  public var text: String { name.value + (output.map { "." + $0.value } ?? "") }
}

/// A signal: the origin of its events, and the steps. Also the form of inner signals, which are made anew for each
/// event.
public struct SignalNode: Sendable {
  /// The first element of a signal.
  public indirect enum Origin: Sendable {
    case reference(ReferenceNode)
    /// A source defined in place; it is cold.
    case inline(SourceNode)
    case combining(CombiningNode)
  }

  public var origin: Origin
  /// The steps. A `reduce` beside a combining key is the first.
  public var chain: [ComponentNode]
  public var options: [OptionNode]
  public var location: SourceLocation

  public init(
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
public struct CombiningNode: Sendable {
  /// The key of a combination.
  public enum Keyword: String, Sendable, CaseIterable {
    case merge, concat, zip, combineLatest, race
    case `if`, `switch`
  }

  public var keyword: Located<Keyword>
  /// The inputs as written.
  public var inputs: [InputNode]
  /// The keys of the long form beside its inputs, uninterpreted.
  public var arguments: [OptionNode]
  public var location: SourceLocation

  public init(
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
public struct InputNode: Sendable {
  /// The role of an input in its combination.
  public enum Role: Sendable, Equatable {
    case input
    /// `if`'s `condition`, `switch`'s `by`.
    case selector
    case then, `else`
    /// A case of `switch`; its name is the value that selects it.
    case `case`
    case `default`
  }

  public var role: Role
  /// The name in a mapping, otherwise that of the referenced signal, with dots replaced by `_`; nil for an inline
  /// signal in a list. The names of one combination differ.
  public var name: Located<String>?
  public var signal: SignalInput

  public init(role: Role = .input, name: Located<String>?, signal: SignalInput) {
    self.role = role
    self.name = name
    self.signal = signal
  }
}

/// An input signal: a name, or a definition in place.
public indirect enum SignalInput: Sendable {
  case reference(ReferenceNode)
  case inline(SignalNode)

  public var location: SourceLocation {
    switch self {
    case .reference(let reference): reference.location
    case .inline(let signal): signal.location
    }
  }
}

/// A sink with its input and its steps.
public struct SinkNode: Sendable {
  public var from: SignalInput
  public var chain: [ComponentNode]
  /// The sink's component; its options are the sink's, without `from` and `chain`.
  public var component: ComponentNode
  public var location: SourceLocation

  public init(
    from: SignalInput, chain: [ComponentNode], component: ComponentNode, location: SourceLocation
  ) {
    self.from = from
    self.chain = chain
    self.component = component
    self.location = location
  }
}

/// ReactiveCocoa's RACCommand.
public struct CommandNode: Sendable {
  /// The signal of an execution, made anew each time; its `event` is the input.
  public var run: SignalNode
  public var enabled: SignalInput?
  /// `run` and the parameters, as the component `command` decodes them.
  public var arguments: YAMLNode
  public var options: [OptionNode]
  public var location: SourceLocation

  public init(
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

/// One test of the pipeline; marbles and lists are not parsed here.
public struct TestNode: Sendable {
  public var name: Located<String>
  public var inputs: [NamedNode<YAMLNode>]
  public var stubs: [NamedNode<YAMLNode>]
  public var expect: [NamedNode<YAMLNode>]
  /// `tick`, `until`, `env`, `now`, `description`.
  public var options: [OptionNode]
  public var location: SourceLocation

  public init(
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
