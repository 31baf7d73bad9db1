import PipelineCore
import PipelineTestSupport
import Testing

/// Feeds `input` to a decoder in pieces, as a reader does, cut at the given offsets.
///
/// A valid row is its JSON text with its offset; a rejected one its code, offset and bytes.
func decoded(
  _ options: DecoderOptions, _ input: [UInt8], cuts: [Int] = [], emptyEnd: Bool = false
) throws -> [String] {
  let decoder = try options.decoder()
  let arena = Arena()
  let rows = RowBatch()
  var result: [String] = []
  func hand(_ range: Range<Int>, isLast: Bool) {
    // Surrounds the range with data that must not matter.
    let slab = Slab([0x78, 0x22, 0x0A] + input[range] + [0x22, 0x7D, 0x0A])
    decoder.decode(
      slab, 3..<3 + range.count, offset: Int64(range.lowerBound), isLast: isLast, arena: arena, into: rows)
    var refused = rows.rejected[...]
    func takeRefused(before index: Int) {
      while let first = refused.first, first.index <= index {
        let text = String(decoding: first.bytes.rawBytes, as: UTF8.self)
        result.append("!\(first.reason.code)@\(first.offset):\(text)")
        refused.removeFirst()
      }
    }
    for (index, row) in rows.rows.enumerated() {
      takeRefused(before: index)
      result.append("\(row.value.is(.bytes) ? "bytes " : "")\(writtenAsItCame(row.value))@\(row.offset)")
    }
    takeRefused(before: rows.count)
    rows.clear()
    arena.reset()
    withExtendedLifetime(slab) {}
  }
  var start = 0
  switch decoder.framing {
  case .whole:
    hand(0..<input.count, isLast: true)
  case .chunks, .anywhere:
    for cut in cuts + [input.count] {
      hand(start..<cut, isLast: cut == input.count)
      start = cut
    }
  case .lines:
    for cut in cuts {
      guard let feed = input[start..<max(cut, start)].lastIndex(of: 0x0A) else { continue }
      hand(start..<feed + 1, isLast: false)
      start = feed + 1
    }
    if emptyEnd, let feed = input[start...].lastIndex(of: 0x0A), feed + 1 == input.count {
      hand(start..<input.count, isLast: false)
      start = input.count
    }
    hand(start..<input.count, isLast: true)
  }
  return result
}

func decoded(_ options: DecoderOptions, _ input: String) throws -> [String] {
  try decoded(options, Array(input.utf8))
}

/// Every way of cutting the input gives the same rows.
func expectSameForAllCuts(_ options: DecoderOptions, _ input: [UInt8]) throws {
  let whole = try decoded(options, input)
  #expect(try decoded(options, input, emptyEnd: true) == whole)
  for cut in 0...input.count { #expect(try decoded(options, input, cuts: [cut]) == whole, "cut at \(cut)") }
  #expect(try decoded(options, input, cuts: Array(0...input.count)) == whole, "cut everywhere")
  var dice = SplitMix(UInt64(input.count))
  for _ in 0..<100 {
    let cuts = (0..<dice.below(6)).map { _ in dice.below(input.count + 1) }.sorted()
    #expect(try decoded(options, input, cuts: cuts, emptyEnd: true) == whole, "cuts at \(cuts)")
  }
}

func encoded(_ options: EncoderOptions, _ values: [Value]) throws -> String {
  let encoder = try options.encoder()
  let output = OutputBuffer()
  for value in values {
    let before = output.count
    if let failure = encoder.append(value, to: output) {
      #expect(output.count == before)
      output.append("!\(failure)\n" as String)
    }
  }
  return String(decoding: output.bytes, as: UTF8.self)
}
