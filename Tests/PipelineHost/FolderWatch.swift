import Glibc
import Transport

/// Waits for changes in a folder.
package final class FolderWatch {
  private let inotify: Inotify
  /// How long to wait without any change before giving up, in milliseconds.
  private static let limit: Int32 = 60_000

  package init(_ path: String) throws {
    inotify = try Inotify()
    _ = try inotify.watch(path, Inotify.contentEvents)
  }

  /// What `look` finds, now or after a change in the folder. Nil: it finds nothing, and nothing changes for a minute,
  /// or the descriptor `end` becomes readable or is closed.
  package func first<Found>(before end: Int32 = -1, _ look: () throws -> Found?) rethrows -> Found? {
    while true {
      if let found = try look() { return found }
      var entries = [
        pollfd(fd: inotify.descriptor, events: Int16(POLLIN), revents: 0),
        pollfd(fd: end, events: Int16(POLLIN), revents: 0),
      ]
      let count = poll(&entries, 2, Self.limit)
      if count < 0, errno == EINTR { continue }
      if count <= 0 || entries[0].revents == 0 { return try look() }
      _ = inotify.read()
    }
  }
}
