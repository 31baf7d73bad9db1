import PipelineCore

/// One WebSocket of a source, with the properties of its peer that the events show.
package struct ConnectedWebSocket: Sendable {
  package var session: WebSocketSession
  /// The client's address. This and the members of the request below are nil if the peer is a server.
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

/// WebSockets that one version of a pipeline leaves to the next. They are not read meanwhile, and no received message
/// is lost.
package enum KeptWebSockets {
  /// The settings under which a connection was made.
  package enum Settings: Sendable {
    case server(WebSocketServing, WebSocketSession.Options)
    case client(url: String, first: [UInt8]?, WebSocketClient.Options, WebSocketSession.Options)

    /// Whether a connection made with these settings may be kept under the `other` settings.
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
    /// Whether the connection is kept open. If not, the messages received so far are delivered and it is closed.
    package var goesOn: Bool
  }

  /// The kept connections, by the addresses of their sources.
  private static let all = KeptItems<(settings: Settings, socket: ConnectedWebSocket)> { close($0.socket) }

  /// Whether a reload is under way, so that connections can be kept.
  package static var isKeeping: Bool { KeptListeners.isKeeping }

  /// Keeps parked connections for the next version's source at the same address; closes them if no reload is under way.
  package static func keep(_ key: String, _ settings: Settings, _ sockets: [ConnectedWebSocket]) {
    if !all.keep(sockets.map { (settings, $0) }, for: key) { for socket in sockets { close(socket) } }
  }

  /// Takes the connections kept for an address, for a source with these settings.
  package static func take(_ key: String, _ settings: Settings) -> [Kept] {
    all.take(key).map { Kept(socket: $0.socket, goesOn: $0.settings.fit(settings)) }
  }

  private static func close(_ socket: ConnectedWebSocket) {
    // Replaces the session's listener, which belongs to a pipeline that has ended.
    socket.session.goOn(.init(opened: { _ in }, message: { $0.handled($1.bytes.count) }, ended: { _, _ in }))
    socket.session.close(1001, "the pipeline has changed")
  }
}
