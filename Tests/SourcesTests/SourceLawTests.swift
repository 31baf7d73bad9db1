import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Laws of input: pieces that cannot be decoded, and the end of input that contains one.
@Suite(.timeLimit(.minutes(5))) struct SourceLawTests {
  private let scratch = Scratch()

  // MARK: Malformed pieces

  /// An undecodable piece between two valid ones; nil: the format has no such piece. A new format needs a line here.
  private func pieces(_ format: DecoderFormat) -> (decode: String, good: String, bad: [UInt8])? {
    let name = format.rawValue
    switch format {
    case .text, .lines: return (name, "a\n", [0x61, 0xFF, 0x0A])
    case .json, .ndjson: return (name, "{\"a\":1}\n", Array("{\"a\":1\n".utf8))
    case .csv: return ("{ csv: { header: [a, b] } }", "1,2\n", Array("1,2,3\n".utf8))
    case .logfmt: return (name, "a=1\n", Array("a=\"1\n".utf8))
    case .regex: return ("{ regex: '(?P<a>[0-9]+)' }", "1\n", Array("x\n".utf8))
    case .syslog: return ("{ syslog: { strict: true } }", "<14>1 - - - - - - a\n", Array("no message\n".utf8))
    case .container:
      return (name, "2026-01-01T00:00:00.000000000Z stdout F a\n", Array("neither CRI nor JSON\n".utf8))
    case .statsd: return (name, "a:1|c\n", Array("a metric\n".utf8))
    case .prometheus: return (name, "a 1\n", Array("a {\n".utf8))
    // One piece is the whole input, so there is no next one.
    case .whole, .jsonDocuments, .bytes: return nil
    }
  }

  /// Only the malformed piece is rejected, and the position moves past it: it is not repeated after a restart.
  @Test(arguments: DecoderFormat.allCases) func aMalformedPieceIsRefusedAlone(_ format: DecoderFormat) throws {
    guard let (decode, good, bad) = pieces(format) else { return }
    // An exposition ends with its input.
    let isFollowed = format != .prometheus
    let name = "in.\(format.rawValue)"
    scratch.append(Array(good.utf8) + bad + Array(good.utf8), to: name)
    func pipeline(_ state: [UInt8]? = nil) throws -> RealPipeline {
      try RealPipeline(
        """
        name: t
        sources: { in: { file: { path: '\(scratch(name))', \(isFollowed ? "follow: true, start: beginning, " : "")decode: \(decode) } } }
        sinks:
          out: { from: in, probe: {} }
          lost: { from: in.errors, probe: {} }
        """, restoring: state)
    }
    let first = try pipeline()
    first.run(within: .seconds(60)) { first.counters.sent + first.counters.rejected >= 3 }
    #expect(first.counters.sent == 2 && first.counters.rejected == 1, "\(decode): \(first.counters) \(first.log)")
    #expect(first.probe("lost").events.count == 1)
    guard isFollowed else { return }
    let state = try #require(first.suspend())
    scratch.append(good, to: name)
    let second = try pipeline(state)
    #expect(second.run(within: .seconds(60)) { second.counters.received > 0 })
    #expect(second.counters.sent == 1 && second.counters.rejected == 0, "\(decode): \(second.counters)")
  }

  // MARK: The end

  /// Sources whose input ends.
  private func bounded(_ name: String) throws -> String? {
    scratch.append("1\n2\n3\n", to: "three")
    return switch name {
    case "values": "values: [1, 2, 3]"
    case "file": "file: { path: '\(scratch("three"))', decode: json }"
    case "exec": "exec: { command: [cat, '\(scratch("three"))'], streaming: true, decode: json }"
    default: nil
    }
  }

  /// The pipeline ends when the last event is acknowledged, and not before.
  @Test(arguments: ["values", "file", "exec"]) func theEndComesAfterTheLastAcknowledgement(_ name: String) throws {
    let source = try #require(try bounded(name))
    let sink = HoldingSink()
    let pipeline = try RealPipeline("sources: { in: { \(source) } }\nsinks: { out: { from: in, discard: {} } }") {
      $0.replacements.sinks = { _ in sink }
    }
    #expect(pipeline.run(within: .seconds(60)) { sink.held.events.count == 3 && !sink.held.receipts.isEmpty })
    #expect(pipeline.outcome == nil)
    pipeline.inTurn { _ in sink.held.release() }
    #expect(pipeline.runToEnd(within: .seconds(60)) == .completed)
  }
}
