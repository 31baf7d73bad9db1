import PipelineTestSupport
import Testing

@testable import PipelineCore

/// The parts of a stored dead letter that can be read.
@Suite struct DeadLetterDocumentTests {
  private func document(_ text: String) -> DeadLetterDocument? { DeadLetterDocument(Array(text.utf8)) }

  private func text(_ bytes: [UInt8]?) -> String { String(decoding: bytes ?? [], as: UTF8.self) }

  @Test func hasItsMembers() throws {
    let letter = try #require(
      document(
        #"{"error":"say \"no\"","code":"RX504","step":"out http","at":"a.yaml:3:4","source":"n","path":"/a","offset":12,"event":{"a":[1.50,"\u0041"]}}"#
      ))
    #expect(letter.error == #"say "no""# && letter.at == "a.yaml:3:4")
    #expect(letter.source == "n" && letter.path == "/a" && letter.offset == 12)
    #expect(text(letter.event) == #"{"a":[1.50,"\u0041"]}"#)
    #expect(letter.sink == "out" && letter.isCutBecause == nil)
  }

  @Test(arguments: ["", "[]", "{}", "{", #"{"error":"e","code":"RX504","step":"out http"}"#])
  func isNoLetter(_ text: String) { #expect(document(text) == nil) }

  @Test(
    arguments: [
      ("RX503", "out/2 map", nil), ("RX504", "out/2 map", nil), ("RX501", "n stdin", nil), ("RX504", "out file", "out"),
      ("RX503", "out/map", nil), ("RX501", "n/stdin", nil), ("RX504", "out/file", "out"),
    ] as [(String, String, String?)])
  func namesTheSink(_ code: String, _ step: String, _ sink: String?) throws {
    #expect(try #require(document(#"{"error":"e","code":"\#(code)","step":"\#(step)","event":1}"#)).sink == sink)
  }

  @Test func reportsThatItIsCut() throws {
    let long = String(repeating: "x", count: 4096)
    let cut = try #require(
      document(#"{"error":"e","code":"RX501","step":"n file","source":"n","path":"/a","offset":7,"event":"\#(long)"}"#))
    #expect(
      cut.isCutBecause
        == "it has only the beginning of the input; all of it is at its origin: the source 'n', /a, offset 7")
    #expect(
      try #require(document(#"{"error":"e","code":"RX504","step":"o file","event":"\#(long)"}"#)).isCutBecause == nil)
  }

  /// A pipeline reads the row when it starts.
  @Test(arguments: [#"{"a":[1.50,"\u0041",null]}"#, "7", #""x\ny""#, "null", "[1]", "18446744073709551615", "1e400"])
  func makesARow(_ event: String) throws {
    let letter = try #require(
      document(#"{"error":"e","code":"RX504","step":"out http","source":"n","offset":3,"event":\#(event)}"#))
    let time = VirtualTime()
    let row = try letter.row(5, for: "out", receivedAt: 99, clock: time)
    #expect(row.number == 5 && row.sink == "out" && row.events == 1)
    let context = StateReader.Context(Executor(clock: time))
    var reader = StateReader(row.bytes, 0..<row.bytes.count, context)
    #expect(try reader.byte() == EventRowWriter.format)
    try reader.readOrigins(haveIdentities: false)
    let read = try reader.event()
    let output = OutputBuffer()
    #expect(JSONWriter.append(read.value, to: output) == nil)
    #expect(text(Array(output.bytes)) == event)
    #expect(read.position == 3 && read.origin.takeUnretainedValue().source == "n")
    #expect(read.origin.takeUnretainedValue().receivedAt == 99 && reader.isAtEnd)
  }
}
