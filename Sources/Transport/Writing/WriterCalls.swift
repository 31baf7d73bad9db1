import PipelineCore
import Synchronization

/// The current system calls of file writers: a hanging device blocks a writer without any other sign.
package enum WriterCalls {
  /// The calls of one writer.
  final class Clock: Sendable {
    fileprivate let name: String
    /// When the current call started, on the monotonic clock; 0: there is none.
    private let began = Atomic<Int64>(0)

    init(_ name: String) { self.name = name }

    /// Times `body`, a call that returns soon unless the device hangs.
    func during<T, Failure: Error>(_ body: () throws(Failure) -> T) throws(Failure) -> T {
      began.store(monotonicNow(), ordering: .relaxed)
      defer { began.store(0, ordering: .relaxed) }
      return try body()
    }

    fileprivate var start: Int64 { began.load(ordering: .relaxed) }
  }

  private static let all = Mutex<[Clock]>([])

  /// The calls of a new writer of `name`; remove them with `remove`.
  static func add(_ name: String) -> Clock {
    let clock = Clock(name)
    all.withLock { $0.append(clock) }
    return clock
  }

  static func remove(_ clock: Clock) {
    all.withLock { $0.removeAll { $0 === clock } }
  }

  /// The longest current call, and its target; nil if no writer is in a call.
  package static func longest() -> (name: String, duration: TimeSpan)? {
    let first = all.withLock { clocks in
      clocks.map { (name: $0.name, start: $0.start) }.filter { $0.start > 0 }.min { $0.start < $1.start }
    }
    return first.map { ($0.name, TimeSpan(nanoseconds: monotonicNow() &- $0.start)) }
  }
}
