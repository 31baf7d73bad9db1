import PipelineCore
import PipelineTesting

/// Events for the components of a plugin under test: unusual ones, and ones that fit the component.
enum TestEvents {
  /// JSON texts.
  static let odd: [String] = [
    "{}", "null", "true", "0", "-1", "9223372036854775807", "18446744073709551615", "1.5", "1e300", "\"\"", "\"text\"",
    "[]", "[1,[2,{\"a\":null}]]", "{\"\":\"\"}", "{\"a\":\"ä\u{2028}\u{1F600}\\\"\\\\\\n\\t\\u0000\"}",
    "{\"id\":1,\"to\":2,\"event\":{\"ping\":3}}", "\"\\\"}]\\n{\\\"close\\\":1}\"",
    "{\"a\":\"" + String(repeating: "x", count: 40_000) + "\"}",
    "{\"deep\":" + String(repeating: "[", count: 60) + String(repeating: "]", count: 60) + "}",
    "{" + (0..<200).map { "\"member\($0)\":\($0)" }.joined(separator: ",") + "}",
  ]

  /// Values of members.
  private static let fillings = [
    "\"text\"", "\"Ä text\"", "7", "\"text\"", "null", "-2.5", "[1,\"a\"]", "{\"a\":1}", "true",
  ]

  /// Events with the members that the parameters, the expressions and the type of the input name.
  static func fitting(_ spec: PluginComponentSpec, _ yaml: String) -> [String] {
    var names: [String] = []
    func add(_ name: String) { if !name.isEmpty, name.utf8.count < 40, !names.contains(name) { names.append(name) } }
    for path in yaml.split(separator: "event.").dropFirst() {
      add(String(path.prefix { $0.isLetter || $0.isNumber || $0 == "_" }))
    }
    for word in yaml.split(whereSeparator: { !($0.isLetter || $0.isNumber || $0 == "_") }) {
      let isKnown = spec.name == word || spec.parameters.contains { $0.name == word }
      if !isKnown, word.first?.isLetter == true { add(String(word)) }
    }
    if case .object(let fields, _) = spec.input { for field in fields { add(field.name) } }
    names = Array(names.prefix(4))
    var events: [String] = []
    if !names.isEmpty {
      for filling in fillings {
        events.append("{" + names.map { "\(JSONText.string($0).text):\(filling)" }.joined(separator: ",") + "}")
      }
    }
    if let sample = sample(spec.input) { events += [sample, sample] }
    return events
  }

  /// Values of the type as JSON, unusual ones among them.
  static func values(_ type: ExpressionType) -> [String] {
    switch type {
    case .null: ["null"]
    case .bool: ["true", "false"]
    case .int: ["3", "0", "-1", "9223372036854775807", "-9223372036854775808"]
    case .uint: ["3", "0", "9223372036854775807"]
    case .double: ["0.5", "0.0", "-2.5", "1e300", "-1e-300"]
    case .string, .bytes:
      [
        "\"a sample\"", "\"\"", "\"7\"", "\"ä\u{2028}\u{1F600}\\\"\\\\\\n\\t\\u0000\"", "\"%s%n{}${HOME}\"",
        "\"" + String(repeating: "x", count: 40_000) + "\"",
      ]
    case .list(let element): ["[]", "[\(values(element).joined(separator: ","))]"]
    case .optional(let inner), .wrapper(let inner): values(inner) + ["null"]
    case .map, .object: (sample(type).map { [$0] } ?? []) + odd.filter { $0.hasPrefix("{") }
    default: odd
    }
  }

  /// A value of the type as JSON; nil: any value is valid.
  private static func sample(_ type: ExpressionType) -> String? {
    switch type {
    case .null: "null"
    case .bool: "true"
    case .int, .uint: "3"
    case .double: "0.5"
    case .string: "\"a sample\""
    case .list(let element): "[\(sample(element) ?? "1")]"
    case .map: "{\"a\":1}"
    case .object(let fields, _):
      "{" + fields.map { "\(JSONText.string($0.name).text):\(sample($0.type) ?? "1")" }.joined(separator: ",") + "}"
    case .optional(let inner), .wrapper(let inner): sample(inner)
    default: nil
    }
  }
}

extension ExpressionType {
  /// Why a value is not of the type, with its path, such as `.server.port is a text, not a number`; nil: it is, or only rxd can tell.
  func problem(with value: TestValue, at path: String = "") -> String? {
    func wrong(_ wanted: String) -> String {
      "\(path.isEmpty ? "the event" : path) is \(Printable.cut(value.description, limit: 60)), not \(wanted)"
    }
    switch (self, value) {
    case (.null, let value): return value == .null ? nil : wrong("null")
    case (.bool, .bool), (.int, .int), (.uint, .uint), (.double, .int), (.double, .uint), (.double, .double),
      (.string, .text), (.map, .object):
      return nil
    case (.uint, .int(let number)): return number >= 0 ? nil : wrong("a whole number from 0")
    case (.bool, _): return wrong("a boolean")
    case (.int, _), (.uint, _): return wrong("a whole number")
    case (.double, _): return wrong("a number")
    case (.string, _): return wrong("a text")
    case (.map, _): return wrong("an object")
    case (.list(let element), .list(let values)):
      for (index, value) in values.enumerated() {
        if let problem = element.problem(with: value, at: "\(path)[\(index)]") { return problem }
      }
      return nil
    case (.list, _): return wrong("a list")
    case (.optional(let inner), let value), (.wrapper(let inner), let value):
      return value == .null ? nil : inner.problem(with: value, at: path)
    case (.object(let fields, let isOpen), .object(let members)):
      for field in fields {
        guard let member = members.first(where: { $0.key == Array(field.name.utf8) }) else {
          // A property that is not required may be null, and then it may be absent, too.
          if field.mayBeAbsent || field.type == field.type.orNull { continue }
          return "\(path.isEmpty ? "the event" : path) has no member '\(field.name)'"
        }
        if let problem = field.type.problem(with: member.value, at: "\(path).\(field.name)") { return problem }
      }
      guard !isOpen else { return nil }
      for member in members where !fields.contains(where: { Array($0.name.utf8) == member.key }) {
        return
          "\(path.isEmpty ? "the event" : path) has the member '\(Printable.cut(member.key))', which the type has not"
      }
      return nil
    case (.object, _): return wrong("an object")
    default: return nil
    }
  }
}
