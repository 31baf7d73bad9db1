import CJSON

/// The reason why a text is not a JSON document or exceeds the limits, and the offset.
package struct JSONFailure: Error, Sendable, Equatable {
  /// The kind of the fault.
  package enum Reason: UInt32, Sendable, CaseIterable {
    case empty = 1
    case expectedValue = 2
    case expectedKey = 3
    case expectedKeyOrEnd = 4
    case expectedColon = 5
    case expectedCommaOrBrace = 6
    case expectedCommaOrBracket = 7
    case expectedEnd = 8
    case malformedNumber = 9
    case unclosedString = 10
    case controlCharacter = 11
    case malformedEscape = 12
    case invalidUTF8 = 13
    case tooDeep = 14
    case tooManyFields = 15
    case tooLarge = 16
    case malformed = 17
    case noMemory = 18
  }

  package var reason: Reason
  /// The byte offset of the fault from the start of the text; for a string without an end, the offset of its opening
  /// quote.
  package var offset: Int
  /// Whether the text ends at ``offset``.
  package var isAtEnd: Bool

  package init(_ reason: Reason, offset: Int, isAtEnd: Bool = false) {
    self.reason = reason
    self.offset = offset
    self.isAtEnd = isAtEnd
  }

  init(_ failure: rx_json_failure) {
    self.init(
      Reason(rawValue: failure.reason) ?? .malformed,
      offset: Int(truncatingIfNeeded: failure.offset), isAtEnd: failure.at_end)
  }

  /// The failure in an `.error` value of a JSON reader; nil for other values.
  package init?(_ value: Value) {
    guard value.isError, value.aux == UInt16(RX_ERROR_JSON) else { return nil }
    self.init(
      Reason(rawValue: value.length) ?? .malformed,
      offset: Int(truncatingIfNeeded: value.payload), isAtEnd: value.flags & 1 != 0)
  }

  /// The `.error` value for this failure.
  package var value: Value {
    Value(
      kind: .error, payload: UInt64(offset), length: reason.rawValue, flags: isAtEnd ? 1 : 0,
      aux: UInt16(RX_ERROR_JSON))
  }

  /// The same failure, for a text that contains this one `distance` bytes after its start.
  package func moved(by distance: Int) -> JSONFailure {
    JSONFailure(reason, offset: offset &+ distance, isAtEnd: isAtEnd)
  }

  /// The fault, without its offset.
  package var message: StaticString {
    switch reason {
    case .empty: "there is no JSON value"
    case .expectedValue: "expected a JSON value"
    case .expectedKey: "expected a key in double quotes"
    case .expectedKeyOrEnd: "expected a key in double quotes or '}'"
    case .expectedColon: "expected ':'"
    case .expectedCommaOrBrace: "expected ',' or '}'"
    case .expectedCommaOrBracket: "expected ',' or ']'"
    case .expectedEnd: "unexpected text after the end of the value"
    case .malformedNumber: "malformed number, or one of more than 255 bytes that no double holds,"
    case .unclosedString: "string without its closing quote"
    case .controlCharacter: "control character in a string that should be written as an escape"
    case .malformedEscape: "malformed escape in a string"
    case .invalidUTF8: "invalid UTF-8"
    case .tooDeep: "more nested lists and maps than the limit allows"
    case .tooManyFields: "more fields than the limit allows"
    case .tooLarge: "more than 4 GiB of JSON"
    case .malformed: "malformed JSON"
    case .noMemory: "not enough memory to read it"
    }
  }
}

extension JSONFailure: CustomStringConvertible {
  /// One sentence: `expected ',' or '}' at byte 17`.
  package var description: String {
    switch reason {
    case .empty, .tooLarge, .noMemory: return "\(message)"
    default: return "\(message) at byte \(offset)\(isAtEnd ? ", where the text ends" : "")"
    }
  }
}

/// The limits of one document.
package struct JSONLimits: Sendable, Equatable {
  /// The depth of nested lists and maps; at most 1,024.
  package var depth: Int
  /// The number of members of all maps of the document together.
  package var fields: Int

  package init(depth: Int = 64, fields: Int = 10_000) {
    self.depth = depth
    self.fields = fields
  }

  var shim: rx_json_limits {
    rx_json_limits(depth: UInt32(clamping: depth), fields: UInt32(clamping: fields))
  }
}
