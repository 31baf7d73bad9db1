public indirect enum ExpressionType: Sendable, Equatable {
  case dyn, null, bool, int, string, timestamp, list(ExpressionType), map(ExpressionType, ExpressionType), optional(ExpressionType), object(fields: [Field], open: Bool)
  public struct Field: Sendable, Equatable { public init(_ name: String, _ type: ExpressionType, mayBeAbsent: Bool = false) {} }
}
public struct ExpressionScope: Sendable { public struct Variable: Sendable { public init(_ n: String, _ t: ExpressionType = .dyn) {} }
  public var variables: [Variable]
  public init(_ v: [Variable]) { variables = v } }
public final class EvaluationFrame { public let arena: Arena
  public init(variables: Int = 0, slots: Int = 0, arena: Arena, json: JSONParser) { self.arena = arena; self.json = json; now = .null }
  let json: JSONParser
  public subscript(i: Int) -> Value { get { .null } set {} }
  public var now: Value; public var lastError: Value { .null } }
public final class Program: Sendable { public func evaluate(_ f: EvaluationFrame) -> Value { .null }; public enum Tri { case no, yes, failed }; public func evaluateBool(_ f: EvaluationFrame) -> Tri { .yes }
 public func failureMessage(_ e: Value, _ f: EvaluationFrame) -> String { "" }; public func failureLocation(_ e: Value) -> SourceLocation { fatalError() } }
public final class Projection { public var slotCount: Int { 0 }; public func freeze() {}; public func fill(_ v: Value, _ f: EvaluationFrame) -> Value { .null } }
public struct ReadPath: Sendable { public var variable: String }
public struct CheckedExpression: Sendable { public var type: ExpressionType; public var reads: [ReadPath]; public func compile(projection: Projection?) -> Program { Program() } }
public struct ExpressionSyntax: Sendable { public static func parse(_ t: LocatedText, into: inout Diagnostics) -> ExpressionSyntax? { nil }
 public func check(in s: ExpressionScope, expecting: ExpressionType?, into: inout Diagnostics) -> CheckedExpression? { nil } }
public struct CheckedTemplate { var expressions: [CheckedExpression]; func compile(projection: Projection?) -> TemplateProgram { TemplateProgram() } }
public final class TemplateProgram: Sendable { func render(_ f: EvaluationFrame, into: OutputBuffer) -> Value? { nil } }
public struct ExpressionTemplate: Sendable { public static func parse(_ t: LocatedText, into: inout Diagnostics) -> ExpressionTemplate? { nil }; public var isConstant: Bool { true }
 public func check(in s: ExpressionScope, into: inout Diagnostics) -> CheckedTemplate? { nil } }
public enum PipelineFileParser { static func parseSignal(_ n: YAMLNode, into: inout Diagnostics) -> SignalNode? { nil }; static func parseChain(_ n: YAMLNode, into: inout Diagnostics) -> [ComponentNode] { [] } }
extension Value { func contentEquals(_ o: Value, _ j: JSONParser, _ a: Arena) -> Bool { false } }
extension JSONParser { func expandShallow(_ v: Value, into: Arena) -> Value { v }; func unescape(_ v: Value, into: Arena) -> Value { v } }
