extension Batch {
  /// Offers an event that a step dropped on another thread to the samples of stopped events.
  func offer(_ step: StepID, _ meters: Meters) {
    guard let first = stopped.first(where: { $0.step == step }) else { return }
    meters.offer(first.event.event.with(origin), .dropped, at: step)
  }
}
