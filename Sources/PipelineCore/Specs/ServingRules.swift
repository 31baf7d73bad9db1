/// What an HTTP server decides and says without asking the pipeline: the same for one that listens and for one that
/// an input of a test stands for.
public struct ServingRules: Sendable {
  /// Who answers a request that has been taken in, and when.
  public enum Answer: String, ChoiceParameter {
    case written, accepted, reply
    public var help: String {
      switch self {
      case .written:
        "200 when what came of the events has been written, 503 if that has failed, 400 if none could be decoded"
      case .accepted: "202 as soon as the pipeline has taken the events in, 400 if none could be decoded"
      case .reply: "what a `reply` sink says; 504 if none does in time"
      }
    }
  }

  /// The only path that is served, as it stands before a `?`; nil: all.
  public var path: String?
  /// The only methods that are served; nil: all.
  public var methods: [String]?
  /// What clients must present.
  public var auth: HTTPOptions.Auth = .none
  /// Bytes of a body, also when it is decompressed.
  public var maxBodyBytes = 1 << 20
  /// Bytes of all requests that come in, wait for the pipeline or are in its turn.
  public var maxBufferedBytes = 64 << 20
  /// Connections at a time; each has at most one request that waits for its answer.
  public var maxConnections = 1024
  /// From the end of a request until the pipeline takes it in.
  public var queueTimeout: TimeSpan = .seconds(5)
  /// From the end of a request to its answer.
  public var replyTimeout: TimeSpan = .seconds(30)
  public var answer = Answer.reply
  /// Whether an event is the request itself (`{ method, path, query, headers, body }`), not what its body holds.
  public var sendsRequests = true

  public init() {}

  /// What a body of that size is answered, if it is not read.
  public func refusal(ofBytes count: Int) -> ServerAnswer? {
    count > maxBodyBytes ? ServerAnswer(413) : nil
  }

  /// What a request is answered that nobody serves; `path` is what stands before a `?`.
  public func refusal(ofPath path: Substring, method: String) -> ServerAnswer? {
    if let only = self.path, !path.utf8.elementsEqual(only.utf8) { return ServerAnswer(404) }
    if let methods, !methods.contains(where: { $0.utf8.elementsEqual(method.utf8) }) { return ServerAnswer(405) }
    return nil
  }

  /// What a client is answered who is not allowed in; `authorization` is the header of that name.
  public func refusal(ofAuthorization authorization: String?) -> ServerAnswer? {
    let given = authorization ?? ""
    switch auth {
    case .none: return nil
    case .bearer(let token):
      return Self.isEqual(given, "Bearer " + token.revealed) ? nil : ServerAnswer(unauthorized: "Bearer")
    case .basic(let user, let password):
      let buffer = OutputBuffer()
      Array("\(user):\(password.revealed)".utf8).withUnsafeBytes { JSONWriter.appendBase64($0, to: buffer) }
      return Self.isEqual(given, "Basic " + String(decoding: buffer.bytes, as: UTF8.self))
        ? nil : ServerAnswer(unauthorized: "Basic")
    }
  }

  /// What a client hears who comes while so many others are connected.
  public func refusal(besides connections: Int) -> ServerAnswer? {
    connections >= maxConnections ? .busy : nil
  }

  /// Takes as long for a wrong guess as for a right one of the same length.
  private static func isEqual(_ a: String, _ b: String) -> Bool {
    let (a, b) = (Array(a.utf8), Array(b.utf8))
    var difference = a.count ^ b.count
    for index in b.indices { difference |= Int(a.isEmpty ? 1 : a[index % a.count] ^ b[index]) }
    return difference == 0
  }
}

/// What a server says by itself.
public struct ServerAnswer: Sendable {
  public var status: Int
  public var headers: [(name: String, value: String)] = []
  public var body: [UInt8] = []

  public init(_ status: Int, _ headers: [(name: String, value: String)] = [], error: String? = nil) {
    self.status = status
    self.headers = headers
    guard let error else { return }
    self.headers.insert((name: "Content-Type", value: "application/json"), at: 0)
    body = Array(#"{"error":"\#(error)"}"#.utf8)
  }

  init(unauthorized scheme: String) {
    self.init(401, [(name: "WWW-Authenticate", value: "\(scheme) realm=\"rxd\"")])
  }

  /// As many clients are connected as there may be, or the server stops.
  public static let busy = ServerAnswer(503)
  /// The source takes nothing in any more.
  public static let stopped = ServerAnswer(503, [(name: "Retry-After", value: "1")])
  /// The pipeline does not take the request in soon, or there is no memory to let it wait. It has not been taken in.
  public static let overloaded = ServerAnswer(503, [(name: "Retry-After", value: "1")])
  /// The body is in a content coding that is not understood.
  public static let unknownCoding = ServerAnswer(415, [(name: "Accept-Encoding", value: "gzip, deflate, zstd")])
  /// Nobody is left who could answer.
  public static let dropped = ServerAnswer(503)
  /// Nobody has answered in time.
  public static let timedOut = ServerAnswer(504)
  /// The events have been taken in.
  public static let accepted = ServerAnswer(202)
  /// The body is not what its content coding says.
  public static let damaged = ServerAnswer(400, error: "the body cannot be decompressed")
  /// The body held something, but no event.
  public static let undecodable = ServerAnswer(400, error: "no event of the body could be decoded")

  /// For requests that wait until the events are written.
  public static func after(_ outcome: Ack.Outcome) -> ServerAnswer {
    switch outcome {
    case .acknowledged: ServerAnswer(200)
    case .failed:
      ServerAnswer(503, [(name: "Retry-After", value: "1")], error: "not all events could be written")
    }
  }

  /// The status that is sent for the one that somebody has chosen.
  public static func status(for chosen: Int) -> Int { (200...599).contains(chosen) ? chosen : 500 }
}

extension ReplyTarget {
  /// The same with what the server says by itself.
  @discardableResult
  public func reply(_ answer: ServerAnswer) -> Bool {
    reply(status: answer.status, headers: answer.headers, body: answer.body)
  }
}
