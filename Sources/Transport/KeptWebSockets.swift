public import PipelineCore
import Synchronization

/// One WebSocket of a source, with what its messages say of the other side.
public struct ConnectedWebSocket: Sendable {
  public var session: WebSocketSession
  /// The client's address, and what its request had; nil: the other side is a server.
  public var peer: String?
  public var path: String?
  public var query: [(name: String, value: String)] = []
  public var subject: String?

  public init(_ session: WebSocketSession) { self.session = session }

  public init(_ session: WebSocketSession, of request: ServerRequest) {
    self.session = session
    peer = request.peer
    path = request.path
    query = request.query
    subject = request.subject
  }
}

/// WebSockets between two versions of a pipeline: nothing is read from them, and nothing that has come is lost.
public enum KeptWebSockets {
  /// Under which settings a connection was made.
  public enum Settings: Sendable {
    case server(WebSocketServing, WebSocketSession.Options)
    case client(url: String, first: [UInt8]?, WebSocketClient.Options, WebSocketSession.Options)

    /// Whether such a connection may go on under others.
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

  public struct Kept: Sendable {
    public var socket: ConnectedWebSocket
    /// Whether it goes on; otherwise only what has come of it counts.
    public var goesOn: Bool
  }

  private static let kept = Mutex<[String: (Settings, [ConnectedWebSocket])]>([:])

  /// Whether there is a reload, so that connections may be kept.
  public static var isKeeping: Bool { KeptListeners.isKeeping }

  /// Keeps connections that are parked. `place` says to the next version which are its own.
  public static func keep(_ place: String, _ settings: Settings, _ sockets: [ConnectedWebSocket]) {
    let surplus = kept.withLock { kept in
      guard KeptListeners.isKeeping else { return sockets }
      kept[place, default: (settings, [])].1 += sockets
      return []
    }
    end(surplus)
  }

  public static func take(_ place: String, _ settings: Settings) -> [Kept] {
    guard let (old, sockets) = kept.withLock({ $0.removeValue(forKey: place) }) else { return [] }
    let goesOn = old.fit(settings)
    return sockets.map { Kept(socket: $0, goesOn: goesOn) }
  }

  /// Closes those that nobody has taken.
  static func end() {
    let left = kept.withLock { kept in
      defer { kept = [:] }
      return kept.values.flatMap(\.1)
    }
    end(left)
  }

  private static func end(_ sockets: [ConnectedWebSocket]) {
    for socket in sockets {
      // Its listener belongs to a pipeline that has ended.
      socket.session.goOn(.init(opened: { _ in }, message: { $0.handled($1.bytes.count) }, ended: { _, _ in }))
      socket.session.close(1001, "the pipeline has changed")
    }
  }
}
