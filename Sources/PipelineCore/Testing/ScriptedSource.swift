/// A source that says what a test tells it to, on the executor's time.
public struct ScriptedSource: SourceComponent {
  public enum Moment: Sendable {
    case next(OwnedValue)
    case complete
    case fail(SignalFailure)
  }

  /// In order of time; relative to the subscription.
  public var script: [(at: TimeSpan, moment: Moment)] = []
  /// The moments, by index, that come in one turn with the moment before, at the same instant. What is
  /// here must make no difference; tests of that cut scripts in many ways.
  public var joined: Set<Int> = []

  public init() {}
  public init(_ script: [(at: TimeSpan, moment: Moment)], joined: Set<Int> = []) {
    self.script = script
    self.joined = joined
  }

  public static let spec = ComponentSpec<ScriptedSource>(
    "scripted", summary: "Sends what a test says.", carries: .state(version: 1))

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    Node(self, seat, downstream)
  }

  final class Node: RunningSource {
    private let script: [(at: TimeSpan, moment: Moment)]
    private let joined: Set<Int>
    private var wakes: [Wake] = []

    init(_ source: ScriptedSource, _ seat: Seat, _ downstream: Downstream) {
      script = source.script
      joined = source.joined
      super.init(seat, downstream: downstream)
    }

    /// Everything is scheduled before anything is sent, so that at one instant a script comes before the
    /// timers that it causes.
    override func begin() {
      let first = script.firstIndex { $0.at > .zero } ?? script.count
      for index in first..<script.count where !isJoined(index) {
        wakes.append(wake(after: script[index].at, index))
      }
      for index in 0..<first where !isClosed { perform(script[index].moment) }
    }

    private func isJoined(_ index: Int) -> Bool {
      index > 0 && joined.contains(index) && script[index].at == script[index - 1].at
    }

    override func woke(_ token: Int) {
      // A damaged state may say anything.
      guard script.indices.contains(token) else { return }
      perform(script[token].moment)
      var index = token + 1
      while !isClosed, index < script.count, isJoined(index) {
        perform(script[index].moment)
        index += 1
      }
    }

    private func perform(_ moment: Moment) {
      switch moment {
      case .next(let value):
        value.keep(in: arena)
        produce(value.value)
      case .complete: finish()
      case .fail(let failure): finish(failing: failure)
      }
    }

    override func save(_ state: inout StateWriter) { state.write(each: wakes) }

    override func restore(_ state: inout StateReader) throws(StateFault) { wakes = try state.read() }

    override func stop() {
      for index in wakes.indices { cancelWake(&wakes[index]) }
    }
  }
}
