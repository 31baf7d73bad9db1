import NIOCore

/// Idle connections make room for new ones where users cannot raise a server's limit (`HTTPServer.Options.makesRoom`),
/// so that clients that connect and send nothing do not lock others out.
enum IdleConnections {
  /// Closes one idle connection: first those that have shown no credentials, among these the one that has been idle
  /// longest. Called on the network thread.
  /// - Returns: Whether there was an idle connection.
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
