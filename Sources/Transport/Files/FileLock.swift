import Glibc
import PipelineCore

/// The exclusive lock of an open file (flock(2)), taken with a time limit.
package enum FileLock {
  /// Takes the lock, which is held while the file is open. Returns 0, `EWOULDBLOCK` if another holder still has it
  /// after `limit`, or another error.
  package static func take(_ descriptor: Int32, within limit: TimeSpan) -> Int32 {
    if uninterrupted({ flock(descriptor, LOCK_EX | LOCK_NB) }) == 0 { return 0 }
    let code = errno
    guard code == EWOULDBLOCK, limit.nanoseconds > 0 else { return code }
    // The system call has no time limit, so a thread makes it, with a descriptor of its own. After the limit the caller
    // may close its own descriptor; a lock that comes too late is released with the thread's.
    let own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else { return errno }
    let result = Guarded<Int32?>(nil)
    do throws(PosixError) {
      _ = try OwnThread("rxd lock", stackBytes: 128 << 10) {
        let code = uninterrupted { flock(own, LOCK_EX) } == 0 ? 0 : errno
        close(own)
        result.withLock { $0 = code }
        result.notify()
      }
    } catch {
      close(own)
      return EWOULDBLOCK
    }
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    return result.wait(until: overflow ? nil : deadline) { $0 } ?? EWOULDBLOCK
  }
}
