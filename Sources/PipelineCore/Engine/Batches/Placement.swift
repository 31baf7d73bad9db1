/// The threads that process the blocks of a `file` or `stdin` source. The choice affects time and memory, never the
/// output.
package enum Placement: String, Sendable, CaseIterable {
  /// Measurements during the run decide.
  case auto
  /// Steps run in turns on the pipeline's thread.
  case loop
  /// Steps run in turns on the reading thread, while the pipeline's thread sleeps.
  case inline
  /// The decoding threads run the source's ``ParallelStage``, if it has one; with one thread, the turns run it.
  /// Turns run on the pipeline's thread.
  case threads
  /// Like ``threads``, but the reading thread runs the turns while the pipeline's thread sleeps.
  case threadsInline = "threads-inline"

  /// Whether decoding threads run the stage; nil: ``StagePlacement`` decides.
  var runsStage: Bool? {
    switch self {
    case .auto: nil
    case .loop, .inline: false
    case .threads, .threadsInline: true
    }
  }

  /// Whether an idle thread runs the turn inline; nil: the source decides.
  var runsInline: Bool? {
    switch self {
    case .auto: nil
    case .loop, .threads: false
    case .inline, .threadsInline: true
    }
  }
}
