import PipelineCore

/// Work for which a full disk, or a full table of descriptors, has no room. It is tried again after growing pauses, and leaves its thread meanwhile: the
/// threads that write are shared with files on other disks.
struct RoomWait {
  private static let first: Int64 = 100_000_000
  private static let longest: Int64 = 2_000_000_000

  private var pause = RoomWait.first
  /// The reason why there is no room; nil: the work does not wait.
  private(set) var reason: PosixError?

  /// Records a failure for lack of room. Returns when to try again, on the monotonic clock.
  /// - Parameter madeProgress: Whether a part of the work was done, so that room is being freed.
  mutating func refused(_ error: PosixError, madeProgress: Bool = false) -> Int64 {
    if reason == nil || madeProgress { pause = Self.first }
    reason = error
    defer { pause = min(pause * 2, Self.longest) }
    return monotonicNow() &+ pause
  }

  /// Records that the work is done. Returns whether it had to wait.
  mutating func done() -> Bool {
    defer { reason = nil }
    return reason != nil
  }
}
