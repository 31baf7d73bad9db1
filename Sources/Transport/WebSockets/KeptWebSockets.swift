import PipelineCore

/// One WebSocket of a source, with the properties of the other side that its events have.
package struct ConnectedWebSocket: Sendable {
  package var session: WebSocketSession
  /// The client's address. Nil, as are the members of the request below: the other side is a server.
  package var peer: String?
  package var path: String?
  package var query: [(name: String, value: String)] = []
  package var subject: String?

  package init(_ session: WebSocketSession) { self.session = session }

  package init(_ session: WebSocketSession, of request: ServerRequest) {
    self.session = session
    peer = request.peer
    path = request.path
    query = request.query
    subject = request.subject
  }
}

/// WebSockets between two versions of a pipeline: they are not read, and no received message is lost.
package enum KeptWebSockets {
  /// The settings under which a connection was made.
  package enum Settings: Sendable {
    case server(WebSocketServing, WebSocketSession.Options)
    case client(url: String, first: [UInt8]?, WebSocketClient.Options, WebSocketSession.Options)

    /// Whether a connection with these settings may go on under others.
    func fit(_ other: Settings) -> Bool {
      switch (self, other) {
      case (.server(let serving, let session), .server(let next, let nextSession)):
        serving.admitsAll(of: next) && session == nextSession
      case (
        .client(let url, let first, let client, let session),
        .client(let nextURL, let next, let nextClient, let nextSession)
      ):
        url == nextURL && first == next && client == nextClient && session == nextSession
      default: false
      }
    }
  }

  package struct Kept: Sendable {
    package var socket: ConnectedWebSocket
    /// Whether the connection goes on. If not, its received messages are sent and it is closed.
    package var goesOn: Bool
  }

  /// By the places of their sources.
  private static let all = KeptItems<(settings: Settings, socket: ConnectedWebSocket)> { close($0.socket) }

  /// Whether there is a reload, so that connections may be kept.
  package static var isKeeping: Bool { KeptListeners.isKeeping }

  /// Keeps connections that are parked, for the source of the next version at the same place; closes them if no reload is under way.
  package static func keep(_ place: String, _ settings: Settings, _ sockets: [ConnectedWebSocket]) {
    if !all.keep(sockets.map { (settings, $0) }, for: place) { for socket in sockets { close(socket) } }
  }

  /// Takes the connections of a place, for a source with these settings.
  package static func take(_ place: String, _ settings: Settings) -> [Kept] {
    all.take(place).map { Kept(socket: $0.socket, goesOn: $0.settings.fit(settings)) }
  }

  private static func close(_ socket: ConnectedWebSocket) {
    // Its listener belongs to a pipeline that has ended.
    socket.session.goOn(.init(opened: { _ in }, message: { $0.handled($1.bytes.count) }, ended: { _, _ in }))
    socket.session.close(1001, "the pipeline has changed")
  }
}
