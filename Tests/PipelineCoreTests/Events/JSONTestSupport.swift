import CJSON
import PipelineCore
import PipelineTestSupport

/// A document in memory that ends where the text ends, so that a sanitizer detects reads past the end.
///
/// Never freed: values of a test point into it without keeping it alive.
struct ExactText {
  let bytes: UnsafeRawBufferPointer

  init(_ content: [UInt8]) {
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: content.count, alignment: 1)
    memory.copyBytes(from: content)
    bytes = UnsafeRawBufferPointer(memory)
  }

  init(_ text: String) { self.init(Array(text.utf8)) }
}

/// The content of a value, for comparisons in tests: escapes resolved, doubles as text.
indirect enum Plain: Equatable, Sendable, CustomStringConvertible {
  case absent, null
  case bool(Bool)
  case int(Int64)
  case uint(UInt64)
  case double(UInt64)
  case string([UInt8])
  case list([Plain])
  case map([Member])
  case other(String)
  case failure(JSONFailure)

  struct Member: Equatable, Sendable {
    var key: Plain
    var value: Plain
  }

  init(_ value: Value, _ arena: Arena = Arena()) {
    switch value.what {
    case .absent: self = .absent
    case .null: self = .null
    case .bool: self = .bool(value.asBool)
    case .int: self = .int(value.asInt)
    case .uint: self = .uint(value.asUInt)
    case .double: self = .double(value.asDouble.bitPattern)
    case .string:
      let resolved = JSONParser.unescape(value, into: arena)
      self = .string(Array(resolved.rawBytes))
    case .list: self = .list(value.elements.map { Plain($0, arena) })
    case .map:
      self = .map(value.entries.map { Member(key: Plain($0.key, arena), value: Plain($0.value, arena)) })
    case .jsonList, .jsonMap: self = .other(String(decoding: value.rawBytes, as: UTF8.self))
    case .error: self = JSONFailure(value).map { .failure($0) } ?? .other("error")
    default: self = .other("\(value.what)")
    }
  }

  static func text(_ text: String) -> Plain { .string(Array(text.utf8)) }
  static func number(_ number: Double) -> Plain { .double(number.bitPattern) }

  var description: String {
    switch self {
    case .absent: "absent"
    case .null: "null"
    case .bool(let flag): "\(flag)"
    case .int(let number): "\(number)"
    case .uint(let number): "\(number)u"
    case .double(let bits): "\(Double(bitPattern: bits))"
    case .string(let bytes): "\"\(String(decoding: bytes, as: UTF8.self))\""
    case .list(let elements): "\(elements)"
    case .map(let members): "{\(members.map { "\($0.key): \($0.value)" }.joined(separator: ", "))}"
    case .other(let text): "<\(text)>"
    case .failure(let failure): "failure(\(failure))"
    }
  }
}

func written(_ value: Value, _ layout: JSONWriter.Layout = .compact) -> String {
  let output = OutputBuffer()
  if let failure = JSONWriter.append(value, to: output, layout: layout) { return "failure: \(failure)" }
  return String(decoding: output.bytes, as: UTF8.self)
}

/// The original text of unchecked JSON.
func writtenAsItCame(_ value: Value) -> String {
  let output = OutputBuffer()
  if let failure = JSONWriter.appendAsItCame(value, to: output) { return "failure: \(failure)" }
  return String(decoding: output.bytes, as: UTF8.self)
}

/// A random document: all kinds, all sizes of numbers, escapes, white space.
func randomDocument(_ dice: inout SplitMix, depth: Int = 0) -> String {
  func space(_ dice: inout SplitMix) -> String {
    dice.below(4) == 0 ? ["", " ", "\n", "\t", "\r\n", "   "][dice.below(6)] : ""
  }
  func string(_ dice: inout SplitMix) -> String {
    let parts = [
      "a", "key", "é", "漢字", "🎈", "\\n", "\\u0041", "\\ud83d\\ude00", "\\\\", "\\\"", "{", "}", "[", ",", ":",
      " ", "a longer piece of text without anything", "\\ud83d", "\u{2028}", "\u{7f}",
    ]
    return "\"" + (0..<dice.below(5)).map { _ in parts[dice.below(parts.count)] }.joined() + "\""
  }
  let before = space(&dice)
  let after = space(&dice)
  let kind = dice.below(depth > 5 ? 6 : 9)
  let core: String
  switch kind {
  case 0: core = ["null", "true", "false"][dice.below(3)]
  case 1: core = "\(Int64(truncatingIfNeeded: dice.next()) >> Int64(dice.below(64)))"
  case 2: core = "\(dice.next() >> UInt64(dice.below(64)))"
  case 3:
    let double = Double(bitPattern: dice.next())
    core = double.isFinite ? "\(double)" : "1.5"
  case 4, 5: core = string(&dice)
  case 6:
    core =
      "[" + (0..<dice.below(6)).map { _ in randomDocument(&dice, depth: depth + 1) }.joined(separator: ",")
      + (dice.below(9) == 0 ? "" : "") + "]"
  default:
    core =
      "{" + space(&dice)
      + (0..<dice.below(6)).map { _ in
        space(&dice) + string(&dice) + space(&dice) + ":" + randomDocument(&dice, depth: depth + 1)
      }.joined(separator: ",") + "}"
  }
  // Tests write an empty list or map with white space inside by hand.
  return before + core + after
}
