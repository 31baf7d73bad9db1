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

/// One running row-wise step: sees one event at a time, emits at most one for it, at once.
open class RowStep {
  public init() {}
  /// The signal completes as soon as it is subscribed, and what is above is not subscribed at all.
  open var endsBeforeStart: Bool { false }
  /// Called for each event, in order. May change `event`; may reject it through `run` and drop it.
  open func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict { .pass }
  /// The input is complete. A step that passes on nothing more than events needs nothing here.
  open func complete(_ run: RowRun) {}
  open func fail(_ failure: SignalFailure, _ run: RowRun) {}
  /// Writes what the step keeps. To override, with `restore`, where the spec says `carries: .state`.
  open func save(_ state: inout StateWriter) {}
  /// Takes back what `save` wrote, in the same order. A step that throws is given up for a new one.
  open func restore(_ state: inout StateReader) throws(StateFault) {}
}

/// Several row-wise steps as one node: one projection and one pass for each event.
public final class RowRun: OperatorNode {
  private struct Step {
    var step: Unmanaged<RowStep>
    var frame: Unmanaged<EventFrame>
    /// The first step of its part: the frame must be loaded with the event before.
    var loads: Bool
    var id: StepID
  }

  private let steps: UnsafeMutableBufferPointer<Step>
  /// Keeps what `steps` points to alive.
  private var owned: [AnyObject]
  // Nodes run on one thread at a time, and no access lasts longer than a load or a store.
  @exclusivity(unchecked) private var current = 0

  init(_ plan: RunPlan, _ seat: Seat, downstream: Downstream) {
    var steps: [Step] = []
    var owned: [AnyObject] = []
    for part in plan.parts {
      let frame =
        seat.scope.frames?.frame(part.segment, seat.scope, seat.execution)
        ?? EventFrame(part.segment, seat.scope, seat.execution)
      owned.append(frame)
      for (index, step) in part.steps.enumerated() {
        let running = step.component.makeStep(seat.execution.plan.steps[step.id.number])
        owned.append(running)
        steps.append(
          Step(
            step: .passUnretained(running), frame: .passUnretained(frame),
            loads: index == 0 && part.segment.needsLoading, id: step.id))
      }
    }
    self.steps = .allocate(capacity: steps.count)
    _ = self.steps.initialize(from: steps)
    self.owned = owned
    super.init(seat, downstream: downstream)
  }

  deinit { steps.deallocate() }

  public override func start() {
    if steps.contains(where: { $0.step._withUnsafeGuaranteedRef { $0.endsBeforeStart } }) {
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
    // Word by word, as it was written a moment ago.
    var event = Event(event.value, key: event.key, from: event.origin, position: event.position)
    withUnsafeMutablePointer(to: &event) { run($0) }
  }

  /// What the steps change stays in memory, where the next one reads it.
  @inline(__always)
  private func run(_ event: UnsafeMutablePointer<Event>) {
    var index = 0
    var finishes = false
    let count = steps.count
    while index < count {
      let step = steps[index]
      current = index
      if step.loads, let failure = step.frame._withUnsafeGuaranteedRef({ $0.load(UnsafePointer(event)) }) {
        rejectUnreadable(event.pointee, failure)
        if finishes { finish() }
        return
      }
      let verdict = step.frame._withUnsafeGuaranteedRef { frame in
        step.step._withUnsafeGuaranteedRef { $0.apply(&event.pointee, frame, self) }
      }
      switch verdict {
      case .pass: index &+= 1
      case .drop:
        if finishes { finish() }
        return
      case .passAndFinish:
        finishes = true
        index &+= 1
      case .finish:
        finish()
        return
      }
    }
    emit(event.pointee)
    if finishes { finish() }
  }

  @inline(never)
  private func rejectUnreadable(_ event: Event, _ failure: Value) {
    reject(event, .eventNotReadable, EventFrame.message(of: failure))
  }

  public override func complete() {
    for step in steps { step.step._withUnsafeGuaranteedRef { $0.complete(self) } }
    finish()
  }

  public override func fail(_ failure: SignalFailure) {
    for step in steps { step.step._withUnsafeGuaranteedRef { $0.fail(failure, self) } }
    finish(failing: failure)
  }

  // MARK: State

  /// The component of each step.
  private var components: [any RowOperator] {
    switch seat.plan?.kind {
    case .run(let run, _): run.parts.flatMap { $0.steps.map(\.component) }
    case .node(let component as any RowOperator, _, _): [component]
    default: []
    }
  }

  /// Each step has a record of its own, so that it finds it again with other neighbours.
  override func record(_ state: inout StateWriter) {
    for (index, component) in components.enumerated() {
      let version = component.carries.version
      guard version > 0 else { continue }
      state.record(.step(steps[index].id, version: version)) { state in
        steps[index].step._withUnsafeGuaranteedRef { state.own(steps[index].id, $0.save) }
      }
    }
    recordInputs(&state)
  }

  func restoreSteps(_ restoration: Restoration) {
    for (index, component) in components.enumerated() {
      let id = steps[index].id
      guard let record = restoration.record(id, version: component.carries.version) else { continue }
      do throws(StateFault) {
        var reader = record.reader.reader(version: record.version, target: self)
        var fault: StateFault?
        steps[index].step._withUnsafeGuaranteedRef { step in
          do throws(StateFault) { try step.restore(&reader) } catch { fault = error }
        }
        if let fault { throw fault }
        guard reader.isAtEnd else { throw StateFault("there is more than the step reads") }
      } catch {
        restoration.refuse(id, error)
        let fresh = component.makeStep(execution.plan.steps[id.number])
        owned.append(fresh)
        steps[index].step = .passUnretained(fresh)
      }
    }
  }

  /// The step whose `apply` is running.
  var currentStep: StepID { steps[current].id }

  /// Rejects in the name of the step that is running.
  public func rejectRow(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation?
  ) {
    execution.reject(Rejection(event, code, message, at: location), step: currentStep)
  }
}

extension Segment {
  var needsLoading: Bool { hasPrograms }
}
