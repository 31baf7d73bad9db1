import CLinux
import Glibc
import PipelineCore
import Synchronization

/// When a writer begins a new file, and what happens to full ones.
///
/// A full file is renamed to `NAME-YYYYMMDD-HHMMSS`, in UTC, and never again: so one rename is the whole rotation, and
/// another program finds a file under the name that it had before. If the name is taken, `.1`, `.2` ... is appended.
package struct FileRotation: Sendable, Equatable {
  /// A file that would be larger is full, unless it is empty.
  package var size: Int64?
  /// A file is full at each multiple of this since 1970, in nanoseconds.
  package var every: Int64?
  /// The number of full files that are kept; nil: all.
  package var keep: Int?
  /// How full files are compressed; nil: they are not.
  package var compression: Compressor.Format?

  package init(
    size: Int64? = nil, every: Int64? = nil, keep: Int? = nil, compression: Compressor.Format? = nil
  ) {
    self.size = size
    self.every = every
    self.keep = keep
    self.compression = compression
  }

  /// Whether a file with `end` bytes that was last written to at `last` is full before `count` more bytes at `now`.
  func isFull(_ end: Int64, adding count: Int, last: Int64, now: Int64) -> Bool {
    guard end > 0 else { return false }
    if let size, end + Int64(count) > size { return true }
    // Setting the clock back does not fill a file.
    guard let every, every > 0 else { return false }
    return now / every > last / every
  }

  /// The time at which a full file became full, in nanoseconds since 1970: the end of the period of its last row, or
  /// now because of its size.
  func fullSince(last: Int64, now: Int64) -> Int64 {
    guard let every, every > 0, now / every > last / every else { return now }
    let (end, overflow) = (last / every + 1).multipliedReportingOverflow(by: every)
    return overflow ? now : min(end, now)
  }

  /// The suffix of a full file after `NAME-`. It sorts after that of the newest full file, even if the clock was set back.
  static func suffix(at time: Int64, after newest: [Int]?) -> String {
    var seconds = time_t(time / 1_000_000_000)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    let day = (Int(parts.tm_year) + 1900) * 10_000 + (Int(parts.tm_mon) + 1) * 100 + Int(parts.tm_mday)
    let second = Int(parts.tm_hour) * 10_000 + Int(parts.tm_min) * 100 + Int(parts.tm_sec)
    var order = [day, second, 0]
    if let newest, !newest.lexicographicallyPrecedes(order) { order = [newest[0], newest[1], newest[2] + 1] }
    func digits(_ number: Int, _ count: Int) -> String {
      let text = String(max(0, number))
      return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }
    return digits(order[0], 8) + "-" + digits(order[1], 6) + (order[2] == 0 ? "" : ".\(order[2])")
  }

  /// The time and the number in a name after `NAME-`, and whether the file is compressed. Nil: it is not a full file of `name`.
  static func parse(_ candidate: String, of name: String) -> (order: [Int], isCompressed: Bool)? {
    guard candidate.utf8.starts(with: (name + "-").utf8) else { return nil }
    var rest = Array(candidate.utf8.dropFirst(name.utf8.count + 1))
    var isCompressed = false
    for ending in CompressedContent.endings
    where rest.count > ending.utf8.count
      && rest.suffix(ending.utf8.count).elementsEqual(ending.utf8)
    {
      rest.removeLast(ending.utf8.count)
      isCompressed = true
    }
    let parts = rest.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    guard parts.count <= 2, let time = parts.first, time.count == 15,
      time.dropFirst(8).first == UInt8(ascii: "-")
    else {
      return nil
    }
    guard let day = number(time.prefix(8)), let second = number(time.suffix(6)) else { return nil }
    guard parts.count == 2 else { return ([day, second, 0], isCompressed) }
    guard parts[1].count <= 6, let index = number(parts[1]) else { return nil }
    return ([day, second, index], isCompressed)
  }

  /// Nil: it is not a number, or larger than any in a name: anybody may have made the file.
  private static func number(_ digits: ArraySlice<UInt8>) -> Int? {
    guard (1...15).contains(digits.count), digits.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
  }
}

extension FileTree {
  /// The full files of a path, the oldest first.
  func rotated(_ path: String) throws(PosixError) -> [(name: String, isCompressed: Bool)] {
    let (directory, name) = try openDirectory(of: path)
    var found: [(name: String, order: [Int], isCompressed: Bool)] = []
    for entry in try directory.entryNames() {
      guard let (order, isCompressed) = FileRotation.parse(entry, of: name) else { continue }
      found.append((entry, order, isCompressed))
    }
    return found.sorted { $0.order.lexicographicallyPrecedes($1.order) }.map {
      ($0.name, $0.isCompressed)
    }
  }

  /// Renames a full file; returns its new name.
  func rotate(_ path: String, at time: Int64, syncs: Bool, _ step: (String) -> Bool)
    throws(PosixError) -> String
  {
    let (directory, name) = try openDirectory(of: path)
    let newest = try directory.entryNames().compactMap { FileRotation.parse($0, of: name)?.order }
      .max { $0.lexicographicallyPrecedes($1) }
    let full = name + "-" + FileRotation.suffix(at: time, after: newest)
    guard step("rename") else { throw .givenUp(self.name(path)) }
    if uninterrupted({ renameat(directory.number, name, directory.number, full) }) != 0 {
      throw PosixError("rename", self.name(path))
    }
    guard step("sync") else { throw .givenUp(self.name(path)) }
    if syncs { try directory.syncEntries() }
    return full
  }

  /// Removes or cuts full files of a path, as far as their contents are written again: those that were begun by a lost execution and, of the file of
  /// a state, the part after that state.
  package func cutRotated(_ path: String, _ marks: WriterMarks, _ saved: SavedFile? = nil) {
    guard let rotated = try? rotated(path), let (directory, _) = try? openDirectory(of: path) else {
      return
    }
    for (name, isCompressed) in rotated where !isCompressed {
      let number = uninterrupted {
        openat(directory.number, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY)
      }
      guard number >= 0 else { continue }
      let file = FileDescriptor(number, name: Glob.join(directory.name, name))
      guard let status = try? file.status(), status.kind == .regular,
        let mark = WriterMark(of: file),
        mark.writer == marks.writer
      else { continue }
      let end: Int64
      if marks.isLost(mark) {
        end = mark.size
      } else if let saved, saved.number == mark.number {
        end = mark.end(after: saved.count) ?? mark.size
      } else {
        continue
      }
      if end == 0 {
        unlinkat(directory.number, name, 0)
      } else if status.size > end {
        _ = uninterrupted { ftruncate(number, off_t(end)) }
      }
    }
  }
}

extension PosixError {
  static func givenUp(_ path: String) -> PosixError {
    PosixError("write to", path, code: ECANCELED, detail: "it was given up")
  }
}

extension FileDescriptor {
  /// The names in an open directory.
  func entryNames() throws(PosixError) -> [String] {
    let listed = uninterrupted { openat(number, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard listed >= 0 else { throw PosixError("list", name) }
    guard let stream = fdopendir(listed) else {
      close(listed)
      throw PosixError("list", name)
    }
    defer { closedir(stream) }
    var names: [String] = []
    while true {
      errno = 0
      guard let entry = readdir(stream) else {
        if errno != 0 { throw PosixError("list", name) }
        return names
      }
      names.append(
        withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        })
    }
  }

  /// Syncs an open directory.
  func syncEntries() throws(PosixError) {
    let opened = uninterrupted { openat(number, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    // A directory without read permission cannot be synced.
    if opened < 0 { return }
    defer { close(opened) }
    if uninterrupted({ fsync(opened) }) != 0, errno != EINVAL { throw PosixError("sync", name) }
  }
}

/// Compresses and removes full files on a thread of its own, one after the other. Work left when it ends is done after the next start.
final class RotationKeeper: Sendable {
  private struct State {
    /// Paths below the directory, each with the names of full files to compress.
    var waiting: [(path: String, names: [String])] = []
    var isStarted = false
    /// Whether it ends when no work waits.
    var isEnding = false
    /// Whether it ends now.
    var isClosed = false
    var hasEnded = false
    /// Called when it has ended.
    var whenEnded: (@Sendable () -> Void)?
  }

  private let tree: FileTree
  private let rotation: FileRotation
  private let noted: @Sendable (PosixError) -> Void
  private let step: @Sendable (String) -> Bool
  private let state = Guarded(State())
  /// A part of a compressed file: decompressors take the parts together.
  private static let partBytes = 1 << 20

  init(
    _ tree: FileTree, _ rotation: FileRotation, _ noted: @escaping @Sendable (PosixError) -> Void,
    _ step: @escaping @Sendable (String) -> Bool
  ) {
    self.tree = tree
    self.rotation = rotation
    self.noted = noted
    self.step = step
  }

  /// Compresses these full files of a path soon, which need no cutting any more, and removes surplus ones.
  func look(at path: String, compressing names: [String]) {
    guard rotation.keep != nil || rotation.compression != nil && !names.isEmpty else { return }
    let isFirst = state.withLock { state in
      if let index = state.waiting.firstIndex(where: { $0.path == path }) {
        state.waiting[index].names += names
      } else {
        state.waiting.append((path, names))
      }
      defer { state.isStarted = true }
      return !state.isStarted
    }
    state.notify()
    guard isFirst else { return }
    do throws(PosixError) {
      _ = try OwnThread("rxd compress") { [self] in run() }
    } catch {
      state.withLock { $0.isStarted = false }
      noted(error)
    }
  }

  /// Ends the thread when no work waits any more; soon, even in the middle of a file, if it `isGivenUp`. Returns
  /// whether it has ended; `whenEnded` is called otherwise.
  func close(isGivenUp: Bool, _ whenEnded: @escaping @Sendable () -> Void) -> Bool {
    let hasEnded = state.withLock { state in
      state.isEnding = true
      if isGivenUp { state.isClosed = true }
      if state.hasEnded || !state.isStarted { return true }
      state.whenEnded = whenEnded
      return false
    }
    state.notify()
    return hasEnded
  }

  private var isClosed: Bool { state.withLock(\.isClosed) }

  private func run() {
    while true {
      let next = state.wait(until: nil) { state -> (path: String, names: [String])?? in
        if state.isClosed { return .some(nil) }
        if !state.waiting.isEmpty { return .some(state.waiting.removeFirst()) }
        return state.isEnding ? .some(nil) : nil
      }
      guard case .some(.some(let (path, names))) = next else { break }
      do throws(PosixError) {
        try keep(path, names)
      } catch {
        if error.code != ECANCELED { noted(error) }
      }
    }
    let whenEnded = state.withLock { state in
      state.hasEnded = true
      return state.whenEnded.take()
    }
    whenEnded?()
  }

  private func keep(_ path: String, _ names: [String]) throws(PosixError) {
    let (directory, name) = try tree.openDirectory(of: path)
    for entry in try directory.entryNames() { Self.removeLeftover(entry, of: name, in: directory) }
    var full = try tree.rotated(path)
    if let most = rotation.keep {
      // A file and its compressed form count once.
      while full.count > most {
        let oldest = full.removeFirst()
        guard step("remove") else { throw .givenUp(path) }
        if unlinkat(directory.number, oldest.name, 0) != 0, errno != ENOENT {
          throw PosixError("remove", Glob.join(directory.name, oldest.name))
        }
      }
    }
    guard let format = rotation.compression else { return }
    for file in full where !file.isCompressed && names.contains(file.name) {
      try compress(file.name, in: directory, format)
    }
  }

  /// Removes the half compressed files of processes that were killed: `.NAME.NUMBER-NUMBER.tmp` without a lock.
  private static func removeLeftover(_ entry: String, of name: String, in directory: FileDescriptor) {
    guard entry.hasPrefix("."), entry.hasSuffix(".tmp") else { return }
    let inner = entry.dropFirst().dropLast(4)
    guard let dot = inner.lastIndex(of: "."), FileRotation.parse(String(inner[..<dot]), of: name) != nil else { return }
    let number = uninterrupted { openat(directory.number, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) }
    guard number >= 0 else { return }
    defer { Glibc.close(number) }
    if flock(number, LOCK_EX | LOCK_NB) == 0 { unlinkat(directory.number, entry, 0) }
  }

  /// Makes the names of partly compressed files unique: an execution that ends may still compress while the next one begins.
  private static let count = Atomic<UInt64>(0)

  /// Replaces a full file by its compressed form, which has its times and its mode. At each moment one of the two is complete.
  private func compress(_ name: String, in directory: FileDescriptor, _ format: Compressor.Format)
    throws(PosixError)
  {
    let shown = Glob.join(directory.name, name)
    guard let compressor = Compressor(format, level: format.usualLevel) else {
      throw PosixError(
        "compress", shown, code: ENOENT, detail: "the library \(format.library) is not installed")
    }
    let source = uninterrupted {
      openat(directory.number, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY)
    }
    // Another execution may have compressed it meanwhile.
    if source < 0, errno == ENOENT { return }
    if source < 0 { throw PosixError("compress", shown) }
    let input = FileDescriptor(source, name: shown)
    var status = stat()
    guard fstat(source, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return }
    let temporary = ".\(name).\(getpid())-\(Self.count.add(1, ordering: .relaxed).newValue).tmp"
    guard step("create") else { throw .givenUp(shown) }
    let target = uninterrupted {
      openat(
        directory.number, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
        status.st_mode & 0o777)
    }
    if target < 0 { throw PosixError("compress", shown) }
    let output = FileDescriptor(target, name: Glob.join(directory.name, temporary))
    // The lock shows that the writer is alive.
    flock(target, LOCK_EX | LOCK_NB)
    do throws(PosixError) {
      var offset: Int64 = 0
      var part = [UInt8](repeating: 0, count: Self.partBytes)
      while true {
        if isClosed { throw .givenUp(shown) }
        let count = uninterrupted { pread(source, &part, part.count, off_t(offset)) }
        if count < 0 { throw PosixError("read", shown) }
        if count == 0 { break }
        offset += Int64(count)
        guard let made = compressor.compress(count == part.count ? part : Array(part[..<count]))
        else {
          throw PosixError("compress", shown, code: ENOMEM)
        }
        try output.write(made)
      }
      var times = [status.st_atim, status.st_mtim]
      futimens(target, &times)
      fchmod(target, status.st_mode & 0o777)
      // Whether the owner can be set depends on the user of this process.
      _ = fchown(target, status.st_uid, status.st_gid)
      guard step("sync") else { throw .givenUp(shown) }
      if uninterrupted({ fsync(target) }) != 0 { throw PosixError("sync", output.name) }
      guard step("rename") else { throw .givenUp(shown) }
      let ending = format == .gzip ? ".gz" : ".zst"
      if renameat(directory.number, temporary, directory.number, name + ending) != 0 {
        throw PosixError("rename", output.name)
      }
    } catch {
      if error.code != ECANCELED || isClosed { unlinkat(directory.number, temporary, 0) }
      throw error
    }
    withExtendedLifetime(input) {}
    try directory.syncEntries()
    guard step("remove") else { throw .givenUp(shown) }
    if unlinkat(directory.number, name, 0) != 0, errno != ENOENT { throw PosixError("remove", shown) }
  }
}
