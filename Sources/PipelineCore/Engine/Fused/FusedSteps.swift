/// A sequence of fused steps with the frames that their expressions read.
///
/// Raw memory: an event avoids retain and release.
struct FusedSteps: RandomAccessCollection {
  struct Step {
    /// Retained.
    var step: Unmanaged<FusedStep>
    /// Retained.
    var frame: Unmanaged<EventFrame>
    /// Whether the step is the first of its part, so that the frame must be loaded with the event first.
    var loads: Bool
    /// Whether `step` is a ``PureStep``.
    var isPure: Bool
    private let number: Int32
    /// The step's counters, updated by the thread that runs it.
    let counters: UnsafeMutablePointer<StepCounters>
    var id: StepID { StepID(Int(number)) }

    init(
      step: Unmanaged<FusedStep>, frame: Unmanaged<EventFrame>, loads: Bool, isPure: Bool, id: StepID,
      counters: UnsafeMutablePointer<StepCounters>
    ) {
      self.step = step
      self.frame = frame
      self.loads = loads
      self.isPure = isPure
      number = Int32(id.number)
      self.counters = counters
    }
  }

  private let steps: UnsafeMutableBufferPointer<Step>
  /// The condition of the first step; nil: it has none.
  private let leading: LeadingCondition?

  /// - Parameters:
  ///   - counters: The counters of a step, by its index among these steps.
  ///   - frame: The frame of a segment. The flag says whether the frame needs the event itself, in addition to its
  ///     slots.
  init(
    _ plan: FusedRunPlan, counting counters: (StepID, Int) -> UnsafeMutablePointer<StepCounters>,
    frame: (Segment, Bool) -> EventFrame
  ) {
    var steps: [Step] = []
    for (number, part) in plan.parts.enumerated() {
      let frame = frame(part.segment, number == 0 && plan.leadingCondition != nil)
      for (index, step) in part.steps.enumerated() {
        let made = step.component.makeStep()
        made.keptSize.attach(counters(step.id, steps.count))
        steps.append(
          Step(
            step: .passRetained(made), frame: .passRetained(frame),
            loads: index == 0 && part.segment.needsLoading, isPure: type(of: step.component).isPure, id: step.id,
            counters: counters(step.id, steps.count)))
      }
    }
    self.steps = .allocate(capacity: steps.count)
    _ = self.steps.initialize(from: steps)
    leading = steps.first.flatMap { first in
      plan.leadingCondition.flatMap { LeadingCondition($0, first.frame.takeUnretainedValue()) }
    }
  }

  /// The verdict of the first step's condition on an event, before any step is called.
  @inline(__always)
  func leadingOutcome(_ event: Value) -> LeadingCondition.Outcome { leading?.outcome(event) ?? .undecided }

  /// Reads the operands of the first step's condition, and returns whether it drops the event. If the event cannot be
  /// read, the steps must process it.
  @inline(__always)
  func readsAndDrops(_ event: Value) -> Bool {
    guard let leading, steps[0].frame._withUnsafeGuaranteedRef({ $0.readSlots(event) }) else { return false }
    return leading.dropsRead
  }

  var startIndex: Int { 0 }
  @inline(__always) var endIndex: Int { steps.count }
  subscript(index: Int) -> Step {
    @inline(__always) get { steps[index] }
    nonmutating set { steps[index] = newValue }
  }

  /// Releases the steps, which must no longer be used.
  func deallocate() {
    for step in steps {
      step.step.release()
      step.frame.release()
    }
    steps.deallocate()
  }

  enum Progress {
    /// The event has passed the last step.
    case passed
    case dropped
    /// The pure step at the index cannot process the event.
    case failed
    /// The event cannot be read by the step at the index (``EventFrame/unreadable``).
    case unreadable
    /// The step at the index is not pure: its node must run it. The frame is loaded.
    case notPure
  }

  /// Passes the event through pure steps, from `index` on.
  ///
  /// - Parameter own: The steps of one of many equal chains, in place of these.
  @inline(__always)
  func passPure(
    _ event: UnsafeMutablePointer<Event>, from index: inout Int, _ own: FusedRun.OwnSteps? = nil
  ) -> Progress {
    let count = steps.count
    while index < count {
      let progress = passOne(event, at: index, own)
      guard case .passed = progress else { return progress }
      index &+= 1
    }
    return .passed
  }

  /// Passes the event through the step at `index`, if that step is pure.
  @inline(__always)
  func passOne(_ event: UnsafeMutablePointer<Event>, at index: Int, _ own: FusedRun.OwnSteps? = nil) -> Progress {
    let step = steps[index]
    if step.loads, !step.frame._withUnsafeGuaranteedRef({ $0.isLoaded(with: UnsafePointer(event)) }) {
      return .unreadable
    }
    guard step.isPure else { return .notPure }
    let running = if let own { own[index] } else { step.step }
    let verdict = step.frame._withUnsafeGuaranteedRef { frame in
      running._withUnsafeGuaranteedRef {
        unsafeDowncast($0, to: PureStep.self).transform(&event.pointee.value, frame)
      }
    }
    return switch verdict {
    case .pass: .passed
    case .drop: .dropped
    case .failed: .failed
    }
  }

  /// Runs the step at `index`, which is not pure, on the event.
  @inline(__always)
  func apply(_ event: UnsafeMutablePointer<Event>, at index: Int, _ own: FusedRun.OwnSteps?, _ run: FusedRun)
    -> StepVerdict
  {
    let step = steps[index]
    let running = if let own { own[index] } else { step.step }
    return step.frame._withUnsafeGuaranteedRef { frame in
      running._withUnsafeGuaranteedRef { $0.apply(&event.pointee, frame, run) }
    }
  }
}
