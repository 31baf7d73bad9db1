/// How changes of files are noticed.
package enum WatchMethod: String, Sendable, CaseIterable {
  /// By events of the kernel, and by polling once a second where there are none.
  case auto
  /// By events of the kernel, on every file system.
  case inotify
  /// By polling once a second.
  case poll
}
