import Synchronization

/// The secret values that a process has read; each is masked in everything that the process prints.
///
/// A value is recognized literally, as JSON writes it (also nested in a JSON string), percent-encoded, with control
/// characters escaped as in messages, and where a message was truncated within it. Values shorter than ``minimumBytes``
/// are not masked, because they occur in too many other texts. Data outputs (sinks, dead letters in files) are not
/// masked.
package final class SecretMask: Sendable {
  /// The secrets of this process.
  package static let process = SecretMask()

  /// Only values of at least this length are masked.
  package static let minimumBytes = 4
  /// The maximum number of values that are kept; beyond it the oldest is forgotten.
  package static let maximumValues = 1000

  private struct Secret: Sendable {
    var value: [UInt8]
    /// The forms in which the value may be written, the value itself first.
    var forms: [[UInt8]]
  }
  private let secrets = Mutex<[Secret]>([])

  package init() {}

  /// Adds a value that must not be printed.
  package func note(_ value: [UInt8]) {
    guard value.count >= Self.minimumBytes else { return }
    secrets.withLock { secrets in
      if secrets.contains(where: { $0.value == value }) { return }
      if secrets.count == Self.maximumValues { secrets.removeFirst() }
      secrets.append(Secret(value: value, forms: Self.forms(of: value)))
    }
  }

  /// The text with `(secret)` in place of every value.
  package func masked(_ text: String) -> String {
    let known = secrets.withLock { $0 }
    guard !known.isEmpty else { return text }
    let bytes = Array(text.utf8)
    return Self.masked(bytes, known.flatMap(\.forms)).map { String(decoding: $0, as: UTF8.self) } ?? text
  }

  /// The JSON document with `(secret)` in place of every value in its texts, and of each number that contains one; the
  /// result is still a JSON document.
  package func masked(json: [UInt8]) -> [UInt8] {
    let known = secrets.withLock { $0 }
    guard !known.isEmpty else { return json }
    let forms = known.flatMap(\.forms)
    var result: [UInt8] = []
    var tokens: [Range<Int>] = []
    var isChanged = false
    var at = 0
    while at < json.count {
      let start = at
      switch json[at] {
      case UInt8(ascii: "\""):
        at += 1
        while at < json.count, json[at] != UInt8(ascii: "\"") { at += json[at] == UInt8(ascii: "\\") ? 2 : 1 }
        at = min(at + 1, json.count)
        let token = Array(json[start..<at])
        let text = Self.unescaped(token)
        if let masked = Self.masked(text, forms) {
          isChanged = true
          result += Self.escaped(masked)
        } else {
          result += token
        }
      case 0x20, 0x09, 0x0A, 0x0D, UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "["), UInt8(ascii: "]"),
        UInt8(ascii: ","), UInt8(ascii: ":"):
        result.append(json[at])
        at += 1
        continue
      default:
        while at < json.count, !" \t\n\r{}[],:\"".utf8.contains(json[at]) { at += 1 }
        let token = Array(json[start..<at])
        let isSecret = Self.masked(token, forms) != nil
        isChanged = isChanged || isSecret
        result += isSecret ? Self.escaped(Array(LocatedText.mask.utf8)) : token
      }
      tokens.append(start..<at)
    }
    // A value that is itself JSON may span several tokens; the whole document is then masked.
    let whole = Self.ranges(json, known.map(\.value))
    if whole.contains(where: { range in
      !tokens.contains { $0.lowerBound <= range.lowerBound && range.upperBound <= $0.upperBound }
    }) {
      return Self.escaped(Array(LocatedText.mask.utf8))
    }
    return isChanged ? result : json
  }

  // MARK: Forms

  private static func forms(of value: [UInt8]) -> [[UInt8]] {
    let once = Array(escaped(value).dropFirst().dropLast())
    let twice = Array(escaped(once).dropFirst().dropLast())
    var encoded: [UInt8] = []
    for byte in value {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"):
        encoded.append(byte)
      default: encoded += "%\(Printable.hex(UInt32(byte), digits: 2))".utf8
      }
    }
    var shown = ""
    for scalar in String(decoding: value, as: UTF8.self).unicodeScalars { Printable.append(scalar, to: &shown) }
    var forms: [[UInt8]] = []
    for form in [value, once, twice, encoded, Array(shown.utf8)] where !forms.contains(form) { forms.append(form) }
    return forms
  }

  /// A JSON string with its quotes.
  private static func escaped(_ text: [UInt8]) -> [UInt8] {
    let output = OutputBuffer(capacity: text.count + 16)
    text.withUnsafeBytes { _ = JSONWriter.append(.string($0), to: output) }
    return Array(output.bytes)
  }

  /// The text of a JSON string; any other token unchanged.
  private static func unescaped(_ token: [UInt8]) -> [UInt8] {
    guard token.contains(UInt8(ascii: "\\")) else { return Array(token.dropFirst().dropLast()) }
    let arena = Arena()
    // The parser may read a few bytes beyond the end of the text.
    return (token + Array(repeating: 0x20, count: 64)).withUnsafeBytes { bytes in
      let document = JSONParser().parse(UnsafeRawBufferPointer(rebasing: bytes[..<token.count]), into: arena)
      let value = JSONParser.unescape(document, into: arena)
      return value.is(.string) ? Array(value.rawBytes) : Array(token.dropFirst().dropLast())
    }
  }

  // MARK: Finding

  /// The text with the mask in place of every form; nil if it contains none.
  private static func masked(_ text: [UInt8], _ forms: [[UInt8]]) -> [UInt8]? {
    let found = (ranges(text, forms) + cutRanges(text, forms)).sorted { $0.lowerBound < $1.lowerBound }
    guard !found.isEmpty else { return nil }
    var result: [UInt8] = []
    var at = 0
    for range in found {
      // A match that starts within the previous one is masked together with it.
      if range.lowerBound >= at {
        result += text[at..<range.lowerBound]
        result += LocatedText.mask.utf8
      }
      at = max(at, range.upperBound)
    }
    return result + text[at...]
  }

  /// The ranges of all forms, including overlapping ones.
  private static func ranges(_ text: [UInt8], _ forms: [[UInt8]]) -> [Range<Int>] {
    var found: [Range<Int>] = []
    for form in forms where form.count <= text.count {
      var start = 0
      while let range = text[start...].firstRange(of: form) {
        found.append(range)
        start = range.lowerBound + 1
      }
    }
    return found
  }

  /// The ranges where a message was truncated within a form: `…` follows at least ``minimumBytes`` of the form's start.
  private static func cutRanges(_ text: [UInt8], _ forms: [[UInt8]]) -> [Range<Int>] {
    let ellipsis = Array("…".utf8)
    var found: [Range<Int>] = []
    var start = 0
    while let cut = text[start...].firstRange(of: ellipsis) {
      for form in forms {
        for length in stride(from: min(form.count - 1, cut.lowerBound), through: minimumBytes, by: -1)
        where text[cut.lowerBound - length..<cut.lowerBound].elementsEqual(form[..<length]) {
          found.append(cut.lowerBound - length..<cut.lowerBound)
          break
        }
      }
      start = cut.upperBound
    }
    return found
  }
}
