import Glibc
import PipelineCore
import Synchronization
import Transport

/// Measures the unread bytes of sources' files on its own thread, because reading the size of a file on a network file
/// system whose server is gone may block forever.
final class SourceLag: Sendable {
  private let isBusy = Atomic(false)

  /// Measures the files of several sources. `done` is called on another thread, with nil for a source of which no file
  /// was found. False: an earlier measurement is still running.
  func measure(
    _ sources: [[PipelineStatistics.ReadFile]], _ done: @escaping @Sendable ([Int64?]) -> Void
  ) -> Bool {
    guard isBusy.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged else {
      return false
    }
    do throws(PosixError) {
      _ = try OwnThread("rxd sizes", stackBytes: 256 << 10) { [self] in
        let lags = sources.map(Self.lag)
        isBusy.store(false, ordering: .releasing)
        done(lags)
      }
      return true
    } catch {
      isBusy.store(false, ordering: .releasing)
      return false
    }
  }

  private static func lag(_ files: [PipelineStatistics.ReadFile]) -> Int64? {
    var sum: Int64?
    for file in files {
      var status = stat()
      guard stat(file.path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
      // The name may belong to another file by now.
      if let device = file.device, let inode = file.inode,
        device != UInt64(status.st_dev) || inode != UInt64(status.st_ino)
      {
        continue
      }
      sum = (sum ?? 0) &+ max(0, Int64(status.st_size) &- file.offset)
    }
    return sum
  }
}
