public import PipelineCore
import Synchronization
import Transport

/// `stdin`: what is piped or typed in.
public struct Stdin: SourceComponent {
  public var decode = DecodeParameter(.text)
  public var maxLine = ByteSize(1 << 20)
  public var whenTooLong = WhenTooLong.reject
  public var maxBytes = ByteSize(16 << 20)

  public init() {}

  public static let spec = ComponentSpec<Stdin>(
    "stdin",
    summary: "Reads standard input: lines of text, JSON documents, or everything at once.",
    details: """
      It completes at the end of the input; a last line without a line feed counts. Only one source of \
      a process can read standard input.
      """,
    parameters: [
      .init("decode", \.decode, primary: true, "How bytes become events."),
      .init("maxLine", \.maxLine, "The longest line."),
      .init("whenTooLong", \.whenTooLong, "What becomes of a longer line."),
      .init("maxBytes", \.maxBytes, "The largest input for `decode: whole`."),
    ],
    examples: [
      .snippet("lines of text", "stdin: { decode: text }"),
      .snippet("a JSON document a line", "stdin: { decode: json }"),
    ],
    edges: EdgeCases(
      empty: "Completes.",
      error: "A read that fails ends it with an error; a line that cannot be decoded goes to the errors output.",
      completion: "At the end of the input; a last line without a line feed counts.",
      disposal: "Stops reading; the input stays open."),
    rivals: ["Vector stdin", "Benthos stdin", "Logstash stdin"],
    wants: [
      .init(.reading, "read what is piped into the process", "stdin"),
      .init(.reading, "read JSON lines from a pipe", "stdin: { decode: json }"),
    ],
    seeAlso: ["file"])

  public var outputType: EventType { decode.options.eventType }

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    Node(self, seat, downstream)
  }

  /// Whether some source reads standard input.
  private static let claimed = Mutex(false)

  final class Node: DecodingSource {
    private let parameters: Stdin
    private let decoder: (any EventDecoder)?
    private lazy var intake = Intake(seat, gate: SemaphoreGate())
    private var reader: BlockReader?
    private var hasClaim = false
    private lazy var lineOrigin = Origin(
      source: origin.source, receivedAt: executor.wallTime, reply: origin.reply)

    init(_ parameters: Stdin, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      decoder = try? parameters.decode.options.decoder()
      super.init(seat, downstream: downstream)
    }

    override func begin() {
      guard let decoder else { return }
      hasClaim = Stdin.claimed.withLock {
        if $0 { return false }
        $0 = true
        return true
      }
      guard hasClaim else {
        finish(
          failing: SignalFailure(.source, "another source reads standard input already", at: seat.location))
        return
      }
      var options = BlockReader.Options()
      options.mode = .init(decoder.framing, limit: parameters.maxBytes.bytes)
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      let intake = intake
      let decoding = BlockDecoding(decoder)
      let node = Weak(self)
      do throws(PosixError) {
        let reader = try BlockReader(.standardInput, options: options)
        self.reader = reader
        try reader.start(
          deliver: { block in
            let rows = decoding.decode(block.slab, offset: block.offset, isLast: false)
            _ = intake.deliver { node.object?.take(rows, block.longLine) }
          },
          end: { end in
            let rows = decoding.finish(end)
            _ = intake.deliver { node.object?.ended(end, rows) }
          })
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    private func take(_ rows: DecodedBlock, _ longLine: LongLine?) {
      take(rows, origin: lineOrigin)
      if let longLine { rejectLong(longLine, parameters.maxLine, lineOrigin) }
    }

    private func ended(_ end: BlockReader.End, _ rows: DecodedBlock?) {
      guard !isClosed else { return }
      switch end {
      case .finished:
        if let rows { take(rows, origin: lineOrigin) }
        finish()
      case .stopped: finish()
      case .failed(let error):
        finish(failing: SignalFailure(.source, error.message, at: seat.location))
      }
    }

    override func stop() {
      intake.stop()
      reader?.stop()
      if hasClaim { Stdin.claimed.withLock { $0 = false } }
    }
  }
}
