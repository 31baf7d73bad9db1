import PipelineCore
import PipelineTestSupport
import Testing

@testable import Transport

@Suite struct MessageCutterTests {
  /// The messages of a stream that arrives in pieces ending at `cuts`: messages and rejections in order, with offsets.
  private func cut(
    _ bytes: [UInt8], _ framing: MessageFraming, limit: Int = 20, cuts: [Int] = [], ends: Bool = true
  ) -> [String] {
    var cutter = MessageCutter(framing, limit: limit)
    var found: [String] = []
    var from = 0
    func note(_ block: MessageBlock?) -> Bool {
      guard let block else { return false }
      for range in block.messages {
        let bytes = block.slab.bytes[range]
        found.append("\(block.offset + Int64(range.lowerBound)):\(String(decoding: bytes, as: UTF8.self))")
      }
      for refused in block.refused { found.append("!\(refused.offset):\(refused.reason)") }
      return block.isBroken
    }
    for to in cuts + [bytes.count] {
      let piece = bytes[from..<to]
      cutter.space(max(piece.count, 1)).copyBytes(from: piece)
      if note(cutter.filled(piece.count)) { return found }
      from = to
    }
    if ends { _ = note(cutter.filled(0, isLast: true)) }
    return found
  }

  private func cut(_ text: String, _ framing: MessageFraming, limit: Int = 20) -> [String] {
    cut(Array(text.utf8), framing, limit: limit)
  }

  @Test func lines() {
    #expect(cut("a\nbc\r\n\nd", .lines) == ["0:a", "2:bc", "6:", "7:d"])
    #expect(
      cut("ab\n123456\nc\n", .lines, limit: 5)
        == ["0:ab", "10:c", "!3:the message is longer than the 5 bytes that 'maxMessage' allows"])
  }

  @Test func zeroBytes() { #expect(cut("a\nb\0c\0d", .nul) == ["0:a\nb", "4:c", "6:d"]) }

  @Test func lengths() {
    #expect(cut([0, 1, 65, 0, 0, 0, 2, 66, 67], .length(bytes: 2, isLittle: false)) == ["2:A", "5:", "7:BC"])
    #expect(cut([1, 0, 0, 0, 65], .length(bytes: 4, isLittle: true)) == ["4:A"])
    #expect(
      cut([0, 3, 65], .length(bytes: 2, isLittle: false)) == ["!0:the stream ended within a message"])
    #expect(
      cut([0, 6, 1, 2, 3, 4, 5, 6, 0, 1, 65], .length(bytes: 2, isLittle: false), limit: 5)
        == ["10:A", "!0:the message has 6 bytes, more than the 5 bytes that 'maxMessage' allows"])
    // The greatest length that can be written neither traps nor allocates memory.
    #expect(
      cut([255, 255, 255, 255, 1], .length(bytes: 4, isLittle: false), limit: 5)
        == ["!0:the message has 4294967295 bytes, more than the 5 bytes that 'maxMessage' allows"])
  }

  @Test func countedOctets() {
    #expect(
      cut("1 a12 hello\nworld!0", .octets) == ["2:a", "6:hello\nworld!", "!18:the stream ended within a message"])
    for text in ["x a", "0 a", "01 a", " a", "12345678901 a", "3abc"] {
      #expect(
        cut(text, .octets) == ["!0:a message must begin with its length in digits and a space"], "\(text)")
    }
  }

  @Test func fixedSizes() {
    #expect(cut("abcdefg", .fixed(3)) == ["0:abc", "3:def", "!6:the stream ended within a message"])
  }

  @Test func everything() {
    #expect(cut("a\nb", .whole) == ["0:a\nb"])
    #expect(cut("", .whole) == [])
    #expect(
      cut("abcdef", .whole, limit: 5) == ["!0:the message is longer than the 5 bytes that 'maxMessage' allows"])
  }

  @Test func syslogHasBothFramings() {
    #expect(cut("<1>a\n6 <2>b\nc\n<3>d\r\n\0<4>", .syslog) == ["0:<1>a", "7:<2>b\nc", "14:<3>d", "21:<4>"])
  }

  private static let framings: [MessageFraming] = [
    .lines, .nul, .length(bytes: 2, isLittle: false), .length(bytes: 4, isLittle: true), .octets, .fixed(3), .whole,
    .syslog,
  ]

  /// However the stream is cut, the messages are the same, and no stream traps.
  @Test(arguments: framings) func anyCutGivesTheSameMessages(_ framing: MessageFraming) {
    var dice = SplitMix(11)
    let alphabet: [UInt8] = [0, 0, 1, 2, 3, 10, 10, 13, 32, 32, 0x30, 0x31, 0x32, 0x33, 0x3C, 65, 66, 255]
    for _ in 0..<3000 {
      let bytes = (0..<dice.below(60)).map { _ in alphabet[dice.below(alphabet.count)] }
      let whole = cut(bytes, framing, limit: 7)
      let cuts = (0..<dice.below(8)).map { _ in dice.below(bytes.count + 1) }.sorted()
      let pieces = cut(bytes, framing, limit: 7, cuts: cuts)
      // Rejections follow the messages of their block.
      #expect(pieces.sorted() == whole.sorted(), "\(bytes) \(cuts)")
    }
  }
}
