import Foundation

/// Polls what cannot report a change: a port, a file, an answer of another program. Tests wait for everything that can:
/// a folder (``FolderWatch``), a turn (``RealPipeline/run(within:until:)``), a line of a program.
package enum Polling {
  /// Far more than a loaded machine needs, in seconds.
  package static let limit: TimeInterval = 240

  /// What `look` finds; nil: it finds nothing within the limit. `pause`: the time between two polls, in milliseconds.
  package static func first<Found>(
    within limit: TimeInterval = limit, pause: UInt32 = 5, _ look: () throws -> Found?
  ) rethrows -> Found? {
    let end = Date(timeIntervalSinceNow: limit)
    while true {
      if let found = try look() { return found }
      if Date() >= end { return nil }
      usleep(pause * 1000)
    }
  }

  /// Whether the condition holds within the limit.
  @discardableResult
  package static func until(
    within limit: TimeInterval = limit, pause: UInt32 = 5, _ condition: () throws -> Bool
  ) rethrows -> Bool {
    try first(within: limit, pause: pause) { try condition() ? true : nil } ?? false
  }
}
