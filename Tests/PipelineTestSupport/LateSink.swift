import PipelineCore
import PipelineTesting

/// A sink that writes its events two milliseconds after it took them, like a sink with its own writer, and holds their
/// receipts until then. Written events are in a recording; when the sink stops, it writes the rest.
package struct LateSink: SinkComponent {
  package static let spec = ComponentSpec<LateSink>("late", summary: "Writes late.")

  /// The turns in which written events were taken.
  package final class Turns: @unchecked Sendable {
    package var all: [UInt64] = []
    package init() {}
  }

  let recording: ProbeSink.Recording
  let turns: Turns
  /// Whether events that are not written are lost when the sink is aborted.
  let losesRest: Bool

  package init() { self.init(ProbeSink.Recording()) }
  package init(_ recording: ProbeSink.Recording, turns: Turns = Turns(), losesRest: Bool = false) {
    self.recording = recording
    self.turns = turns
    self.losesRest = losesRest
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink, TimerTarget {
    private let sink: LateSink
    private var waiting: [(value: OwnedValue, turn: UInt64, receipt: Receipt)] = []
    private var timer = Wake.none

    init(_ sink: LateSink, _ nodeContext: NodeContext) {
      self.sink = sink
      super.init(nodeContext)
    }

    override func receive(_ event: Event) {
      let value = OwnedValue(event.value)
      let receipt = take(1, bytes: value.byteCount, joining: waiting.last?.receipt)
      waiting.append((value, executor.turns, receipt))
      if !timer.isSet { timer = executor.schedule(at: executor.now + .milliseconds(2), self, 0) }
    }

    func woke(_ token: Int) {
      timer = .none
      write()
    }

    private func write() {
      if timer.isSet { executor.unschedule(timer) }
      timer = .none
      let all = waiting
      waiting = []
      for row in all {
        sink.recording.record(.next(row.value), at: executor.now)
        sink.turns.all.append(row.turn)
        countSent()
        row.receipt.acknowledge(1)
      }
    }

    override func finish() {
      write()
      sink.recording.record(.complete, at: executor.now)
      drained()
    }

    override func cancel() {
      if sink.losesRest {
        if timer.isSet { executor.unschedule(timer) }
        timer = .none
        waiting = []
      } else {
        write()
      }
    }

    override func failing(_ failure: SignalFailure) { sink.recording.record(.fail(failure), at: executor.now) }
  }
}
