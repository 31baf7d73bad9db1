import PipelineCore

/// A simulated Docker for a test: containers with their lines, and events. Times count from the start of the test.
struct DockerStub: Sendable {
  struct Line: Sendable {
    var at: TimeSpan
    var isError = false
    var text: String
  }

  struct Container: Sendable {
    var id: String
    var name: String
    var image = ""
    var labels: [(name: String, value: String)] = []
    var starts = TimeSpan.zero
    /// Nil: the container keeps running.
    var ends: TimeSpan?
    var lines: [Line] = []
  }

  struct Event: Sendable {
    var at: TimeSpan
    var type: String
    var action: String
    var id: String
    var attributes: [(name: String, value: String)] = []
  }

  var containers: [Container] = []
  var events: [Event] = []

  /// The last instant that the stub mentions.
  var horizon: TimeSpan {
    let times = containers.flatMap { [$0.starts, $0.ends ?? .zero] + $0.lines.map(\.at) } + events.map(\.at)
    return times.max() ?? .zero
  }
}

extension DockerStub: StubSet {
  static var key: String { "docker" }
  /// The source is silent.
  static var none: DockerStub? { nil }

  init?(_ node: YAMLNode, _ reader: inout PipelineTestReader) {
    guard let stub = reader.docker(node) else { return nil }
    self = stub
  }

  func run(_ executor: Executor) -> any RunningStubs { StubDocker(self, executor) }
}

/// Answers the requests of the source `docker`, as Docker's API does, on the executor's time.
///
/// It has no state: a restarted pipeline repeats its requests, with its position in `since`.
final class StubDocker: RunningStubs, @unchecked Sendable {
  private let stub: DockerStub
  private(set) var executor: Executor
  /// Whether an answer is on its way into the pipeline.
  private(set) var isAnswering = false

  init(_ stub: DockerStub, _ executor: Executor) {
    self.stub = stub
    self.executor = executor
  }

  var isConnected: Bool { true }
  func serve(_ services: inout Services) { services.http = StubClients(services.http, self) }
  func detach() {}
  func attach(_ executor: Executor) { self.executor = executor }
  func forgetOrphans() {}
  func stop() {}
  func unanswered(at location: SourceLocation) -> [Diagnostic] { [] }

  // MARK: Requests

  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    let response = answer(request)
    return Answer(self, [(executor.now, .head(response))]) { _ in completion(.success(response)) }
  }

  func stream(
    _ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) -> any HTTPStream {
    let (path, query) = Self.parts(request.url)
    var parts: [(at: Instant, part: HTTPStreamPart)] = [(executor.now, .head(HTTPResponse(status: 200)))]
    let since = Self.since(query)
    if path == ["events"] {
      parts += events(query, since).map { (max($0.at, executor.now), .bytes(Array(($0.text + "\n").utf8))) }
    } else if path.count == 3, path[2] == "logs", let container = container(path[1]) {
      for line in container.lines.sorted(by: { $0.at < $1.at }) where wallTime(line.at) >= since {
        parts.append((max(instant(line.at), executor.now), .bytes(frame(line))))
      }
      if let end = container.ends { parts.append((max(instant(end), parts.last?.at ?? executor.now), .end(nil))) }
    } else {
      parts = [(executor.now, .head(HTTPResponse(status: 404))), (executor.now, .end(nil))]
    }
    return Answer(self, parts, receive)
  }

  private func answer(_ request: HTTPRequest) -> HTTPResponse {
    let (path, query) = Self.parts(request.url)
    if path == ["containers", "json"] {
      let texts = stub.containers.filter { $0.starts <= now && Self.hasLabels($0.labels, query) }.map { container in
        let state = container.ends.map { $0 <= now } ?? false ? "exited" : "running"
        return Self.object([("Id", container.id), ("State", state)])
      }
      return HTTPResponse(status: 200, body: Array("[\(texts.joined(separator: ","))]".utf8))
    }
    guard path.count == 3, path[2] == "json", let container = container(path[1]) else {
      return HTTPResponse(status: 404, body: Array(#"{"message":"No such container"}"#.utf8))
    }
    let config =
      #"{"Image":\#(Self.quoted(container.image)),"Tty":false,"Labels":\#(Self.object(container.labels))}"#
    let text = #"{"Name":\#(Self.quoted("/\(container.name)")),"Config":\#(config)}"#
    return HTTPResponse(status: 200, body: Array(text.utf8))
  }

  /// Past and future events, in the order of their times.
  private func events(_ query: String, _ since: Int64) -> [(at: Instant, text: String)] {
    var found: [(at: TimeSpan, text: String)]
    if query.contains("%22start%22") {
      // When it reads logs, the source also requests the starts of later containers.
      found = stub.containers.filter { $0.starts > now && Self.hasLabels($0.labels, query) }.map { container in
        let event = DockerStub.Event(at: container.starts, type: "container", action: "start", id: container.id)
        return (event.at, text(event))
      }
    } else {
      found = stub.events.filter { wallTime($0.at) >= since }.map { ($0.at, text($0)) }
    }
    found.sort { $0.at < $1.at }
    return found.map { (instant($0.at), $0.text) }
  }

  private func text(_ event: DockerStub.Event) -> String {
    let actor = #"{"ID":\#(Self.quoted(event.id)),"Attributes":\#(Self.object(event.attributes))}"#
    return
      #"{"Type":\#(Self.quoted(event.type)),"Action":\#(Self.quoted(event.action)),"Actor":\#(actor),"timeNano":\#(wallTime(event.at))}"#
  }

  /// A stream frame with one line, as Docker writes it for a container without a terminal.
  private func frame(_ line: DockerStub.Line) -> [UInt8] {
    let time = wallTime(line.at)
    let rest = String(time % 1_000_000_000)
    let fraction = String(repeating: "0", count: 9 - rest.utf8.count) + rest
    let text = Array("\(TimeText.rfc3339(seconds: time / 1_000_000_000).dropLast()).\(fraction)Z \(line.text)\n".utf8)
    return [line.isError ? 2 : 1, 0, 0, 0] + withUnsafeBytes(of: UInt32(clamping: text.count).bigEndian) { Array($0) }
      + text
  }

  private func container(_ id: String) -> DockerStub.Container? {
    stub.containers.first { $0.id == id && $0.starts <= now }
  }

  // MARK: Times and texts

  private var now: TimeSpan { TimeSpan(nanoseconds: executor.now.nanoseconds) }
  private func instant(_ at: TimeSpan) -> Instant { Instant(nanoseconds: at.nanoseconds) }
  private func wallTime(_ at: TimeSpan) -> Int64 { executor.wallTime &+ at.nanoseconds &- executor.now.nanoseconds }

  /// Splits a URL into the parts of its path, and its query.
  private static func parts(_ url: String) -> (path: [String], query: String) {
    let pieces = url.split(separator: "?", maxSplits: 1).map(String.init)
    // The host is a placeholder: http://docker/containers/...
    let path = (pieces.first ?? "").split(separator: "/").dropFirst(2).map(String.init)
    return (path, pieces.count > 1 ? pieces[1] : "")
  }

  /// Reads `since=1700000000.000000001` as nanoseconds.
  private static func since(_ query: String) -> Int64 {
    for pair in query.split(separator: "&") where pair.hasPrefix("since=") {
      let parts = pair.dropFirst("since=".count).split(separator: ".")
      guard let seconds = parts.first.flatMap({ Int64($0) }) else { return 0 }
      return seconds &* 1_000_000_000 &+ (parts.count > 1 ? Int64(parts[1]) ?? 0 : 0)
    }
    return 0
  }

  /// Whether a container has the labels that a query requires, `NAME` or `NAME=VALUE`.
  private static func hasLabels(_ labels: [(name: String, value: String)], _ query: String) -> Bool {
    guard let start = query.firstRange(of: "%22label%22%3A%5B") else { return true }
    let list = query[start.upperBound...]
    guard let end = list.firstRange(of: "%5D") else { return true }
    let wanted = list[..<end.lowerBound].split(separator: "%2C").map { $0.replacing("%22", with: "") }
    return wanted.allSatisfy { text in
      let parts = text.replacing("%3D", with: "=").split(
        separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      return labels.contains { label in
        label.name == parts[0] && (parts.count == 1 || label.value == parts[1])
      }
    }
  }

  private static func quoted(_ text: String) -> String {
    let buffer = OutputBuffer()
    var text = text
    text.withUTF8 { JSONWriter.appendString(.string(UnsafeRawBufferPointer($0)), to: buffer) }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  private static func object(_ members: [(name: String, value: String)]) -> String {
    "{" + members.map { "\(quoted($0.name)):\(quoted($0.value))" }.joined(separator: ",") + "}"
  }

  // MARK: Answers

  /// Delivers the parts of an answer at their times.
  private final class Answer: HTTPStream, TimerTarget, @unchecked Sendable {
    var timerKind: TimerKind { .output }
    private let docker: StubDocker
    private let executor: Executor
    /// The remaining parts in reverse order: the next one is the last.
    private var parts: [(at: Instant, part: HTTPStreamPart)]
    private let receive: @Sendable (HTTPStreamPart) -> Void
    private var wake = Wake.none

    init(
      _ docker: StubDocker, _ parts: [(at: Instant, part: HTTPStreamPart)],
      _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
    ) {
      self.docker = docker
      executor = docker.executor
      self.parts = parts.reversed()
      self.receive = receive
      schedule()
    }

    private func schedule() {
      if let next = parts.last { wake = executor.wake(at: next.at, self, 0) }
    }

    func woke(_ token: Int) {
      wake = .none
      guard let next = parts.popLast() else { return }
      docker.isAnswering = true
      receive(next.part)
      // Reset after the work that the receiver posts.
      executor.post { [docker] in docker.isAnswering = false }
      schedule()
    }

    func handled(_ bytes: Int) {}

    func cancel() {
      parts = []
      if wake.isSet { executor.cancel(wake) }
      wake = .none
    }
  }
}

/// Answers requests to Docker's socket with one stub, and all others with another.
final class StubClients: HTTPClient {
  private let requests: any HTTPClient
  private let docker: StubDocker

  init(_ requests: any HTTPClient, _ docker: StubDocker) {
    self.requests = requests
    self.docker = docker
  }

  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    request.options.unixSocket == nil ? requests.send(request, completion) : docker.send(request, completion)
  }

  func stream(
    _ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) -> any HTTPStream {
    request.options.unixSocket == nil ? requests.stream(request, receive) : docker.stream(request, receive)
  }
}
