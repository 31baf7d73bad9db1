import PipelineCore
import Transport

/// The input of a stream that cannot be read again, passed from one version of a source to the next: read but not sent.
struct KeptInput: Sendable {
  private let rest: BlockReader.Rest
  private let decoding: BlockDecoding
  private let options: DecoderOptions

  /// - Parameter decoding: The stream's decoder, which has `options`.
  init(_ rest: BlockReader.Rest, _ decoding: BlockDecoding, _ options: DecoderOptions) {
    self.rest = rest
    self.decoding = decoding
    self.options = options
  }

  /// The position at which the next reader of the stream starts.
  struct Start {
    /// The position after the last event that was sent.
    var position = DecodingPosition()
    var reading: BlockReader.Rest?
    /// The decoder that continues the incomplete event; nil: another decoder starts.
    var decoding: BlockDecoding?
    /// The incomplete event as far as it was read, if a decoder with other options cannot continue it because some of
    /// its bytes were discarded.
    var rows: DecodedBlock?
    /// Whether the decoder needs the start of the stream, which is gone.
    var lacksBeginning = false
  }

  /// Where to start decoding with the given options; includes the bytes that are not part of any event yet.
  func start(by options: DecoderOptions) -> Start {
    var start = Start(position: decoding.position(behind: rest.offset), reading: rest)
    if options == self.options {
      start.decoding = decoding
      return start
    }
    start.lacksBeginning = !options.goesOn(at: start.position, self.options.dependence)
    if start.lacksBeginning { start.position.memory = [] }
    if let bytes = decoding.undecoded {
      start.reading?.takeBack(bytes)
    } else {
      start.rows = decoding.endEvent()?.rows
      start.position.offset = rest.offset
    }
    return start
  }
}
