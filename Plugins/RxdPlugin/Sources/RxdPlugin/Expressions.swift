import CRxdPlugin

/// An expression in a pipeline file. rxd checks, compiles and evaluates it; the plugin receives the result with each event. If the expression
/// fails, rxd sends the event to the errors output, and the plugin does not receive it.
public struct ExpressionParameter: ParameterValue {
  /// Gives the expression's result for the current event; nil: the file does not set the parameter.
  public private(set) var program: Program?

  public init() {}

  public var isGiven: Bool { program != nil }
  /// The program of a required parameter.
  public var required: Program {
    guard let program else { preconditionFailure("a required expression is not there") }
    return program
  }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .expression }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> ExpressionParameter? { nil }
  public mutating func bind(_ binder: inout Binder) {
    let (index, isGiven) = binder.take()
    program = isGiven ? Program(index) : nil
  }
}

/// A text that contains `{{ expression }}`, which rxd fills with each event.
public struct TemplateParameter: ParameterValue {
  private var program: Program?

  public init() {}

  public var isGiven: Bool { program != nil }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .template }
  public static func decode(_ node: Value, _ context: inout DecodingContext) -> TemplateParameter? { nil }
  public mutating func bind(_ binder: inout Binder) {
    let (index, isGiven) = binder.take()
    program = isGiven ? Program(index) : nil
  }

  /// The text for the current event; empty: the file does not set the parameter.
  public func text(_ frame: EventFrame) -> String { program?.evaluate(frame).text ?? "" }

  /// The text for logs; nil: the file does not set the parameter.
  public func shownText(_ frame: EventFrame) -> String? { isGiven ? text(frame) : nil }

  /// Appends the text. Always returns nil, because rxd has already rendered it without an error.
  public func render(_ frame: EventFrame, into buffer: OutputBuffer) -> Value? {
    if let program { buffer.append(program.evaluate(frame).rawBytes) }
    return nil
  }
}

/// Writes values as JSON.
public enum JSONWriter {
  public static func append(_ value: Value, to buffer: OutputBuffer) {
    withUnsafePointer(to: value.raw) { buffer.append(host.json(value.scope ?? rxd_swift_scope(), $0).buffer) }
  }
}

/// A compiled expression, evaluated for each event.
public final class Program: Sendable {
  private let index: Int
  init(_ index: Int) { self.index = index }

  /// The result of a condition.
  public enum Truth: Sendable {
    case yes, no
    /// The condition has failed. Never the case in a plugin: rxd rejects the event before.
    case failed
  }

  /// The result for the current event; absent outside an event, such as in a timer.
  @inline(__always)
  public func evaluate(_ frame: EventFrame) -> Value {
    guard let arguments = frame.arguments else { return .absent }
    return Value(arguments[index], frame.scope)
  }

  public func evaluateBool(_ frame: EventFrame) -> Truth { evaluate(frame).isTrue ? .yes : .no }
}

/// The results of expressions and templates for the current event, and the memory of the call.
public final class EventFrame {
  var scope: OpaquePointer?
  var arguments: UnsafePointer<rxd_value>?
  /// Why a pure step has failed.
  var problem: String?

  init() {}

  /// The result for this event.
  public var arena: Arena { Arena(scope: scope) }
  /// The frame itself, for steps that are written for the core.
  public var frame: EventFrame { self }
  /// The error of the last failed expression; always absent here.
  public var lastError: Value { .absent }
  /// Whether two values are equal by content.
  public func areEqual(_ a: Value, _ b: Value) -> Bool { a.equals(b) }
}

/// Bytes to be written.
public final class OutputBuffer {
  public private(set) var bytes: [UInt8] = []
  public init() {}
  public var count: Int { bytes.count }
  public func append(_ text: String) { bytes.append(contentsOf: text.utf8) }
  public func append(_ byte: UInt8) { bytes.append(byte) }
  public func append(_ other: UnsafeRawBufferPointer) { bytes.append(contentsOf: other) }
  public func clear() { bytes.removeAll(keepingCapacity: true) }
}
