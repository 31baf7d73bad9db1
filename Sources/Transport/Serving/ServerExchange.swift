import PipelineCore
import Synchronization

/// Whether one request has been answered; shared by the connection and the answering side.
final class ServerExchange: @unchecked Sendable {
  private let connection: Mutex<ServerConnection?>
  private let round: ServingRound
  /// The number in the server's queue; nil: never queued. Used on the network thread.
  @exclusivity(unchecked) var number: UInt64?
  private let taken = Atomic(false)
  /// Whether the pipeline has taken the request out of the queue.
  var isTaken: Bool { taken.load(ordering: .relaxed) }
  func take() { taken.store(true, ordering: .relaxed) }

  /// The memory budget that a streamed answer is counted against.
  private let memory: MemoryBudget?

  init(_ connection: ServerConnection, _ round: ServingRound, _ memory: MemoryBudget?) {
    self.memory = memory
    self.connection = Mutex(connection)
    self.round = round
  }

  /// Sends the answer; false: there was an answer before, or the client has left.
  func answer(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    guard let connection = connection.withLock({ $0.take() }) else { return false }
    round.answer(
      ServingRound.Answer(connection: connection, exchange: self, status: status, headers: headers, body: body))
    return true
  }

  /// Nil: the request has been answered, or the client has left.
  func stream(
    status: Int, headers: [(name: String, value: String)], room: Int = ResponseStream.room,
    speaker: (name: String, any UpgradedSpeaker)? = nil, closed: @escaping @Sendable () -> Void
  ) -> ResponseStream? {
    guard let connection = connection.withLock({ $0.take() }) else { return nil }
    let round = round
    let stream = ResponseStream(
      room: room, of: memory, schedule: { _ in round.inLoop { connection.writeStream() } }, closed: closed)
    round.inLoop { [self] in connection.begin(stream, self, status: status, headers: headers, speaker: speaker) }
    return stream
  }

  /// Gives a request that the pipeline has not taken to the next server.
  func takeBack(_ request: ServerRequest) { connection.withLock { $0 }?.takeBack(request) }

  /// Leaves the answer to the next version of the pipeline.
  func handOver() { connection.withLock { $0 }?.part(from: self) }

  /// The client has disconnected.
  func disconnect() { connection.withLock { $0 = nil } }
}

/// The object through which the receiver of a request answers.
final class ServerReply: ReplyTarget {
  private let exchange: ServerExchange

  init(_ exchange: ServerExchange) { self.exchange = exchange }

  deinit {
    let answer = ServerAnswer.dropped
    _ = exchange.answer(status: answer.status, headers: answer.headers, body: answer.body)
  }

  func handOver() { exchange.handOver() }

  @discardableResult
  func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool {
    exchange.answer(status: ServerAnswer.status(for: status), headers: headers, body: body)
  }
}
