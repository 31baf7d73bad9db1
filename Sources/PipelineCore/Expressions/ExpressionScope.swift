/// What an expression may use: its variables, and how strictly it is read.
public struct ExpressionScope: Sendable {
  public struct Variable: Sendable, Equatable {
    public var name: String
    public var type: ExpressionType
    public init(_ name: String, _ type: ExpressionType = .dyn) {
      self.name = name
      self.type = type
    }
  }

  public enum Mode: Sendable {
    /// The profile for JSON events: `has` and `.?` see nothing in null and scalars, whole numbers and
    /// doubles mix in arithmetic where a type is not known.
    case lenient
    /// What the conformance vectors of the language ask for.
    case strict
  }

  /// A function that exists only for the checker: conformance tests declare some.
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

  /// A variable's index is its place in the ``EvaluationFrame``.
  public var variables: [Variable]
  public var mode: Mode
  /// A prefix under which names are looked for first, such as `com.example`.
  public var container: String
  public var declarations: [Declaration]
  /// False leaves all types to the evaluation; only conformance tests ask for that.
  public var checksTypes: Bool
  /// Grok patterns beside the well-known ones.
  public var patterns = GrokDefinitions()
  /// What is known of the variables `event` and `outer` beside their types, for messages.
  public var event = EventForm.any
  public var outer = EventForm.any

  public enum EventForm: Sendable {
    case any
    /// A text, as the source reads it.
    case text(TextOrigin)
    /// The list that `combineLatest` or `zip` makes of inputs with these names; `@` begins what has none.
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

  /// The place of the variable called `name`.
  public func index(of name: String) -> Int? { variables.firstIndex { $0.name == name } }
}

/// Where a pipeline file says that a source reads texts, and what would make it read JSON.
public struct TextOrigin: Sendable, Equatable {
  /// The value of `decode`, else the component; nil: not known yet.
  public internal(set) var location: SourceLocation?
  /// The replacement after which the source reads JSON; nil: it is not a single replacement.
  public internal(set) var remedy: Diagnostic.FixIt?
}

/// Bounds on the text of expressions; beyond them is a diagnostic, never a crash.
public enum ExpressionLimits {
  /// Bytes of source in a pipeline.
  public static let sourceBytes = 64 << 10
  /// Code points of source in strict mode, as the language's own tests ask.
  public static let strictSourceBytes = 400_000
  /// Levels of nesting; parser, checker and evaluator recurse at most this deep.
  public static let depth = 250
  /// Parts of one expression.
  public static let nodes = 20_000
  /// Rounds of all loops inside other loops of one evaluation, unless the frame says otherwise.
  public static let iterations = 10_000
  /// Rounds of all loops that are in no other loop.
  public static let outerIterations = 1_000_000
  /// Bytes of a pattern that is computed while running.
  public static let patternBytes = 1 << 10
  /// Bytes of one string that an expression builds.
  public static let stringBytes = 16 << 20
  /// Bytes of memory that one evaluation takes.
  public static let evaluationBytes = 64 << 20
  /// Fields, pairs or rows that a function takes one text apart into.
  public static let parts = 1_000_000
  /// Bytes of a value that is computed once, when the expression is compiled.
  static let foldedBytes = 64 << 10
}
