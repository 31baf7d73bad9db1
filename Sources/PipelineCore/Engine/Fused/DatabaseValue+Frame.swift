extension DatabaseValue {
  /// The reason why a value cannot be stored, as a clause that follows the name of its column.
  package struct Refusal: Error, Sendable, Equatable {
    package var message: String
  }

  /// The form in which SQLite stores a value: a boolean as 0 or 1, a time or duration as text, a list or map as JSON.
  package init(_ value: Value, _ frame: EventFrame) throws(Refusal) {
    var value = value.unwrapped
    if value.is(.optional) { value = (value.wrapped ?? .null).unwrapped }
    switch value.what {
    case .null, .absent: self = .null
    case .bool: self = .int(value.asBool ? 1 : 0)
    case .int: self = .int(value.asInt)
    case .uint:
      guard let number = Int64(exactly: value.asUInt) else {
        throw Refusal(message: "is \(value.asUInt), and SQLite's largest integer is \(Int64.max)")
      }
      self = .int(number)
    case .double:
      // SQLite would store NULL.
      if value.asDouble.isNaN { throw Refusal(message: "is not a number (NaN), which SQLite cannot store") }
      self = .real(value.asDouble)
    case .string: self = .text(Array(JSONParser.unescape(value, into: frame.frame.arena).rawBytes))
    case .bytes: self = .blob(Array(value.rawBytes))
    case .list, .map, .jsonList, .jsonMap:
      let buffer = OutputBuffer()
      if let failure = JSONWriter.append(value, to: buffer) {
        throw Refusal(message: "cannot be written as JSON: \(failure)")
      }
      self = .text(Array(buffer.bytes))
    default:
      guard let text = frame.text(of: value) else { throw Refusal(message: "has no form that SQLite can store") }
      self = .text(Array(text.utf8))
    }
  }
}
