import PipelineCore
import Transport

/// A stream that cannot be read again, between two versions of its source: the input that has been read and not sent.
struct KeptInput: Sendable {
  private let rest: BlockReader.Rest
  private let decoding: BlockDecoding
  private let options: DecoderOptions

  /// - Parameter decoding: The decoder of the stream so far, by `options`.
  init(_ rest: BlockReader.Rest, _ decoding: BlockDecoding, _ options: DecoderOptions) {
    self.rest = rest
    self.decoding = decoding
    self.options = options
  }

  /// How the next reader of the stream begins.
  struct Start {
    /// The position after the last event that was sent.
    var position = DecodingPosition()
    var reading: BlockReader.Rest?
    /// The decoder that continues the incomplete event; nil: another decoder begins.
    var decoding: BlockDecoding?
    /// The incomplete event as far as it was read, if other options cannot continue it because some of its bytes are gone.
    var rows: DecodedBlock?
    /// The decoder needs the start of the stream.
    var lacksBeginning = false
  }

  /// The start of decoding by the given options, with the bytes that are in no event.
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
