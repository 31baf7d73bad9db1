/// How file changes are noticed.
package enum WatchMethod: String, Sendable, CaseIterable {
  /// Kernel events, and polling once a second where they are not available.
  case auto
  /// Kernel events, on every file system.
  case inotify
  /// Polling once a second.
  case poll
}
