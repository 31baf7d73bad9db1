/// Turns bytes into events. One decoder serves one input (a file, a connection, standard input).
///
/// Called on one thread at a time. The caller keeps the slab alive as long as it uses the rows, to the end
/// of the turn at least.
public protocol EventDecoder: AnyObject {
  /// How the input must be cut for this decoder.
  var framing: Framing { get }

  /// Decodes `range` of the slab, the continuation of what was handed in before, and adds to `rows`.
  ///
  /// - Parameters:
  ///   - offset: Where the range begins in the input, in bytes. A byte order mark is skipped at 0.
  ///   - isLast: The input ends with this range; it may be empty.
  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch)

  /// Takes a whole slab as a block of lines that need no rows, if it is one; then nothing else is done.
  ///
  /// - Parameter isPassedOn: The block will probably be passed on as it stands (``PassThroughLines``): then it is enough to
  ///   know that it can be, and ``RowBatch/indexDocuments()`` finds the rest if need be.
  func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool

  /// Where the first row begins that was handed in but not yet decoded, because its end is missing; nil if
  /// there is none. A checkpoint must not lie behind it.
  var pendingOffset: Int64? { get }

  /// What decoding must know when it goes on in the middle of the input: the header line of a CSV file.
  /// Empty where there is nothing to know.
  var memory: [UInt8] { get }

  /// Forgets everything: the next range is the start of an input. `memory` comes from a decoder of the same
  /// options that went on to the place where this one begins.
  func reset(memory: [UInt8])
}

extension EventDecoder {
  public func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool { false }
  public var pendingOffset: Int64? { nil }
  public var memory: [UInt8] { [] }
  public func reset(memory: [UInt8]) {}
  public func reset() { reset(memory: []) }

  /// Decodes a whole body.
  public func decode(_ slab: Slab, arena: Arena, into rows: RowBatch) {
    decode(slab, 0..<slab.count, offset: 0, isLast: true, arena: arena, into: rows)
  }
}

/// Where in an input a decoder can go on, as another one of the same options.
public struct DecodingPosition: Sendable, Equatable {
  /// Everything before it has been decoded, in bytes.
  public var offset: Int64 = 0
  /// See ``EventDecoder/memory``.
  public var memory: [UInt8] = []
  public init() {}
  public init(offset: Int64, memory: [UInt8]) {
    self.offset = offset
    self.memory = memory
  }
}

/// How an input is cut into ranges for a decoder.
public enum Framing: Sendable {
  /// Behind a line feed; only the last range may end otherwise. Rows never span ranges, except for CSV rows
  /// with quoted line breaks, which the decoder joins.
  case lines
  /// The input is handed over in one range.
  case whole
  /// Anywhere: a range is an event.
  case chunks
}

/// How a source offers its input.
public enum InputUnit: Sendable {
  /// A stream without units of its own: standard input, a file, a connection.
  case stream
  /// One piece at a time: an HTTP body, a message, a datagram.
  case body
}

/// The formats that `decode:` knows.
public enum DecoderFormat: String, Sendable, CaseIterable {
  case text, lines, whole, json, ndjson, csv, logfmt, regex, bytes

  public var summary: String {
    switch self {
    case .text: "Each line of a stream, or each whole body, is a string."
    case .lines: "Each line is a string."
    case .whole: "The whole input is one string."
    case .json: "Each line of a stream is a JSON document; a body is one document or several."
    case .ndjson: "Each line is a JSON document."
    case .csv: "Each row of comma-separated values is a map, or a list without a header."
    case .logfmt: "Each line of key=value pairs is a map."
    case .regex: "Each line becomes a map of the named groups of a regular expression."
    case .bytes: "Each body, or each piece of a stream as it was read, is raw bytes."
    }
  }
}

/// What becomes of text that is not UTF-8.
public enum InvalidUTF8: String, Sendable, CaseIterable {
  /// The row is refused, with its bytes.
  case reject
  /// Each faulty sequence becomes U+FFFD.
  case replace
  /// The row is an event of raw bytes. In formats with structure the same as `reject`.
  case bytes
}

/// How to read an input. A plain value.
public struct DecoderOptions: Sendable, Equatable {
  public var format: DecoderFormat = .text
  public var unit: InputUnit = .stream
  public var invalidUTF8: InvalidUTF8 = .reject
  public var json = JSONDecoding()
  public var csv = CSVDecoding()
  public var logfmt = LogfmtDecoding()
  public var regex = RegexDecoding()

  public init(_ format: DecoderFormat = .text, unit: InputUnit = .stream) {
    self.format = format
    self.unit = unit
  }

  /// How the input must be cut; what their decoder says.
  public var framing: Framing {
    switch format {
    case .text, .json: unit == .stream ? .lines : .whole
    case .lines, .ndjson, .csv, .logfmt, .regex: .lines
    case .whole: .whole
    case .bytes: .chunks
    }
  }

  /// Whether the input must be text, so that one which is compressed is a mistake.
  public var readsText: Bool { format != .bytes && invalidUTF8 != .bytes }

  /// Whether several decoders of these options, each given some of the blocks of an input, find the same rows as one
  /// that is given all: what a block means does not depend on the blocks before it.
  public var readsBlocksApart: Bool {
    switch format {
    case .text, .lines, .json, .ndjson, .logfmt, .regex: framing == .lines
    // Of CSV the first row may name the columns, and a row in quotes may go on in the next block.
    case .csv, .whole, .bytes: false
    }
  }

  /// Whether nobody can go on in the middle of an input who does not know how it begins: the first row of CSV names the
  /// columns.
  public var needsBeginning: Bool { format == .csv && csv.header == .firstRow }

  /// The decoder for these options, for one input.
  public func decoder() throws(CodecFailure) -> any EventDecoder {
    switch format {
    case .text: unit == .stream ? LineDecoder(self) : WholeDecoder(self)
    case .lines: LineDecoder(self)
    case .whole: WholeDecoder(self)
    case .json: unit == .stream ? JSONLinesDecoder(self) : JSONBodyDecoder(self)
    case .ndjson: JSONLinesDecoder(self)
    case .csv: try CSVDecoder(self)
    case .logfmt: LogfmtDecoder(self)
    case .regex:
      regex.pattern == RegexDecoding.combined ? try CombinedLogDecoder(self) : try RegexDecoder(self)
    case .bytes: BytesDecoder()
    }
  }
}

/// Options that make no decoder or encoder.
public struct CodecFailure: Error, Sendable, Equatable {
  /// The option, as in the pipeline file: `pattern`, `csv.delimiter`.
  public var option: String
  /// What is wrong, why, what to do.
  public var message: String
  /// Where in the option's text, in bytes, if known.
  public var offset: Int?
  /// The option's text as it was probably meant; nil: nobody knows.
  public var replacement: String?
  /// What to do, a sentence; nil: nothing is known that helps.
  public var help: String?

  public init(
    option: String, message: String, offset: Int? = nil, replacement: String? = nil, help: String? = nil
  ) {
    self.help = help
    self.option = option
    self.message = message
    self.offset = offset
    self.replacement = replacement
  }
}

extension CodecFailure: CustomStringConvertible {
  public var description: String { message }
}

/// How JSON documents are read.
public struct JSONDecoding: Sendable, Equatable {
  /// How closely documents are looked at before they become events.
  public var check: JSONParser.Check = .outline
  public var limits = JSONLimits()
  public init() {}
}
