/// The relational meaning of a step, for translating a plan into other languages.
package enum RelationalForm: Sendable {
  case filter(ExpressionParameter)
  case map(MappingParameter)
  /// Fields by their dotted names, with their values.
  case set([(name: String, value: MappingParameter, location: SourceLocation)])
  case unset([String])
  case eventTime(RelationalTime)
  case window(RelationalWindow)
  /// Figures of all events; nil: a fold.
  case aggregate(FiguresParameter?, Changes)
  /// The chain that processes each group is the step's inner signal.
  case groupBy(key: ExpressionParameter, idle: TimeSpan?)
  case join(RelationalJoin)
  case distinct(by: ExpressionParameter, within: TimeSpan?)
  case topN(by: ExpressionParameter, count: Int, per: ExpressionParameter, isDescending: Bool, idle: TimeSpan?)
  case latest(by: ExpressionParameter, idle: TimeSpan?)
  case merge
}

/// An operator with a relational meaning.
package protocol RelationalOperator: OperatorDeclaration {
  var relationalForm: RelationalForm { get }
}

/// The event time of a stream.
package struct RelationalTime: Sendable {
  package var time: ExpressionParameter
  package var lateness: TimeSpan
  package var idle: TimeSpan?
  package var maxAhead: TimeSpan?
}

/// A window, with the parameters that the file gives.
package struct RelationalWindow: Sendable {
  package var every: TimeSpan?
  package var length: TimeSpan?
  package var timezone: String?
  package var gap: TimeSpan?
  package var isInclusive: Bool
  package var maxLength: TimeSpan?
  /// Whether the window declares its own event time.
  package var hasOwnTime: Bool
  /// Whether the window uses the event time of the stream.
  package var followsStream: Bool
  /// The aggregates of its events; nil: the window sends a list.
  package var figures: FiguresParameter?
  package var changes: Changes
  package var sendsEmpty: Bool
}

/// A join.
package struct RelationalJoin: Sendable {
  package var before: TimeSpan
  package var after: TimeSpan
  package var isAsOf: Bool
  package var key: ExpressionParameter
  package var otherKey: ExpressionParameter
  package var reduce: MappingParameter
  package var sendsLeft: Bool
  package var sendsRight: Bool
  /// Whether the join uses the event time of both signals.
  package var followsTime: Bool
  package var changes: Changes
}

/// The input of a source that a table can be read from.
package struct RelationalInput: Sendable {
  /// The paths of files; empty: standard input.
  package var paths: [FilePathParameter]
  package var decoding: DecoderOptions
  /// Whether the source ends by itself.
  package var ends: Bool

  package init(paths: [FilePathParameter], decoding: DecoderOptions, ends: Bool) {
    self.paths = paths
    self.decoding = decoding
    self.ends = ends
  }
}

/// A source whose input can be a table.
package protocol RelationalSource: SourceDeclaration {
  var relationalInput: RelationalInput { get }
}

/// The output of a sink that can be a table.
package enum RelationalOutput: Sendable {
  /// A file with this path; nil: standard output.
  case file(FilePathParameter?)
  /// A table of a database: its columns, the names of the key columns, and whether rows with an equal key replace each
  /// other.
  case table(String, columns: [(name: String, value: ExpressionParameter)], key: [String], replaces: Bool)
  /// Files whose paths an expression computes from each event.
  case files
}

/// A sink whose output can be a table.
package protocol RelationalSink: SinkDeclaration {
  var relationalOutput: RelationalOutput { get }
}
