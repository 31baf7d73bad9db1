import PipelineCore
import Synchronization

/// What an instance of a plugin counts, by names of its own.
final class PluginCounters: Sendable {
  private let counts = Mutex<[String: Int64]>([:])
  /// More names than this are a mistake of the plugin; further ones are not counted.
  private static let mostNames = 100

  func count(_ name: String, _ by: Int64) {
    counts.withLock {
      guard $0.count < Self.mostNames || $0[name] != nil else { return }
      $0[name, default: 0] &+= by
    }
  }

  /// Says what was counted, when the instance ends.
  func report(_ log: (Services.Level, String) -> Void) {
    let counts = counts.withLock { $0 }.sorted { $0.key < $1.key }
    guard !counts.isEmpty else { return }
    log(.debug, "the plugin has counted " + counts.map { "\($0.key) \($0.value)" }.joined(separator: ", "))
  }
}
