import CRxdPlugin

/// An expression in a pipeline file. rxd checks, compiles and evaluates it: the plugin is given its result with each event. An event for which
/// it fails goes to the errors output before the plugin sees it.
public struct ExpressionParameter: ParameterValue {
  /// Its result with the present event; nil: the file does not give it.
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

  /// The text of the present event; empty: the file does not give it.
  public func text(_ frame: EventFrame) -> String { program?.evaluate(frame).text ?? "" }

  /// The text for logs; nil: the file does not give it.
  public func shownText(_ frame: EventFrame) -> String? { isGiven ? text(frame) : nil }

  /// Appends the text. Nil: that never fails, because rxd has rendered it.
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
    /// It has failed. Never in a plugin: rxd rejects the event.
    case failed
  }

  /// The result with the present event; absent if there is none, as in a timer.
  @inline(__always)
  public func evaluate(_ frame: EventFrame) -> Value {
    guard let arguments = frame.arguments else { return .absent }
    return Value(arguments[index], frame.scope)
  }

  public func evaluateBool(_ frame: EventFrame) -> Truth { evaluate(frame).isTrue ? .yes : .no }
}

/// The present event's results of expressions and templates, and the memory of the call.
public final class EventFrame {
  var scope: OpaquePointer?
  var arguments: UnsafePointer<rxd_value>?
  /// Why a pure step has failed.
  var problem: String?

  init() {}

  /// The result for this event.
  public var arena: Arena { Arena(scope: scope) }
  /// Itself.
  public var frame: EventFrame { self }
  /// The error of the last expression that failed: there is none.
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
