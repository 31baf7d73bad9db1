import PipelineCore
import Synchronization

/// Delays the restarts of a process that has ended by itself: pauses double until it works.
final class RestartPause: Sendable {
  private struct State {
    var pause = RestartPause.shortest
    /// The earliest time of the next start.
    var notBefore: Instant?
  }
  private let state = Mutex(State())
  private static let shortest = TimeSpan.milliseconds(100)
  private static let longest = TimeSpan.seconds(30)

  /// The remaining pause; zero: a start is allowed.
  func rest(at now: Instant) -> TimeSpan {
    state.withLock { state in
      guard let notBefore = state.notBefore, notBefore > now else { return .zero }
      return notBefore - now
    }
  }

  /// Notes that the process has ended by itself. Returns the pause before the next start.
  func ended(at now: Instant) -> TimeSpan {
    state.withLock { state in
      defer { state.pause = min(TimeSpan(nanoseconds: state.pause.nanoseconds * 2), Self.longest) }
      state.notBefore = now + state.pause
      return state.pause
    }
  }

  /// Notes that it has answered a new input.
  func works() { state.withLock { $0.pause = Self.shortest } }
}
