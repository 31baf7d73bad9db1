/// A JSON document to write.
package enum JSONText: Sendable {
  case null
  case bool(Bool)
  case int(Int)
  case string(String)
  case array([JSONText])
  case object([(String, JSONText)])
  /// A JSON text on one line, written unchanged.
  case document(String)

  /// The document, indented, without a final line feed.
  package var text: String {
    var result = ""
    write(to: &result, indent: 0)
    return result
  }

  /// The document on one line, without a line feed.
  package var line: String {
    var result = ""
    writeLine(to: &result)
    return result
  }

  /// Appends the document on one line, without a line feed. Line breaks in texts are escaped.
  package func writeLine(to result: inout String) { write(to: &result, indent: nil) }

  /// - Parameter indent: The depth of the document within others; nil: write one line.
  private func write(to result: inout String, indent: Int?) {
    switch self {
    case .document(let text): result += text
    case .null: result += "null"
    case .bool(let flag): result += flag ? "true" : "false"
    case .int(let number): result += String(number)
    case .string(let text): Self.quote(text, to: &result)
    case .array(let items):
      if items.isEmpty {
        result += "[]"
        return
      }
      result += "["
      // A list of numbers stays on one line.
      let indent = items.allSatisfy(\.isNumber) ? nil : indent
      for (index, item) in items.enumerated() {
        if index > 0 { result += indent == nil && item.isNumber ? ", " : "," }
        if let indent { Self.margin(indent + 1, to: &result) }
        item.write(to: &result, indent: indent.map { $0 + 1 })
      }
      if let indent { Self.margin(indent, to: &result) }
      result += "]"
    case .object(let members):
      result += "{"
      for (index, member) in members.enumerated() {
        if index > 0 { result += ", " }
        Self.quote(member.0, to: &result)
        result += ": "
        member.1.write(to: &result, indent: indent.map { $0 + 1 })
      }
      result += "}"
    }
  }

  private var isNumber: Bool { if case .int = self { true } else { false } }

  private static func margin(_ indent: Int, to result: inout String) {
    result += "\n"
    for _ in 0..<indent { result += "  " }
  }

  /// Whether it needs no escape. False also where that is not known.
  private static func isPlain(_ text: String) -> Bool {
    text.utf8.withContiguousStorageIfAvailable { bytes in
      var index = 0
      while index < bytes.count {
        let byte = bytes[index]
        if byte < 0x20 || byte > 0x7E || byte == 0x22 || byte == 0x5C { return false }
        index += 1
      }
      return true
    } ?? false
  }

  /// Escapes what JSON requires, and what some readers interpret as a line break or a terminal command.
  package static func quote(_ text: String, to result: inout String) {
    result += "\""
    defer { result += "\"" }
    if isPlain(text) {
      result += text
      return
    }
    for scalar in text.unicodeScalars {
      switch scalar.value {
      case 0x22: result += "\\\""
      case 0x5C: result += "\\\\"
      case 0x0A: result += "\\n"
      case 0x0D: result += "\\r"
      case 0x09: result += "\\t"
      case _ where Printable.isHidden(scalar.value):
        for unit in String(scalar).utf16 { result += "\\u" + Printable.hex(UInt32(unit), digits: 4) }
      default: result.unicodeScalars.append(scalar)
      }
    }
  }
}

extension JSONText: Equatable {
  /// Whether both have the same contents in the same order.
  package static func == (a: JSONText, b: JSONText) -> Bool {
    switch (a, b) {
    case (.null, .null): true
    case (.bool(let a), .bool(let b)): a == b
    case (.int(let a), .int(let b)): a == b
    case (.string(let a), .string(let b)): a.utf8.elementsEqual(b.utf8)
    case (.document(let a), .document(let b)): a.utf8.elementsEqual(b.utf8)
    case (.array(let a), .array(let b)): a == b
    case (.object(let a), .object(let b)): a.elementsEqual(b) { $0.0.utf8.elementsEqual($1.0.utf8) && $0.1 == $1.1 }
    default: false
    }
  }
}
