import PipelineCore
import Synchronization

/// When what has ended by itself may be started again: after pauses that double, until it works.
final class RestartPause: Sendable {
  private struct State {
    var pause = RestartPause.shortest
    /// When it is started again at the earliest.
    var notBefore: Instant?
  }
  private let state = Mutex(State())
  private static let shortest = TimeSpan.milliseconds(100)
  private static let longest = TimeSpan.seconds(30)

  /// How long it must not be started; zero: it may.
  func rest(at now: Instant) -> TimeSpan {
    state.withLock { state in
      guard let notBefore = state.notBefore, notBefore > now else { return .zero }
      return notBefore - now
    }
  }

  /// It has ended by itself. Returns after which pause it is started again.
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
