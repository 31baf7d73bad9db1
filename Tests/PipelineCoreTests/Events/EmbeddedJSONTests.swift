import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// JSON text that was not checked when it was read is written as JSON only if it is well formed, or as its original line.
@Suite struct EmbeddedJSONTests {
  private static let malformed = "{\"b\":,}"

  /// Calls `body` with JSON text as the decoders pass it on.
  private func raw<T>(_ text: String, _ body: (Value, Arena) throws -> T) rethrows -> T {
    var text = text
    return try text.withUTF8 { bytes in
      try body(JSONParser().open(UnsafeRawBufferPointer(bytes)), Arena())
    }
  }

  private func written(_ value: Value, indent: Int? = nil) -> String {
    let output = OutputBuffer()
    let layout = indent.map { JSONWriter.Layout.pretty(indent: $0) } ?? .compact
    if let failure = JSONWriter.append(value, to: output, layout: layout) { return "failed: \(failure)" }
    return String(decoding: output.bytes, as: UTF8.self)
  }

  @Test func onlyALineIsPassedOnAsItCame() {
    raw(Self.malformed) { value, _ in
      #expect(value.is(.jsonMap))
      #expect(written(value) == "failed: \(EncodingFailure.malformed)")
      let output = OutputBuffer()
      #expect(JSONWriter.appendAsItCame(value, to: output) == nil)
      #expect(String(decoding: output.bytes, as: UTF8.self) == Self.malformed)
    }
  }

  /// Text that was checked when it was read, and each part of it, is not checked again.
  @Test func whatWasCheckedIsKnown() throws {
    let text = Array(#"{"a":{"b":[1,{"c":2}]}}"#.utf8)
    let (arena, parser) = (Arena(), JSONParser())
    text.withUnsafeBytes { bytes in
      let unknown = parser.open(bytes)
      #expect(!unknown.isChecked && !JSONParser.lookup(unknown, key: Value.literal("a").rawBytes).isChecked)
      let whole = parser.open(bytes, checking: .everything)
      let part = JSONParser.lookup(whole, key: Value.literal("a").rawBytes)
      let list = JSONParser.lookup(part, key: Value.literal("b").rawBytes)
      #expect(whole.isChecked && part.isChecked && list.isChecked && JSONParser.element(list, at: 1).isChecked)
      #expect(!JSONParser.element(list, at: 0).isChecked)
      #expect(OwnedValue(part).value.isChecked)
      _ = arena
    }
    let read = try #require(Evaluation("event.a.b", String(decoding: text, as: UTF8.self)))
    #expect(read.value.is(.jsonList) && !read.value.isChecked)
  }

  /// All encoders, in all forms: only line streams pass a line through unchanged.
  @Test(arguments: EncoderFormat.allCases) func encoders(_ format: EncoderFormat) throws {
    for (indent, terminated) in [(nil, true), (nil, false), (2, true), (2, false)] as [(Int?, Bool)] {
      for escapes in [false, true] {
        var options = EncoderOptions(format)
        (options.indent, options.terminated, options.escapeControls) = (indent, terminated, escapes)
        let isLine =
          switch format {
          case .ndjson: terminated
          case .json: terminated && indent == nil
          case .text: terminated
          case .lines: true
          case .csv, .logfmt, .bytes, .form, .influx: false
          }
        try raw(Self.malformed) { value, arena in
          for (event, mayPass) in [
            (value, isLine), (arena.map(["a": value]), false), (arena.list([value]), false),
            (
              arena.map([
                "measurement": .literal("m"), "fields": arena.map(["f": .int(1)]), "tags": arena.map(["t": value]),
              ]), false
            ),
          ] {
            let output = OutputBuffer()
            let failure = try options.encoder().append(event, to: output)
            let text = String(decoding: output.bytes, as: UTF8.self)
            #expect(failure == nil ? !text.contains(#""b":,"#) || mayPass : text.isEmpty, "\(options): \(text)")
            if mayPass { #expect(text.hasPrefix(Self.malformed), "\(options)") }
          }
        }
      }
    }
  }

  /// All functions that make a text or bytes from any value.
  @Test func functions() {
    var tried: Set<String> = []
    for function in FunctionRegistry.all {
      for overload in function.overloads where overload.parameters.count == 1 {
        for argument in ["event.m", "[event.m]", "{'x': event.m}", "event"] {
          let call = overload.isMember ? "\(argument).\(function.name)()" : "\(function.name)(\(argument))"
          guard diagnose(call).isEmpty, let result = Evaluation(call, #"{"m":{"b":,}}"#, projects: false) else {
            continue
          }
          guard result.value.is(.string) || result.value.is(.bytes) else { continue }
          tried.insert(function.name)
          let text = String(decoding: result.value.rawBytes, as: UTF8.self)
          #expect(!text.contains(#""b":,"#), "\(call)")
        }
      }
    }
    #expect(evaluate("toJson(event.m)", #"{"m":{"b":,}}"#)?.contains("malformed JSON") == true)
    #expect(evaluate("toJson(event.m)", #"{"m":{"b":1}}"#) == #""{\"b\":1}""#)
  }

  @Test func templates() throws {
    for text in ["{{ event.m }}", "a {{ event }} b", "{{ [event.m] }}", "{{ event.?m }}"] {
      var diagnostics = Diagnostics()
      let template = try #require(
        ExpressionTemplate.parse(LocatedText(text), into: &diagnostics)?
          .check(in: ExpressionScope([.init("event")]), into: &diagnostics)?.compile())
      try raw(#"{"m":{"b":,}}"#) { event, arena in
        let frame = EvaluationFrame(variables: 1, slots: 0, arena: arena, json: JSONParser())
        frame[0] = event
        let buffer = OutputBuffer()
        let error = try #require(template.render(frame, into: buffer), "\(text)")
        #expect(template.failureMessage(error, frame).contains("malformed"), "\(text)")
        #expect(!String(decoding: buffer.bytes, as: UTF8.self).contains(#""b":,"#))
      }
    }
  }

  /// The files that write JSON text without a check. A new one needs a reason here: it writes a line of a line stream, or no output.
  @Test func placesThatDoNotCheck() throws {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
      .appendingPathComponent("../../../Sources").standardizedFileURL
    let known: Set<String> = [
      "PipelineCore/Events/JSONWriter.swift",
      // Lines of NDJSON and of text.
      "PipelineCore/Codecs/EventEncoder.swift",
      // Only the number of bytes.
      "PipelineCore/Events/JSONSize.swift",
      // Shown as a string, or truncated.
      "PipelineCore/Engine/Edges/Execution+Errors.swift", "PipelineCore/Engine/Counters/StoppedEvents.swift",
      // Text that was checked when it was stored, or is only compared.
      "PipelineCore/Engine/Delivery/DeadLetterDocument.swift", "rxd/Daemon/Why/WhyQuestion.swift",
    ]
    let paths = try FileManager.default.subpathsOfDirectory(atPath: root.path).filter { $0.hasSuffix(".swift") }
    let found = try paths.filter { path in
      let text = try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)
      return text.contains("appendAsItCame(") || text.contains("appendUnchecked(")
    }
    #expect(Set(found) == known)
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
        let failure = "failed: \(EncodingFailure.malformed)"
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
