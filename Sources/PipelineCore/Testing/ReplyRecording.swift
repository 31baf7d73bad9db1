import Synchronization

/// What the pipeline answers to the events of an input that stands for an HTTP server.
final class ReplyRecording: Sendable {
  private let answers = Mutex<[(at: Instant, value: TestValue)]>([])
  private let time: VirtualTime

  init(_ time: VirtualTime) { self.time = time }

  /// In the order in which they came.
  var history: SignalHistory {
    answers.withLock {
      SignalHistory($0.map { .init(at: TimeSpan(nanoseconds: $0.at.nanoseconds), .next($0.value)) })
    }
  }

  var count: Int { answers.withLock(\.count) }

  /// Whoever waits for the answer to the event of that number, from 1.
  func client(_ number: Int) -> any ReplyTarget { Client(self, number) }

  private final class Client: ReplyTarget {
    private let recording: ReplyRecording
    private let number: Int
    private let isAnswered = Mutex(false)

    init(_ recording: ReplyRecording, _ number: Int) {
      self.recording = recording
      self.number = number
    }

    func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
      let isFirst = isAnswered.withLock { wasAnswered in
        defer { wasAnswered = true }
        return !wasAnswered
      }
      guard isFirst else { return false }
      let value = ReplyRecording.value(number, status, headers, body)
      recording.answers.withLock { $0.append((recording.time.now, value)) }
      return true
    }
  }

  /// `{ request, status, headers?, body? }`, names of headers in lower case.
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
  /// A body as JSON where it is some, else as text.
  init(body: [UInt8]) {
    self = body.withUnsafeBytes { bytes in
      let arena = Arena()
      let value = JSONParser().parse(bytes, into: arena)
      return value.isError ? .text(body) : TestValue(value)
    }
  }
}
