/// The work of a source's decoding threads beyond decoding: they run the pure steps downstream of the source and encode
/// for the sinks downstream of those steps. The turn then only hands over bytes.
///
/// A source has a stage if all its events pass through pure steps only, to sinks that write a stream
/// (``Plan/stage(of:)``). ``StagePlacement`` decides at run time on which threads the stage runs.
///
/// A block that needs a turn (a line is not an event, an expression fails, an event cannot be encoded) is left to its
/// turn unchanged; the turn processes the whole block itself.
package struct ParallelStage: Sendable {
  /// The path from the source to one sink.
  package struct Branch: Sendable {
    /// The signals on the path that have steps, in order; each step is a ``PureStep``.
    var signals: [SignalPlan]
    /// The step ID of the sink.
    var sink: StepID
    var component: any SinkDeclaration
  }

  package let branches: [Branch]

  /// Whether every sink writes blocks of such lines unchanged.
  func passesThrough(_ lines: EncodedEvents.Lines) -> Bool {
    branches.allSatisfy { branch in
      branch.signals.isEmpty && branch.component.streamEncoding?.makeEncoder().passes(lines) == true
    }
  }
}

extension Plan {
  /// The stage of the source with this step ID; nil: its events need turns.
  package func stage(of source: StepID) -> ParallelStage? { stages[source] }

  /// The stages of all sources that have one.
  static func stages(_ named: [NamedPlan], _ sinks: [SinkPlan]) -> [StepID: ParallelStage] {
    var ways: [StepID: [(branch: ParallelStage.Branch, through: [Int])]] = [:]
    for sink in sinks {
      guard let encoder = sink.component.streamEncoding?.makeEncoder(), !encoder.keepsState,
        let way = way(to: sink.input, named)
      else { continue }
      let branch = ParallelStage.Branch(signals: way.signals, sink: sink.step, component: sink.component)
      ways[way.source, default: []].append((branch, way.through))
    }
    if ways.isEmpty { return [:] }
    let references = SignalReach.references(named, sinks)
    return ways.compactMapValues { ways in
      let through = Set(ways.flatMap(\.through))
      let sinkSteps = Set(ways.map(\.branch.sink))
      let isAll = through.allSatisfy { signal in
        references[signal].allSatisfy { reference in
          switch reference {
          case .sink(let index): sinkSteps.contains(sinks[index].step)
          case .named(let index): through.contains(index)
          }
        }
      }
      return isAll ? ParallelStage(branches: ways.map(\.branch)) : nil
    }
  }

  /// The path from a source to the reader of `signal`, if it leads through pure steps only: the signals on it that have
  /// steps, and the named signals on it.
  private static func way(
    to signal: SignalPlan, _ named: [NamedPlan]
  ) -> (source: StepID, signals: [SignalPlan], through: [Int])? {
    var signals: [SignalPlan] = []
    var through: [Int] = []
    var next = signal
    while true {
      if let source = next.source {
        return source.decodesBlocks ? (next.step, signals.reversed(), through) : nil
      }
      if let work = next.work, work.isFused {
        guard work.isPure else { return nil }
        signals.append(next)
        next = next.inputs[0]
        continue
      }
      guard case .named(let index)? = next.origin, !named[index].isCold, named[index].sharing.isPlain,
        !through.contains(index)
      else { return nil }
      through.append(index)
      next = named[index].body
    }
  }
}
