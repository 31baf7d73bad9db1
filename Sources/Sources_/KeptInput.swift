import PipelineCore
import Transport

/// A stream that cannot be read again, between two versions of its source: what has been read of it and not been sent.
struct KeptInput: Sendable {
  private let rest: BlockReader.Rest
  private let decoding: BlockDecoding
  private let options: DecoderOptions

  /// - Parameter decoding: What has decoded the stream, by `options`.
  init(_ rest: BlockReader.Rest, _ decoding: BlockDecoding, _ options: DecoderOptions) {
    self.rest = rest
    self.decoding = decoding
    self.options = options
  }

  /// How the next reader of the stream begins.
  struct Start {
    /// Behind the last event that was sent.
    var position = DecodingPosition()
    var reading: BlockReader.Rest?
    /// What decodes on: the event at hand goes on in it.
    var decoding: BlockDecoding?
    /// An event that other options cannot go on with, because some of its bytes are gone: as it is.
    var rows: DecodedBlock?
    /// The decoder needs the start of the stream.
    var lacksBeginning = false
  }

  /// Where decoding by other options goes on with the bytes that no event has.
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
