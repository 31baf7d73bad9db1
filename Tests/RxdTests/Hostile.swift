import Foundation
import PipelineTestSupport

/// Makes input that no correct peer sends: extreme numbers, depths and sizes, broken UTF-8, misplaced pieces of valid input. The same seed makes
/// the same input.
struct Hostile {
  var random: SplitMix

  init(_ seed: UInt64) { random = SplitMix(seed) }

  static let integers: [String] = [
    "0", "-1", "1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551615",
    "4294967296", "2147483648", "-2147483649", "9007199254740993", "123456789012345678901234567890",
  ]
  static let numbers: [String] =
    integers + ["1e308", "-1e308", "1e400", "5e-324", "-0", "-0.0", "0.1", "9.3e18", "1e19", "NaN", ".inf"]
  static let spans: [String] = [
    "0s", "36500d", "36501d", "106751d", "999999999999d", "9223372036854775807ns", "9223372036854775808ns", "1us",
    "-1s", "1d1d",
  ]
  static let sizes: [String] = ["0B", "1B", "1048576GiB", "1048577GiB", "9223372036854775807B", "8589934592GiB", "-1B"]

  mutating func number() -> String { random.pick(Self.numbers) }

  /// Random bytes, possibly invalid UTF-8.
  mutating func bytes() -> [UInt8] {
    switch random.below(9) {
    case 0: return []
    case 1: return [0xFF, 0xFE, 0x00, 0x80, 0xC0, 0xAF, 0xED, 0xA0, 0x80]
    case 2: return Array(repeating: UInt8(ascii: "["), count: 100_000)
    case 3: return Array(String(repeating: "{\"a\":", count: 20_000).utf8)
    case 4: return Array("\u{202E}\u{0}\r\n\u{1B}[2J%00%ff%".utf8)
    case 5: return Array(number().utf8)
    case 6: return Array(repeating: UInt8(ascii: "9"), count: 5000)
    case 7: return (0..<random.below(200)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
    default: return Array(random.pick(Self.spans + Self.sizes).utf8)
    }
  }

  /// A value of a query: percent-encoded.
  mutating func encoded(_ likely: [String]) -> String {
    let value = random.below(3) == 0 ? Array(random.pick(likely).utf8) : Array(bytes().prefix(3000))
    if random.below(20) == 0 { return "%zz%" }
    return value.map {
      (0x30...0x39).contains($0) || (0x61...0x7A).contains($0 | 0x20) ? String(UnicodeScalar($0)) : hex($0)
    }
    .joined()
  }

  private func hex(_ byte: UInt8) -> String { "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16) }

  /// A JSON document of any shape.
  mutating func json(_ depth: Int = 0) -> String {
    switch random.below(depth > 4 ? 5 : 9) {
    case 0: return number()
    case 1: return "\"\(random.pick(["", "a", "\\u0000", "\\ud800", "\\uDC00x", "2026-02-30T25:61:61Z", "36500d"]))\""
    case 2: return random.pick(["true", "false", "null"])
    case 3:
      return "\""
        + String(decoding: bytes().prefix(400).filter { $0 != 0x22 && $0 != 0x5C && $0 != 0x0A }, as: UTF8.self) + "\""
    case 4: return random.pick(["", "{", "]", "{\"a\" 1}", "\u{FEFF}1"])
    case 5: return String(repeating: "[", count: 3000) + String(repeating: "]", count: 3000)
    case 6, 7: return "[" + (0..<random.below(4)).map { _ in json(depth + 1) }.joined(separator: ",") + "]"
    default:
      return "{"
        + (0..<random.below(4)).map { "\"\(["a", "b", "id", "n"][$0])\":\(json(depth + 1))" }.joined(separator: ",")
        + "}"
    }
  }

  /// The text with one number, piece or byte changed.
  mutating func mutated(_ text: [UInt8]) -> [UInt8] {
    guard !text.isEmpty else { return bytes() }
    switch random.below(8) {
    case 0...3: return withNumber(text)
    case 4:
      var changed = text
      changed[random.below(text.count)] = UInt8(truncatingIfNeeded: random.next())
      return changed
    case 5: return Array(text.prefix(random.below(text.count)))
    case 6:
      let at = random.below(text.count)
      return Array(text[..<at]) + bytes() + Array(text[at...])
    default:
      let (from, to) = (random.below(text.count), random.below(text.count))
      return Array(text[..<to]) + Array(text[min(from, to)..<max(from, to)]) + Array(text[to...])
    }
  }

  /// The text with one number and the unit after it replaced.
  private mutating func withNumber(_ text: [UInt8]) -> [UInt8] {
    let found = Self.numbers(in: text)
    guard !found.isEmpty else { return text + bytes() }
    let range = random.pick(found)
    let isWithUnit = !(0x30...0x39).contains(text[range.upperBound - 1])
    let new = isWithUnit ? random.pick(Self.spans + Self.sizes) : number()
    return Array(text[..<range.lowerBound]) + Array(new.utf8) + Array(text[range.upperBound...])
  }

  /// The positions of numbers, with their units: `300ms`, `64KiB`, `3`.
  static func numbers(in text: [UInt8]) -> [Range<Int>] {
    var found: [Range<Int>] = []
    var at = 0
    func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
    func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }
    while at < text.count {
      guard isDigit(text[at]), at == 0 || !isLetter(text[at - 1]) else {
        at += 1
        continue
      }
      var end = at
      while end < text.count, isDigit(text[end]) || text[end] == UInt8(ascii: ".") { end += 1 }
      while end < text.count, isLetter(text[end]), end - at < 24 { end += 1 }
      found.append(at..<end)
      at = end
    }
    return found
  }
}

extension Rxd.Outcome {
  /// Whether the process was ended by a signal, as after a trap.
  var hasCrashed: Bool { status >= 128 }
}
