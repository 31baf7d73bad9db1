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
  public var now: Value }
public enum Tri { case `true`, `false`, failed }
public final class Program: Sendable { public func evaluate(_ f: EvaluationFrame) -> Value { .null }; public func evaluateBool(_ f: EvaluationFrame) -> Tri { .true }
 public func failureMessage(_ e: Value, _ f: EvaluationFrame) -> String { "" }; public func failureLocation(_ e: Value, _ f: EvaluationFrame) -> SourceLocation? { nil } }
public final class Projection { public var slotCount: Int { 0 }; public func fill(_ v: Value, _ f: EvaluationFrame) -> Value { .null } }
public struct ReadPath: Sendable { public var variable: Int }
public struct CheckedExpression: Sendable { public var type: ExpressionType; public var reads: [ReadPath]; public func compile(projection: Projection?) -> Program { Program() } }
public struct ExpressionSyntax: Sendable { public static func parse(_ t: LocatedText, into: inout Diagnostics) -> ExpressionSyntax? { nil }
 public func check(in s: ExpressionScope, expecting: ExpressionType?, into: inout Diagnostics) -> CheckedExpression? { nil } }
public struct CheckedTemplate { var parts: [CheckedExpression]; func compile(projection: Projection?) -> TemplateProgram { TemplateProgram() } }
public final class TemplateProgram: Sendable { func render(_ f: EvaluationFrame, into: OutputBuffer) -> Value? { nil } }
public struct ExpressionTemplate: Sendable { public static func parse(_ t: LocatedText, into: inout Diagnostics) -> ExpressionTemplate? { nil }; public var isConstant: Bool { true }
 public func check(in s: ExpressionScope, into: inout Diagnostics) -> CheckedTemplate? { nil } }
extension EvaluationFrame { func message(of v: Value) -> String { "" } }
public struct SignalReference: Sendable { var name: Located<String>; var output: Located<String>? }
public struct ComponentNode: Sendable { var keyword: Located<String>; var arguments: YAMLNode?; var location: SourceLocation; var options: [String: YAMLNode] }
public struct CombiningNode: Sendable { var component: ComponentNode; struct Input: Sendable { enum Signal: Sendable { case reference(SignalReference); case inline(SignalNode) }; var name: String; var signal: Signal }
 var inputs: [Input]; var reduce: ComponentNode? }
public final class SignalNode: Sendable { enum Origin: Sendable { case reference(SignalReference); case inline(ComponentNode); case combining(CombiningNode) }
 let origin: Origin; let chain: [ComponentNode]; let isCold: Bool; let location: SourceLocation
 init() { fatalError() } }
public struct SourceNode: Sendable { var component: ComponentNode; var isCold: Bool }
public struct SinkNode: Sendable { var input: SignalNode; var component: ComponentNode }
public struct NamedNode<N: Sendable>: Sendable { var name: Located<String>; var node: N }
public struct PipelineFile: Sendable { var name: Located<String>; var description: Located<String>?; var sources: [NamedNode<SourceNode>]; var signals: [NamedNode<SignalNode>]; var sinks: [NamedNode<SinkNode>]; var commands: [NamedNode<YAMLNode>]; var plugins: YAMLNode?; var source: SourceText; var location: SourceLocation }
public enum PipelineFileParser { static func parseSignal(_ n: YAMLNode, into: inout Diagnostics) -> SignalNode? { nil }; static func parseChain(_ n: YAMLNode, into: inout Diagnostics) -> [ComponentNode] { [] } }
public enum Suggestion { static func nearest(to: String, in: [String]) -> String? { nil }; static func component(_ s: String, in: [String]) -> String? { nil } }
enum Units { static func duration(_ s: YAMLScalar) -> Result<TimeSpan, Diagnostic> { fatalError() }; static func size(_ s: YAMLScalar) -> Result<Int, Diagnostic> { fatalError() }
static func duration(_ s: LocatedText) -> Result<TimeSpan, Diagnostic> { fatalError() } }
extension Value { func contentEquals(_ o: Value, _ j: JSONParser, _ a: Arena) -> Bool { false } }
extension JSONParser { func expandShallow(_ v: Value, into: Arena) -> Value { v }; func unescape(_ v: Value, into: Arena) -> Value { v } }
extension Suggestion { static func nearest(to: String, among: some Sequence<String>) -> String? { nil } }
extension Diagnostic.Code { static let wrongType = Self("",""), outOfRange = Self("",""), unknownChoice = Self("",""), conflictingParameters = Self("",""), unknownParameter = Self("",""), missingParameter = Self("",""), unsuitableReduce = Self("",""), noSinks = Self("",""), unusedName = Self("",""), unknownOutput = Self("",""), unknownName = Self("",""), cycle = Self("",""), unknownComponent = Self("","") }
