import Glibc
import PipelineCore
import Transport

/// `redisStream`: adds each event to a stream of a Redis server.
struct RedisStream: SinkComponent {
  var stream = ExpressionParameter()
  var host = "127.0.0.1"
  var port = 6379
  var password: Secret?
  var timeout = TimeSpan.seconds(5)
  var batch = DeliveryBatchParameter()
  var queue = 10_000
  var retry = ReconnectParameter()

  static let spec = ComponentSpec<RedisStream>(
    "redisStream", summary: "Adds each event to a stream of a Redis server.",
    parameters: [
      .init("stream", \.stream, primary: true, required: true, expecting: .string, "The key of the stream."),
      .init("host", \.host, "The server."),
      .init("port", \.port, range: 1...65_535, "Its port."),
      .init("password", \.password, "What AUTH sends, such as `${REDIS_PASSWORD}`."),
      .init("timeout", \.timeout, range: 1_000_000_000...3_600_000_000_000, "How long the server may take to answer."),
      .init("batch", \.batch, "How many events are sent at once."),
      .init("queue", \.queue, range: 1...1_000_000, "How many events may wait."),
      .init("retry", \.retry, "The pauses between attempts."),
    ],
    memory: "Waiting events, up to `queue`.", persistence: .position(version: 1))

  var confirmation: SinkConfirmation { .receiver }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Connector(self, nodeContext).sink(nodeContext) }

  final class Connector: DeliveryConnector {
    let traits: DeliveryTraits
    private let parameters: RedisStream
    private let client: RedisClient
    private let worker: any Worker
    private let frame: EventFrame

    init(_ parameters: RedisStream, _ nodeContext: NodeContext) {
      self.parameters = parameters
      client = RedisClient(parameters)
      worker = nodeContext.worker("redis")
      frame = EventFrame.make(nodeContext)
      traits = DeliveryTraits(
        DeliveryWords("the Redis server"), parameters.batch, queue: parameters.queue, parameters.retry)
    }

    /// Connects, so that a wrong address shows before the first event.
    func open(_ answer: DeliveryAnswer) -> Bool {
      worker.enqueue { [client] in answer.put(client.send([])) }
      return false
    }

    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      try frame.read(event)
      guard let stream = try frame.value(of: parameters.stream).text, !stream.isEmpty else {
        throw DeliveryRefusal("'stream' gives no text for the event")
      }
      guard let json = event.value.json else { throw DeliveryRefusal("the event has no JSON form") }
      let command = RedisClient.command("XADD", stream, "*", "event", json)
      return DeliveryPiece(.bytes(command), bytes: command.count, target: NamedTarget(stream))
    }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      let commands = batch.items.map(\.piece.bytes)
      worker.enqueue { [client] in answer.put(client.send(commands)) }
    }

    func close(handsOver: Bool) { worker.enqueue { [client] in client.disconnect() } }
  }
}

/// A connection to a Redis server. Its calls block; one worker makes all of them.
final class RedisClient: @unchecked Sendable {
  private let parameters: RedisStream
  private var stream: UnsafeMutablePointer<FILE>?

  init(_ parameters: RedisStream) { self.parameters = parameters }
  deinit { disconnect() }

  static func command(_ words: String...) -> [UInt8] {
    Array("*\(words.count)\r\n".utf8) + words.flatMap { Array("$\($0.utf8.count)\r\n\($0)\r\n".utf8) }
  }

  /// Sends commands without waiting in between; the server answers each.
  func send(_ commands: [[UInt8]]) -> DeliveryOutcome {
    if stream == nil, let failure = connect() { return failure }
    guard let replies = exchange(commands) else { return down() }
    var (again, refused, reason): ([Int], [DeliveryOutcome.Refused], String) = ([], [], "")
    for (index, reply) in replies.enumerated() where reply.hasPrefix("-") {
      if ["-LOADING", "-OOM", "-MISCONF", "-READONLY"].contains(where: reply.hasPrefix) {
        (again, reason) = (again + [index], "the Redis server cannot take the event now: \(reply.dropFirst())")
      } else {
        refused.append(.init(index, "the Redis server refused the event: \(reply.dropFirst())"))
      }
    }
    return .answered(again: again, refused: refused, reason: reason)
  }

  func disconnect() {
    if let stream { fclose(stream) }
    stream = nil
  }

  private func down() -> DeliveryOutcome {
    let reason = errno == EAGAIN ? "no answer within \(parameters.timeout)" : String(cString: strerror(errno))
    disconnect()
    return .down("the Redis server \(parameters.host):\(parameters.port) does not answer: \(reason)")
  }

  private func connect() -> DeliveryOutcome? {
    var (hints, found) = (addrinfo(), nil as UnsafeMutablePointer<addrinfo>?)
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    getaddrinfo(parameters.host, String(parameters.port), &hints, &found)
    guard let address = found?.pointee else { return .down("the host \(parameters.host) is not found") }
    defer { freeaddrinfo(found) }
    let socket = socket(address.ai_family, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var limit = timeval(tv_sec: Int(parameters.timeout.nanoseconds / 1_000_000_000), tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
      setsockopt(socket, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
    }
    stream = fdopen(socket, "r")
    guard Glibc.connect(socket, address.ai_addr, address.ai_addrlen) == 0 else { return down() }
    guard let password = parameters.password else { return nil }
    guard let reply = exchange([Self.command("AUTH", password.revealed)])?.first else { return down() }
    if reply == "+OK" { return nil }
    disconnect()
    return .broken(SignalFailure(.sink, "the Redis server refused the password: \(reply.dropFirst())"))
  }

  /// One line of each reply: `+OK`, `-ERR REASON`, a text; nil: the connection has ended.
  private func exchange(_ commands: [[UInt8]]) -> [String]? {
    let bytes = commands.flatMap { $0 }
    guard Glibc.send(fileno(stream), bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else { return nil }
    var (line, size, replies) = (nil as UnsafeMutablePointer<CChar>?, 0, [String]())
    defer { free(line) }
    errno = ECONNRESET
    while replies.count < commands.count {
      guard getline(&line, &size, stream) > 0, let line else { return nil }
      // `$15` is the length of the text in the next line.
      if line[0] != CChar(UInt8(ascii: "$")) { replies.append(String(String(cString: line).dropLast())) }
    }
    return replies
  }
}
