/// The scope of an expression: its variables, and the strictness.
public struct ExpressionScope: Sendable {
  /// A variable with its type.
  public struct Variable: Sendable, Equatable {
    public var name: String
    public var type: ExpressionType
    public init(_ name: String, _ type: ExpressionType = .dyn) {
      self.name = name
      self.type = type
    }
  }

  /// The profile of the language.
  public enum Mode: Sendable {
    /// The profile for JSON events: `has` and `.?` find nothing in null and scalars; whole numbers and doubles mix in
    /// arithmetic if a type is unknown.
    case lenient
    /// The profile of the language's conformance vectors.
    case strict
  }

  /// A function known only to the checker: conformance tests declare some.
  public struct Declaration: Sendable {
    public var name: String
    public var isMember: Bool
    public var parameters: [ExpressionType]
    public var result: ExpressionType
    public init(
      _ name: String, _ parameters: [ExpressionType], _ result: ExpressionType, isMember: Bool = false
    ) {
      self.name = name
      self.isMember = isMember
      self.parameters = parameters
      self.result = result
    }
  }

  /// A variable's index is its index in the ``EvaluationFrame``.
  public var variables: [Variable]
  public var mode: Mode
  /// A prefix with which names are tried first, such as `com.example`.
  public var container: String
  public var declarations: [Declaration]
  /// False leaves all types to the evaluation; only conformance tests need that.
  public var checksTypes: Bool
  /// Grok patterns besides the well-known ones.
  public var patterns = GrokDefinitions()
  /// The functions that the pipeline file defines.
  public var functions = UserFunctions.none
  /// Whether the expression is the value of a function, which sees its parameters only.
  var isFunction = false
  /// Facts about the variables `event` and `outer` besides their types, for messages.
  public var event = EventForm.any
  public var outer = EventForm.any

  /// Facts about an event besides its type.
  public enum EventForm: Sendable {
    case any
    /// A text read by the source.
    case text(TextOrigin)
    /// The list that `combineLatest` or `zip` makes of inputs with these names; an unnamed input starts with `@`.
    case parts([String])
  }

  public init(
    _ variables: [Variable] = [], mode: Mode = .lenient, container: String = "",
    declarations: [Declaration] = [], checksTypes: Bool = true
  ) {
    self.variables = variables
    self.mode = mode
    self.container = container
    self.declarations = declarations
    self.checksTypes = checksTypes
  }

  /// The index of the variable `name`.
  public func index(of name: String) -> Int? { variables.firstIndex { $0.name == name } }
}

/// The location of a source that reads texts, and the change that makes it read JSON.
public struct TextOrigin: Sendable, Equatable {
  /// The value of `decode`, otherwise the component; nil: not known yet.
  public internal(set) var location: SourceLocation?
  /// The replacement with which the source reads JSON; nil: no single replacement.
  public internal(set) var remedy: Diagnostic.FixIt?
}

/// The limits of expressions; exceeding one is a diagnostic, never a crash.
public enum ExpressionLimits {
  /// The source length in bytes, in a pipeline.
  public static let sourceBytes = 64 << 10
  /// The source length in code points in strict mode, as required by the language's tests.
  public static let strictSourceBytes = 400_000
  /// The depth of nesting; parser, checker and evaluator recurse at most this deep.
  public static let depth = 250
  /// The number of nodes of one expression.
  public static let nodes = 20_000
  /// The iterations of all inner loops of one evaluation, unless the frame sets another limit.
  public static let iterations = 10_000
  /// The iterations of all outermost loops.
  public static let outerIterations = 1_000_000
  /// The length in bytes of a pattern computed at run time.
  public static let patternBytes = 1 << 10
  /// The length in bytes of a string built by an expression.
  public static let stringBytes = 16 << 20
  /// The memory in bytes of one evaluation.
  public static let evaluationBytes = 64 << 20
  /// The fields, pairs or rows into which a function splits one text.
  public static let parts = 1_000_000
  /// The size in bytes of a value computed once, at compilation.
  static let foldedBytes = 64 << 10
}
