/// The unit of timestamps in `influx`.
package enum InfluxPrecision: String, Sendable, CaseIterable {
  case ns, us, ms, s

  /// The length of the unit in nanoseconds.
  var nanoseconds: Int64 {
    switch self {
    case .ns: 1
    case .us: 1_000
    case .ms: 1_000_000
    case .s: 1_000_000_000
    }
  }
}

/// `influx`: a point `{ measurement, tags, fields, timestamp }` as a line of InfluxDB's line protocol.
///
/// Tags are sorted by name, as the server stores them; tags with an empty value are left out, because the protocol
/// cannot express them. An int becomes an integer field (`1i`), a uint `1u`, any other number a float.
final class InfluxEncoder: EventEncoder {
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()
  private let precision: InfluxPrecision

  init(_ precision: InfluxPrecision) { self.precision = precision }

  var mediaType: String { "text/plain; charset=utf-8" }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let start = output.count
    do throws(EncodingFailure) {
      try write(parser.expand(value.unwrapped, into: arena), to: output)
      return nil
    } catch {
      output.truncate(to: start)
      return error
    }
  }

  private func write(_ point: Value, to output: OutputBuffer) throws(EncodingFailure) {
    if point.is(.error) { throw .error }
    guard point.is(.map) else { throw .influx(.noMap) }
    var measurement = Value.absent
    var tags = Value.absent
    var fields = Value.absent
    var time = Value.absent
    for entry in point.entries where entry.key.what == .string {
      let value = parser.expand(entry.value.unwrapped, into: arena)
      let key = entry.key.rawBytes
      if key.equals("measurement") { measurement = value }
      if key.equals("tags") { tags = value }
      if key.equals("fields") { fields = value }
      if key.equals("timestamp") { time = value }
    }
    guard measurement.is(.string) else { throw .influx(.noMeasurement) }
    let name = bytes(of: measurement)
    if name.isEmpty { throw .influx(.noMeasurement) }
    if name.first == UInt8(ascii: "#") { throw .influx(.comment) }
    try append(name, isMeasurement: true, to: output)
    try append(tags: tags, to: output)
    output.append(UInt8(ascii: " "))
    try append(fields: fields, to: output)
    try append(time: time, to: output)
    output.append(UInt8(ascii: "\n"))
  }

  private func append(tags: Value, to output: OutputBuffer) throws(EncodingFailure) {
    if tags.isAbsent || tags.isNull { return }
    guard tags.is(.map) else { throw .influx(.tagKind) }
    var all: [(name: [UInt8], value: [UInt8])] = []
    for entry in tags.entries {
      let value = parser.expand(entry.value.unwrapped, into: arena)
      switch value.what {
      case .absent, .null: continue
      case .list, .map, .bytes, .type, .error: throw .influx(.tagKind)
      default: break
      }
      let text = Array(bytes(of: value))
      if text.isEmpty { continue }
      all.append((Array(bytes(of: entry.key)), text))
    }
    all.sort { $0.name.lexicographicallyPrecedes($1.name) }
    for tag in all {
      if tag.name.isEmpty { throw .influx(.emptyKey) }
      output.append(UInt8(ascii: ","))
      try append(tag.name, to: output)
      output.append(UInt8(ascii: "="))
      try append(tag.value, to: output)
    }
  }

  private func append(fields: Value, to output: OutputBuffer) throws(EncodingFailure) {
    if fields.isAbsent || fields.isNull { throw .influx(.noField) }
    guard fields.is(.map) else { throw .influx(.fieldKind) }
    var isFirst = true
    for entry in fields.entries {
      let value = parser.expand(entry.value.unwrapped, into: arena)
      if value.isAbsent || value.isNull { continue }
      if !isFirst { output.append(UInt8(ascii: ",")) }
      isFirst = false
      let name = Array(bytes(of: entry.key))
      if name.isEmpty { throw .influx(.emptyKey) }
      try append(name, to: output)
      output.append(UInt8(ascii: "="))
      switch value.what {
      case .int:
        JSONWriter.appendInt(value.asInt, to: output)
        output.append(UInt8(ascii: "i"))
      case .uint:
        JSONWriter.appendUInt(value.asUInt, to: output)
        output.append(UInt8(ascii: "u"))
      case .double:
        guard value.asDouble.isFinite else { throw .influx(.notFinite) }
        if let failure = JSONWriter.append(value, to: output) { throw failure }
      case .bool: output.append(value.asBool ? "true" : "false")
      case .string, .timestamp, .duration: appendQuoted(bytes(of: value), to: output)
      default: throw .influx(.fieldKind)
      }
    }
    if isFirst { throw .influx(.noField) }
  }

  private func append(time: Value, to output: OutputBuffer) throws(EncodingFailure) {
    let number: Int64
    switch time.what {
    case .absent, .null: return
    case .int: number = time.asInt
    case .uint:
      guard let exact = Int64(exactly: time.asUInt) else { throw .influx(.tooLarge) }
      number = exact
    case .timestamp: number = try count(seconds: time.asInt, nanoseconds: time.length)
    case .string:
      guard let read = TimeText.timestamp(bytes(of: time)) else { throw .influx(.time) }
      number = try count(seconds: read.seconds, nanoseconds: read.nanoseconds)
    default: throw .influx(.time)
    }
    output.append(UInt8(ascii: " "))
    JSONWriter.appendInt(number, to: output)
  }

  /// A time in units of the precision, rounded down.
  private func count(seconds: Int64, nanoseconds: UInt32) throws(EncodingFailure) -> Int64 {
    let unit = precision.nanoseconds
    // The factor is at least 1 and at most 1,000,000,000.
    let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000 / unit)
    let (sum, more) = scaled.addingReportingOverflow(Int64(nanoseconds) / unit)
    if overflow || more { throw .influx(.tooLarge) }
    return sum
  }

  /// The text of a value; valid until the next call.
  private func bytes(of value: Value) -> UnsafeRawBufferPointer {
    text.clear()
    _ = appendBare(value, to: text)
    return text.bytes
  }

  /// Appends a measurement, a name or a tag value. A backslash escapes commas, spaces and, except in a measurement,
  /// `=`. A backslash itself has no escape, so one at the end would escape the next character.
  private func append(
    _ text: some Collection<UInt8>, isMeasurement: Bool = false, to output: OutputBuffer
  ) throws(EncodingFailure) {
    var last: UInt8 = 0
    for byte in text {
      switch byte {
      case 0x0A, 0x0D: throw .influx(.lineBreak)
      case UInt8(ascii: ","), UInt8(ascii: " "): output.append(UInt8(ascii: "\\"))
      case UInt8(ascii: "=") where !isMeasurement: output.append(UInt8(ascii: "\\"))
      default: break
      }
      output.append(byte)
      last = byte
    }
    if last == UInt8(ascii: "\\") { throw .influx(.backslash) }
  }

  private func appendQuoted(_ text: UnsafeRawBufferPointer, to output: OutputBuffer) {
    output.append(UInt8(ascii: "\""))
    for byte in text {
      if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { output.append(UInt8(ascii: "\\")) }
      output.append(byte)
    }
    output.append(UInt8(ascii: "\""))
  }
}
