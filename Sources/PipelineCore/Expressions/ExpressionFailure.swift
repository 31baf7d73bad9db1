/// Why an evaluation failed: the `aux` of an error value.
///
/// An error value is made without formatting text. Its `payload` points to a detail (see ``Context/failure(_:_:_:)``)
/// and its `length` is one more than the number of the failed operation, or 0 if that is not yet known.
enum ExpressionFailure: UInt16, Sendable, CaseIterable {
  case noSuchKey = 1
  case noSuchOverload
  case notSelectable
  case divideByZero
  case moduloByZero
  case overflow
  case indexOutOfRange
  case badIndex
  case unknownName
  case unknownFunction
  case conversion
  case outOfRange
  case invalidArgument
  case tooManyIterations
  case duplicateKey
  case badMapKey
  case malformedJSON
  case emptyOptional
  case notOptional
  case notBoolean
  case tooLarge
  case badPattern

  /// The message; `detail` is the subject of the failure and `note` the function's addition.
  func message(_ detail: String?, _ note: String?) -> String {
    switch self {
    case .noSuchKey: return "no such key" + (detail.map { ": \($0)" } ?? "")
    case .noSuchOverload:
      return note ?? "no such overload"
    case .notSelectable:
      return "a value of type \(note ?? "this") has no fields"
    case .divideByZero: return "division by zero"
    case .moduloByZero: return "modulus by zero"
    case .overflow: return "the result is outside the range of its type"
    case .indexOutOfRange: return "index out of range" + (detail.map { ": \($0)" } ?? "")
    case .badIndex: return "no valid index" + (detail.map { ": \($0)" } ?? "")
    case .unknownName: return "unknown name" + (detail.map { ": \($0)" } ?? "")
    case .unknownFunction: return "unknown function" + (detail.map { ": \($0)" } ?? "")
    case .conversion:
      return "\(detail ?? "the value") cannot be converted to \(note ?? "that type")"
    case .outOfRange: return "\(detail ?? "the value") is outside the range of \(note ?? "its type")"
    case .invalidArgument:
      return (note ?? "invalid argument") + (detail.map { ": \($0)" } ?? "")
    case .tooManyIterations: return "the loops ran more often than allowed"
    case .duplicateKey: return "the map has two keys" + (detail.map { " \($0)" } ?? " alike")
    case .badMapKey: return "a value of type \(note ?? "this") cannot be the key of a map"
    case .malformedJSON: return "malformed JSON" + (note.map { ": \($0)" } ?? "")
    case .emptyOptional: return "optional.none() has no value"
    case .notOptional: return "a value of type \(note ?? "this") is not an optional"
    case .notBoolean: return "a value of type \(note ?? "this") is used where a bool is needed"
    case .tooLarge: return "the result is larger than allowed"
    case .badPattern: return "malformed pattern" + (note.map { ": \($0)" } ?? "")
    }
  }
}
