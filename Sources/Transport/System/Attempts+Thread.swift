import CLinux
import PipelineCore

extension Attempts {
  /// Blocks this thread until the next attempt is due, or `isCancelled` returns true, which is asked after each wake of
  /// `wake`.
  func wait(for wake: WakeEvent, _ isCancelled: () -> Bool) {
    let end = monotonicNow() &+ pause(.random(in: 0 ... .max)).nanoseconds
    while !isCancelled() {
      let left = end &- monotonicNow()
      guard left > 0 else { return }
      _ = rx_wait_two(-1, 0, wake.descriptor, Int32(clamping: left / 1_000_000 + 1))
      wake.clear()
    }
  }
}
