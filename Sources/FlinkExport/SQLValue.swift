import PipelineCore

/// An expression in Flink SQL.
struct SQLValue {
  /// The meaning of NULL as the result of the expression.
  enum Null {
    /// It is never NULL.
    case never
    /// The value null.
    case value
    /// The evaluation has failed. SQL's functions and operators propagate it; AND and OR treat it as `&&` and `||`
    /// treat an error.
    case failure
    /// An optional without a value.
    case nothing
  }

  var text: String
  var type: FlinkType
  var null = Null.never
  /// Whether the text can be an operand without parentheses.
  var isPrimary = true
  /// Whether it is a column, so that it may be written several times.
  var isColumn = false
  /// Whether rxd does not know the type at this expression: a time is then a text, and a number has its JSON type.
  var isUntyped = false
  /// Whether it is a condition of AND or OR.
  var isLogic = false
  /// The range in which an int certainly lies.
  var range = Int64.min...Int64.max

  /// The text as an operand.
  var operand: String { isPrimary ? text : "(\(text))" }
  /// The text as a term of AND.
  var term: String { isLogic ? "(\(text))" : text }
}

/// The event of a relation: the expressions of its fields.
indirect enum Shape {
  case object([(name: String, shape: Shape)])
  case leaf(SQLValue)

  /// All fields with their paths.
  var leaves: [(path: [String], value: SQLValue)] {
    switch self {
    case .leaf(let value): [([], value)]
    case .object(let fields): fields.flatMap { field in field.shape.leaves.map { ([field.name] + $0.path, $0.value) } }
    }
  }

  func mapLeaves(_ path: [String] = [], _ body: ([String], SQLValue) -> SQLValue) -> Shape {
    switch self {
    case .leaf(let value): .leaf(body(path, value))
    case .object(let fields): .object(fields.map { ($0.name, $0.shape.mapLeaves(path + [$0.name], body)) })
    }
  }

  /// The field with this name of an object.
  func field(_ name: String) -> Shape? {
    guard case .object(let fields) = self else { return nil }
    return fields.first { $0.name == name }?.shape
  }

  /// The shape with an added or replaced field; nil: the path leads into a value that is not an object.
  func setting(_ path: ArraySlice<String>, _ shape: Shape) -> Shape? {
    guard let first = path.first else { return shape }
    guard case .object(var fields) = self else { return nil }
    guard let at = fields.firstIndex(where: { $0.name == first }) else {
      guard let inner = Shape.object([]).setting(path.dropFirst(), shape) else { return nil }
      return .object(fields + [(first, inner)])
    }
    guard let inner = fields[at].shape.setting(path.dropFirst(), shape) else { return nil }
    fields[at].shape = inner
    return .object(fields)
  }

  /// The shape without a field; nil: the path leads into a value that is not an object.
  func removing(_ path: ArraySlice<String>) -> Shape? {
    guard let first = path.first else { return self }
    guard case .object(var fields) = self else { return nil }
    guard let at = fields.firstIndex(where: { $0.name == first }) else { return self }
    if path.count == 1 {
      fields.remove(at: at)
    } else {
      guard let inner = fields[at].shape.removing(path.dropFirst()) else { return nil }
      fields[at].shape = inner
    }
    return .object(fields)
  }

  /// The value as one column: an object becomes a row.
  var value: SQLValue {
    switch self {
    case .leaf(let value): return value
    case .object(let fields):
      let parts = fields.map { ($0.name, $0.shape.value) }
      let type = FlinkType.row(parts.map { .init(name: $0.0, type: $0.1.type, isNullable: $0.1.null != .never) })
      let row = "CAST(ROW(\(parts.map(\.1.text).joined(separator: ", "))) AS \(type.sql))"
      return SQLValue(text: row, type: type)
    }
  }
}

/// Rows as a SELECT under construction: steps add conditions and replace the expressions of its columns.
struct Relation {
  /// The SQL after FROM.
  var from: String
  var conditions: [String] = []
  var shape: Shape
  /// The column with the event time; nil: there is none.
  var time: String?
  /// The reason why there is no event time, as a clause; nil: the file declares none.
  var timeEnd: String?
  /// The key of the group: within `groupBy` and, for `meta.key`, after it.
  var keys: [SQLValue] = []
  /// Whether the rows are partitioned by the key, as in the chain of `groupBy`.
  var isGrouped = false
  /// How later rows change earlier ones.
  var changes = Changes.none

  enum Changes: Equatable {
    case none
    /// A row replaces the one with the same values at these paths; nil: the row does not contain the key.
    case byKey([[String]]?)
    /// Rows are added and deleted.
    case rows
  }

  /// The columns by which steps partition the rows.
  var groupKeys: [SQLValue] { isGrouped ? keys : [] }

  /// Whether all fields are columns.
  var isPlain: Bool { shape.leaves.allSatisfy(\.value.isColumn) && keys.allSatisfy(\.isColumn) }
}
