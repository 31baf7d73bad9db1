/// The JSON in which a spec is written.
indirect enum JSONDocument {
  case text(String)
  case list([JSONDocument])
  case object([(String, JSONDocument)])
  /// A JSON text, inserted unchanged: a number, `true`.
  case raw(String)

  var text: String {
    switch self {
    case .text(let text): Self.quoted(text)
    case .list(let elements): "[" + elements.map(\.text).joined(separator: ",") + "]"
    case .object(let members): "{" + members.map { Self.quoted($0) + ":" + $1.text }.joined(separator: ",") + "}"
    case .raw(let text): text
    }
  }

  static func quoted(_ text: String) -> String {
    var quoted = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": quoted += "\\\""
      case "\\": quoted += "\\\\"
      case "\n": quoted += "\\n"
      case "\t": quoted += "\\t"
      case "\r": quoted += "\\r"
      case _ where scalar.value < 0x20:
        let hex = String(scalar.value, radix: 16)
        quoted += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
      default: quoted.unicodeScalars.append(scalar)
      }
    }
    return quoted + "\""
  }
}
