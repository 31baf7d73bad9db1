/// The decisions of an HTTP server that need no pipeline, for a listening server and for a test's input that replaces
/// one.
public struct ServingRules: Sendable {
  /// Which component answers an accepted request, and when.
  package enum Answer: String, ChoiceParameter {
    case written, accepted, reply
    package var help: String {
      switch self {
      case .written:
        "200 when the results of the events have been written, 503 if that failed, 400 if no event could be decoded"
      case .accepted: "202 as soon as the pipeline has taken the events, 400 if no event could be decoded"
      case .reply: "the response of a `reply` sink; 504 if none comes in time"
      }
    }
  }

  /// The only path that is served, without the query; nil: all paths.
  package var path: String?
  /// The only methods that are served; nil: all methods.
  package var methods: [String]?
  /// The credentials that clients must present.
  package var auth: HTTPOptions.Auth = .none
  /// The host names that the server answers to, and the pages that may send requests.
  package var access = PageAccess()
  /// The maximum size of a body in bytes, before and after decompression.
  package var maxBodyBytes = 1 << 20
  /// The maximum number of bytes of all requests that are being received, wait for the pipeline, or are in it.
  package var maxBufferedBytes = 64 << 20
  /// The maximum number of connections at this server; each has at most one request that waits for its answer.
  package var maxConnections = 1024
  /// The time from the end of a request until the pipeline takes it.
  package var queueTimeout: TimeSpan = .seconds(5)
  /// The time from the end of a request to its answer.
  package var replyTimeout: TimeSpan = .seconds(30)
  package var answer = Answer.reply
  /// Whether an event is the request itself (`{ method, path, query, headers, body }`), not the contents of its body.
  package var sendsRequests = true

  package init() {}

  /// The answer to a request whose body is too large; nil: the body is read.
  package func refusal(ofBytes count: Int) -> ServerAnswer? {
    count > maxBodyBytes ? ServerAnswer(413) : nil
  }

  /// The requests that are served.
  package var scope: Scope { Scope(path: path, methods: methods) }

  /// The requests that a server takes. Apart from the other rules, because each request is asked for it, and a call of a
  /// method copies what the method is called on.
  package struct Scope: Sendable, Equatable {
    /// The only path, without the query; nil: all paths.
    package let path: String?
    /// The only methods; nil: all methods.
    package let methods: [String]?

    package init(path: String?, methods: [String]?) { (self.path, self.methods) = (path, methods) }

    /// The answer to a request that is not served; nil: it is served. `path` has no query.
    package func refusal(ofPath path: UnsafeRawBufferPointer, method: UnsafeRawBufferPointer) -> ServerAnswer? {
      if !serves(path: path) { return ServerAnswer(404) }
      if let methods, !methods.contains(where: { Self.isSame(method, $0) }) { return .notAllowed(methods) }
      return nil
    }

    /// The answer to a request that is not served; nil: it is served. `path` may have a query.
    package func refusal(ofPath path: Substring, method: String) -> ServerAnswer? {
      var path = path
      var method = method
      return path.withUTF8 { path in
        method.withUTF8 { refusal(ofPath: UnsafeRawBufferPointer(path), method: UnsafeRawBufferPointer($0)) }
      }
    }

    /// Whether the path is served, with some method.
    package func serves(path: UnsafeRawBufferPointer) -> Bool { self.path.map { Self.isSame(path, $0) } ?? true }

    /// The requests that both this and another scope have, in words; nil: there are none. A scope with one path does not
    /// conflict with a scope of all paths, which gets the other paths.
    package func conflict(_ other: Scope) -> String? {
      guard path == other.path else { return nil }
      let pathText = path.map { Printable.cut($0) } ?? "all paths"
      guard let first = methods, let second = other.methods else {
        return (methods ?? other.methods).map { "\($0.joined(separator: ", ")) \(pathText)" } ?? pathText
      }
      let both = first.filter(second.contains)
      return both.isEmpty ? nil : "\(both.joined(separator: ", ")) \(pathText)"
    }

    /// Whether the other scope has every request of this one.
    package func isCovered(by other: Scope) -> Bool {
      guard path == other.path, let others = other.methods else { return path == other.path }
      return methods.map { $0.allSatisfy(others.contains) } ?? false
    }

    private static func isSame(_ bytes: UnsafeRawBufferPointer, _ text: String) -> Bool {
      var text = text
      return text.withUTF8 { text in
        guard text.count == bytes.count, let start = text.baseAddress, let other = bytes.baseAddress else {
          return text.count == bytes.count
        }
        return areEqual(other, start, text.count)
      }
    }
  }

  /// Whether clients must present credentials.
  package var asksForAuth: Bool { if case .none = auth { false } else { true } }

  /// The answer to a client without the right credentials; nil: it is admitted. `authorization` is the header of that
  /// name.
  package func refusal(ofAuthorization authorization: String?) -> ServerAnswer? {
    let given = authorization ?? ""
    switch auth {
    case .none: return nil
    // No parameter of a server gives these methods.
    case .oauth2, .awsSigV4: return ServerAnswer(unauthorized: "Bearer")
    case .bearer(let token):
      return Self.isEqual(given, "Bearer " + token.revealed) ? nil : ServerAnswer(unauthorized: "Bearer")
    case .basic(let user, let password):
      let buffer = OutputBuffer()
      Array("\(user):\(password.revealed)".utf8).withUnsafeBytes { JSONWriter.appendBase64($0, to: buffer) }
      return Self.isEqual(given, "Basic " + String(decoding: buffer.bytes, as: UTF8.self))
        ? nil : ServerAnswer(unauthorized: "Basic")
    }
  }

  /// The answer to a client that exceeds the limit of connections; nil: it is admitted.
  package func refusal(besides connections: Int) -> ServerAnswer? {
    connections >= maxConnections ? .busy : nil
  }

  /// Compares in constant time for texts of the same length.
  package static func isEqual(_ a: String, _ b: String) -> Bool {
    let (a, b) = (Array(a.utf8), Array(b.utf8))
    var difference = a.count ^ b.count
    for index in b.indices { difference |= Int(a.isEmpty ? 1 : a[index % a.count] ^ b[index]) }
    return difference == 0
  }
}

/// An answer that the server gives without the pipeline.
package struct ServerAnswer: Sendable {
  package var status: Int
  package var headers: [(name: String, value: String)] = []
  package var body: [UInt8] = []

  package init(_ status: Int, _ headers: [(name: String, value: String)] = [], error: String? = nil) {
    self.status = status
    self.headers = headers
    guard let error else { return }
    self.headers.insert((name: "Content-Type", value: "application/json"), at: 0)
    body = Array(#"{"error":"\#(error)"}"#.utf8)
  }

  init(unauthorized scheme: String) {
    self.init(401, [(name: "WWW-Authenticate", value: "\(scheme) realm=\"rxd\"")])
  }

  /// The path is served, but the method is not.
  package static func notAllowed(_ methods: [String]) -> ServerAnswer {
    var known: [String] = []
    for method in methods where !known.contains(method) { known.append(method) }
    return ServerAnswer(405, [(name: "Allow", value: known.joined(separator: ", "))])
  }
  /// The limit of connections is reached, or the server stops.
  package static let busy = ServerAnswer(503)
  /// The source accepts no more input.
  package static let stopped = ServerAnswer(503, [(name: "Retry-After", value: "1")])
  /// The request was not accepted: the pipeline is too slow, or there is no memory to queue it.
  package static let overloaded = ServerAnswer(503, [(name: "Retry-After", value: "1")])
  /// The content coding of the body is not supported.
  package static let unknownCoding = ServerAnswer(415, [(name: "Accept-Encoding", value: "gzip, deflate, zstd")])
  /// Every component that could have answered is gone.
  package static let dropped = ServerAnswer(503)
  /// Events that must be stored before delivery have no room. They were not taken, or will be delivered twice if they
  /// are sent again.
  package static let full = ServerAnswer(
    507, [(name: "Retry-After", value: "5")], error: "the file system of the state directory is full")
  /// No answer arrived in time.
  package static let timedOut = ServerAnswer(504)
  /// The events have been taken.
  package static let accepted = ServerAnswer(202)
  /// The body does not match its content coding.
  package static let damaged = ServerAnswer(400, error: "the body cannot be decompressed")
  /// The body is not empty, but no event could be decoded from it.
  package static let undecodable = ServerAnswer(400, error: "no event of the body could be decoded")

  /// The status to send for a status chosen by the pipeline.
  package static func status(for chosen: Int) -> Int { (200...599).contains(chosen) ? chosen : 500 }
}

extension ReplyTarget {
  /// Replies with an answer of the server itself.
  @discardableResult
  package func reply(_ answer: ServerAnswer) -> Bool {
    reply(status: answer.status, headers: answer.headers, body: answer.body)
  }
}
