/// On which threads the work on the blocks of a `file` or `stdin` runs. The output is the same with each; time and memory
/// are not.
package enum Placement: String, Sendable, CaseIterable {
  /// As measurements during the run say.
  case auto
  /// Steps run in turns, and these on the pipeline's thread.
  case loop
  /// Steps run in turns, and these on the thread that has read, while the pipeline's thread sleeps.
  case inline
  /// The decoding threads run the source's ``ParallelStage``, if it has one; with one thread, the turns run it.
  /// Turns run on the pipeline's thread.
  case threads
  /// The same, and the thread that has read runs the turns while the pipeline's thread sleeps.
  case threadsInline = "threads-inline"

  /// Whether decoding threads run the stage; nil: as ``StagePlacement`` finds.
  var runsStage: Bool? {
    switch self {
    case .auto: nil
    case .loop, .inline: false
    case .threads, .threadsInline: true
    }
  }

  /// Whether a thread that has nothing else to do runs the turn inline; nil: as the source finds.
  var runsInline: Bool? {
    switch self {
    case .auto: nil
    case .loop, .threads: false
    case .inline, .threadsInline: true
    }
  }
}
