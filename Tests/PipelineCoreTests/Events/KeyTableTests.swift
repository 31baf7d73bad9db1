import PipelineTestSupport
import Testing

@testable import PipelineCore

/// The table compared with a dictionary, over random short and long texts.
@Suite struct KeyTableTests {
  @Test(arguments: [1, 2, 3]) func isADictionary(seed: UInt64) {
    var random = SplitMix(seed)
    let table = KeyTable()
    var expected: [[UInt8]: Int] = [:]
    for round in 0..<20_000 {
      // Growing and shrinking phases, so that holes are closed at every fill level.
      let grows = round / 2500 % 2 == 0
      let length = random.below(8) == 0 ? random.below(80) : random.below(4)
      let text = (0..<length).map { _ in UInt8(truncatingIfNeeded: random.below(5)) }
      text.withUnsafeBytes { bytes in
        let hash = table.hash(bytes)
        let found = table.find(bytes, hash)
        #expect(found == expected[text])
        if let found {
          #expect(Array(table.text(found)) == text)
          if !grows || random.below(3) == 0 {
            table.remove(found)
            expected[text] = nil
          }
        } else if grows || random.below(4) == 0 {
          expected[text] = table.insert(bytes, hash)
        }
      }
      #expect(table.count == expected.count)
    }
    for (text, number) in expected {
      text.withUnsafeBytes { #expect(table.find($0, table.hash($0)) == number) }
    }
    table.removeAll()
    #expect(table.count == 0)
    for text in expected.keys { text.withUnsafeBytes { #expect(table.find($0, table.hash($0)) == nil) } }
  }
}
