import NIOCore

/// Connections make room for new ones where a server's limit is not the user's to raise (`HTTPServer.Options.makesRoom`): clients that
/// connect and say nothing keep nobody out.
enum IdleConnections {
  /// Closes one that is idle, those first that have shown no credentials, and of them the one that has been idle for the longest
  /// time. Called on the network thread.
  /// - Returns: Whether there was one.
  static func makeRoom(among connections: [ServerConnection]) -> Bool {
    let idle = connections.filter(\.mayMakeRoom)
    let strangers = idle.filter { !$0.isKnown }
    guard let oldest = (strangers.isEmpty ? idle : strangers).min(by: { $0.idleSince < $1.idleSince }) else {
      return false
    }
    oldest.makeRoom()
    return true
  }
}
