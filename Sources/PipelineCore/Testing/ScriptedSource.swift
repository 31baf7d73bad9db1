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
  /// Who waits for an answer to the event of that index in the script; nil: nobody does.
  public var replyTarget: (@Sendable (Int) -> any ReplyTarget)?

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
    private let replyTarget: (@Sendable (Int) -> any ReplyTarget)?
    private var wakes: [Wake] = []

    init(_ source: ScriptedSource, _ seat: Seat, _ downstream: Downstream) {
      script = source.script
      joined = source.joined
      replyTarget = source.replyTarget
      super.init(seat, downstream: downstream)
    }

    /// Everything is scheduled before anything is sent, so that at one instant a script comes before the
    /// timers that it causes.
    override func begin() {
      let first = script.firstIndex { $0.at > .zero } ?? script.count
      for index in first..<script.count where !isJoined(index) {
        wakes.append(wake(after: script[index].at, index))
      }
      for index in 0..<first where !isClosed { perform(index) }
    }

    private func isJoined(_ index: Int) -> Bool {
      index > 0 && joined.contains(index) && script[index].at == script[index - 1].at
    }

    override func woke(_ token: Int) {
      // A damaged state may say anything.
      guard script.indices.contains(token) else { return }
      perform(token)
      var index = token + 1
      while !isClosed, index < script.count, isJoined(index) {
        perform(index)
        index += 1
      }
    }

    private func perform(_ index: Int) {
      switch script[index].moment {
      case .next(let value):
        value.keep(in: arena)
        guard let replyTarget else {
          produce(value.value)
          return
        }
        let own = Origin(source: origin.source, receivedAt: executor.wallTime, reply: replyTarget(index))
        arena.keep(own)
        produce(value.value, origin: own)
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
