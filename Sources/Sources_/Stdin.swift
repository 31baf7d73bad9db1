import PipelineCore
import Synchronization
import Transport

/// `stdin`: reads standard input.
package struct Stdin: SourceComponent {
  package var decode = DecodeParameter(.text)
  var join: JoinParameter?
  var charset = CharsetParameter()
  package var maxLine = ByteSize(1 << 20)
  package var whenTooLong = WhenTooLong.reject
  package var maxBytes = ByteSize(16 << 20)

  package init() {}

  package static let spec = ComponentSpec<Stdin>(
    "stdin",
    summary: "Reads standard input: lines of text, JSON documents, or everything at once.",
    details: """
      It completes at the end of the input; a last line without a line feed counts. Only one source of \
      a process can read standard input. A reload goes on in the middle of a line or an event; at a stop the start of a line is the last line.
      """,
    parameters: [
      .init(
        "decode", \.decode, primary: true, nested: DecodeParameter.withCharsetAndJoin,
        "How bytes are decoded into events."),
      .init(
        "charset", \.charset,
        "How characters are encoded: utf-8, utf-16 (with a byte order mark), utf-16le, utf-16be, latin1, windows-1252, or another one that iconv(3) knows."
      ),
      .init("join", \.join, "Which lines make one event together, as with `file`; by default each is one."),
      .init(
        "maxLine", \.maxLine, applies: .notWord("decode", ["whole", "prometheus", "bytes", "jsonDocuments"]),
        "The longest line."),
      .init(
        "whenTooLong", \.whenTooLong, applies: .notWord("decode", ["whole", "prometheus", "bytes", "jsonDocuments"]),
        "What happens to a longer line."),
      .init("maxBytes", \.maxBytes, applies: .word("decode", ["whole", "prometheus"]), "The largest input."),
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
    memory: "The header row of CSV; of joined lines, the last event.", persistence: .position(version: 1),
    knownAs: ["Vector stdin", "Benthos stdin", "Logstash stdin"],
    useCases: [
      .init(.reading, "read the input of the process", "stdin"),
      .init(.reading, "read JSON lines from a pipe", "stdin: { decode: json }"),
    ],
    seeAlso: ["file"])

  package func validate(_ context: inout DecodingContext) {
    join?.check(decode.options, &context)
    charset.check(decode.options, joins: false, &context)
  }

  /// How bytes become events.
  var decoding: DecoderOptions { charset.reading(join?.joining(decode.options) ?? decode.options, maxLine: maxLine) }

  package var outputType: EventType { decode.options.eventType }
  package var namesEvents: Bool { true }
  package var decodesBlocks: Bool { true }
  package var readsStandardInput: Bool { true }
  package var once: (any SourceComponent)? { self }

  package func threads(_ limit: Int?) -> String? { decoding.threads(limit) }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  /// Input that was read but not sent before a pipeline was suspended; the next source continues with it.
  private static let kept = Mutex<KeptInput?>(nil)

  /// Whether any source reads standard input.
  private static let claimed = Mutex(false)

  final class Node: StreamSource {
    private let parameters: Stdin
    private var hasClaim = false
    /// Whether the other decoder's state could not be used.
    private var lacksBeginning = false
    private lazy var lineOrigin = Origin(
      source: origin.source, receivedAt: executor.wallTime, reply: origin.reply, identity: freshIdentity())

    init(_ parameters: Stdin, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(parameters.decoding, maxLine: parameters.maxLine, nodeContext, downstream)
    }

    override func begin() {
      hasClaim = Stdin.claimed.withLock {
        if $0 { return false }
        $0 = true
        return true
      }
      guard hasClaim else {
        finish(
          failing: SignalFailure(.source, "another source already reads standard input", at: nodeContext.location))
        return
      }
      guard let decoder = makeDecoder(parameters.decoding) else { return }
      execution.whenBegun { [self] in if !isClosed { read(by: decoder) } }
    }

    override var streamOrigin: Origin { lineOrigin }

    /// Continues where the previous version has stopped.
    private func read(by decoder: any EventDecoder) {
      var options = BlockReader.Options(
        parameters.decoding, limit: parameters.maxBytes, maxLine: parameters.maxLine,
        whenTooLong: parameters.whenTooLong, execution)
      options.refusesCompressed = parameters.decoding.readsText
      let kept = Stdin.kept.withLock { $0.take() }
      let start = kept?.start(by: parameters.decoding) ?? KeptInput.Start(position: decodingPosition)
      if lacksBeginning || start.lacksBeginning { warnOfBeginning() }
      do throws(PosixError) {
        try read(.standardInput, by: decoder, options, from: start)
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    override func ended(_ decoding: BlockDecoding?, isStopped: Bool) {
      if !isStopped { return finish() }
      if isPausing, execution.successor?.standardInput != nil {
        if let rest = reader?.rest, let decoding {
          let kept = KeptInput(rest, decoding, parameters.decoding)
          Stdin.kept.withLock { $0 = kept }
        }
        stopWaiting()
        endPause()
      } else if let decoding, let reader {
        // The input cannot be read again: its last line or document ends here.
        take(decoding.end(reader.rest)[...])
      } else if isPausing {
        endPause()
      } else {
        finish()
      }
    }

    /// Input that was read cannot be read again, so it is sent first; after the last piece the source completes.
    override func drain() {
      if let reader { reader.stop() } else { finish() }
    }

    override func suspend() {
      guard let reader, !isPausing else { return }
      beginPause()
      reader.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(decodingPosition)
      state.write(parameters.decoding.dependence)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let position = try state.read(DecodingPosition.self)
      let dependence = try state.read(String.self)
      if parameters.decoding.goesOn(at: position, dependence) {
        decodingPosition = position
      } else {
        lacksBeginning = true
      }
    }

    private func warnOfBeginning() {
      execution.services.log(
        .warning, execution.plan.steps[nodeContext.step.number].label,
        "'decode' has changed and needs the start of the input, which has been read; the next row names the columns")
    }

    override func resume() { begin() }

    override func stop() {
      if hasClaim { Stdin.claimed.withLock { $0 = false } }
      super.stop()
    }
  }
}

extension Stdin {
  package static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    [SavedPosition(offset: try state.read(DecodingPosition.self).offset)]
  }
}

extension Stdin: RelationalSource {
  package var relationalInput: RelationalInput { RelationalInput(paths: [], decoding: decoding, ends: true) }
}
