import PipelineTestSupport
import Testing

@testable import PipelineCore

/// JSON text that was not checked when it was read is passed on as it came, but does not spoil a larger document.
@Suite struct EmbeddedJSONTests {
  private static let malformed = "{\"b\":,}"

  /// Calls `body` with JSON text as the decoders leave it.
  private func raw<T>(_ text: String, _ body: (Value, Arena) -> T) -> T {
    var text = text
    return text.withUTF8 { bytes in
      body(JSONParser().open(UnsafeRawBufferPointer(bytes)), Arena())
    }
  }

  private func written(_ value: Value, indent: Int? = nil) -> String {
    let output = OutputBuffer()
    let layout = indent.map { JSONWriter.Layout.pretty(indent: $0) } ?? .compact
    if let failure = JSONWriter.append(value, to: output, layout: layout) { return "failed: \(failure)" }
    return String(decoding: output.bytes, as: UTF8.self)
  }

  @Test func aWholeEventIsPassedOnAsItCame() {
    raw(Self.malformed) { value, _ in
      #expect(value.is(.jsonMap))
      #expect(written(value) == Self.malformed)
    }
  }

  @Test(arguments: [nil, 2]) func aPartIsChecked(_ indent: Int?) {
    for good in ["{\"b\":1}", "[1,2]", "{\"b\":{\"c\":[]}}"] {
      raw(good) { value, arena in
        #expect(!written(arena.map(["a": value]), indent: indent).contains("failed"))
        #expect(!written(arena.list([.int(1), value]), indent: indent).contains("failed"))
      }
    }
    for bad in [Self.malformed, "[1,,2]", "{\"a\":{\"b\":nul}}", "[1 2]"] {
      raw(bad) { value, arena in
        let failure = "failed: it is malformed JSON, which cannot be a part of a larger document"
        #expect(written(arena.map(["a": value]), indent: indent) == failure, "\(bad)")
        #expect(written(arena.list([value]), indent: indent) == failure, "\(bad)")
      }
    }
  }

  @Test func whatIsShownIsItsText() {
    raw(Self.malformed) { value, arena in
      let output = OutputBuffer()
      #expect(JSONWriter.appendShown(arena.list([value]), to: output) == nil)
      #expect(String(decoding: output.bytes, as: UTF8.self) == "\"[{\\\"b\\\":,}]\"")
    }
  }
}
