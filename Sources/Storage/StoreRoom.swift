import Glibc
import PipelineCore
import Transport

/// Space reserved on the file system of the stores for when it is full: for the last state of each pipeline at
/// shutdown, and for removing what sinks have delivered, which frees space.
///
/// The reserve is a file of zeros that all stores of a process share, and that is kept for the next start. The first
/// store that finds no space gives the reserve up; from then on no store accepts new events, until the file has its
/// size again. Thread-safe.
package final class StoreRoom: Sendable {
  /// The bytes that each store needs to shut down cleanly, and the minimum and the maximum of the whole reserve.
  private static let bytesOfStore = 128 << 10
  static let least = 1 << 20
  private static let most = 64 << 20
  /// The minimum time between two attempts to restore the reserve, in nanoseconds.
  private static let pause: Int64 = 900_000_000

  private struct State {
    /// The size of the file in bytes; 0 if the reserve was given up.
    var kept = 0
    var stores = 0
    /// The earliest time of the next attempt to restore the reserve, on the monotonic clock.
    var nextTry = Int64.min
  }
  private let state = Guarded(State())
  private let file: FileDescriptor

  /// Creates the file at `path`, as large as the free space permits.
  /// - Throws: If the file cannot be created.
  package init(_ path: String) throws(PosixError) {
    let number = uninterrupted { open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600) }
    if number < 0 { throw PosixError("open", path) }
    file = FileDescriptor(number, name: path)
    _ = keep()
  }

  /// Whether the reserve exists, so that stores may accept new events.
  package var isKept: Bool { state.withLock { $0.kept > 0 } }

  /// The free bytes on the file system that this user may use, in addition to the reserve.
  var free: Int {
    var system = statvfs()
    guard fstatvfs(file.number, &system) == 0 else { return .max }
    let (free, isOver) = UInt64(system.f_bavail).multipliedReportingOverflow(by: UInt64(system.f_frsize))
    return isOver ? .max : Int(clamping: free)
  }

  /// Adds a store that shares the reserve.
  func join() {
    state.withLock { $0.stores += 1 }
    _ = keep()
  }
  func leave() { state.withLock { $0.stores -= 1 } }

  /// Frees the reserve for stores that must write. Returns whether there was one.
  func giveUp() -> Bool {
    state.withLock { state in
      guard state.kept > 0 else { return false }
      state.kept = 0
      state.nextTry = monotonicNow() + Self.pause
      return ftruncate(file.number, 0) == 0
    }
  }

  /// Creates or enlarges the reserve; after it was given up, only if twice as much is free. Returns whether it exists.
  func keep() -> Bool {
    state.withLock { state in
      let wanted = min(Self.most, max(Self.least, state.stores * Self.bytesOfStore))
      if state.kept >= wanted { return true }
      if state.kept == 0, state.nextTry > monotonicNow() { return false }
      state.nextTry = monotonicNow() + Self.pause
      var status = stat()
      guard fstat(file.number, &status) == 0 else { return state.kept > 0 }
      // The file of an earlier run may already have blocks.
      let (allocated, isWhole) = Int(status.st_blocks).multipliedReportingOverflow(by: 512)
      let missing = isWhole ? 0 : max(0, wanted - allocated)
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
