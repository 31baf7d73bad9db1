import NIOPosix
import PipelineCore

/// The thread of all servers and WebSockets of the process, which starts with the first of them.
enum NetworkThread {
  private static let isMade = Guarded(false)

  /// Makes sure that there is one; called before the first use of ``HTTPListener/group``. The library that makes the thread ends the process where the
  /// system refuses one, so one that does nothing is asked for first.
  /// - Throws: The system refuses it now.
  static func prepare() throws(PosixError) {
    let failure = isMade.withLock { isMade -> PosixError? in
      if isMade { return nil }
      do throws(PosixError) { try OwnThread("rxd network") {}.join() } catch { return error }
      _ = HTTPListener.group
      isMade = true
      return nil
    }
    if let failure { throw failure }
  }
}
