import Glibc
import PipelineCore
import Transport

/// Replaces a sink and prints its events, in the sink's encoding.
struct PrintingSink: SinkComponent {
  enum Style: Sendable {
    /// The encoded event, without the name of the sink.
    case bare
    /// `NAME: ` before each line.
    case prefixed(String)
    /// `{"NAME":EVENT}`.
    case wrapped(String)
  }

  private var style = Style.bare
  private var sink: (any SinkDeclaration)?
  private var output: PrintedOutput?

  init() {}

  init(_ style: Style, _ sink: any SinkDeclaration, _ output: PrintedOutput) {
    self.style = style
    self.sink = sink
    self.output = output
  }

  static let spec = ComponentSpec<PrintingSink>("print", summary: "Prints what another sink would send.")

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  private func makeEncoder() -> any EventEncoder {
    let isTerminal = isatty(1) == 1
    if let own = sink?.shownEncoder?.encoder { return isTerminal ? own.escapingControls() : own }
    var encode = sink?.encoding ?? EncodeParameter(.json)
    encode.options.escapeControls = isTerminal
    if case .wrapped = style { encode.options.terminated = false }
    return encode.makeEncoder()
  }

  final class Node: RunningSink {
    private let style: Style
    private let output: PrintedOutput?
    private let encoder: any EventEncoder
    private let text = OutputBuffer()
    private var sent: SentValues?
    private var isInputPaused = false
    private var isOver = false

    init(_ sink: PrintingSink, _ nodeContext: NodeContext) {
      style = sink.style
      output = sink.output
      encoder = sink.makeEncoder()
      super.init(nodeContext)
      sent = SentValues(sink.sink, makeFrame())
    }

    override func open() {
      let executor = executor
      let node = Weak(self)
      output?.whenFailed { error in executor.post { node.object?.failed(error) } }
    }

    override func receive(_ event: Event) {
      guard !isOver, let output else { return delivered() }
      text.clear()
      encoder.now = executor.wallTime
      var value = event.value
      if let sent {
        switch sent.value(of: event) {
        case .failure(let failure): return reject(event, failure.message)
        case .success(let made): value = made
        }
      }
      if let failure = encoder.append(value, to: text) { return reject(event, because: failure) }
      output.append(lines)
      if execution.isRehearsal { refuseClient(of: event) }
      delivered()
    }

    /// The printed form of the event in `text`.
    private var lines: [UInt8] {
      var bytes = Array(text.bytes)
      if bytes.last != 0x0A { bytes.append(0x0A) }
      switch style {
      case .bare: return bytes
      case .wrapped(let name): return Array("{\"\(name)\":".utf8) + bytes.dropLast() + Array("}\n".utf8)
      case .prefixed(let name):
        let prefix = Array("\(name): ".utf8)
        return bytes.dropLast().split(separator: 0x0A, omittingEmptySubsequences: false)
          .flatMap { prefix + $0 + [0x0A] }
      }
    }

    /// Refuses the client whose request waits for a reply: a sink that only prints gives none.
    private func refuseClient(of event: Event) {
      event.origin.takeUnretainedValue().reply?.reply(
        status: 503, headers: [(name: "Content-Type", value: "text/plain; charset=utf-8")],
        body: Array("this is a dry run: nothing is delivered\n".utf8))
    }

    override func turnEnded() {
      guard let output else { return }
      output.flush()
      guard !isInputPaused, output.isFull else { return }
      isInputPaused = true
      pauseInput()
      let executor = executor
      let node = Weak(self)
      output.whenRoom { executor.post { node.object?.hasRoom() } }
    }

    private func hasRoom() {
      guard isInputPaused else { return }
      isInputPaused = false
      resumeInput()
    }

    /// Ends the output: the reader has gone away, or the output cannot be written.
    private func failed(_ error: PosixError) {
      guard !isOver else { return }
      isOver = true
      hasRoom()
      if error.isBrokenPipe {
        closed()
      } else {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }

    override func finish() {
      isOver = true
      hasRoom()
      guard let output else { return drained() }
      let executor = executor
      let node = Weak(self)
      output.whenWritten { executor.post { node.object?.drained() } }
    }

    override func cancel() {
      isOver = true
      hasRoom()
      output?.flush()
    }
  }
}
