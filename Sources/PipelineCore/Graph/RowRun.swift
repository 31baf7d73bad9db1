/// What a row-wise step says of one event.
public enum RowVerdict {
  /// The event, perhaps with another value, goes on.
  case pass
  /// The event ends here.
  case drop
  /// The event goes on, and the signal completes together with it.
  case passAndFinish
  /// The signal completes; the event is not sent.
  case finish
}

/// What a pure row-wise step says of one value.
public enum PureVerdict {
  /// The value, perhaps another one, goes on.
  case pass
  case drop
  /// A turn must see to it: it fails, or is refused.
  case undecided
}

/// One running row-wise step: sees one event at a time, emits at most one for it, at once.
open class RowStep {
  public init() {}
  /// The signal completes as soon as it is subscribed, and what is above is not subscribed at all.
  open var endsBeforeStart: Bool { false }
  /// Called for each event, in order. May change `event`; may reject it through `run` and drop it.
  open func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict { .pass }
  /// The same without a run, on any thread, where it depends on nothing but the value and changes nothing else; what
  /// it would reject is undecided. To override where the operator says ``RowOperator/isPure``.
  open func applyAlone(_ value: inout Value, _ frame: EventFrame) -> PureVerdict { .undecided }
  /// The input is complete. What is returned is the last event, which goes to the steps behind; they see another
  /// value than this one, so its operator says ``RowOperator/changesValue``.
  open func complete(_ run: RowRun) -> Value? { nil }
  open func fail(_ failure: SignalFailure, _ run: RowRun) {}
  /// Writes what the step keeps. To override, with `restore`, where the spec says `carries: .state`.
  open func save(_ state: inout StateWriter) {}
  /// Takes back what `save` wrote, in the same order. A step that throws is given up for a new one.
  open func restore(_ state: inout StateReader) throws(StateFault) {}
}

/// Several row-wise steps as one node: one projection and one pass for each event.
///
/// One run may serve many chains of the same plan, such as the groups of `groupBy`: then each has steps of its own,
/// which it hands over with each event, and the run is never started.
public final class RowRun: OperatorNode {
  private struct Step {
    /// Retained.
    var step: Unmanaged<RowStep>
    /// Retained.
    var frame: Unmanaged<EventFrame>
    /// The first step of its part: the frame must be loaded with the event before.
    var loads: Bool
    var id: StepID
  }

  /// The steps of one of many chains, retained, as many as the run has.
  typealias OwnSteps = UnsafeMutablePointer<Unmanaged<RowStep>>

  private let steps: UnsafeMutableBufferPointer<Step>
  /// Of which it is part.
  private var work: BlockWork?
  // Nodes run on one thread at a time, and no access lasts longer than a load or a store.
  @exclusivity(unchecked) private var current = 0

  init(_ plan: RunPlan, _ seat: Seat, downstream: Downstream) {
    var steps: [Step] = []
    for part in plan.parts {
      let frame =
        seat.scope.frames?.frame(part.segment, seat.scope, seat.execution)
        ?? EventFrame(part.segment, seat.scope, seat.execution)
      for (index, step) in part.steps.enumerated() {
        steps.append(
          Step(
            step: .passRetained(step.component.makeStep()), frame: .passRetained(frame),
            loads: index == 0 && part.segment.needsLoading, id: step.id))
      }
    }
    self.steps = .allocate(capacity: steps.count)
    _ = self.steps.initialize(from: steps)
    super.init(seat, downstream: downstream)
  }

  deinit {
    for step in steps {
      step.step.release()
      step.frame.release()
    }
    steps.deallocate()
  }

  /// Whether a step ends the signal as soon as it is subscribed.
  var endsBeforeStart: Bool { steps.contains { $0.step._withUnsafeGuaranteedRef { $0.endsBeforeStart } } }

  public override func start() {
    if endsBeforeStart {
      execution.whenWired { [self] in finish() }
    } else {
      super.start()
    }
  }

  /// Makes `value` what the steps' expressions see as `outer`, in place of what the scope says.
  func setOuter(_ value: Value) {
    for step in steps { step.frame._withUnsafeGuaranteedRef { $0.setOuter(value) } }
  }

  public override func receive(_ event: Event) {
    var event = event.copied
    let ended = withUnsafeMutablePointer(to: &event) { run($0, from: 0, nil) }
    if ended >= 0 {
      complete(from: ended + 1, nil, key: .absent)
      finish()
    }
  }

  public override func join(_ work: BlockWork) -> Bool {
    guard seat.scope === execution.topScope, let plan = seat.plan?.run, work.add(plan), offer(work) else {
      return false
    }
    self.work = work
    return true
  }

  public override func receive(_ block: EncodedBlock) -> Bool { block.work === work && emit(block) }

  /// Passes the event through the steps from `first` on and emits it. Returns the last step that completes with it,
  /// or -1.
  ///
  /// What the steps change stays in memory, where the next one reads it.
  @inline(__always)
  private func run(_ event: UnsafeMutablePointer<Event>, from first: Int, _ own: OwnSteps?) -> Int {
    var index = first
    var ended = -1
    let count = steps.count
    while index < count {
      let step = steps[index]
      let running = if let own { own[index] } else { step.step }
      current = index
      if step.loads, let failure = step.frame._withUnsafeGuaranteedRef({ $0.load(UnsafePointer(event)) }) {
        rejectUnreadable(event.pointee, failure)
        return ended
      }
      let verdict = step.frame._withUnsafeGuaranteedRef { frame in
        running._withUnsafeGuaranteedRef { $0.apply(&event.pointee, frame, self) }
      }
      switch verdict {
      case .pass: index &+= 1
      case .drop: return ended
      case .passAndFinish:
        ended = index
        index &+= 1
      case .finish: return index
      }
    }
    emit(event.pointee.copied)
    return ended
  }

  @inline(never)
  private func rejectUnreadable(_ event: Event, _ failure: Value) {
    reject(event, .eventNotReadable, EventFrame.message(of: failure))
  }

  public override func complete() {
    complete(from: 0, nil, key: .absent)
    finish()
  }

  /// The input of the step `first` is complete. What steps send at the end bears `key`.
  private func complete(from first: Int, _ own: OwnSteps?, key: Value) {
    var index = first
    while index < steps.count, !isClosed {
      current = index
      let step = own?[index] ?? steps[index].step
      var ended = index
      if let last = step._withUnsafeGuaranteedRef({ $0.complete(self) }) {
        var event = Event(last)
        event.key = key
        ended = max(ended, withUnsafeMutablePointer(to: &event) { run($0, from: index + 1, own) })
      }
      index = ended + 1
    }
  }

  public override func fail(_ failure: SignalFailure) {
    for index in steps.indices {
      current = index
      steps[index].step._withUnsafeGuaranteedRef { $0.fail(failure, self) }
    }
    finish(failing: failure)
  }

  // MARK: Many chains

  /// Steps for one more chain.
  func makeSteps() -> OwnSteps {
    let own = OwnSteps.allocate(capacity: max(1, steps.count))
    for (index, component) in components.enumerated() {
      (own + index).initialize(to: .passRetained(component.makeStep()))
    }
    return own
  }

  /// Frees a chain's steps; control may still be inside of them.
  func discard(_ own: OwnSteps) {
    for index in steps.indices { executor.bury(own[index].takeRetainedValue()) }
    own.deallocate()
  }

  /// Passes an event, which changes, through a chain's steps; returns whether the chain has completed with it.
  @inline(never)
  func pass(_ event: UnsafeMutablePointer<Event>, through own: OwnSteps) -> Bool {
    let key = event.pointee.key
    let ended = run(event, from: 0, own)
    if ended >= 0 { complete(from: ended + 1, own, key: key) }
    return ended >= 0
  }

  /// The input of a chain is complete: what its steps still send bears `key`.
  func complete(_ own: OwnSteps, key: Value) { complete(from: 0, own, key: key) }

  // MARK: State

  /// The component of each step.
  private var components: [any RowOperator] {
    (seat.plan?.run?.parts ?? []).flatMap { $0.steps.map(\.component) }
  }

  /// Each step has a record of its own, so that it finds it again with other neighbours.
  override func record(_ state: inout StateWriter) {
    recordSteps(nil, &state)
    recordInputs(&state)
  }

  func recordSteps(_ own: OwnSteps?, _ state: inout StateWriter) {
    for (index, component) in components.enumerated() {
      let version = component.carries.version
      guard version > 0 else { continue }
      let step = own?[index] ?? steps[index].step
      state.record(.step(steps[index].id, version: version)) { state in
        step._withUnsafeGuaranteedRef { state.own(steps[index].id, $0.save) }
      }
    }
  }

  func restoreSteps(_ restoration: Restoration, of own: OwnSteps? = nil) {
    for (index, component) in components.enumerated() {
      let id = steps[index].id
      guard let record = restoration.record(id, version: component.carries.version) else { continue }
      do throws(StateFault) {
        var reader = record.reader.reader(version: record.version, target: self)
        var fault: StateFault?
        let step = own?[index] ?? steps[index].step
        step._withUnsafeGuaranteedRef { step in
          do throws(StateFault) { try step.restore(&reader) } catch { fault = error }
        }
        if let fault { throw fault }
        guard reader.isAtEnd else { throw StateFault("there is more than the step reads") }
      } catch {
        restoration.refuse(id, error)
        let fresh = Unmanaged.passRetained(component.makeStep())
        let refused = own?[index] ?? steps[index].step
        if let own { own[index] = fresh } else { steps[index].step = fresh }
        refused.release()
      }
    }
  }

  /// The step whose `apply` is running.
  var currentStep: StepID { steps[current].id }

  /// The same, as the pipeline file has it.
  var step: StepPlan { execution.plan.steps[currentStep.number] }

  /// Rejects in the name of the step that is running.
  public func rejectRow(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation? = nil
  ) {
    execution.reject(Rejection(event, code, message, at: location), step: currentStep)
  }
}

extension Segment {
  var needsLoading: Bool { hasPrograms }
}
