extension Meters {
  /// Keeps a sampled event that was stopped by a step and has just been counted.
  @inline(never)
  func offer(
    _ event: Event, _ verdict: Verdict, at step: StepID, outer: Value = .absent,
    _ problem: StoppedEvent.Problem? = nil
  ) {
    let counters = steps + step.number
    let count = counters.pointee.count(of: verdict)
    let credit = counters.credit(of: verdict)
    guard count >= credit.pointee.next else { return }
    credit.pointee.take(count)
    guard let stopped = stoppedEvents else { return }
    let new = StoppedEvent(
      event, verdict, at: step, of: plan, time: executor.wallTime, instant: executor.now, outer: outer,
      problem, number: count)
    // A large event is expensive to describe, so one a period is enough.
    if new.cut != nil { credit.pointee.exhaust() }
    stopped.add(new)
  }
}
