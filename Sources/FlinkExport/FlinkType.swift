import PipelineCore

/// A type of a column.
indirect enum FlinkType: Equatable {
  case bigint, double, string, boolean
  /// A point in time, to the nanosecond.
  case timestamp
  case array(FlinkType, isNullable: Bool)
  case map(FlinkType, isNullable: Bool)
  case row([Field])

  struct Field: Equatable {
    var name: String
    var type: FlinkType
    var isNullable: Bool
  }

  /// The type in Flink SQL.
  var sql: String {
    switch self {
    case .bigint: "BIGINT"
    case .double: "DOUBLE"
    case .string: "STRING"
    case .boolean: "BOOLEAN"
    case .timestamp: "TIMESTAMP_LTZ(9)"
    case .array(let element, let isNullable): "ARRAY<\(element.sql)\(isNullable ? "" : " NOT NULL")>"
    case .map(let value, let isNullable): "MAP<STRING NOT NULL, \(value.sql)\(isNullable ? "" : " NOT NULL")>"
    case .row(let fields):
      "ROW<\(fields.map { "\(SQLText.name($0.name)) \($0.type.sql)\($0.isNullable ? "" : " NOT NULL")" }.joined(separator: ", "))>"
    }
  }

  /// Whether equal values are equal in both languages, so that rows can be grouped and joined by them.
  var isKey: Bool { self == .bigint || self == .string || self == .boolean }

  /// The name in messages.
  var shown: String {
    switch self {
    case .bigint: "int"
    case .double: "double"
    case .string: "string"
    case .boolean: "bool"
    case .timestamp: "timestamp"
    case .array: "list"
    case .map: "map"
    case .row: "object"
    }
  }
}

extension FlinkType {
  /// The type of a field with this declared type; throws the reason if no column can have it.
  init(_ type: ExpressionType) throws(TypeRefusal) {
    switch type {
    case .int: self = .bigint
    case .double: self = .double
    case .string: self = .string
    case .bool: self = .boolean
    case .timestamp: self = .timestamp
    case .list(let element):
      self = .array(try FlinkType(element.unwrapped), isNullable: element.unwrapped != element)
    case .map(_, let value): self = .map(try FlinkType(value.unwrapped), isNullable: value.unwrapped != value)
    case .object(let fields, let isOpen):
      if isOpen { throw TypeRefusal("has further fields ('...'), and a table has a fixed number of columns") }
      var columns: [Field] = []
      for field in fields {
        columns.append(
          Field(
            name: field.name, type: try FlinkType(field.type.unwrapped),
            isNullable: field.type.unwrapped != field.type || field.mayBeAbsent))
      }
      if columns.isEmpty { throw TypeRefusal("has no fields, and a table has columns") }
      self = .row(columns)
    case .wrapper(let inner): self = try FlinkType(inner)
    case .dyn: throw TypeRefusal("has any type, and a column has one")
    case .uint: throw TypeRefusal("is a uint, and Flink has no unsigned numbers")
    case .bytes: throw TypeRefusal("has bytes, which JSON writes in different ways")
    case .duration: throw TypeRefusal("is a duration, which Flink cannot read from JSON")
    default: throw TypeRefusal("is \(type.inWords), which no column can be")
    }
  }
}

/// The reason why a type has no equivalent: a clause that follows the name of the value.
struct TypeRefusal: Error {
  var reason: String
  init(_ reason: String) { self.reason = reason }
}

/// Names, literals and the layout of statements.
enum SQLText {
  static func name(_ text: String) -> String { "`" + doubled(text, "`") + "`" }

  static func literal(_ text: String) -> String { "'" + doubled(text, "'") + "'" }

  private static func doubled(_ text: String, _ mark: Unicode.Scalar) -> String {
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      result.append(scalar)
      if scalar == mark { result.append(mark) }
    }
    return String(result)
  }

  /// The text with each of its lines moved to the right. The lines of a multi-line literal would be moved as well, so
  /// no literal may contain a line feed.
  static func indented(_ text: String, by width: Int = 2) -> String {
    let margin = String(repeating: " ", count: width)
    return text.split(separator: "\n", omittingEmptySubsequences: false).map { margin + $0 }.joined(separator: "\n")
  }

  /// A span as an interval; nil: it is not a number of milliseconds.
  static func interval(_ span: TimeSpan) -> String? {
    guard span.nanoseconds >= 0, span.nanoseconds % 1_000_000 == 0 else { return nil }
    return interval(milliseconds: span.nanoseconds / 1_000_000)
  }

  static func interval(milliseconds: Int64) -> String {
    for (unit, length) in [("DAY", Int64(86_400_000)), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000)] {
      // Leading fields have two digits unless a precision says otherwise.
      if milliseconds % length == 0, milliseconds / length < 100, milliseconds >= length {
        return "INTERVAL '\(milliseconds / length)' \(unit)"
      }
    }
    func padded(_ value: Int64, _ width: Int) -> String {
      let text = "\(value)"
      return String(repeating: "0", count: max(0, width - text.count)) + text
    }
    let days = milliseconds / 86_400_000
    if days > 999 {
      // Literals have at most three digits of days.
      let rest = milliseconds % 86_400_000
      return "(INTERVAL '1' DAY * \(days)\(rest == 0 ? "" : " + \(interval(milliseconds: rest))"))"
    }
    let (hours, minutes) = (milliseconds / 3_600_000 % 24, milliseconds / 60_000 % 60)
    let seconds = "\(padded(milliseconds / 1000 % 60, 2)).\(padded(milliseconds % 1000, 3))"
    return
      "INTERVAL '\(days) \(padded(hours, 2)):\(padded(minutes, 2)):\(seconds)' DAY(\("\(days)".count)) TO SECOND(3)"
  }

  /// A number that is certainly DOUBLE and not DECIMAL.
  static func double(_ value: Double) -> String {
    let text = "\(value)"
    return text.contains("e") ? text.replacing("e", with: "E") : text + "E0"
  }
}
