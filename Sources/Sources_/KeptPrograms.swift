import PipelineCore
import Transport

/// Programs between two versions of a pipeline: they run on, and the next version reads on. Several instances of one step are taken in the order
/// in which they were kept.
enum KeptPrograms {
  struct Entry: Sendable {
    var call: ProgramCall
    var program: StreamedProgram
    var output: FileDescriptor
    var input: KeptInput
    /// The options by which `input` was decoded.
    var options: DecoderOptions
  }

  /// By the names of their steps.
  static let all = KeptItems<Entry> { $0.program.cancel() }
}
