/// The condition of the first of several fused steps, if comparing slots decides it: an event that it drops needs
/// neither a copy nor a call of the step.
///
/// It never decides otherwise than the step would. If it leaves an event undecided, the steps process the event.
struct LeadingCondition {
  enum Outcome {
    /// The first step drops the event.
    case drop
    /// The steps must process the event.
    case undecided
    /// The slots do not belong to the current event.
    case unread
  }

  private let tests: UnsafePointer<SlotTest>
  private let count: Int
  private let last: UInt8
  private let slots: UnsafePointer<Value>
  private let read: UnsafePointer<SlotBank.Document>

  /// The condition of these steps, if comparisons decide it.
  static func of(_ part: FusedRunPlan.Part) -> Program? {
    guard part.segment.needsLoading, let first = part.steps.first?.component as? any PureOperator,
      let condition = first.passCondition, condition.comparisons != nil
    else { return nil }
    return condition
  }

  /// Fails if the frame does not know the event of its slots. The program and the frame must outlive the condition.
  init?(_ condition: Program, _ frame: EventFrame) {
    guard let comparisons = condition.comparisons, let read = frame.evaluation.pointee.filled else { return nil }
    (tests, count, last) = comparisons
    slots = UnsafePointer(frame.evaluation.pointee.slots)
    self.read = UnsafePointer(read)
  }

  @inline(__always)
  func outcome(_ event: Value) -> Outcome {
    guard event.is(.jsonMap) else { return .undecided }
    guard read.pointee.payload == event.payload, read.pointee.length == event.length else { return .unread }
    return dropsRead ? .drop : .undecided
  }

  /// Whether the condition drops the event of the slots.
  @inline(__always)
  var dropsRead: Bool { SlotTest.compare(tests, count, last: last, slots) == Truth.no }
}
