import PipelineCore
import Testing

@testable import Transport

/// Frames of WebSockets: any cut gives the same messages, and violations of the protocol are reported with their code.
@Suite struct WebSocketFramesTests {
  private static let mask: UInt32 = 0x1234_5678

  private func items(_ pieces: [[UInt8]], isServer: Bool = true, maxMessage: Int = 1 << 20, maxFrame: Int = 1 << 20)
    -> [WebSocketReader.Item]
  {
    var reader = WebSocketReader(isServer: isServer, maxMessage: maxMessage, maxFrame: maxFrame)
    var found: [WebSocketReader.Item] = []
    for piece in pieces { piece.withUnsafeBytes { reader.take($0) { found.append($0) } } }
    return found
  }

  /// A frame, masked unless told otherwise.
  private static func frame(
    _ opcode: UInt8, _ payload: [UInt8], isFinal: Bool = true, isMasked: Bool = true, bits: UInt8 = 0
  ) -> [UInt8] {
    var bytes = WebSocketFrame.bytes(.text, payload, mask: isMasked ? mask : nil)
    bytes[0] = (isFinal ? 0x80 : 0) | bits | opcode
    return bytes
  }

  private static func message(_ text: String) -> WebSocketReader.Item {
    .message(WebSocketMessage(isText: true, Array(text.utf8)))
  }

  @Test func anyCutGivesTheSameMessages() {
    let long = Array(repeating: UInt8(ascii: "x"), count: 300)
    let stream =
      Self.frame(1, Array("grüße".utf8)) + Self.frame(2, [0, 255, 1]) + Self.frame(1, Array("gr".utf8), isFinal: false)
      + Self.frame(9, Array("?".utf8)) + Self.frame(0, Array("ü".utf8.prefix(1)), isFinal: false)
      + Self.frame(10, []) + Self.frame(0, Array("ü".utf8.suffix(1)) + Array("ße".utf8)) + Self.frame(1, [])
      + Self.frame(2, long) + Self.frame(8, [0x03, 0xE8] + Array("bye".utf8)) + Self.frame(1, Array("late".utf8))
    let expected: [WebSocketReader.Item] = [
      Self.message("grüße"), .message(WebSocketMessage(isText: false, [0, 255, 1])), .ping(Array("?".utf8)), .pong([]),
      Self.message("grüße"), Self.message(""), .message(WebSocketMessage(isText: false, long)),
      .close(code: 1000, reason: "bye"),
    ]
    #expect(items([stream]) == expected)
    #expect(items(stream.map { [$0] }) == expected)
    for cut in stream.indices { #expect(items([Array(stream[..<cut]), Array(stream[cut...])]) == expected, "\(cut)") }
  }

  static let broken: [([UInt8], Int)] = [
    (frame(1, [65], isMasked: false), 1002), (frame(1, [65], bits: 0x40), 1002), (frame(3, []), 1002),
    (frame(11, []), 1002), (frame(0, [65]), 1002), (frame(1, [65], isFinal: false) + frame(1, [66]), 1002),
    (frame(9, [], isFinal: false), 1002), (frame(9, Array(repeating: 1, count: 126)), 1002),
    (frame(8, [3]), 1002), (frame(8, [0x03, 0xED]), 1002), (frame(8, [0x03, 0xE7]), 1002),
    (frame(8, [0xFF, 0xFF]), 1002),
    (frame(8, [0x03, 0xE8, 0xFF]), 1007), (frame(1, [0xC3]), 1007), (frame(1, [0xED, 0xA0, 0x80]), 1007),
    (frame(1, [0xC3], isFinal: false) + frame(0, [0x28]), 1007),
    // Lengths with a longer encoding than necessary, or out of range.
    ([0x82, 0xFE, 0, 5], 1002), ([0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4], 1002),
    ([0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], 1002),
  ]

  @Test(arguments: broken) func whatBreaksTheRulesIsNamed(_ bytes: [UInt8], _ code: Int) {
    // The mask of a short frame that the test omits.
    let bytes = bytes == [0x82, 0xFE, 0, 5] ? bytes + [1, 2, 3, 4] : bytes
    #expect(failure(items([bytes])) == code)
    #expect(failure(items(bytes.map { [$0] })) == code)
  }

  /// The code of the failure at the end of the items.
  private func failure(_ items: [WebSocketReader.Item]) -> Int? {
    if case .failed(let code, _)? = items.last { code } else { nil }
  }

  @Test func serversMaskNothing() {
    #expect(items([Self.frame(1, [65], isMasked: false)], isServer: false) == [Self.message("A")])
    #expect(failure(items([Self.frame(1, [65])], isServer: false)) == 1002)
  }

  /// A length is refused before a byte of the payload has arrived.
  @Test func whatIsTooLargeIsRefusedAtOnce() {
    let head = Array(Self.frame(2, Array(repeating: 0, count: 101)).prefix(6))
    #expect(failure(items([head], maxMessage: 100)) == 1009)
    #expect(failure(items([head], maxFrame: 100)) == 1009)
    let zeros = { Array(repeating: UInt8(0), count: $0) }
    let parts = Self.frame(2, zeros(60), isFinal: false) + Self.frame(0, zeros(41))
    #expect(failure(items([parts], maxMessage: 100)) == 1009)
    let huge: [UInt8] = [0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4]
    #expect(failure(items([huge])) == 1009)
  }

  @Test(arguments: [0, 1, 125, 126, 65_535, 65_536]) func framesAreReadAsTheyAreWritten(_ count: Int) {
    let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    #expect(
      items([WebSocketFrame.bytes(.binary, payload, mask: 0xDEAD_BEEF)])
        == [.message(WebSocketMessage(isText: false, payload))])
    #expect(
      items([WebSocketFrame.ofServer(isText: false, payload)], isServer: false)
        == [.message(WebSocketMessage(isText: false, payload))])
  }

  /// The example of RFC 6455, 1.3.
  @Test func theKeyOfTheStandardIsAnswered() {
    #expect(WebSocketHandshake.accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    #expect(WebSocketHandshake.isKey("dGhlIHNhbXBsZSBub25jZQ==") && !WebSocketHandshake.isKey("dGhlIHNhbXBsZSBub25jZQ"))
  }

  @Test(arguments: [
    ("ws://h", "h:80", "/"), ("wss://h:444/a/b?c=d#e", "h:444", "/a/b?c=d"), ("WSS://[::1]/x", "[::1]:443", "/x"),
    ("ws://h?x", "h:80", "/?x"), ("http://h/", "", ""), ("ws://h:0/", "", ""), ("ws:", "", ""),
    ("ws://", "", ""), ("ws", "", ""), ("ws://[::1", "", ""), ("ws:/h", "", ""),
  ]) func addressesAreTakenApart(_ url: String, _ place: String, _ path: String) {
    let target = WebSocketClient.Target(url)
    #expect((target?.text ?? "") == place && (target?.path ?? "") == path)
  }
}
