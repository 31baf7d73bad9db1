/// The bytes in the queues of a pipeline's steps, as a part of the process's ``MemoryBudget``. The input is paused
/// while they exceed their limit. Used in turns.
///
/// One account serves all steps and all their instances: a thousand groups with a queue each are one pipeline. An event
/// costs an addition and a comparison when it enters and when it leaves a queue; an event that is not queued costs
/// nothing.
final class KeptMemory: TimerTarget {
  var mayGoOn: Bool { false }
  var timerKind: TimerKind { .output }

  private unowned let executor: Executor
  private let budget: MemoryBudget
  private var share: MemoryShare
  private var bytes = 0
  /// The counters of the step whose queue began the pause; nil: there is no pause.
  private var pausing: UnsafeMutablePointer<StepCounters>?
  private var wake = Wake.none
  /// The time between checks whether other pipelines have freed memory.
  private static let interval = TimeSpan.seconds(1)
  /// Up to this number of bytes, the input is never paused.
  private static let least = 16 << 10

  init(_ executor: Executor, _ budget: MemoryBudget) {
    self.executor = executor
    self.budget = budget
    share = MemoryShare(of: budget)
  }

  /// Adds bytes to those in the queues of the step.
  @inline(__always)
  func add(_ more: Int, _ step: UnsafeMutablePointer<StepCounters>) {
    if more == 0 { return }
    bytes &+= more
    share.set(max(0, bytes))
    if pausing != nil { resumeIfPossible() } else if more > 0, bytes > Self.least { pauseIfFull(step) }
  }

  private var room: Int { budget.room(budget.usualOfSteps) }

  @inline(never)
  private func pauseIfFull(_ step: UnsafeMutablePointer<StepCounters>) {
    guard bytes > room else { return }
    pausing = step
    executor.pauseInput(.queue)
    step.beganPause(at: executor.now)
    checkLater()
  }

  private func resumeIfPossible() {
    guard let step = pausing, bytes <= room / 2 else { return }
    pausing = nil
    if wake.isSet { executor.cancel(wake) }
    wake = .none
    executor.resumeInput(.queue)
    step.endedPause(at: executor.now)
  }

  /// Checks again later, because the queues of other pipelines exceed the limit, and they do not report when they
  /// shrink.
  private func checkLater() {
    if bytes <= budget.usualOfSteps / 2 { wake = executor.wake(at: executor.now + Self.interval, self) }
  }

  func woke(_ token: Int) {
    wake = .none
    resumeIfPossible()
    if pausing != nil { checkLater() }
  }
}
