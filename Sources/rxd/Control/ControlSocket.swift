import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The interface to a running process: HTTP/1.1 over a Unix socket.
enum ControlSocket {
  static let variable = "RXD_CONTROL_SOCKET"
  static let name = "control.sock"
  /// The path of the service's socket.
  static let usual = "/run/rxd/control.sock"

  /// The origin of a socket's path.
  enum Choice {
    /// The path is from the command line or the environment: it must work.
    case asked
    /// The path is in the directory of the service manager, or of the state.
    case given
    /// The path is rxd's default: the process does not depend on it.
    case usual
  }

  /// The path of a process's own socket; nil: it has none.
  ///
  /// - Parameters:
  ///   - given: The path of the command line, `none` for no socket.
  ///   - state: The state directory.
  static func path(_ given: String?, state: String?) -> (path: String, choice: Choice)? {
    if let asked = named(given) { return asked == "none" ? nil : (asked, .asked) }
    if let directory = [runtimeDirectory, state].compactMap({ $0 }).first { return (file(in: directory), .given) }
    return UserSockets.own().map { ($0, .usual) }
  }

  /// The addresses at which another process may have its socket.
  struct Addresses {
    /// Paths that are known; the first that exists is used.
    var named: [String]
    /// Whether processes may also be found at ``ControlSocket/usual``, and where users have theirs.
    var hasUsual: Bool
  }

  static func addresses(_ given: String?, state: String?) -> Addresses {
    if let asked = named(given) { return Addresses(named: [asked], hasUsual: false) }
    return Addresses(named: [runtimeDirectory.map(file), state.map(file)].compactMap { $0 }, hasUsual: true)
  }

  /// The path of the command line or of the environment; `none`: no socket is wanted.
  static func named(_ given: String?) -> String? {
    [given, ProcessEnvironment[variable]].compactMap { $0 }.first { !$0.isEmpty }
  }

  /// The directory given by the service manager, which may name several; the first is the unit's.
  private static var runtimeDirectory: String? {
    ProcessEnvironment["RUNTIME_DIRECTORY"]?.split(separator: ":").first.map(String.init)
  }

  private static func file(in directory: String) -> String {
    directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
  }

  /// Serves the requests that arrive at `socket`. The network thread starts here, so this is called when the first
  /// client connects.
  ///
  /// - Parameter mostBytes: The maximum size of a body.
  static func serve(
    _ socket: LocalSocket, mostBytes: Int, notify: @escaping @Sendable (HTTPServer.Notice) -> Void,
    _ take: @escaping @Sendable (ControlRequest) -> Void
  ) throws(HTTPServerFailure) {
    var options = HTTPServer.Options()
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 32
    options.rules.maxBodyBytes = mostBytes
    options.rules.maxBufferedBytes = 4 << 20
    // A reload waits for sinks, so an answer may take long.
    options.rules.replyTimeout = .seconds(600)
    options.limits.halfClosed = .seconds(600)
    options.makesRoom = true
    try HTTPServer(options: options).start(on: socket.descriptor, notify: notify) { take(ControlRequest($0)) }
  }
}

/// One request to the control socket.
struct ControlRequest: Sendable {
  private let request: ServerRequest
  let query: [String: String]
  /// The interface over which the request arrived.
  let entrance: Entrance
  /// The use of a live page's session, kept until the answer has ended.
  private let use: PageSessions.Use?

  /// The interface of a request: over TCP only some requests are served.
  enum Entrance: Sendable { case socket, metrics, page }

  init(_ request: ServerRequest, from entrance: Entrance = .socket, use: PageSessions.Use? = nil) {
    self.request = request
    self.entrance = entrance
    self.use = use
    query = Dictionary(request.query) { $1 }
  }

  var method: String { request.method }
  var path: String { request.path }
  var body: [UInt8] { Array(request.body.bytes) }
  var bodyBytes: Int { request.body.bytes.count }
  var accept: String? { request.header("accept") }
  /// Whether the answer is for a person to read.
  var wantsText: Bool { query["format"] == "text" }
  /// Whether the text may have colours.
  var wantsColors: Bool { query["colors"] == "true" }

  /// All values of a name of the query, in their order.
  func all(_ name: String) -> [String] { request.query.filter { $0.name == name }.map(\.value) }

  /// Answers with a stream of lines. Nil: the client has left.
  func stream(
    _ type: String, room: Int = ResponseStream.room, closed: @escaping @Sendable () -> Void
  ) -> ResponseStream? {
    request.stream(status: 200, headers: [("Content-Type", type)], room: room) { [use] in
      withExtendedLifetime(use) { closed() }
    }
  }

  func answer(_ status: Int, _ body: JSONText, headers: [(name: String, value: String)] = []) {
    request.reply.reply(
      status: status, headers: [("Content-Type", "application/json")] + headers, body: Array((body.text + "\n").utf8))
  }

  func answer(_ status: Int, text: String, type: String = "text/plain; charset=utf-8") {
    request.reply.reply(status: status, headers: [("Content-Type", type)], body: Array(text.utf8))
  }
}
