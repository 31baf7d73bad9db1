import Foundation
import PipelineCore

/// One test of the expression language's public suite, as converted to JSON.
package struct ConformanceVector {
  package var name: String
  package var expression: String
  package var profile: String
  package var applies: Bool
  fileprivate var object: [String: Any]

  /// Reads the vectors of a file.
  package static func read(_ path: String) throws -> [ConformanceVector] {
    let content = try Data(contentsOf: URL(fileURLWithPath: path))
    guard let all = try JSONSerialization.jsonObject(with: content) as? [[String: Any]] else { return [] }
    return all.map { object in
      let parts = ["file", "section", "name"].map { object[$0] as? String ?? "" }
      return ConformanceVector(
        name: parts.joined(separator: "/"), expression: object["expr"] as? String ?? "",
        profile: object["profile"] as? String ?? "", applies: object["applies"] as? Bool ?? false,
        object: object)
    }
  }

  /// Runs the vector; nil if it passes, otherwise the actual result.
  package func run() -> String? {
    var variables: [ExpressionScope.Variable] = []
    var declarations: [ExpressionScope.Declaration] = []
    for entry in object["type_env"] as? [[String: Any]] ?? [] {
      let name = entry["name"] as? String ?? ""
      if let type = entry["type"] as? String {
        variables.append(.init(name, TypeReader.read(type)))
      }
      for overload in entry["overloads"] as? [[String: Any]] ?? [] {
        declarations.append(
          .init(
            name, (overload["params"] as? [String] ?? []).map(TypeReader.read),
            TypeReader.read(overload["result"] as? String ?? "dyn"),
            isMember: overload["method"] as? Bool ?? false))
      }
    }
    let bindings = object["bindings"] as? [String: Any] ?? [:]
    for name in bindings.keys where !variables.contains(where: { $0.name == name }) {
      variables.append(.init(name, .dyn))
    }
    let scope = ExpressionScope(
      variables, mode: .strict, container: object["container"] as? String ?? "",
      declarations: declarations, checksTypes: !(object["disable_check"] as? Bool ?? false))
    let expect = object["expect"] as? [String: Any] ?? [:]
    let expectsError = expect["error"] != nil
    var diagnostics = Diagnostics()
    guard let syntax = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics),
      let checked = syntax.check(in: scope, into: &diagnostics)
    else {
      return expectsError ? nil : "refused: \(diagnostics.all.map(\.message).joined(separator: "; "))"
    }
    if let type = expect["deduced_type"] as? String, checked.type.description != type {
      return "type \(checked.type), expected \(type)"
    }
    if object["check_only"] as? Bool == true { return nil }
    let arena = Arena()
    let frame = EvaluationFrame(variables: variables.count, arena: arena, json: JSONParser())
    frame.isStrict = true
    for (index, variable) in variables.enumerated() {
      if let bound = bindings[variable.name] { frame[index] = TypedValue.read(bound, arena) }
    }
    let program = checked.compile()
    let value = program.evaluate(frame)
    if value.isError {
      return expectsError ? nil : "failed: \(program.failureMessage(value, frame))"
    }
    if expectsError { return "no error, but \(TypedValue.describe(value))" }
    guard let expected = expect["value"] else { return nil }
    let wanted = TypedValue.read(expected, arena)
    return TypedValue.same(value, wanted)
      ? nil : "\(TypedValue.describe(value)), expected \(TypedValue.describe(wanted))"
  }
}

/// Parses types in the notation of the vectors.
private enum TypeReader {
  static func read(_ text: String) -> ExpressionType {
    if text.hasPrefix("param:") { return .param(String(text.dropFirst(6))) }
    guard let open = text.firstIndex(of: "("), text.hasSuffix(")") else {
      switch text {
      case "dyn": return .dyn
      case "null_type": return .null
      case "bool": return .bool
      case "int": return .int
      case "uint": return .uint
      case "double": return .double
      case "string": return .string
      case "bytes": return .bytes
      case "timestamp": return .timestamp
      case "duration": return .duration
      default: return .abstract(text, [])
      }
    }
    var parts: [String] = [""]
    var depth = 0
    for character in text[text.index(after: open)...].dropLast() {
      if character == "(" { depth += 1 }
      if character == ")" { depth -= 1 }
      if character == ",", depth == 0 { parts.append("") } else { parts[parts.count - 1].append(character) }
    }
    let types = parts.map { read($0.trimmingCharacters(in: .whitespaces)) }
    switch text[..<open] {
    case "list": return .list(types[0])
    case "map": return .map(types[0], types[1])
    case "type": return .type(types[0])
    case "optional_type": return .optional(types[0])
    case "wrapper": return .wrapper(types[0])
    default: return .abstract(String(text[..<open]), types)
    }
  }
}

/// Values in the notation of the vectors.
enum TypedValue {
  static func read(_ any: Any, _ arena: Arena) -> Value {
    guard let object = any as? [String: Any], let (kind, content) = object.first else { return .null }
    let text = content as? String ?? ""
    switch kind {
    case "int": return .int(Int64(text) ?? 0)
    case "uint": return .uint(UInt64(text) ?? 0)
    case "double":
      return .double((content as? NSNumber)?.doubleValue ?? Double(text.lowercased()) ?? .nan)
    case "string": return arena.string(text)
    case "bytes":
      let bytes = Data(base64Encoded: text) ?? Data()
      return bytes.withUnsafeBytes { .bytes(arena.copy($0)) }
    case "bool": return .bool(content as? Bool ?? false)
    case "list": return arena.list((content as? [Any] ?? []).map { read($0, arena) })
    case "map":
      return arena.map(
        (content as? [[Any]] ?? []).map { (key: read($0[0], arena), value: read($0[1], arena)) })
    case "type":
      let name = arena.string(text)
      return Value(kind: .type, pointer: name.pointer, length: Int(name.length))
    case "timestamp", "duration":
      return evaluate("\(kind)('\(text)')", arena)
    default: return .null
    }
  }

  private static func evaluate(_ expression: String, _ arena: Arena) -> Value {
    var diagnostics = Diagnostics()
    let program = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
      .check(in: ExpressionScope(mode: .strict), into: &diagnostics)?.compile()
    let value = program?.evaluate(EvaluationFrame(arena: arena, json: JSONParser())) ?? .null
    let kept = arena.copy(value)
    return kept
  }

  static func same(_ a: Value, _ b: Value) -> Bool {
    guard a.kind == b.kind else { return false }
    switch a.what {
    case .double:
      return a.asDouble == b.asDouble || (a.asDouble.isNaN && b.asDouble.isNaN)
    case .string, .bytes, .type: return a.rawBytes.elementsEqual(b.rawBytes)
    case .list:
      return a.elements.count == b.elements.count && zip(a.elements, b.elements).allSatisfy { same($0, $1) }
    case .map:
      return a.entries.count == b.entries.count
        && a.entries.allSatisfy { entry in
          b.entries.contains { same($0.key, entry.key) && same($0.value, entry.value) }
        }
    case .timestamp: return a.payload == b.payload && a.length == b.length
    default: return a.payload == b.payload
    }
  }

  static func describe(_ value: Value) -> String {
    switch value.what {
    case .int: return "\(value.asInt)"
    case .uint: return "\(value.asUInt)u"
    case .double: return "\(value.asDouble)"
    case .bool: return "\(value.asBool)"
    case .string, .type: return "\(value.what) '\(String(decoding: value.rawBytes, as: UTF8.self))'"
    case .list: return "[" + value.elements.map(describe).joined(separator: ", ") + "]"
    case .map:
      return "{"
        + value.entries.map { "\(describe($0.key)): \(describe($0.value))" }.joined(separator: ", ") + "}"
    default: return "\(value.what) \(value.payload)"
    }
  }
}
