import PipelineCore
import Transport

/// Programs that run on between two versions of a pipeline, so that the next version continues to read them. Several
/// instances of one step are taken in the order in which they were kept.
enum KeptPrograms {
  struct Entry: Sendable {
    var call: ProgramCall
    var program: StreamedProgram
    var output: FileDescriptor
    var input: KeptInput
    /// The options with which `input` was decoded.
    var options: DecoderOptions
  }

  /// The kept programs, by the name of their step.
  static let all = KeptItems<Entry> { $0.program.cancel() }
}
