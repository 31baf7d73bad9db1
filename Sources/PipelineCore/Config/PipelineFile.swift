/// What a pipeline file says, as a tree with places. Which components exist and what their
/// parameters mean is not known here, nor whether a name that is referred to exists.
public struct PipelineFile: Sendable {
  public var source: SourceText
  /// As written, else the file's stem; then it stands at the start of the file.
  public var name: Located<String>
  public var description: Located<String>?
  /// How many threads may decode one input; nil: as many as there are processors.
  public var threads: Located<Int>?
  /// How many it may say.
  static let threadRange = 1...256
  public var sources: [NamedNode<SourceNode>] = []
  public var signals: [NamedNode<SignalNode>] = []
  public var commands: [NamedNode<CommandNode>] = []
  public var sinks: [NamedNode<SinkNode>] = []
  public var tests: [TestNode] = []
  /// Grok patterns, by name.
  public var patterns: [NamedNode<Located<String>>] = []
  public var plugins: [NamedNode<YAMLNode>] = []
  /// Defaults by key, uninterpreted.
  public var defaults: [NamedNode<YAMLNode>] = []
  /// Names that the file gives to what is too broken to stand in the tree: referring to them is no further mistake.
  public var broken: Set<String> = []
  /// False if the parser has reported an error: then what is missing in the tree need not be missing in the file.
  public var isWhole = true

  public init(source: SourceText, name: Located<String>) {
    self.source = source
    self.name = name
  }
}

/// Something with a name of its own in the file.
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
  /// What stands behind it; nil for a bare word. The short form is a scalar or list, the long form a
  /// mapping of parameters; which is allowed the component's spec knows.
  public var arguments: YAMLNode?
  /// The reserved keys beside the component key.
  public var options: [OptionNode]
  /// All of it.
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

/// A source is its component; `options` holds `onError`, `buffer`, `cold`, `share`, `schema` and so on.
public typealias SourceNode = ComponentNode

/// `NAME` or `NAME.output`, where a signal is asked for.
public struct ReferenceNode: Sendable, Equatable {
  public var name: Located<String>
  /// `errors`, `executing`, `key` and so on; nil for the events themselves.
  public var output: Located<String>?
  public var location: SourceLocation

  public init(name: Located<String>, output: Located<String>? = nil, location: SourceLocation) {
    self.name = name
    self.output = output
    self.location = location
  }

  /// As written.
  public var text: String { name.value + (output.map { "." + $0.value } ?? "") }
}

/// Where the events of a signal come from, and what happens to them on the way. Also the form of
/// inner signals, of which a new one is made for each event.
public struct SignalNode: Sendable {
  public indirect enum Origin: Sendable {
    case reference(ReferenceNode)
    /// A source that is written where it is used; it is cold.
    case inline(SourceNode)
    case combining(CombiningNode)
  }

  public var origin: Origin
  /// A `reduce` written beside a combining key is the first element.
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
  public enum Keyword: String, Sendable, CaseIterable {
    case merge, concat, zip, combineLatest, race
    case `if`, `switch`
  }

  public var keyword: Located<Keyword>
  /// In the order written.
  public var inputs: [InputNode]
  /// What the long form holds beside its inputs, uninterpreted.
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
  public enum Role: Sendable, Equatable {
    case input
    /// `if`'s `condition`, `switch`'s `by`.
    case selector
    case then, `else`
    /// A case of `switch`; the name is the value that selects it.
    case `case`
    case `default`
  }

  public var role: Role
  /// The name given in a mapping, else that of the signal referred to, dots replaced by `_`; nil for
  /// an inline signal in a list. Names of one combination differ.
  public var name: Located<String>?
  public var signal: SignalInput

  public init(role: Role = .input, name: Located<String>?, signal: SignalInput) {
    self.role = role
    self.name = name
    self.signal = signal
  }
}

/// A signal where one is asked for: a name, or a definition in place.
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

public struct SinkNode: Sendable {
  public var from: SignalInput
  public var chain: [ComponentNode]
  /// The sink's component; its options are those of the sink, without `from` and `chain`.
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
  /// Made anew for each execution; its `event` is the input.
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

/// One test of the pipeline; marbles and lists are not looked into here.
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
