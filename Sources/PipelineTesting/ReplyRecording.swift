import PipelineCore
import Synchronization

/// The simulated clients of an HTTP server's input, and the answers that they receive: from the pipeline, or from the
/// server, which follows the same rules as a listening one.
///
/// Each event is a request on a connection of its own, which is closed after the answer. Parts of the request that an
/// event leaves out have valid defaults.
final class ReplyRecording: Sendable {
  private struct State {
    var answers: [(at: Instant, value: TestValue)] = []
    /// The waiting clients in the order of their requests, which is also that of their deadlines.
    var waiting: [(client: Int, number: Int, deadline: Instant)] = []
    /// Requests that find the source closed, in the order of their times.
    var late: [(number: Int, at: Instant)] = []
    var clients = 0

    mutating func add(_ number: Int, _ answer: ServerAnswer, at instant: Instant) {
      answers.append((instant, ReplyRecording.value(number, answer.status, answer.headers, answer.body)))
    }

    /// Records the answers of the server itself that are due at `now`.
    mutating func catchUp(_ now: Instant) {
      while true {
        let deadline = waiting.first?.deadline ?? .distantFuture
        if let next = late.first, next.at <= now, next.at < deadline {
          late.removeFirst()
          add(next.number, .stopped, at: next.at)
        } else if let next = waiting.first, next.deadline <= now {
          waiting.removeFirst()
          add(next.number, .timedOut, at: next.deadline)
        } else {
          return
        }
      }
    }
  }
  private let state = Mutex(State())
  private let time: VirtualTime
  let rules: ServingRules

  init(_ time: VirtualTime, _ rules: ServingRules) {
    self.time = time
    self.rules = rules
  }

  /// The answers, in order.
  var history: SignalHistory {
    current {
      SignalHistory($0.answers.map { .init(at: TimeSpan(nanoseconds: $0.at.nanoseconds), .next($0.value)) })
    }
  }

  var count: Int { current(\.answers.count) }

  /// When the server itself answers a waiting request; nil if none waits, or the wait has no limit.
  var nextDeadline: Instant? {
    current { $0.waiting.first.flatMap { $0.deadline == .distantFuture ? nil : $0.deadline } }
  }

  private func current<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
    state.withLock { state in
      state.catchUp(time.now)
      return body(&state)
    }
  }

  /// The request with that number, counted from 1, arrives now. Returns the target for the pipeline's answer; nil if
  /// the server itself has answered, so that the pipeline does not receive the request.
  func ask(_ number: Int, _ event: TestValue) -> (any ReplyTarget)? {
    let now = time.now
    let refusal = refusal(of: event)
    let client: Int? = current { state in
      if let answer = rules.refusal(besides: state.waiting.count) ?? refusal {
        state.add(number, answer, at: now)
        return nil
      }
      state.clients += 1
      state.waiting.append((state.clients, number, now + rules.replyTimeout))
      return state.clients
    }
    return client.map { Client(self, $0) }
  }

  /// Makes the checks in the order in which the server makes them.
  private func refusal(of event: TestValue) -> ServerAnswer? {
    guard rules.sendsRequests else { return nil }
    let path = event["path"]?.text ?? rules.path ?? ""
    let method = event["method"]?.text ?? rules.methods?.first ?? ""
    // A body that is too large is refused even if no component would have received it.
    var tooLarge: ServerAnswer?
    if case .text(let body)? = event["body"] { tooLarge = rules.refusal(ofBytes: body.count) }
    if let answer = rules.scope.refusal(ofPath: path[...], method: method) { return tooLarge ?? answer }
    let headers = event["headers"]
    if let answer = rules.access.refusal(host: headers?["host"]?.text, origin: headers?["origin"]?.text) {
      return answer
    }
    if let given = headers?["authorization"]?.text, let answer = rules.refusal(ofAuthorization: given) { return answer }
    return tooLarge
  }

  /// Records that the source was closed before these requests.
  func closed(before requests: [(number: Int, at: Instant)]) { current { $0.late = requests } }

  /// Records that the source has started, perhaps again, so that the requests reach it.
  func opened() { current { $0.late = [] } }

  private func answer(
    _ client: Int, _ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8]
  ) -> Bool {
    let now = time.now
    return current { state in
      guard let index = state.waiting.firstIndex(where: { $0.client == client }) else { return false }
      let number = state.waiting.remove(at: index).number
      state.answers.append((now, Self.value(number, status, headers, body)))
      return true
    }
  }

  private final class Client: ReplyTarget {
    private let recording: ReplyRecording
    private let client: Int

    init(_ recording: ReplyRecording, _ client: Int) {
      self.recording = recording
      self.client = client
    }

    deinit {
      let answer = ServerAnswer.dropped
      _ = recording.answer(client, answer.status, answer.headers, answer.body)
    }

    func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
      recording.answer(client, ServerAnswer.status(for: status), headers, body)
    }
  }

  /// `{ request, status, headers?, body? }`, with header names in lower case.
  private static func value(
    _ number: Int, _ status: Int, _ headers: [(name: String, value: String)], _ body: [UInt8]
  ) -> TestValue {
    var members: [TestValue.Member] = [
      .init(Array("request".utf8), .int(Int64(number))), .init(Array("status".utf8), .int(Int64(status))),
    ]
    if !headers.isEmpty {
      members.append(
        .init(
          Array("headers".utf8),
          .object(unsorted: headers.map { .init(Array($0.name.lowercased().utf8), .text($0.value)) })))
    }
    if !body.isEmpty { members.append(.init(Array("body".utf8), TestValue(body: body))) }
    return .object(unsorted: members)
  }
}

extension TestValue {
  /// A body as JSON if it is valid JSON, otherwise as text.
  init(body: [UInt8]) {
    self = body.withUnsafeBytes { bytes in
      let arena = Arena()
      let value = JSONParser().parse(bytes, into: arena)
      return value.isError ? .text(body) : TestValue(value)
    }
  }

  /// The member with that name, if this is an object with one.
  fileprivate subscript(name: String) -> TestValue? {
    guard case .object(let members) = self else { return nil }
    return members.first { $0.key.elementsEqual(name.utf8) }?.value
  }

  fileprivate var text: String? {
    guard case .text(let bytes) = self else { return nil }
    return String(decoding: bytes, as: UTF8.self)
  }
}
