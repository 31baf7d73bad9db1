import Glibc
import PipelineCore

/// The content that a file had before it was rewritten, or that of the file that had its name before.
///
/// While a file is shorter and has the same bytes as far as it goes, a program may be rewriting it with the same
/// content. It is not read until that is decided.
struct EarlierContent {
  /// The position up to which that content was read.
  var position: FilePosition
  /// The first bytes of that content, which the position's fingerprint covers.
  var head: [UInt8]
  /// When the position was reached, in nanoseconds since 1970.
  var readAt: Int64
  /// The file that had the name before, as long as it is followed; nil: the same file was rewritten.
  weak var file: FollowedFile?
  /// A file that does not grow for this long, in nanoseconds, has other content.
  var wait: Int64

  /// The size after the last change, and the times of that change and of the start of the wait, on the monotonic clock.
  var size: Int64 = -1
  var since: Int64 = 0
  private let begun = monotonicNow()

  /// A file that has not reached the old length within this time has other content.
  static let limit: Int64 = 10_000_000_000
  /// The interval between checks of a waiting file, in nanoseconds.
  static let look: Int64 = 50_000_000

  enum Verdict {
    case waits
    /// The file has the same content up to the position. `isAll`: that is everything that was read of the earlier
    /// content.
    case same(FilePosition, isAll: Bool)
    case other
  }

  /// - Parameter now: The present first bytes of the file.
  mutating func compare(_ descriptor: FileDescriptor, startingAs now: [UInt8]) throws(PosixError) -> Verdict {
    let status = try descriptor.status()
    let known = file?.position ?? position
    let common = min(now.count, head.count)
    guard now.prefix(common) == head.prefix(common) else { return .other }
    func holds(_ position: FilePosition) -> Bool {
      now.count >= head.count && descriptor.holdsContent(of: position, status, savedAt: readAt)
    }
    if status.size >= known.offset {
      if holds(known) { return .same(known, isAll: true) }
    } else {
      let time = monotonicNow()
      if status.size != size { (size, since) = (status.size, time) }
      if time &- since < wait, time &- begun < Self.limit { return .waits }
    }
    // The position at the rename counts, too: later data was only added to the renamed file.
    return known.offset > position.offset && holds(position) ? .same(position, isAll: false) : .other
  }
}
