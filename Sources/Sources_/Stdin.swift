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

  final class Node: DecodingSource {
    private let parameters: Stdin
    private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
    private var reader: BlockReader?
    private lazy var placement = makePlacement(
      threads: parameters.decoding.readsBlocksApart ? decodingThreads : 1)
    private var hasClaim = false
    /// The decoder, if turns decode.
    private var decoding: BlockDecoding?
    /// Ends the incomplete last event when its wait is over.
    private var timer = Wake.none
    /// The state from which a decoder continues after the last event.
    private var decodingPosition = DecodingPosition()
    /// The number of bytes sent, for statistics; standard input cannot be read again.
    private let sent = PositionLedger<Int64>(0)
    /// Whether the decoder's options have changed so that it would need the start of the input.
    private var lacksBeginning = false
    /// Whether the execution must wait until everything that was read has been sent.
    private var isPausing = false
    private lazy var lineOrigin = Origin(
      source: origin.source, receivedAt: executor.wallTime, reply: origin.reply, identity: freshIdentity())

    init(_ parameters: Stdin, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
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
      var options = BlockReader.Options()
      options.mode = .init(parameters.decoding.framing, limit: parameters.maxBytes.bytes)
      options.maxLine = parameters.maxLine.bytes
      options.whenTooLong = parameters.whenTooLong.policy
      options.refusesCompressed = parameters.decoding.readsText
      if let bytes = execution.reading.blockBytes { options.blockBytes = bytes }
      options.allBlocks = execution.services.memory.ofReaders
      execution.whenBegun { [self] in if !isClosed { read(by: decoder, options) } }
    }

    /// Continues where the previous version stopped.
    private func read(by decoder: any EventDecoder, _ options: BlockReader.Options) {
      var options = options
      let kept = Stdin.kept.withLock { $0.take() }
      let start = kept?.start(by: parameters.decoding) ?? KeptInput.Start(position: decodingPosition)
      options.beginning = start.reading
      decodingPosition = start.position
      if lacksBeginning || start.lacksBeginning { warnOfBeginning() }
      if let rows = start.rows {
        beginPiece()
        take(rows, origin: lineOrigin)
        guard !isClosed else { return }
      }
      let inputQueue = inputQueue
      let node = Weak(self)
      do throws(PosixError) {
        let reader = try BlockReader(.standardInput, options: options)
        self.reader = reader
        decoding = try reader.start(
          by: decoder, decoding: parameters.decoding, knowing: decodingPosition.memory, goingOnWith: start.decoding,
          threads: decodingThreads(for: parameters.decoding), into: inputQueue, placement: placement
        ) { pieces in node.object?.take(pieces[...]) }
        if joining != nil { decoding?.clock = { [weak self] in self?.now.nanoseconds ?? 0 } }
        awaitMore()
      } catch {
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// How lines are joined; nil if they are not.
    private lazy var joining = parameters.decoding.join

    override func dryRun() { _ = makeDecoder(parameters.decoding) }

    override func beginPiece() { beginPiece(of: sent) { [self] in unsentOffset ?? decodingPosition.offset } }

    /// Takes pieces one after another. If the rows of a piece need further turns, the next piece waits for the last of
    /// these.
    private func take(_ pieces: ArraySlice<DecodedPiece>) {
      if !isClosed { beginPiece() }
      var rest = pieces
      while !isClosed, let piece = rest.popFirst() {
        if let rows = piece.rows { take(rows, encoded: piece.encoded, origin: lineOrigin) }
        guard isBatchDone else {
          return whenBatchIsDone { [unowned self, rest] in
            placement.usedMore(in: restTime)
            end(piece)
            take(rest)
          }
        }
        end(piece)
      }
      endTurn(placement)
      awaitMore()
    }

    /// Sets the timer that ends the last event if no further line arrives in the time that `join` allows.
    private func awaitMore() {
      guard let join = joining, !isClosed else { return }
      cancelWake(&timer)
      guard let decoding, decoding.pendingOffset != nil else { return }
      timer = wake(after: decoding.dueAt.map { TimeSpan(nanoseconds: max(0, $0 &- now.nanoseconds)) } ?? join.wait)
    }

    override func woke(_ token: Int) {
      timer = .none
      guard isBatchDone else { return awaitMore() }
      guard let (rows, place) = decoding?.endDueEvents(at: now.nanoseconds) else { return awaitMore() }
      take([DecodedPiece(rows: rows, place: place)])
    }

    /// Handles the end of a piece, after its rows were sent.
    private func end(_ piece: DecodedPiece) {
      if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, lineOrigin) }
      guard !isClosed else { return }
      if let place = piece.place { decodingPosition = place }
      switch piece.end {
      case nil: break
      case .finished: finish()
      case .stopped where isPausing && execution.successor?.standardInput != nil:
        if let rest = reader?.rest, let decoding = piece.decoding {
          let kept = KeptInput(rest, decoding, parameters.decoding)
          Stdin.kept.withLock { $0 = kept }
        }
        cancelWake(&timer)
        endPause()
      case .stopped:
        // The input cannot be read again: its last line or document ends here.
        if let decoding = piece.decoding, let reader {
          take(decoding.end(reader.rest)[...])
        } else if isPausing {
          endPause()
        } else {
          finish()
        }
      case .failed(let error):
        finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
      }
    }

    /// Input that was read cannot be read again, so it is sent first; after the last piece the source completes.
    override func drain() {
      if let reader { reader.stop() } else { finish() }
    }

    override func suspend() {
      guard let reader, !isPausing else { return }
      isPausing = true
      execution.hold()
      reader.stop()
    }

    private func endPause() {
      guard isPausing else { return }
      isPausing = false
      execution.release()
    }

    override func save(_ state: inout StateWriter) {
      state.write(decodingPosition)
      state.write(parameters.decoding.dependence)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let place = try state.read(DecodingPosition.self)
      let dependence = try state.read(String.self)
      if parameters.decoding.goesOn(at: place, dependence) {
        decodingPosition = place
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
      cancelWake(&timer)
      inputQueue.stop()
      reader?.stop()
      if hasClaim { Stdin.claimed.withLock { $0 = false } }
      endPause()
    }
  }
}

extension Stdin {
  package static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    [SavedPosition(offset: try state.read(DecodingPosition.self).offset)]
  }
}
