import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// No secret that was read is printed, whatever form contains it.
@Suite struct SecretMaskTests {
  private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

  private static func json(_ text: String) -> String {
    let output = OutputBuffer()
    Array(text.utf8).withUnsafeBytes { _ = JSONWriter.append(.string($0), to: output) }
    return String(decoding: output.bytes, as: UTF8.self)
  }

  private static func mask(_ secrets: String...) -> SecretMask {
    let mask = SecretMask()
    for secret in secrets { mask.note(Array(secret.utf8)) }
    return mask
  }

  @Test(arguments: [
    ("a hunter2 b hunter2", "a (secret) b (secret)"), ("hunter2hunter2", "(secret)(secret)"), ("hunter", "hunter"),
    ("key=hunt…", "key=(secret)…"), ("key=hun…", "key=hun…"), ("", ""),
  ])
  func everyPlaceIsMasked(_ text: String, _ expected: String) {
    #expect(Self.mask("hunter2").masked(text) == expected)
  }

  @Test func shortValuesAreNotLookedFor() {
    #expect(Self.mask("abc").masked("abc abcd") == "abc abcd")
    #expect(SecretMask().masked("anything") == "anything")
  }

  @Test func valuesMayOverlap() {
    #expect(Self.mask("abcdef", "defghi").masked("x abcdefghi y") == "x (secret) y")
    #expect(Self.mask("abab").masked("ababab") == "(secret)")
  }

  @Test func theOldestIsForgotten() {
    let mask = SecretMask()
    for number in 0...SecretMask.maximumValues { mask.note(Array("value-\(number + 10_000)".utf8)) }
    #expect(mask.masked("value-10000 value-10001") == "value-10000 (secret)")
  }

  @Test(arguments: [
    (#"{"a":"x hunter2","hunter2":[1,"hunter2"]}"#, #"{"a":"x (secret)","(secret)":[1,"(secret)"]}"#),
    (#"{"a":"h\u0075nter2"}"#, #"{"a":"(secret)"}"#),
    (#"{ "a" : 99712345.5, "b": 1 }"#, #"{ "a" : "(secret)", "b": 1 }"#),
    (#"{"a":"{\"k\":\"hunter2\"}"}"#, #"{"a":"{\"k\":\"(secret)\"}"}"#), (#"{"a":{"k":"v","l":1}}"#, #""(secret)""#),
    (#"{"a":"nothing","b":[true,null]}"#, #"{"a":"nothing","b":[true,null]}"#),
  ])
  func documentsStayDocuments(_ document: String, _ expected: String) {
    let mask = Self.mask("hunter2", "9712345", #"{"k":"v","l":1}"#)
    #expect(Self.text(mask.masked(json: Array(document.utf8))) == expected)
  }

  /// Random values of random characters, in every part of a message.
  @Test(arguments: 0..<200) func noFormRemains(_ seed: Int) throws {
    var random = SplitMix(UInt64(seed))
    let alphabets = [
      "abcXYZ019", "\"\\/ \n\t\r", "%&=+?#", "äöü€𝄞\u{202E}\u{1B}\u{9B}", "{}[],:\"1", "aA1\"\\ %\né",
    ].map { Array($0.unicodeScalars) }
    func any(_ count: Int) -> String {
      let alphabet = alphabets.randomElement(using: &random) ?? []
      return String(String.UnicodeScalarView((0..<count).compactMap { _ in alphabet.randomElement(using: &random) }))
    }
    // A marker on either side, so that masking cannot recreate the value.
    let secret = "Qz" + any(Int.random(in: 3...20, using: &random)) + "Wm"
    let mask = Self.mask(secret)
    let percent = try #require(
      secret.addingPercentEncoding(
        withAllowedCharacters: CharacterSet(charactersIn: "-._~").union(
          CharacterSet(charactersIn: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))))
    let once = String(Self.json(secret).dropFirst().dropLast())
    let twice = String(Self.json(once).dropFirst().dropLast())
    let shown = Printable.cut(secret, limit: 1000)
    for form in [secret, percent, once, twice, shown] {
      let (before, after) = (any(5), any(5))
      let masked = mask.masked(before + form + after + form)
      #expect(masked.utf8.elementsEqual((before + "(secret)" + after + "(secret)").utf8), "\(form.debugDescription)")
      // A truncated message shows only fragments too short to be masked.
      for length in 4..<shown.unicodeScalars.count {
        let start = String(String.UnicodeScalarView(shown.unicodeScalars.prefix(length)))
        guard start.utf8.count >= SecretMask.minimumBytes else { continue }
        #expect(mask.masked("key " + start + "…").utf8.elementsEqual("key (secret)…".utf8))
      }
      let document = "{\"a\":[\(Self.json(before + form)),{\(Self.json(form)):1.5}]}"
      let result = mask.masked(json: Array(document.utf8))
      #expect(!Self.text(result).utf8.contains(other: Array(secret.utf8)))
      let object = try JSONSerialization.jsonObject(with: Data(result), options: .fragmentsAllowed) as? [String: Any]
      let list = try #require(object?["a"] as? [Any])
      #expect((list.first as? String)?.utf8.elementsEqual((before + "(secret)").utf8) == true)
      #expect((list.last as? [String: Any])?.keys.sorted() == ["(secret)"])
    }
  }
}

extension String.UTF8View {
  fileprivate func contains(other: [UInt8]) -> Bool { Array(self).firstRange(of: other) != nil }
}
