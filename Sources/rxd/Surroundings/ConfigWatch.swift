import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// Notices that the pipeline files, or files that they use, have changed.
///
/// Identity, size and times of the files decide; kernel events only trigger the checks. Changed files are loaded when
/// they have stayed the same for ``quiet``, so a file that is still being written is not loaded.
final class ConfigWatch {
  enum Method: String, CaseIterable, ExpressibleByArgument { case auto, inotify, poll }

  static let quiet = TimeSpan.milliseconds(250)
  static let pollInterval = TimeSpan.seconds(1)

  /// Changes whenever the content of a file changes.
  private struct Stamp: Equatable {
    var device: UInt64 = 0
    var inode: UInt64 = 0
    var size: Int64 = 0
    var modified: Int64 = 0
    var changed: Int64 = 0

    /// The stamp of a file; all zero: there is no such file.
    init(_ path: String) {
      var status = stat()
      guard stat(path, &status) == 0 else { return }
      device = UInt64(status.st_dev)
      inode = UInt64(status.st_ino)
      // For a directory, only its existence counts: its entries are checked separately.
      guard status.st_mode & S_IFMT != S_IFDIR else { return }
      size = Int64(status.st_size)
      modified = Int64(status.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_mtim.tv_nsec)
      changed = Int64(status.st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_ctim.tv_nsec)
    }
  }

  /// The watched files, and the directories that are searched for them.
  struct Files {
    var paths: Set<String> = []
    var directories: Set<String> = []
  }

  private let files: () -> Files
  private let method: Method
  private let polls: (String) -> Void
  /// Nil: the files are checked each second.
  private var inotify: Inotify?
  /// The directories that the kernel watches.
  private var watches: [String: Int32] = [:]
  private var loaded: [String: Stamp] = [:]
  /// The files at the last check, if they differed from the loaded ones.
  private var candidate: [String: Stamp]?
  /// The time of the next check; nil: when the kernel reports an event.
  private(set) var checkAt: Instant?

  /// - Parameters:
  ///   - polls: Called when `auto` switches to polling, with the reason, a clause.
  ///   - files: The files to watch; called at each check.
  init(
    _ method: Method, polls: @escaping (String) -> Void = { _ in }, _ files: @escaping () -> Files
  ) throws(PosixError) {
    self.files = files
    self.method = method
    self.polls = polls
    switch method {
    case .poll: break
    case .inotify: inotify = try Inotify(onlyWakes: true)
    case .auto: do throws(PosixError) { inotify = try Inotify(onlyWakes: true) } catch { polls(error.message) }
    }
  }

  /// Checks the files each second from now on.
  private func poll(because reason: String) {
    inotify = nil
    watches = [:]
    polls(reason)
  }

  /// A descriptor that is readable when something may have changed; -1 while a check is due anyway.
  var descriptor: Int32 { checkAt == nil ? inotify?.descriptor ?? -1 : -1 }

  /// Called when the descriptor is readable.
  func noteEvent(at now: Instant) {
    if checkAt == nil { checkAt = now + Self.quiet }
  }

  /// Called before the files are loaded, so that every later change is noticed.
  func willLoad() {
    loaded = stamps(files())
    candidate = nil
  }

  /// Called when the files are loaded, which may have shown that they use further files.
  func didLoad(at now: Instant) {
    let files = files()
    for (path, stamp) in stamps(files) where loaded[path] == nil { loaded[path] = stamp }
    watch(files)
    checkAt = now + (inotify == nil ? Self.pollInterval : Self.quiet)
  }

  /// Checks the files; returns whether to load them.
  func check(at now: Instant) -> Bool {
    // Clears the events first, so that every later change makes a new one.
    _ = inotify?.read()
    let files = files()
    watch(files)
    // Must follow `watch`, which may have switched to polling.
    checkAt = inotify == nil ? now + Self.pollInterval : nil
    let found = stamps(files)
    if found == loaded {
      candidate = nil
      return false
    }
    if found == candidate { return true }
    candidate = found
    checkAt = now + Self.quiet
    return false
  }

  private func stamps(_ files: Files) -> [String: Stamp] {
    var stamps: [String: Stamp] = [:]
    for path in files.paths.union(files.directories) { stamps[path] = Stamp(path) }
    return stamps
  }

  // MARK: The kernel's watches

  private func watch(_ files: Files) {
    guard let inotify else { return }
    var wanted = files.directories
    for path in files.paths { Self.addDirectories(of: path, to: &wanted) }
    var watches: [String: Int32] = [:]
    for directory in wanted {
      // A missing file, or a missing directory on the path to it, appears in the nearest directory that exists.
      var present = directory
      while true {
        if method == .auto, let name = NetworkFileSystem.name(of: present) {
          return poll(
            because: "\(present) is on a file system (\(name)) that other machines can change without an event")
        }
        do throws(PosixError) {
          watches[present] = try inotify.watch(present, Inotify.contentEvents)
          break
        } catch { if method == .auto, error.code == ENOSPC { return poll(because: error.message) } }
        if present == "/" || present == "." { break }
        present = Self.directory(of: present)
      }
    }
    let used = Set(watches.values)
    for number in Set(self.watches.values).subtracting(used) { inotify.unwatch(number) }
    self.watches = watches
  }

  /// Adds the directories whose entries determine which file `path` leads to: its own, and that of each symbolic link
  /// on the path.
  private static func addDirectories(of path: String, to directories: inout Set<String>) {
    var waiting = [path]
    var seen: Set<String> = []
    while let path = waiting.popLast() {
      guard seen.count < 64, seen.insert(path).inserted else { continue }
      let parent = directory(of: path)
      directories.insert(parent)
      if let target = link(path) { waiting.append(target.hasPrefix("/") ? target : "\(parent)/\(target)") }
      // A symbolic link among the parent directories can change, too.
      if parent != "/", parent != "." {
        var above = parent
        while above != "/", above != "." {
          if link(above) != nil { waiting.append(above) }
          above = directory(of: above)
        }
      }
    }
  }

  private static func link(_ path: String) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(path, &target, target.count)
    return count > 0 ? String(decoding: target[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}
