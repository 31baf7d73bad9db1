/// Decodes bytes into events. One decoder serves one input (a file, a connection, standard input).
///
/// Called on one thread at a time. The caller keeps the slab alive as long as it uses the rows, at least to the end of
/// the turn.
package protocol EventDecoder: AnyObject {
  /// How the input must be cut for this decoder.
  var framing: Framing { get }

  /// Decodes `range` of the slab, which continues the input, and appends to `rows`.
  ///
  /// - Parameters:
  ///   - offset: The input offset of the range's start, in bytes. A byte order mark is skipped at 0.
  ///   - isLast: The input ends with this range; it may be empty.
  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch)

  /// Takes a whole slab as a block of lines that need no rows, if possible; otherwise does nothing and returns false.
  ///
  /// - Parameter isPassedOn: The block will probably pass through unchanged (``RowBatch/passThrough``): it is then enough
  ///   to know that it can, and ``RowBatch/indexDocuments()`` finds the documents if needed.
  func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool

  /// The input offset of a row that is incomplete and so not yet decoded; nil if there is none. A checkpoint must not
  /// lie beyond it.
  var pendingOffset: Int64? { get }

  /// The unchanged input from ``pendingOffset`` on, with which another decoder can start. Empty if nothing is pending;
  /// nil if the decoder has discarded a part of it.
  var undecoded: [UInt8]? { get }

  /// Whether a row may consist of several lines, so that its end is known only when the next line arrives or a wait is
  /// over.
  var joinsLines: Bool { get }

  /// Sets the time at which the next lines arrive, in nanoseconds. Decoders with at most one incomplete row ignore it.
  func setTime(_ now: Int64)

  /// When the incomplete row that has been silent for longest must end, on the clock of ``setTime(_:)``; nil: the
  /// caller counts from the input's last line.
  var dueAt: Int64? { get }

  /// Restricts the next call of ``endRow(offset:arena:into:)`` to rows whose wait is over at `now`.
  func endOnlyDue(at now: Int64)

  /// Ends an incomplete row of several lines; the input continues after it. Returns whether there was such a row.
  ///
  /// - Parameter offset: The input offset up to which the input was decoded.
  func endRow(offset: Int64, arena: Arena, into rows: RowBatch) -> Bool

  /// Data needed to continue decoding in the middle of the input, such as the header line of a CSV file. Empty if none
  /// is needed.
  var memory: [UInt8] { get }

  /// Resets the decoder: the next range starts an input. `memory` comes from a decoder with the same options at the
  /// offset where this one starts.
  func reset(memory: [UInt8])
}

extension EventDecoder {
  package func index(_ slab: Slab, offset: Int64, isPassedOn: Bool, into rows: RowBatch) -> Bool { false }
  package var pendingOffset: Int64? { nil }
  package var undecoded: [UInt8]? { pendingOffset == nil ? [] : nil }
  package var joinsLines: Bool { false }
  package func setTime(_ now: Int64) {}
  package var dueAt: Int64? { nil }
  package func endOnlyDue(at now: Int64) {}
  package func endRow(offset: Int64, arena: Arena, into rows: RowBatch) -> Bool {
    guard pendingOffset != nil else { return false }
    decode(.empty, 0..<0, offset: offset, isLast: true, arena: arena, into: rows)
    return true
  }
  package var memory: [UInt8] { [] }
  package func reset(memory: [UInt8]) {}
  package func reset() { reset(memory: []) }

  /// Decodes a whole body.
  package func decode(_ slab: Slab, arena: Arena, into rows: RowBatch) {
    decode(slab, 0..<slab.count, offset: 0, isLast: true, arena: arena, into: rows)
  }
}

/// The position in an input at which another decoder with the same options can continue.
package struct DecodingPosition: Sendable, Equatable {
  /// Everything before this offset has been decoded, in bytes.
  package var offset: Int64 = 0
  /// See ``EventDecoder/memory``.
  package var memory: [UInt8] = []
  package init() {}
  package init(offset: Int64, memory: [UInt8]) {
    self.offset = offset
    self.memory = memory
  }
}

/// How an input is cut into ranges for a decoder.
package enum Framing: Sendable {
  /// After a line feed; only the last range may end otherwise. Rows never span ranges, except CSV rows with quoted line
  /// breaks, which the decoder joins.
  case lines
  /// The input comes in one range.
  case whole
  /// Anywhere: each range is an event.
  case chunks
  /// Anywhere: the decoder assembles rows from the ranges.
  case anywhere
}

/// How a source delivers its input.
package enum InputUnit: Sendable {
  /// A stream without units: standard input, a file, a connection.
  case stream
  /// One unit at a time: an HTTP body, a message, a datagram.
  case body
  /// One row at a time, which may contain line breaks: joined lines.
  case row
}

/// The formats of `decode:`.
package enum DecoderFormat: String, Sendable, CaseIterable {
  case text, lines, whole, json, ndjson, jsonDocuments, csv, logfmt, regex, syslog, container, statsd, prometheus, bytes

  package var summary: String {
    switch self {
    case .text: "Each line of a stream, or each whole body, is a string."
    case .lines: "Each line is a string."
    case .whole: "The whole input is one string."
    case .json: "Each line of a stream is a JSON document; a body is one document or several."
    case .ndjson: "Each line is a JSON document."
    case .jsonDocuments: "JSON documents one after another, over several lines or on one (also RFC 7464)."
    case .csv: "Each row of comma-separated values is a map, or a list without a header."
    case .logfmt: "Each line of key=value pairs is a map."
    case .regex: "Each line becomes a map of the named groups of a regular expression."
    case .syslog: "Each line, datagram or body is a syslog message (RFC 5424 or RFC 3164)."
    case .container:
      "Each line of a container's log file, CRI or json-file, is a map; pieces of a line are put together."
    case .statsd: "Each line is a metric of StatsD, with the tags of DogStatsD."
    case .prometheus: "Each sample of an exposition of Prometheus or OpenMetrics is a map."
    case .bytes: "Each body, or each piece of a stream as it was read, is raw bytes."
    }
  }

  /// The fields of every event, if the format alone determines them.
  var fields: [ExpressionType.Field]? {
    switch self {
    case .syslog: SyslogDecoder.fields
    case .container: KeyedJoiningDecoder.containerFields
    case .statsd: StatsDDecoder.fields
    case .prometheus: PrometheusDecoder.fields
    case .text, .lines, .whole, .json, .ndjson, .jsonDocuments, .csv, .logfmt, .regex, .bytes: nil
    }
  }

  /// Whether the charset of a media type counts. Other formats have their own rules: JSON is UTF-8.
  package var takesCharsetOfType: Bool {
    switch self {
    case .text, .lines, .whole, .csv, .logfmt, .regex, .syslog, .container, .statsd: true
    case .json, .ndjson, .jsonDocuments, .prometheus, .bytes: false
    }
  }
}

/// The treatment of text that is not UTF-8.
package enum InvalidUTF8: String, Sendable, CaseIterable {
  /// The row is rejected, with its bytes.
  case reject
  /// Each invalid sequence becomes U+FFFD.
  case replace
  /// The row is an event of raw bytes. Structured formats treat this as `reject`.
  case bytes
}

/// How to decode an input.
package struct DecoderOptions: Sendable, Equatable {
  package var format: DecoderFormat = .text
  package var unit: InputUnit = .stream
  package var invalidUTF8: InvalidUTF8 = .reject
  package var json = JSONDecoding()
  package var csv = CSVDecoding()
  package var logfmt = LogfmtDecoding()
  package var regex = RegexDecoding()
  /// Whether syslog messages that violate their RFC are rejected.
  package var isStrictSyslog = false
  /// The rule that joins lines into rows; nil: each line is a row.
  package var join: LineJoining?
  /// The encoding of characters; nil: UTF-8.
  package var charset: Charset?
  /// The decoder of a plugin, which decodes the lines or the whole input that `format` passes to it; nil: `format`
  /// alone decodes.
  package var plugin: PluginFormat?

  package init(_ format: DecoderFormat = .text, unit: InputUnit = .stream) {
    self.format = format
    self.unit = unit
  }

  /// The name of the format in the file.
  package var name: String { plugin?.name ?? format.rawValue }

  /// How the input must be cut for the decoder.
  package var framing: Framing {
    if charset?.keepsLineFeeds == false, case .lines = textFraming { return .anywhere }
    return textFraming
  }

  /// The framing if the input is UTF-8.
  private var textFraming: Framing {
    if join != nil, unit != .row { return .lines }
    return switch format {
    case .text, .json, .syslog, .statsd: unit == .stream ? .lines : .whole
    case .lines, .ndjson, .csv, .logfmt, .regex, .container: .lines
    case .whole, .prometheus: .whole
    case .bytes: .chunks
    case .jsonDocuments: unit == .stream ? .anywhere : .whole
    }
  }

  /// Whether the input must be text, which makes a compressed input an error.
  package var readsText: Bool { format != .bytes && invalidUTF8 != .bytes && !isBinary }

  /// Whether a plugin decodes whole inputs, which need not be text.
  package var isBinary: Bool { plugin != nil && format != .lines }

  /// Whether the charset of a media type counts.
  package var takesCharsetOfType: Bool { format.takesCharsetOfType && !isBinary }

  /// Whether blocks can be decoded independently: several decoders with these options, each given some blocks of an
  /// input, find the same rows as one decoder given all of them.
  package var readsBlocksApart: Bool {
    // An event may continue in the next block.
    if join != nil || charset?.keepsLineFeeds == false { return false }
    return switch format {
    case .text, .lines, .json, .ndjson, .logfmt, .regex, .syslog, .statsd: framing == .lines
    // In these formats a row, document or container line may continue in the next block, and the first row of CSV may
    // name the columns.
    case .csv, .whole, .prometheus, .bytes, .jsonDocuments, .container: false
    }
  }

  /// Whether decoding in the middle of an input needs the input's start: the first row of CSV names the columns, and a
  /// byte order mark gives the byte order of UTF-16.
  package var needsBeginning: Bool {
    format == .csv && (csv.header == .firstRow || csv.skips) || charset?.kind == .utf16(isBig: nil)
  }

  /// Makes a decoder for one input.
  package func decoder() throws(CodecFailure) -> any EventDecoder {
    if let charset {
      var text = self
      text.charset = nil
      return CharsetDecoder(try text.decoder(), charset, invalidUTF8)
    }
    if let join, unit != .row {
      var row = self
      row.unit = .row
      row.join = nil
      let inner: any EventDecoder = try format == .container ? WholeDecoder(row) : row.decoder()
      if join.key != nil || format == .container { return try KeyedJoiningDecoder(self, inner, join) }
      return try JoiningDecoder(inner, join)
    }
    if let plugin { return PluginDecoder(plugin, self) }
    return switch format {
    case .text: unit == .stream ? LineDecoder(self) : WholeDecoder(self)
    case .lines: unit == .row ? WholeDecoder(self) : LineDecoder(self)
    case .whole: WholeDecoder(self)
    case .json: unit == .stream ? JSONLinesDecoder(self) : JSONBodyDecoder(self)
    case .ndjson: unit == .row ? JSONBodyDecoder(self) : JSONLinesDecoder(self)
    case .jsonDocuments: unit == .stream ? JSONDocumentsDecoder(self) : JSONBodyDecoder(self)
    case .csv: try CSVDecoder(self)
    case .logfmt: LogfmtDecoder(self)
    case .regex:
      regex.pattern == RegexDecoding.combined ? try CombinedLogDecoder(self) : try RegexDecoder(self)
    case .syslog: SyslogDecoder(self)
    case .container: try KeyedJoiningDecoder(self, WholeDecoder(self), LineJoining(nil))
    case .statsd: StatsDDecoder(self)
    case .prometheus: PrometheusDecoder()
    case .bytes: BytesDecoder()
    }
  }
}

/// Invalid decoder or encoder options.
package struct CodecFailure: Error, Sendable, Equatable {
  /// The option, as in the pipeline file: `pattern`, `csv.delimiter`.
  package var option: String
  /// The error and its reason, as a clause.
  package var message: String
  /// The byte offset in the option's text, if known.
  package var offset: Int?
  /// The corrected text of the option; nil if unknown.
  package var replacement: String?
  /// Advice, as a sentence; nil if there is none.
  package var help: String?

  package init(
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
  package var description: String { message }
}

/// How JSON documents are decoded.
package struct JSONDecoding: Sendable, Equatable {
  /// How thoroughly documents are checked before they become events.
  package var check: JSONParser.Check = .outline
  package var limits = JSONLimits()
  /// The maximum size in bytes of a document of `jsonDocuments`.
  package var maxBytes = 16 << 20
  package init() {}
}
