import NIOCore
import PipelineCore
import Synchronization

/// The common state of a listener's connections: collects the answers of one round of the network thread. Used on that thread, except for `answer`.
final class ServingRound: @unchecked Sendable {
  /// The answer to one request.
  struct Answer {
    var connection: ServerConnection
    var exchange: ServerExchange
    var status: Int
    var headers: [(name: String, value: String)]
    var body: [UInt8]
  }

  private let loop: any EventLoop
  /// The time at which the current answers are written, read from the clock once for all of them; nil: none are being
  /// written.
  @exclusivity(unchecked) private(set) var instant: NIODeadline?
  /// The last answer that consists of a status alone, as sent.
  @exclusivity(unchecked) private var lastPlain: (status: Int, bytes: [UInt8]) = (0, [])
  private let answers = Mutex<[Answer]>([])
  /// The answers being written; otherwise empty.
  @exclusivity(unchecked) private var due: [Answer] = []
  /// The buffer for answers.
  let output = OutputBuffer()
  /// The number of bytes of the buffer that are kept for the next answer.
  private static let keptOutput = 64 << 10

  init(_ loop: any EventLoop) { self.loop = loop }

  /// The answer that consists of a status alone, for a connection that stays open.
  func plain(_ status: Int) -> [UInt8] {
    if lastPlain.status != status {
      output.clear()
      AnswerText.write(status, [], [], connection: nil, to: output)
      lastPlain = (status, Array(output.bytes))
    }
    return lastPlain.bytes
  }

  /// Frees the memory of a large answer that has been sent.
  func trimOutput() {
    if output.count > Self.keptOutput { output.clear(keeping: Self.keptOutput) }
  }

  /// Runs `work` on the network thread. Callable from any thread.
  func inLoop(_ work: @escaping @Sendable () -> Void) { loop.execute(work) }

  /// Passes an answer to its connection. Callable from any thread.
  func answer(_ answer: Answer) {
    let isFirst = answers.withLock { answers in
      answers.append(answer)
      return answers.count == 1
    }
    guard isFirst else { return }
    loop.execute { [self] in
      answers.withLock { swap(&$0, &due) }
      instant = .now()
      defer { instant = nil }
      for one in due {
        one.connection.answer(one.exchange, status: one.status, headers: one.headers, body: one.body)
      }
      due.removeAll(keepingCapacity: due.capacity <= 4096)
    }
  }
}
