/// The scope of an expression: its variables, and how strictly types are checked.
package struct ExpressionScope: Sendable {
  /// A variable with its type.
  package struct Variable: Sendable, Equatable {
    package var name: String
    package var type: ExpressionType
    package init(_ name: String, _ type: ExpressionType = .dyn) {
      self.name = name
      self.type = type
    }
  }

  /// The profile of the language.
  package enum Mode: Sendable {
    /// The profile for JSON events: `has` and `.?` find no fields in null and scalars; whole numbers and doubles may
    /// mix in arithmetic if a type is unknown.
    case lenient
    /// The profile of the CEL conformance tests.
    case strict
  }

  /// A table of the file, which expressions read by key: `users[event.user]`.
  package struct NamedTable: Sendable {
    package var name: String
    /// Its index in ``EvaluationFrame/State/tables``.
    package var index: Int
    package var key: ExpressionType
    package var row: ExpressionType
  }

  /// A function known only to the checker: conformance tests declare some.
  package struct Declaration: Sendable {
    package var name: String
    package var isMember: Bool
    package var parameters: [ExpressionType]
    package var result: ExpressionType
    package init(
      _ name: String, _ parameters: [ExpressionType], _ result: ExpressionType, isMember: Bool = false
    ) {
      self.name = name
      self.isMember = isMember
      self.parameters = parameters
      self.result = result
    }
  }

  /// A variable's index here is its index in the ``EvaluationFrame``.
  package var variables: [Variable]
  package var mode: Mode
  /// A container, such as `com.example`: names are first looked up with this prefix.
  package var container: String
  package var declarations: [Declaration]
  /// False leaves all type errors to the evaluation; only conformance tests need that.
  package var checksTypes: Bool
  /// Grok patterns besides the well-known ones.
  package var patterns = GrokDefinitions()
  /// The functions that the pipeline file defines.
  package var functions = UserFunctions.none
  /// The tables that the expression names.
  package var tables: [NamedTable] = []
  /// The names of all tables, for messages.
  var tableNames: [String] = []
  /// Whether the expression is the body of a function, which sees only its parameters.
  var isFunction = false
  /// Facts about the variables `event` and `outer` besides their types, for messages.
  package var event = EventForm.any
  package var outer = EventForm.any

  /// Facts about an event besides its type.
  package enum EventForm: Sendable {
    case any
    /// A text read by the source.
    case text(TextOrigin)
    /// The list that `combineLatest` or `zip` builds from inputs with these names; an unnamed input starts with `@`.
    case parts([String])
  }

  package init(
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
  package func index(of name: String) -> Int? { variables.firstIndex { $0.name == name } }
}

/// Where a source that reads texts is defined, and the change that makes it read JSON.
package struct TextOrigin: Sendable, Equatable {
  /// The location of `decode`, otherwise that of the component; nil: not known yet.
  package internal(set) var location: SourceLocation?
  /// The replacement that makes the source read JSON; nil: one replacement does not suffice.
  package internal(set) var remedy: Diagnostic.FixIt?

  /// One replacement for each decoder that gives events fields; the file does not say which decoder the input needs.
  var remedies: [Diagnostic.FixIt] {
    guard let remedy else { return [] }
    return ["json", "logfmt"].map { .init(remedy.location, remedy.replacement.replacing("json", with: $0)) }
  }
}

/// The limits of expressions; exceeding one is a diagnostic, never a crash.
package enum ExpressionLimits {
  /// The source length in bytes, in a pipeline.
  package static let sourceBytes = 64 << 10
  /// The depth of nesting; parser, checker and evaluator recurse at most this deep.
  package static let depth = 250
  /// The number of nodes of one expression.
  package static let nodes = 20_000
  /// The iterations of all inner loops of one evaluation, unless the frame sets another limit.
  package static let iterations = 10_000
  /// The iterations of all outermost loops.
  package static let outerIterations = 1_000_000
  /// The length in bytes of a pattern computed at run time.
  package static let patternBytes = 1 << 10
  /// The length in bytes of a string built by an expression.
  package static let stringBytes = 16 << 20
  /// The memory in bytes of one evaluation.
  package static let evaluationBytes = 64 << 20
  /// The fields, pairs or rows into which a function splits one text.
  package static let parts = 1_000_000
  /// The size in bytes of a value computed once, at compilation.
  static let foldedBytes = 64 << 10
}
