import PipelineCore

/// The requests that the control socket answers, one entry for each path.
struct ControlRoom {
  var method: String
  var path: String
  /// The further interfaces on which the request is served.
  var isServed: Set<ControlRequest.Entrance> = []
  /// The maximum size of a body; a longer one is refused.
  var mostBytes = 64 << 10
  /// Called on the main thread.
  var answer: (Supervisor, ControlRequest) -> Void

  /// The maximum size of a body that any entry accepts.
  static let mostBytes = RecordedTestRequest.mostBytes

  static var all: [ControlRoom] {
    [
      ControlRoom(method: "POST", path: "/reload") { $0.reload(for: $1) },
      ControlRoom(method: "GET", path: "/status") { $1.answer(200, $0.statusDocument) },
      ControlRoom(method: "GET", path: "/stats") { $0.answerStatistics($1) },
      ControlRoom(method: "GET", path: "/tap", isServed: [.page]) { $0.answerTap($1) },
      ControlRoom(method: "GET", path: "/why", isServed: [.page]) { $0.answerWhy($1) },
      ControlRoom(method: "POST", path: "/ui/link") { $0.answerPageLink($1) },
      ControlRoom(method: "GET", path: "/ui/feed", isServed: [.page]) { $0.answerFeed($1) },
      ControlRoom(method: "GET", path: "/ui/graph", isServed: [.page]) { $0.answerPicture($1) },
      ControlRoom(
        method: "POST", path: "/ui/test", isServed: [.page], mostBytes: RecordedTestRequest.mostBytes
      ) { $0.answerRecordedTest($1) },
      ControlRoom(method: "GET", path: "/metrics", isServed: [.metrics]) { $0.answerMetrics($1) },
      ControlRoom(method: "GET", path: "/health", isServed: [.metrics]) { $0.answerHealth($1) },
      ControlRoom(method: "GET", path: "/ready", isServed: [.metrics]) { $0.answerReadiness($1) },
    ]
  }

  /// Whether a page can ask why events did not pass.
  static var answersWhy: Bool { all.contains { $0.path == "/why" && $0.isServed.contains(.page) } }

  /// Finds the entry that answers a request.
  static func answer(_ request: ControlRequest, _ supervisor: Supervisor) {
    let served = all.filter { request.entrance == .socket || $0.isServed.contains(request.entrance) }
    let rooms = served.filter { $0.path == request.path }
    if let room = rooms.first(where: { $0.method == request.method }) {
      guard request.bodyBytes <= room.mostBytes else {
        let message = "\(room.path) takes at most \(room.mostBytes) bytes"
        return request.answer(413, .object([("error", .string(message))]))
      }
      return room.answer(supervisor, request)
    }
    let known = JSONText.array(served.map { .string("\($0.method) \($0.path)") })
    if rooms.isEmpty {
      request.answer(404, .object([("error", .string("there is no \(request.path)")), ("known", known)]))
    } else {
      let allowed = rooms.map(\.method).joined(separator: ", ")
      request.answer(
        405, .object([("error", .string("\(request.path) takes \(allowed)")), ("known", known)]),
        headers: [("Allow", allowed)])
    }
  }
}
