/// The form of a parameter's values, in the contract's terms.
public indirect enum ParameterShape: Sendable, Equatable {
  case bool
  case int(ClosedRange<Int64>?)
  case number
  case text
  /// A text that rxd never prints.
  case secret
  case duration
  case size
  case expression
  case template
  /// Any value.
  case literal
  case choice([Choice])
  case list(ParameterShape)
  case table(ParameterShape)

  /// A value that a parameter can have.
  public struct Choice: Sendable, Equatable {
    public var name: String
    public var help: String
    public init(_ name: String, _ help: String) {
      self.name = name
      self.help = help
    }
  }

  /// Whether rxd evaluates the parameter for each event.
  var isPerEvent: Bool { self == .expression || self == .template }

  var name: String {
    switch self {
    case .bool: "boolean"
    case .int: "integer"
    case .number: "number"
    case .text: "text"
    case .secret: "secret"
    case .duration: "duration"
    case .size: "size"
    case .expression: "expression"
    case .template: "template"
    case .literal: "json"
    case .choice: "choice"
    case .list: "list"
    case .table: "table"
    }
  }

  /// Whether the form may be the element type of a list or map.
  var isElement: Bool {
    switch self {
    case .list, .table, .expression, .template, .choice: false
    default: true
    }
  }
}

/// A type that a parameter can have.
public protocol ParameterValue: Sendable {
  static func shape(range: ClosedRange<Int64>?) -> ParameterShape
  /// Reads a value that rxd has already checked; nil after an error, which is reported.
  static func decode(_ node: Value, _ context: inout DecodingContext) -> Self?
  /// The value as JSON, in the form that a pipeline file uses; nil: it has no such form.
  var document: String? { get }
  /// All values, if there are few.
  static var cases: [Self] { get }
  /// Connects the parameter with its results, which arrive with each event.
  mutating func bind(_ binder: inout Binder)
}

extension ParameterValue {
  public var document: String? { nil }
  public static var cases: [Self] { [] }
  public mutating func bind(_ binder: inout Binder) {}
}

/// Decodes a component's parameters, and collects why and where they are refused.
public struct DecodingContext {
  /// The parameter that is being read.
  public var parameter = ""
  public var range: ClosedRange<Int64>?
  /// The first problem; later ones are ignored.
  var problem: (message: String, path: String)?

  init() {}

  /// The component as a whole, for ``badValue(at:_:help:)``.
  public var location: SourceLocation { SourceLocation("") }

  /// Refuses the parameter that is being read.
  public mutating func badValue(_ node: Value, _ message: String, help: String? = nil) {
    badValue(at: SourceLocation(parameter), message, help: help)
  }

  public mutating func badValue(at location: SourceLocation, _ message: String, help: String? = nil) {
    if problem == nil { problem = (message + (help.map { ": \($0)" } ?? ""), location.path) }
  }

  /// Refuses the component unless exactly one of the two parameters is given.
  public mutating func requireOne(_ first: String, _ hasFirst: Bool, or second: String, _ hasSecond: Bool) {
    guard hasFirst == hasSecond else { return }
    badValue(at: location, hasFirst ? "it has both '\(first)' and '\(second)'" : "it needs '\(first)' or '\(second)'")
  }

  mutating func wrongType(_ wanted: String) {
    badValue(at: SourceLocation(parameter), "'\(parameter)' must be \(wanted)")
  }
}

/// A path in the parameters, such as `server.port`; rxd reports its location in the pipeline file.
public struct SourceLocation: Sendable, Equatable, ExpressibleByStringLiteral {
  public var path: String
  public init(_ path: String) { self.path = path }
  public init(stringLiteral path: String) { self.path = path }
}

/// Numbers the parameters whose results arrive with each event.
public struct Binder {
  private var next = 0
  /// Whether the pipeline file sets each parameter; nil: unknown.
  private let given: [Bool]?

  init(_ given: [Bool]?) { self.given = given }

  /// The index of the next parameter, and whether the file sets it.
  mutating func take() -> (index: Int, isGiven: Bool) {
    defer { next += 1 }
    return (next, given.map { $0.indices.contains(next) && $0[next] } ?? true)
  }
}

extension Bool: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .bool }
  public var document: String? { self ? "true" : "false" }
  public static var cases: [Bool] { [false, true] }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Bool? {
    if let value = node.bool { return value }
    context.wrongType("true or false")
    return nil
  }
}

extension Int: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .int(range) }
  public var document: String? { String(self) }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Int? {
    if let value = node.int { return Int(value) }
    context.wrongType("a whole number")
    return nil
  }
}

extension Double: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .number }
  public var document: String? {
    guard isFinite else { return nil }
    return self == rounded() && magnitude < 1e15 ? String(Int64(self)) : description
  }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Double? {
    guard let value = node.double else {
      context.wrongType("a number")
      return nil
    }
    // The contract cannot express a range for doubles, so it is checked here.
    if let range = context.range, value < Double(range.lowerBound) || value > Double(range.upperBound) {
      context.wrongType(range.words)
      return nil
    }
    return value
  }
}

extension String: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }
  public var document: String? { isEmpty ? nil : JSONDocument.quoted(self) }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> String? {
    if let value = node.text { return value }
    context.wrongType("a text")
    return nil
  }
}

/// A text that is printed as `(secret)`.
public struct Secret: ParameterValue, Equatable, CustomStringConvertible {
  public let revealed: String
  public init(_ revealed: String) { self.revealed = revealed }
  public var description: String { "(secret)" }
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .secret }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Secret? {
    String.decode(node, &context).map(Secret.init)
  }
}

extension TimeSpan: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .duration }
  public var document: String? { JSONDocument.quoted(description) }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> TimeSpan? {
    if let value = node.duration { return value }
    context.wrongType("a duration")
    return nil
  }
}

/// A number of bytes: `64KiB`, `10MB`.
public struct ByteSize: ParameterValue, Equatable {
  public var bytes: Int
  public init(_ bytes: Int) { self.bytes = bytes }
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .size }
  public var document: String? {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
    where bytes >= size && bytes % size == 0 { return "\"\(bytes / size)\(unit)\"" }
    return "\"\(bytes)B\""
  }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> ByteSize? {
    guard let value = node.int else {
      context.wrongType("a size")
      return nil
    }
    // The contract cannot express a range for sizes, so it is checked here.
    if let range = context.range, !range.contains(value) {
      context.wrongType(range.words + " bytes")
      return nil
    }
    return ByteSize(Int(value))
  }
}

extension ClosedRange<Int64> {
  fileprivate var words: String {
    upperBound == .max ? "at least \(lowerBound)" : "between \(lowerBound) and \(upperBound)"
  }
}

/// Any value of a pipeline file.
public struct LiteralParameter: ParameterValue {
  public private(set) var value = OwnedValue()
  public init() {}
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .literal }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> LiteralParameter? {
    var parameter = LiteralParameter()
    parameter.value = OwnedValue(node)
    return parameter
  }
}

extension Optional: ParameterValue where Wrapped: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { Wrapped.shape(range: range) }
  public var document: String? { flatMap(\.document) }
  public static var cases: [Wrapped?] { Wrapped.cases.map { $0 } }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Wrapped?? {
    Wrapped.decode(node, &context).map { .some($0) }
  }
  public mutating func bind(_ binder: inout Binder) {
    guard var value = self else {
      // An absent parameter still takes an index.
      if Wrapped.shape(range: nil).isPerEvent { _ = binder.take() }
      return
    }
    value.bind(&binder)
    self = value
  }
}

extension Array: ParameterValue where Element: ParameterValue {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .list(Element.shape(range: range)) }
  public var document: String? { isEmpty ? nil : "[" + compactMap(\.document).joined(separator: ",") + "]" }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> [Element]? {
    guard node.isAnyList else {
      context.wrongType("a list")
      return nil
    }
    let name = context.parameter
    defer { context.parameter = name }
    return node.elements.enumerated().compactMap { index, element in
      context.parameter = "\(name)[\(index)]"
      return Element.decode(element, &context)
    }
  }
}

/// Names with values, in the order of the file.
public struct Table<Element: ParameterValue>: ParameterValue {
  public var entries: [(name: String, value: Element)] = []
  public init() {}
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .table(Element.shape(range: range)) }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Table? {
    guard node.isAnyMap else {
      context.wrongType("a mapping")
      return nil
    }
    let name = context.parameter
    defer { context.parameter = name }
    var table = Table()
    for (key, member) in node.members {
      context.parameter = "\(name).\(key)"
      if let value = Element.decode(member, &context) { table.entries.append((key, value)) }
    }
    return table
  }
}

/// An enum whose cases are the words of the file.
public protocol ChoiceParameter: ParameterValue, CaseIterable, RawRepresentable where RawValue == String {
  /// The meaning of the word, a phrase.
  var help: String { get }
}

extension ChoiceParameter {
  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .choice(allCases.map { .init($0.rawValue, $0.help) })
  }
  public var document: String? { JSONDocument.quoted(rawValue) }
  public static var cases: [Self] { Array(allCases) }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> Self? {
    if let value = node.text.flatMap(Self.init(rawValue:)) { return value }
    context.wrongType("one of " + allCases.map(\.rawValue).joined(separator: ", "))
    return nil
  }
}
