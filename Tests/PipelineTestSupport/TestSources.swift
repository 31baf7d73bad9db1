import PipelineCore
import PipelineTesting

/// Sends values and completes, all at once.
package struct ValuesSource: SourceComponent {
  var values = LiteralParameter()

  package init() {}

  package static let spec = ComponentSpec<ValuesSource>(
    "values", summary: "Sends values and completes.",
    parameters: [.init("values", \.values, primary: true, required: true, whole: true, "What to send.")])

  package var once: (any SourceComponent)? { self }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(values.value, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let values: OwnedValue
    init(_ values: OwnedValue, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.values = values
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() {
      values.keep(in: arena)
      for value in values.value.elements {
        if isClosed { return }
        produce(value)
      }
      finish()
    }
  }
}

/// A cold signal given as marbles in the pipeline file: `marbles: -1-2|`, with templates.
package struct MarblesSource: SourceComponent {
  var text = TemplateParameter()
  var tick = TimeSpan.milliseconds(1)

  package init() {}

  package static let spec = ComponentSpec<MarblesSource>(
    "marbles", summary: "Sends what marbles show.",
    parameters: [
      .init("text", \.text, primary: true, required: true, "The marbles."),
      .init("tick", \.tick, range: 1...Int64.max, "How long a character lasts."),
    ], persistence: .state(version: 1))

  package var once: (any SourceComponent)? { self }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    let buffer = OutputBuffer()
    let frame = EventFrame.make(nodeContext)
    frame.loadNothing()
    _ = text.render(frame, into: buffer)
    let marbles = try? Marbles(String(decoding: buffer.bytes, as: UTF8.self), tick: tick)
    let script = marbles.map { SignalHistory($0).script } ?? []
    return ScriptedSource(script).makeSource(nodeContext, downstream: downstream)
  }
}

/// Counts its subscriptions, then sends what the marbles show.
package struct CountedSource: SourceComponent {
  package final class Counts: @unchecked Sendable {
    package var begun = 0
    package var stopped = 0
    /// Nodes that have not been freed.
    package var alive = 0
    /// `+` and `-` in the order in which subscriptions began and ended.
    package var log = ""
    package init() {}
  }

  let counts: Counts
  let script: [(at: TimeSpan, moment: ScriptedSource.Moment)]

  package init() { self.init(Counts(), []) }
  package init(_ counts: Counts, _ script: [(at: TimeSpan, moment: ScriptedSource.Moment)]) {
    self.counts = counts
    self.script = script
  }

  package static let spec = ComponentSpec<CountedSource>("counted", summary: "Counts subscriptions.")

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let source: CountedSource
    init(_ source: CountedSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.source = source
      super.init(nodeContext, downstream: downstream)
      source.counts.alive += 1
    }
    deinit { source.counts.alive -= 1 }
    override func begin() {
      source.counts.begun += 1
      source.counts.log += "+"
      for (index, entry) in source.script.enumerated() where entry.at > .zero {
        wakes.append(wake(after: entry.at, index))
      }
      for entry in source.script where entry.at == .zero && !isClosed { perform(entry.moment) }
    }
    private var wakes: [Wake] = []
    override func woke(_ token: Int) { perform(source.script[token].moment) }
    private func perform(_ moment: ScriptedSource.Moment) {
      switch moment {
      case .next(let value): produce(value.value)
      case .complete: finish()
      case .fail(let failure): finish(failing: failure)
      }
    }
    override func stop() {
      source.counts.stopped += 1
      source.counts.log += "-"
      for index in wakes.indices { cancelWake(&wakes[index]) }
    }
  }
}
