/// Encodes events as bytes. One encoder serves one output (a file, a connection, standard output).
package protocol EventEncoder: AnyObject {
  /// The media type of the output.
  var mediaType: String { get }

  /// Appends the text of one event with its terminator. On failure, appends nothing and returns the reason.
  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure?

  /// The current time in nanoseconds since 1970, for formats that write it. Must be set before each event.
  var now: Int64 { get set }

  /// Whether the output depends on earlier events, so that one encoder must see all of them.
  var keepsState: Bool { get }

  /// Starts another output; a CSV header, for example, is written again before the next event.
  func reset()

  /// The state with which another encoder with the same options can continue the output after the last event; empty if
  /// there is none.
  var memory: [String] { get }

  /// Continues an output; call it before the first event. False if `memory` does not fit these options.
  func goOn(after memory: [String]) -> Bool

  /// Whether lines of this kind are encoded unchanged.
  func passes(_ lines: EncodedEvents.Lines) -> Bool

  /// The kind of the output's lines if every event is exactly one line from which it can be read again; nil otherwise.
  var lines: EncodedEvents.Lines? { get }

  /// Appends the start of an output whose events are already encoded, such as a CSV header.
  func appendHeader(to output: OutputBuffer)
}

extension EventEncoder {
  package var now: Int64 {
    get { 0 }
    set {}
  }
  package var keepsState: Bool { false }
  package func reset() {}
  package var memory: [String] { [] }
  package func goOn(after memory: [String]) -> Bool { memory.isEmpty }
  package func passes(_ lines: EncodedEvents.Lines) -> Bool { false }
  package var lines: EncodedEvents.Lines? { nil }
  package func appendHeader(to output: OutputBuffer) {}
}

/// The formats of `encode:`.
package enum EncoderFormat: String, Sendable, CaseIterable {
  case text, lines, json, ndjson, csv, logfmt, bytes, form, influx

  package var summary: String {
    switch self {
    case .text: "Strings as they are, other values as JSON, each with a line feed."
    case .lines: "The same as text, with line breaks inside an event written as \\n."
    case .json: "A JSON document for each event, on one line or indented."
    case .ndjson: "A JSON document for each event, always on one line."
    case .csv: "Comma-separated values with a header."
    case .logfmt: "A line of key=value pairs for each map."
    case .bytes: "Strings and raw bytes as they are, other values as JSON, with nothing between them."
    case .form: "The fields of each map as a=1&b=x+y, percent-escaped, as forms are sent."
    case .influx: "A line of InfluxDB's line protocol for each { measurement, tags, fields, timestamp }."
    }
  }
}

/// How to encode events.
package struct EncoderOptions: Sendable, Equatable {
  package var format: EncoderFormat = .json
  /// For `json`: the number of spaces per level, at most 16; nil for one line.
  package var indent: Int?
  package var csv = CSVEncoding()
  /// For `influx`: the unit of timestamps.
  package var precision = InfluxPrecision.ns
  /// For a terminal: characters that control it (control characters, ESC, direction marks) are written as escapes such
  /// as `\u001b`. JSON keeps its meaning.
  package var escapeControls = false
  /// Whether each event ends with a line feed, if the format has one. False for bodies with one event.
  package var terminated = true
  /// The encoder of a plugin, in place of `format`.
  package var plugin: PluginFormat?

  /// The name of the format in the file.
  package var name: String { plugin?.name ?? format.rawValue }

  package init(_ format: EncoderFormat = .json) { self.format = format }

  /// Makes an encoder for one output.
  package func encoder() throws(CodecFailure) -> any EventEncoder {
    let encoder: any EventEncoder
    switch format {
    case _ where plugin != nil: encoder = PluginEncoder(plugin.unsafelyUnwrapped, terminated: terminated)
    case .text: encoder = TextEncoder(terminated: terminated)
    case .lines: encoder = LinesEncoder()
    case .json, .ndjson:
      let layout = format == .json ? indent.map { JSONWriter.Layout.pretty(indent: $0) } : nil
      encoder = JSONEventEncoder(layout: layout ?? .compact, terminated: terminated)
    case .csv: encoder = try CSVEncoder(csv)
    case .logfmt: encoder = LogfmtEncoder()
    case .bytes: encoder = BytesEncoder()
    case .form: encoder = FormEncoder(terminated: terminated)
    case .influx: encoder = InfluxEncoder(precision)
    }
    guard escapeControls else { return encoder }
    // Line breaks within an event are part of indented JSON and of quoted CSV fields.
    let layout = format == .csv || (format == .json && indent != nil)
    return ControlEscapingEncoder(encoder, keepsLineBreaks: layout, terminated: terminated && format != .bytes)
  }
}

/// `json`, `ndjson`.
final class JSONEventEncoder: EventEncoder {
  private let layout: JSONWriter.Layout
  private let terminated: Bool

  init(layout: JSONWriter.Layout, terminated: Bool) {
    self.layout = layout
    self.terminated = terminated
  }

  var mediaType: String { terminated && layout == .compact ? "application/x-ndjson" : "application/json" }

  func passes(_ lines: EncodedEvents.Lines) -> Bool { lines == .documents && terminated && layout == .compact }
  var lines: EncodedEvents.Lines? { terminated && layout == .compact ? .documents : nil }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let failure =
      terminated && layout == .compact
      ? JSONWriter.appendAsItCame(value, to: output) : JSONWriter.append(value, to: output, layout: layout)
    if let failure { return failure }
    if terminated { output.append(UInt8(ascii: "\n")) }
    return nil
  }
}

/// `text`.
final class TextEncoder: EventEncoder {
  private let terminated: Bool

  init(terminated: Bool) { self.terminated = terminated }

  var mediaType: String { "text/plain; charset=utf-8" }

  func passes(_ lines: EncodedEvents.Lines) -> Bool { terminated }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    if let failure = appendBare(value, to: output, asItCame: terminated) { return failure }
    if terminated { output.append(UInt8(ascii: "\n")) }
    return nil
  }
}

/// `lines`: each event is exactly one line, so that no event can forge another.
final class LinesEncoder: EventEncoder {
  var mediaType: String { "text/plain; charset=utf-8" }

  func passes(_ lines: EncodedEvents.Lines) -> Bool { true }
  var lines: EncodedEvents.Lines? { .strings }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let start = output.count
    if let failure = appendBare(value, to: output, asItCame: true) { return failure }
    let text = output.bytes.part(start, output.count)
    if text.offset(of: 0x0A) != nil || text.offset(of: 0x0D) != nil { escapeLineBreaks(output, from: start) }
    output.append(UInt8(ascii: "\n"))
    return nil
  }

  private func escapeLineBreaks(_ output: OutputBuffer, from start: Int) {
    let text = Array(output.bytes.part(start, output.count))
    output.truncate(to: start)
    for byte in text {
      switch byte {
      case 0x0A: output.append("\\n")
      case 0x0D: output.append("\\r")
      default: output.append(byte)
      }
    }
  }
}

/// `bytes`.
final class BytesEncoder: EventEncoder {
  var mediaType: String { "application/octet-stream" }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? { appendBare(value, to: output) }
}

/// Appends strings and bytes literally; durations, timestamps and types without quotes; everything else as JSON.
///
/// - Parameter asItCame: Whether the output is a stream of lines; see ``JSONWriter/appendAsItCame(_:to:layout:)``.
@inline(__always)
func appendBare(_ value: Value, to output: OutputBuffer, asItCame: Bool = false) -> EncodingFailure? {
  let value = value.unwrapped
  switch value.what {
  case .string:
    JSONWriter.appendUnescaped(value, to: output)
    return nil
  case .bytes:
    output.append(value.rawBytes)
    return nil
  case .timestamp:
    JSONWriter.appendTimestamp(seconds: value.asInt, nanoseconds: value.length, to: output)
    return nil
  case .duration:
    JSONWriter.appendDuration(nanoseconds: value.asInt, to: output)
    return nil
  default:
    return asItCame ? JSONWriter.appendAsItCame(value, to: output) : JSONWriter.append(value, to: output)
  }
}

extension Value {
  /// The value inside optionals; null for an optional without a value.
  package var unwrapped: Value {
    var value = self
    while value.is(.optional) { value = value.wrapped ?? .null }
    return value
  }
}
