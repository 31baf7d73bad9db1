/// A source that says what a test tells it to, on the executor's time.
public struct ScriptedSource: SourceComponent {
  public enum Moment: Sendable {
    case next(OwnedValue)
    case complete
    case fail(SignalFailure)
  }

  /// In order of time; relative to the subscription.
  public var script: [(at: TimeSpan, moment: Moment)] = []

  public init() {}
  public init(_ script: [(at: TimeSpan, moment: Moment)]) { self.script = script }

  public static let spec = ComponentSpec<ScriptedSource>(
    "scripted", summary: "Sends what a test says.")

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    Node(script, seat, downstream)
  }

  final class Node: RunningSource {
    private let script: [(at: TimeSpan, moment: Moment)]
    private var wakes: [Wake] = []

    init(_ script: [(at: TimeSpan, moment: Moment)], _ seat: Seat, _ downstream: Downstream) {
      self.script = script
      super.init(seat, downstream: downstream)
    }

    /// Everything is scheduled at once, so that at one instant a script comes before the timers that
    /// it causes.
    override func begin() {
      for (index, entry) in script.enumerated() {
        if entry.at == .zero {
          perform(entry.moment)
        } else {
          wakes.append(wake(after: entry.at, index))
        }
        if isClosed { return }
      }
    }

    override func woke(_ token: Int) { perform(script[token].moment) }

    private func perform(_ moment: Moment) {
      switch moment {
      case .next(let value):
        value.keep(in: arena)
        produce(value.value)
      case .complete: finish()
      case .fail(let failure): finish(failing: failure)
      }
    }

    override func stop() {
      for index in wakes.indices { cancelWake(&wakes[index]) }
    }
  }
}
