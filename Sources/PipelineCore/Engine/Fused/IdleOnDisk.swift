/// The timer of a step that forgets keys which have been idle for too long, for those of its keys that are on the disk. Their times are in
/// the first index of ``SpilledValues``.
struct IdleOnDisk {
  /// The timer's token; those of keys in memory are not negative.
  static let token = -1
  /// How many keys are taken back at once, before other timers.
  private static let atOnce = 256
  /// After which time the disk is asked again if it could not be read.
  private static let pause = TimeSpan.seconds(1)

  private var timer = Wake.none
  private var due = Instant.distantFuture
  /// Whether the log says that the disk cannot be read.
  private var isUnreadable = false

  /// Sets the timer for the first key on the disk, by its time.
  mutating func set(_ step: LateStep, _ known: KeyTable, _ spilled: SpilledValues) {
    let next: Instant
    do throws(SpillFault) {
      let first = try spilled.first(0) { known.find($0, known.hash($0)) != nil }
      next = first.map { spilled.epoch + TimeSpan(nanoseconds: $0.time) } ?? .distantFuture
      isUnreadable = false
    } catch {
      report(error, step)
      next = step.now + Self.pause
    }
    setTimer(step, at: next)
  }

  private mutating func setTimer(_ step: LateStep, at next: Instant) {
    guard next != due || !timer.isSet else { return }
    cancel(step)
    due = next
    if next < .distantFuture { timer = step.wake(at: next, Self.token) }
  }

  private mutating func report(_ fault: SpillFault, _ step: LateStep) {
    guard !isUnreadable else { return }
    isUnreadable = true
    let execution = step.run.execution
    execution.services.log(
      .error, execution.plan.steps[step.id.number].label,
      "the keys on the disk cannot be read: \(fault.message); trying again")
  }

  mutating func cancel(_ step: LateStep) { step.cancelWake(&timer) }

  /// Forgets the keys whose time has come.
  ///
  /// - Parameters:
  ///   - comeBack: Takes a key back to memory, and returns its number.
  ///   - forget: Forgets a key in memory.
  mutating func timeCame(
    _ step: LateStep, _ known: KeyTable, _ spilled: SpilledValues,
    _ comeBack: (UnsafeRawBufferPointer, UInt64) throws(SpillFault) -> Int?, forget: (Int) -> Void
  ) {
    timer = .none
    do throws(SpillFault) {
      for _ in 0..<Self.atOnce {
        guard let first = try spilled.first(0, isInMemory: { known.find($0, known.hash($0)) != nil }),
          spilled.epoch + TimeSpan(nanoseconds: first.time) <= step.now
        else { break }
        let hash = first.key.withUnsafeBytes { known.hash($0) }
        let number = try first.withKey { text throws(SpillFault) in try comeBack(text, hash) }
        guard let number else { throw SpillFault("a key is missing") }
        forget(number)
      }
    } catch {
      // One value may be damaged, though its time can be read: it must not be tried again at once.
      report(error, step)
      return setTimer(step, at: step.now + Self.pause)
    }
    set(step, known, spilled)
  }
}
