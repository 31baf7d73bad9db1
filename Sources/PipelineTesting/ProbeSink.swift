import PipelineCore

/// A sink that records events and their times.
package struct ProbeSink: SinkComponent {
  /// The events that a sink has recorded.
  package final class Recording: @unchecked Sendable {
    /// One recorded event.
    package enum Moment: Sendable {
      case next(OwnedValue)
      case complete
      case fail(SignalFailure)
      /// A watched signal starts. `cancel`: it is cancelled.
      case subscribe
      case cancel
    }
    /// Whether to ignore subscriptions and cancellations, because the pipeline did not cause them.
    var ignoresMarks = false
    /// The number of starts and cancellations recorded.
    private(set) var marks = 0
    package private(set) var moments: [(at: Instant, moment: Moment)] = []
    package init() {}
    package func record(_ moment: Moment, at instant: Instant) {
      moments.append((instant, moment))
      switch moment {
      case .subscribe, .cancel: marks += 1
      case .next, .complete, .fail: break
      }
    }
  }

  let recording: Recording
  /// A sink to run as well, such as one whose requests are stubbed.
  var running: (any SinkComponent)?
  /// Events that this encoder cannot write are rejected.
  package var encoding: EncodeParameter?
  package var sentValue: MappingParameter?

  package init() { recording = Recording() }
  package init(_ recording: Recording) { self.recording = recording }

  package static let spec = ComponentSpec<ProbeSink>(
    "probe", summary: "Records events.")

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink {
    private let recording: Recording
    private let running: RunningSink?
    private let encoder: (any EventEncoder)?
    private let scratch = OutputBuffer()
    private var sent: SentValues?

    init(_ sink: ProbeSink, _ nodeContext: NodeContext) {
      recording = sink.recording
      running = sink.running?.makeSink(nodeContext)
      encoder = sink.encoding?.makeEncoder()
      super.init(nodeContext)
      sent = SentValues(sink, makeFrame())
    }

    override func receive(_ event: Event) {
      recording.record(.next(OwnedValue(event.value)), at: executor.now)
      if let running {
        running.receive(event)
        return
      }
      var value = event.value
      if let sent {
        switch sent.value(of: event) {
        case .failure(let failure): return reject(event, failure.message)
        case .success(let made): value = made
        }
      }
      if let failure = encode(value) { reject(event, because: failure) } else { delivered() }
    }

    /// Encodes each event as if it were the first of an output, so that a restart makes no difference.
    private func encode(_ value: Value) -> EncodingFailure? {
      guard let encoder else { return nil }
      defer { scratch.clear() }
      encoder.reset()
      return encoder.append(value, to: scratch)
    }

    override func finish() {
      recording.record(.complete, at: executor.now)
      if let running { running.complete() } else { drained() }
    }

    override func open() {
      running?.index = index
      running?.open()
    }
    override func turnEnded() { running?.turnEnded() }
    override var accounted: Int { running?.accounted ?? super.accounted }
    override var hasAcknowledgedAll: Bool { running?.hasAcknowledgedAll ?? super.hasAcknowledgedAll }
    override func countDelivered() { running?.countDelivered() }
    override var awaitsAnswers: Bool { running?.awaitsAnswers ?? false }
    override func rejectRemaining() -> Bool { running?.rejectRemaining() ?? false }
    override func cancel() { running?.cancel() }

    override func failing(_ failure: SignalFailure) {
      recording.record(.fail(failure), at: executor.now)
    }
  }

  /// Records a signal's events as an observer.
  package static func tap(_ recording: Recording, _ executor: Executor) -> EdgeObserver {
    Watcher(recording, executor)
  }

  private final class Watcher: EdgeObserver {
    private let recording: Recording
    private let executor: Executor
    init(_ recording: Recording, _ executor: Executor) {
      self.recording = recording
      self.executor = executor
      super.init()
    }
    override func receive(_ event: Event) {
      recording.record(.next(OwnedValue(event.value)), at: executor.now)
    }
    override func complete() { recording.record(.complete, at: executor.now) }
    override func fail(_ failure: SignalFailure) { recording.record(.fail(failure), at: executor.now) }
    override func began() {
      if !recording.ignoresMarks { recording.record(.subscribe, at: executor.now) }
    }
    override func cancelled() {
      if !recording.ignoresMarks { recording.record(.cancel, at: executor.now) }
    }
  }
}
