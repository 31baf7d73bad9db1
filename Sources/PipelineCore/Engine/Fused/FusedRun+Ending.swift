/// A part of a group's chain that sends pending timed outputs at once when it completes.
protocol OutputHolder: AnyObject {
  /// The time of the first pending output; nil: there is none.
  var nextOutput: Due? { get }
}

/// The end of chains that are parts of one stream.
///
/// While a stream runs, timed outputs of the steps of all chains are sent in the order of their times. The same order
/// must hold at the end: otherwise the next step of the stream would treat older outputs as late.
extension FusedRun {
  /// The step of this ID in a chain, or of the run itself; nil: the run does not have it, or it is not a ``LateStep``.
  final func lateStep(_ id: StepID, of chain: FusedChain? = nil) -> LateStep? {
    guard let index = late.first(where: { steps[$0].id == id }), chain == nil || chain?.steps != nil else { return nil }
    return lateStep(index, chain?.steps)
  }

  /// Sends the timed outputs of these steps at once, the earliest first.
  static func sendOutputs(of steps: [LateStep]) {
    guard steps.count > 1 else { return }
    var queue = TimerQueue()
    func expect(_ number: Int) {
      guard !steps[number].isStopped, let due = steps[number].nextOutput else { return }
      _ = queue.schedule(at: due.time, due.number, steps[number], number)
    }
    for number in steps.indices { expect(number) }
    while let (_, number) = queue.popDue(.distantFuture) {
      steps[number].sendNow()
      expect(number)
    }
  }
}

extension SignalPlan {
  /// The steps of a group's chain that send their timed outputs when the chain's input ends, before any other step acts
  /// on the end; in the order in which events pass them.
  var endingSteps: [StepID] {
    var runs: [FusedRunPlan] = []
    var signal = self
    while signal.origin == nil, let input = signal.inputs.first {
      // Only the runs at the start of the chain, because steps of other kinds may send events at the end.
      if let run = signal.run { runs.append(run) } else { runs = [] }
      signal = input
    }
    guard signal.origin == .input else { return [] }
    var found: [StepID] = []
    for step in runs.reversed().flatMap({ $0.parts.flatMap(\.steps) }) {
      if (step.component as? any TimedOperator)?.endsByTime == true {
        found.append(step.id)
      } else if !step.component.isForgettable {
        break
      }
    }
    return found
  }
}
