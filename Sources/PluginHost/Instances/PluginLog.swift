import PipelineCore
import Synchronization
import Transport

/// Limits the lines that a plugin writes to rxd's log, over all instances of a step: at most 20 lines a second, each at
/// most ``longest`` characters. A log line reports how many were dropped, and each counts as a missed line of the step.
/// Used on any thread.
final class PluginLog: Sendable {
  private struct State {
    var second: Int64 = .min
    var lines = 0
    /// The dropped lines that have not been reported yet.
    var dropped = 0
  }
  private let state = Mutex(State())
  private let write: @Sendable (Services.Level, String) -> Void
  private let missed: @Sendable () -> Void
  private let most: Int
  static let longest = 2000

  /// - Parameters:
  ///   - most: The maximum number of lines in a second.
  ///   - meter: Counts the dropped lines.
  init(
    most: Int = 20, _ write: @escaping @Sendable (Services.Level, String) -> Void, _ meter: PluginMeter
  ) {
    self.most = most
    self.write = write
    // Weak, because the meter retains this object.
    missed = { [weak meter] in meter?.update { $0.missedLines &+= 1 } }
  }

  /// `message` is evaluated only if it is logged.
  func say(_ level: Services.Level, _ message: @autoclosure () -> String, at now: Int64 = monotonicNow()) {
    let second = now / 1_000_000_000
    let (before, isLogged) = state.withLock { state -> (Int, Bool) in
      var before = 0
      if state.second != second {
        (before, state.dropped) = (state.dropped, 0)
        state.second = second
        state.lines = 0
      }
      state.lines &+= 1
      if state.lines > most { state.dropped &+= 1 }
      return (before, state.lines <= most)
    }
    report(before)
    if isLogged { write(level, Printable.cut(message(), limit: Self.longest)) } else { missed() }
  }

  /// When ``flush(_:)`` has something to report, on the monotonic clock; nil: never.
  var due: Int64? { state.withLock { $0.dropped > 0 ? ($0.second &+ 1) &* 1_000_000_000 : nil } }

  /// Reports the lines dropped in a past second.
  func flush(_ now: Int64 = monotonicNow()) {
    report(state.withLock { $0.second != now / 1_000_000_000 ? Self.taken(&$0) : 0 })
  }

  /// Reports the dropped lines that are not reported yet.
  func end() { report(state.withLock { Self.taken(&$0) }) }

  private static func taken(_ state: inout State) -> Int {
    defer { state.dropped = 0 }
    return state.dropped
  }

  private func report(_ dropped: Int) {
    guard dropped > 0 else { return }
    write(
      .warning,
      "the plugin logged \(Printable.count(dropped, "further line")) within a second, which \(dropped == 1 ? "is" : "are") left out"
    )
  }
}
