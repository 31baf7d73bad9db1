/// When the commits that a copy lacks were written. Bounded: of many it keeps fewer, the oldest among them.
struct Arrears {
  /// The number of frames of the log after a commit, and the time at which they were on the disk; both grow.
  private var commits: [(frames: Int, time: Int64)] = []
  private static let limit = 64

  /// When the oldest commit that the copy lacks was written; nil: it lacks none.
  var oldest: Int64? { commits.first?.time }

  mutating func note(_ frames: Int, at time: Int64) {
    commits.append((frames, time))
    guard commits.count > Self.limit else { return }
    // A commit that is left out is in the copy when the next one is.
    let last = commits.count - 1
    commits = commits.enumerated().filter { $0.offset == 0 || $0.offset == last || $0.offset % 2 == 1 }.map(\.element)
  }

  /// The copy has the log up to this number of frames.
  mutating func settle(_ frames: Int) { commits.removeAll { $0.frames <= frames } }

  /// The log begins anew although the copy lacks some of it: only all of the next one makes up for it.
  mutating func forgetFrames() {
    guard let oldest else { return }
    commits = [(0, oldest)]
  }
}
