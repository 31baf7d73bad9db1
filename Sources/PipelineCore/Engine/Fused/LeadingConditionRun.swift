/// Fused steps of which the first drops most events by comparing slots (``LeadingCondition``). Only the remaining
/// events are copied and processed.
final class LeadingConditionRun: FusedRun {
  public override func receive(_ event: Event) {
    switch steps.leadingOutcome(event.value) {
    case .drop: countDropped(event)
    case .undecided: processApart(event)
    case .unread: readAndReceive(event)
    }
  }

  // Kept out of line, like the following functions, so that an event that the condition drops executes less code.
  @inline(never)
  private func readAndReceive(_ event: Event) {
    if steps.readsAndDrops(event.value) { countDropped(event) } else { processApart(event) }
  }

  @inline(never)
  private func processApart(_ event: Event) { process(event) }

  @inline(__always)
  private func countDropped(_ event: Event) {
    let counters = steps[0].counters
    counters.pointee.dropped &+= 1
    if counters.pointee.dropped >= counters.pointee.ofDropped.next { offerDropped(event) }
  }

  @inline(never)
  private func offerDropped(_ event: Event) { withUnsafePointer(to: event) { offer($0, at: 0) } }
}
