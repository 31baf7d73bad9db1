import Glibc
import PipelineCore
import Transport

/// Room on the file system of the stores that is kept for when it is full: for the last state of each pipeline at the stop, and for the removal of
/// what sinks have delivered, which gives room back.
///
/// It is a file of zeros that all stores of a process share, and that stays for the next start. The first store that finds no room gives it up; from then
/// on no store takes new events, until the file has its size again. Thread-safe.
package final class StoreRoom: Sendable {
  /// What each store needs to end in order, in bytes; and the least and the most of all together.
  private static let bytesOfStore = 128 << 10
  static let least = 1 << 20
  private static let most = 64 << 20
  /// Between two attempts to have it again, in nanoseconds.
  private static let pause: Int64 = 900_000_000

  private struct State {
    /// The bytes of the file; 0: it was given up.
    var kept = 0
    var stores = 0
    /// When it may be tried to have it again, on the monotonic clock.
    var nextTry = Int64.min
  }
  private let state = Guarded(State())
  private let file: FileDescriptor

  /// Makes the file at `path`, as large as there is room for it.
  /// - Throws: The file cannot be made.
  package init(_ path: String) throws(PosixError) {
    let number = uninterrupted { open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600) }
    if number < 0 { throw PosixError("open", path) }
    file = FileDescriptor(number, name: path)
    _ = keep()
  }

  /// Whether there is room: stores may take new events.
  package var isKept: Bool { state.withLock { $0.kept > 0 } }

  /// What the file system has besides, for this user, in bytes.
  var free: Int {
    var system = statvfs()
    guard fstatvfs(file.number, &system) == 0 else { return .max }
    let (free, isOver) = UInt64(system.f_bavail).multipliedReportingOverflow(by: UInt64(system.f_frsize))
    return isOver ? .max : Int(clamping: free)
  }

  /// One more store shares it.
  func join() {
    state.withLock { $0.stores += 1 }
    _ = keep()
  }
  func leave() { state.withLock { $0.stores -= 1 } }

  /// Frees the room for stores that must write. Returns whether there was some.
  func giveUp() -> Bool {
    state.withLock { state in
      guard state.kept > 0 else { return false }
      state.kept = 0
      state.nextTry = monotonicNow() + Self.pause
      return ftruncate(file.number, 0) == 0
    }
  }

  /// Keeps the room, again if twice as much is free. Returns whether it is kept.
  func keep() -> Bool {
    state.withLock { state in
      let wanted = min(Self.most, max(Self.least, state.stores * Self.bytesOfStore))
      if state.kept >= wanted { return true }
      if state.kept == 0, state.nextTry > monotonicNow() { return false }
      state.nextTry = monotonicNow() + Self.pause
      var status = stat()
      guard fstat(file.number, &status) == 0 else { return state.kept > 0 }
      // What the file of an earlier run has is there.
      let (there, isWhole) = Int(status.st_blocks).multipliedReportingOverflow(by: 512)
      let missing = isWhole ? 0 : max(0, wanted - there)
      let isFree = missing == 0 || free >= missing + (state.kept == 0 ? wanted : 0)
      if isFree, posix_fallocate(file.number, 0, off_t(wanted)) == 0 {
        state.kept = wanted
      } else if state.kept == 0 {
        ftruncate(file.number, 0)
      }
      return state.kept > 0
    }
  }
}
