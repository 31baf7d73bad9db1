import PipelineCore

/// A source that plays a script on the executor's time.
package struct ScriptedSource: SourceComponent {
  /// One entry of a script.
  package enum Moment: Sendable {
    case next(OwnedValue)
    case complete
    case fail(SignalFailure)
  }

  /// The moments in order of time, relative to the subscription.
  package var script: [(at: TimeSpan, moment: Moment)] = []
  /// The indexes of moments that share a turn with the previous moment, at the same instant. Sharing must make no
  /// difference, which tests check by joining moments in many ways.
  package var joined: Set<Int> = []
  /// What tests say of the origin of some events, by the index of the moment.
  var origins: [Int: ScriptedOrigin] = [:]
  /// If set, sends the events as requests and receives the answers; nil: there are no clients.
  var clients: ReplyRecording?

  package init() {}
  package init(_ script: [(at: TimeSpan, moment: Moment)], joined: Set<Int> = []) {
    self.script = script
    self.joined = joined
  }

  package static let spec = ComponentSpec<ScriptedSource>(
    "scripted", summary: "Sends what a test says.", persistence: .state(version: 1))

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let script: [(at: TimeSpan, moment: Moment)]
    private let joined: Set<Int>
    private let origins: [Int: ScriptedOrigin]
    private let clients: ReplyRecording?
    private var wakes: [Wake] = []
    /// The time of the start; nil after a restart, because no client survives one.
    private var beginning: Instant?
    /// The number of moments that have been sent.
    private var performed = 0

    init(_ source: ScriptedSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      script = source.script
      joined = source.joined
      origins = source.origins
      clients = source.clients
      super.init(nodeContext, downstream: downstream)
      waitsForSteps = false
    }

    /// Everything is scheduled before anything is sent, so that the moments of an instant come before timers that
    /// earlier ones of the instant set.
    override func begin() {
      beginning = now
      clients?.opened()
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
      // A damaged state may contain any number here.
      guard script.indices.contains(token) else { return }
      perform(token)
      var index = token + 1
      while !isClosed, index < script.count, isJoined(index) {
        perform(index)
        index += 1
      }
    }

    private func perform(_ index: Int) {
      performed = index + 1
      switch script[index].moment {
      case .next(let value):
        value.keep(in: arena)
        if let clients {
          ask(clients, index, value.value)
        } else if let own = ownOrigin(of: index) {
          arena.keep(own)
          produce(value.value, origin: own, position: position(of: index))
        } else {
          produce(value.value)
        }
      case .complete: finish()
      case .fail(let failure): finish(failing: failure)
      }
    }

    /// The event's name; nil if names are not needed. Its position cannot serve as a name, because the source that it
    /// replaces may have none.
    private func identity(of index: Int) -> EventIdentity? {
      guard case .origin(let name)? = origin.identity else { return nil }
      return .event("\(name):\(index)")
    }

    /// Nil: the event has the origin of all events of the source.
    private func ownOrigin(of index: Int) -> Origin? {
      let (identity, given) = (identity(of: index), origins[index])
      guard let given else { return identity.map(origin.with) }
      return Origin(
        source: origin.source, path: given.path ?? origin.path, receivedAt: origin.receivedAt, fields: given.fields,
        identity: identity ?? origin.identity, part: origin.part)
    }

    private func position(of index: Int) -> Int64 { origins[index]?.offset ?? -1 }

    /// Sends a request. If the server itself answers, the pipeline does not receive it.
    private func ask(_ clients: ReplyRecording, _ index: Int, _ value: Value) {
      guard let client = clients.ask(index + 1, TestValue(value)) else { return }
      let answer = clients.rules.answer
      if answer == .written { executor.track(Ack { client.reply(.after($0)) }) }
      let given = origins[index]
      let own = Origin(
        source: origin.source, path: given?.path, receivedAt: executor.wallTime, fields: given?.fields ?? OwnedValue(),
        reply: client, identity: identity(of: index))
      arena.keep(own)
      produce(value, origin: own, position: position(of: index))
      if answer == .accepted { client.reply(.accepted) }
    }

    override func save(_ state: inout StateWriter) { state.write(each: wakes) }

    override func restore(_ state: inout StateReader) throws(StateFault) { wakes = try state.read() }

    override func stop() {
      for index in wakes.indices { cancelWake(&wakes[index]) }
      guard let clients, let beginning else { return }
      clients.closed(
        before: script.indices.dropFirst(performed).compactMap { index in
          guard case .next = script[index].moment else { return nil }
          return (index + 1, beginning + script[index].at)
        })
    }
  }
}

/// What a test says of the origin of an event: members of `meta`.
package struct ScriptedOrigin: Sendable {
  var path: String?
  var offset: Int64?
  /// All other members.
  var fields = OwnedValue()
}
