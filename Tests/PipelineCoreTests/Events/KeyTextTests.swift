import Measuring
import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct KeyTextTests {
  /// Groups of values that are the same key.
  static let classes: [[String]] = [
    ["null"], ["true"], ["false"], ["0"], ["1"], ["-1"], ["1.0", "1.00", "10e-1"], ["0.0"], ["\"1\""], ["\"null\""],
    ["18446744073709551615"], ["9223372036854775807"], ["\"\""],
    [#""A""#, #""\u0041""#], [#""a\"b""#, #""a\u0022b""#], [#""é""#, #""\u00e9""#], [#""\ud83d\ude00""#, #""😀""#],
    ["[]"], ["[[]]"], [#"["a","b"]"#, #"[ "a" , "\u0062" ]"#], [#"["ab"]"#], [#"["a",["b"]]"#], [#"[["a"],"b"]"#],
    ["[1,2]"], ["[12]"], ["[1.0,2]"], [#"{"a":1}"#], [#"{"a":2}"#], [#"[{"a":1}]"#],
    [#"["\u0005"]"#], [#"["a\u0006\u0001\u0000\u0000\u0000b"]"#], [#"[null]"#], [#"[true,false]"#],
  ]

  /// The text of a value as a source would pass it on, or expanded.
  private func text(_ json: String, expanded: Bool) -> [UInt8] {
    let arena = Arena()
    let frame = EvaluationFrame(arena: arena, json: JSONParser())
    let slab = Slab(Array("{\"k\": \(json)}".utf8))
    let event = frame.json.open(slab.bytes)
    let raw = Array("k".utf8).withUnsafeBytes { JSONParser.lookup(event, key: $0) }
    let value = expanded ? frame.json.expand(raw, into: arena) : raw
    let buffer = OutputBuffer()
    KeyText.append(value, to: buffer, Context(state: frame.state))
    return withExtendedLifetime(slab) { Array(buffer.bytes) }
  }

  @Test func equalKeysHaveEqualTexts() {
    var owner: [[UInt8]: Int] = [:]
    for (number, values) in Self.classes.enumerated() {
      let texts = Set(values.flatMap { [text($0, expanded: false), text($0, expanded: true)] })
      #expect(texts.count == 1, "\(values)")
      for text in texts {
        #expect(owner[text] == nil, "\(values) and \(Self.classes[owner[text] ?? 0])")
        owner[text] = number
      }
    }
  }

  @Test func anIntMadeUnsignedIsTheSameKey() {
    let frame = EvaluationFrame(arena: Arena(), json: JSONParser())
    func text(_ value: Value) -> [UInt8] {
      let buffer = OutputBuffer()
      KeyText.append(value, to: buffer, Context(state: frame.state))
      return Array(buffer.bytes)
    }
    #expect(text(.int(7)) == text(.uint(7)))
    #expect(text(.int(-1)) != text(.uint(.max)))
    #expect(text(.double(.nan)) == text(.double(-.nan)))
    #expect(text(.double(7)) != text(.int(7)))
  }

  /// `distinct` without `by` uses each event as a key. A list that is still JSON text is parsed, which does allocate.
  @Test(arguments: classes.map { $0[0] }.filter { !$0.hasPrefix("[") }) func aKeyCostsNoAllocation(_ json: String) {
    let arena = Arena()
    let frame = EvaluationFrame(arena: arena, json: JSONParser())
    let slab = Slab(Array("{\"k\": \(json)}".utf8))
    let event = frame.json.open(slab.bytes)
    let key = Array("k".utf8).withUnsafeBytes { JSONParser.lookup(event, key: $0) }
    let buffer = OutputBuffer()
    let context = Context(state: frame.state)
    let counts = ExpressionLoop.counts(100) {
      buffer.clear()
      arena.reset()
      KeyText.append(key, to: buffer, context)
    }
    #expect(counts.allocations == 0)
    withExtendedLifetime(slab) {}
  }

  @Test(arguments: [1, 2, 3]) func bytesAreEqualIfNoneDiffers(seed: UInt64) {
    var random = SplitMix(seed)
    for _ in 0..<20_000 {
      let length = random.below(40)
      let a = (0..<length).map { _ in UInt8(truncatingIfNeeded: random.below(256)) }
      var b = a
      if length > 0, random.below(2) == 0 { b[random.below(length)] ^= 1 << UInt8(random.below(8)) }
      let same = a.withUnsafeBytes { x in
        b.withUnsafeBytes { y in
          guard let x = x.baseAddress, let y = y.baseAddress else { return true }
          return areEqual(x, y, length)
        }
      }
      #expect(same == (a == b))
    }
  }
}
