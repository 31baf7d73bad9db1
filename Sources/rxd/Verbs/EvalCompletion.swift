import PipelineCore

/// Completions at the end of a line of an expression.
enum EvalCompletion {
  /// The typed part of the last name, and the names that start with it; sorted, each once.
  static func choices(
    _ line: String, event: [UInt8], commands: [String], functions: [String]
  ) -> (typed: String, choices: [String]) {
    let bytes = Array(line.utf8)
    if bytes.first == 0x3A, !bytes.contains(0x20) { return (line, commands.filter { $0.hasPrefix(line) }) }
    if isInString(bytes) { return ("", []) }
    var start = bytes.count
    while start > 0, isPart(bytes[start - 1]) { start -= 1 }
    let token = String(decoding: bytes[start...], as: UTF8.self)
    let steps = token.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
    let last = steps[steps.count - 1]
    var names: Set<String> = []
    // Names with dots, such as math.greatest, and functions that are called alone.
    var dotted: Set<String> = []
    for spec in FunctionRegistry.callable where spec.name.hasPrefix(token) && isGlobal(spec) {
      dotted.insert(spec.name + "(")
    }
    for name in functions where name.hasPrefix(token) { dotted.insert(name + "(") }
    if steps.count == 1, start == 0 || bytes[start - 1] != UInt8(ascii: ".") {
      for name in ["event", "meta", "now", "env", "true", "false", "null"] where name.hasPrefix(token) {
        dotted.insert(name)
      }
      return (token, dotted.sorted())
    }
    if !dotted.isEmpty, !token.isEmpty { return (token, dotted.sorted()) }
    // After a dot: fields of the event if the path is known, and methods.
    let isOptional = last.hasPrefix("?")
    let part = isOptional ? String(last.dropFirst()) : last
    if steps[0] == "event" {
      for name in fields(
        of: event, at: steps[1..<(steps.count - 1)].map { $0.hasPrefix("?") ? String($0.dropFirst()) : $0 })
      where name.hasPrefix(part) { names.insert(name) }
    }
    // If a field matches, the user means that field, so methods are not offered.
    if !isOptional, names.isEmpty || part.isEmpty {
      for spec in FunctionRegistry.callable where spec.name.hasPrefix(part) && isMember(spec) {
        names.insert(spec.name + "(")
      }
      for name in functions where name.hasPrefix(part) { names.insert(name + "(") }
    }
    return (part, names.sorted())
  }

  private static func isPart(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "."), UInt8(ascii: "?"):
      return true
    default: return false
    }
  }

  /// Whether the end of the line is within quotes.
  private static func isInString(_ bytes: [UInt8]) -> Bool {
    var quote: UInt8?
    var at = 0
    while at < bytes.count {
      if let open = quote {
        if bytes[at] == 0x5C { at += 1 } else if bytes[at] == open { quote = nil }
      } else if bytes[at] == 0x22 || bytes[at] == 0x27 {
        quote = bytes[at]
      }
      at += 1
    }
    return quote != nil
  }

  private static func isGlobal(_ spec: FunctionSpec) -> Bool {
    spec.isMacro ? spec.name == "has" || spec.name == "cel.bind" : spec.overloads.contains { !$0.isMember }
  }

  private static func isMember(_ spec: FunctionSpec) -> Bool {
    spec.isMacro ? spec.name != "has" && spec.name != "cel.bind" : spec.overloads.contains(where: \.isMember)
  }

  /// The fields of the event at a path that can be written after a dot.
  private static func fields(of event: [UInt8], at path: [String]) -> [String] {
    let arena = Arena()
    let json = JSONParser()
    return event.withUnsafeBytes { bytes -> [String] in
      var value = json.parse(bytes, into: arena)
      for step in path {
        guard value.is(.map) else { return [] }
        value =
          value.entries.first { $0.key.rawBytes.elementsEqual(step.utf8) }?.value ?? .absent
      }
      guard value.is(.map) else { return [] }
      return value.entries.map { String(decoding: $0.key.rawBytes, as: UTF8.self) }.filter { name in
        !name.isEmpty && name.utf8.allSatisfy { isPart($0) && $0 != 0x2E && $0 != 0x3F }
          && !(0x30...0x39).contains(name.utf8.first ?? 0x30)
      }
    }
  }
}
