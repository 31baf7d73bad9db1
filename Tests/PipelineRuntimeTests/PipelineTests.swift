import Foundation
import PipelineCore
import PipelineHost
import PipelineRuntime
import Testing

/// The interface for programs that embed rxd.
@Suite struct PipelineTests {
  private func copying(_ folder: Scratch, _ chain: String = "") -> String {
    """
    sources: { lines: { file: { path: \(folder("in")), decode: ndjson } } }
    sinks: { out: { from: lines, chain: [\(chain)], file: { path: \(folder("out")), encode: ndjson } } }
    """
  }

  @Test func runsToItsEnd() throws {
    let folder = Scratch()
    folder.append("{\"a\":1}\n{\"a\":2}\n", to: "in")
    let pipeline = try Pipeline(copying(folder, "filter: 'event.a > ${LEAST}'"), variables: ["LEAST": "1"])
    #expect(pipeline.warnings.isEmpty)
    #expect(pipeline.run() == .completed)
    #expect(folder.read("out") == "{\"a\":2}\n")
  }

  @Test func reportsErrorsWithTheirPlaces() {
    #expect {
      _ = try Pipeline("sources: { a: { stdin: {} } }\nsinks: { out: { from: b, discard: {} } }", name: "my.yaml")
    } throws: { error in
      let invalid = error as? Pipeline.Invalid
      return invalid?.diagnostics.count { $0.severity == .error } == 1 && "\(error)".contains("my.yaml:2:")
    }
  }

  @Test func aFailureIsTheOutcome() throws {
    let folder = Scratch()
    folder.append("{\"a\":1}\n", to: "in")
    let pipeline = try Pipeline(copying(folder, "{ map: event.b, onError: fail }"))
    guard case .failed(let failure) = pipeline.run() else {
      Issue.record("the pipeline has not failed")
      return
    }
    #expect(failure.message.contains("'b'"))
  }

  @Test func rejectedEventsAreDeadLetters() throws {
    let folder = Scratch()
    folder.append("{\"a\":1}\nno JSON\n", to: "in")
    let letters = Notes()
    let pipeline = try Pipeline(copying(folder), deadLetter: { letters.add(String(decoding: $0, as: UTF8.self)) })
    #expect(pipeline.run() == .completed)
    #expect(letters.all.count == 1 && letters.all[0].contains("RX501"))
  }

  /// Called from another thread, while the pipeline has more input, and before it runs.
  @Test(arguments: [false, true]) func stopEndsIt(isEarly: Bool) throws {
    let lines = Notes()
    nonisolated(unsafe) var stop: () -> Void = {}
    let pipeline = try Pipeline(
      """
      sources: { ticks: { interval: 1ms } }
      sinks: { out: { from: ticks, chain: [ log, { take: 1000000 } ], discard: {} } }
      """,
      log: { _, _, message in
        lines.add(message)
        if lines.all.count == 3 { Thread.detachNewThread { stop() } }
      })
    stop = { pipeline.stop() }
    if isEarly { pipeline.stop() }
    #expect(pipeline.run() == .completed)
    #expect(isEarly ? lines.all.count < 3 : lines.all.count >= 3)
  }
}

/// Texts from any thread.
private final class Notes: @unchecked Sendable {
  private let lock = NSLock()
  private var texts: [String] = []
  func add(_ text: String) { lock.withLock { texts.append(text) } }
  var all: [String] { lock.withLock { texts } }
}
