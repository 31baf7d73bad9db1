/// How file changes are noticed.
package enum WatchMethod: String, Sendable, CaseIterable {
  /// By kernel events, and by polling once a second where there are none.
  case auto
  /// By kernel events, on every file system.
  case inotify
  /// By polling once a second.
  case poll
}
