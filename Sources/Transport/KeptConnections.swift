import Synchronization

/// Connections between two versions of a pipeline, with what they have sent of an incomplete message or event.
enum KeptConnections {
  private static let kept = Mutex<[String: [StreamReceiver.Connection]]>([:])

  /// Whether they are kept: there is a reload.
  static func keep(_ place: SocketPlace, _ connections: [StreamReceiver.Connection]) -> Bool {
    guard KeptListeners.isKeeping else { return false }
    kept.withLock { $0[place.exclusive, default: []] += connections }
    return true
  }

  /// Those of a place.
  static func take(_ place: SocketPlace) -> [StreamReceiver.Connection] {
    kept.withLock { $0.removeValue(forKey: place.exclusive) } ?? []
  }

  static func end() { kept.withLock { $0 = [:] } }
}
