/// The times of the commits that a copy lacks. Bounded: if there are many, some are left out, but never the oldest.
struct Arrears {
  /// For each commit, the log's number of frames after it and the time when it reached the disk; both ascend.
  private var commits: [(frames: Int, time: Int64)] = []
  private static let limit = 64

  /// The time of the oldest commit that the copy lacks; nil: it lacks none.
  var oldest: Int64? { commits.first?.time }

  mutating func note(_ frames: Int, at time: Int64) {
    commits.append((frames, time))
    guard commits.count > Self.limit else { return }
    // A commit that is left out reaches the copy no later than the next one.
    let last = commits.count - 1
    commits = commits.enumerated().filter { $0.offset == 0 || $0.offset == last || $0.offset % 2 == 1 }.map(\.element)
  }

  /// Removes the commits within this number of frames, which the copy now has.
  mutating func settle(_ frames: Int) { commits.removeAll { $0.frames <= frames } }

  /// Called when the log is reset although the copy lacks some of it: the copy has caught up only after the next full
  /// copy.
  mutating func forgetFrames() {
    guard let oldest else { return }
    commits = [(0, oldest)]
  }
}
