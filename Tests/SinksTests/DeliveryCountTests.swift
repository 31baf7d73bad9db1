import Foundation
import PipelineCore
import PipelineHost
import Testing
import Transport

@testable import Sinks

/// Only delivered events count as out; accepted but unwritten ones are counted separately.
@Suite struct DeliveryCountTests {
  let scratch = Scratch()

  /// Writes to a pipe.
  private struct PipeSink: SinkComponent {
    static let spec = ComponentSpec<PipeSink>("pipe", summary: "A pipe.")
    var output: Int32 = -1
    var encode = EncodeParameter(.ndjson)
    func makeSink(_ nodeContext: NodeContext) -> RunningSink {
      StreamSink(nodeContext, encode, .descriptor(FileDescriptor(output, name: "a pipe")))
    }
  }

  private func pipe() -> (input: Int32, output: Int32) {
    var ends: [Int32] = [0, 0]
    #expect(Glibc.pipe(&ends) == 0)
    return (ends[0], ends[1])
  }

  /// The pipe accepts the first 64 KiB, whoever encodes: turns, decoder threads, or nothing, because lines pass unchanged.
  @Test(arguments: ["", "filter: event.n >= 0", "take: 1000000"])
  func whatWasNeverWrittenIsNotOut(_ chain: String) throws {
    let count = 20_000
    scratch.append((0..<count).map { "{\"n\":\($0)}\n" }.joined(), to: "in")
    let ends = pipe()
    defer { close(ends.input) }
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in"))', decode: ndjson } } }
      sinks: { out: { from: in, chain: [\(chain)], discard: {} } }
      """
    ) { $0.replacements.sinks = { _ in PipeSink(output: ends.output) } }
    #expect(pipeline.run { pipeline.counters.received == count })
    pipeline.inTurn { $0.execution.cancel() }
    #expect(pipeline.run { pipeline.execution.hasClosed })
    _ = fcntl(ends.input, F_SETFL, O_NONBLOCK)
    var text: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    while case let piece = read(ends.input, &buffer, buffer.count), piece > 0 { text += buffer[..<piece] }
    let written = text.count { $0 == 0x0A }
    #expect(written > 1000 && written < count)
    let counters = pipeline.counters
    #expect(counters.sent == UInt64(written))
    #expect(counters.undelivered == UInt64(count - written))
    #expect(counters.rejected == 0)
    let reported = pipeline.log.filter { $0.hasPrefix("warning out/discard: test.yaml:2:") }
    #expect(reported.count == 1)
    #expect(
      reported.first?.contains("\(count - written) events were taken but not delivered: ") == true, "\(pipeline.log)")
  }

  /// A block that is not one line per event counts as out either as a whole or not at all.
  @Test func aBlockOfLongEventsIsOutAsAWhole() throws {
    let count = 5000
    scratch.append((0..<count).map { "{\"n\":\($0)}\n" }.joined(), to: "in")
    let ends = pipe()
    defer { close(ends.input) }
    var encode = EncodeParameter(.json)
    encode.options.indent = 8
    let sink = PipeSink(output: ends.output, encode: encode)
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in"))', decode: ndjson } } }
      sinks: { out: { from: in, discard: {} } }
      """
    ) { $0.replacements.sinks = { _ in sink } }
    #expect(pipeline.run { pipeline.counters.received == count })
    pipeline.inTurn { $0.execution.cancel() }
    #expect(pipeline.run { pipeline.execution.hasClosed })
    let counters = pipeline.counters
    #expect(counters.sent == 0 && counters.undelivered == UInt64(count))
  }

  /// The reader stops reading, which means that it has enough.
  @Test func unreadFieldsAreNotMissing() throws {
    let ends = pipe()
    close(ends.input)
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [1, 2, 3] } }
      sinks: { out: { from: in, discard: {} } }
      """
    ) { $0.replacements.sinks = { _ in PipeSink(output: ends.output) } }
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.counters.sent == 0 && pipeline.counters.undelivered == 0)
    #expect(pipeline.log == [])
  }

  @Test func errorsThatAreWrittenAreNotOut() throws {
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [1, 0, 2, 4] } }
      signals:
        divided: { from: in, chain: [ { map: 8 / event } ] }
        failures: { from: divided.errors, chain: [ { map: event.error } ] }
        all: { merge: [divided, divided.errors] }
      sinks:
        good: { from: divided, file: '\(scratch("good"))' }
        bad: { from: failures, file: '\(scratch("bad"))' }
        gone: { from: divided.errors, discard: {} }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(scratch.read("good") == "8\n4\n2\n")
    #expect(scratch.read("bad").split(separator: "\n").count == 1)
    #expect(pipeline.counters.received == 4)
    #expect(pipeline.counters.sent == 3)
    #expect(pipeline.counters.rejected == 1)
  }

  /// If errors and events are one signal, its written part is out.
  @Test func aSignalOfBothIsOut() throws {
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [1, 0, 2, 4] } }
      signals: { divided: { from: in, chain: [ { map: 8 / event } ] } }
      sinks: { out: { from: { merge: [divided, divided.errors] }, file: '\(scratch("out"))' } }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.counters.sent == 4)
  }
}
