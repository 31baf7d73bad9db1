import Glibc
import PipelineCore

/// What a file had before it was written anew, or the file that had its name before.
///
/// As long as a file is shorter and has the same bytes as far as it goes, it may become the same again: a program writes it anew. Nothing of it
/// is read until that is decided.
struct EarlierContent {
  /// How far that was read.
  var position: FilePosition
  /// Its first bytes, those of the position's fingerprint.
  var head: [UInt8]
  /// When the position was reached, in nanoseconds since 1970.
  var readAt: Int64
  /// The other file, as long as it is followed; nil: it is the same one.
  weak var file: FollowedFile?
  /// A file that does not grow for this long is another one, in nanoseconds.
  var wait: Int64

  /// The size when it last changed, when that was, and when the wait began, on the monotonic clock.
  var size: Int64 = -1
  var since: Int64 = 0
  private let begun = monotonicNow()

  /// A file that has not become as long within this time is another one.
  static let limit: Int64 = 10_000_000_000
  /// How often a file that waits is looked at.
  static let look: Int64 = 50_000_000

  enum Verdict {
    case waits
    /// It has the same content up to the position. `isAll`: that is all that was read of the other file.
    case same(FilePosition, isAll: Bool)
    case other
  }

  /// - Parameter now: The first bytes of the file as it is.
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
    // What came later to the other file, its writer had added there.
    return known.offset > position.offset && holds(position) ? .same(position, isAll: false) : .other
  }
}
