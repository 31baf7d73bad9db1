/// How comma-separated values are written.
package struct CSVEncoding: Sendable, Equatable {
  /// The columns. Nil: the keys of the first event; an event with any other key is then rejected, so that no data is
  /// lost silently. With named columns, other keys are left out on purpose.
  package var columns: [String]?
  /// Whether the first row names the columns.
  package var header = true
  /// One ASCII character.
  package var delimiter: UInt8 = UInt8(ascii: ",")
  /// One ASCII character.
  package var quote: UInt8 = UInt8(ascii: "\"")

  package init() {}
}

/// `csv`: the members of a map by column, the elements of a list in order. Absent and null are empty fields, the empty
/// string is `""`; nested lists and maps become JSON. Rows end with a line feed.
final class CSVEncoder: EventEncoder {
  /// The header, and the columns if the first event determines them.
  var keepsState: Bool { true }

  private let options: CSVEncoding
  private var columns: FieldNames?
  private var headerIsDue: Bool
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()

  init(_ options: CSVEncoding) throws(CodecFailure) {
    if options.delimiter == options.quote || [0, 0x0A, 0x0D].contains(options.delimiter)
      || options.delimiter >= 0x80 || [0, 0x0A, 0x0D].contains(options.quote) || options.quote >= 0x80
    {
      throw CodecFailure(
        option: "delimiter",
        message: "delimiter and quote must be two different ASCII characters, no line breaks")
    }
    if let columns = options.columns, columns.isEmpty || Set(columns.map { Array($0.utf8) }).count < columns.count {
      throw CodecFailure(option: "columns", message: "there must be at least one column, and their names must differ")
    }
    self.options = options
    columns = options.columns.map { FieldNames($0.map { Array($0.utf8) }) }
    headerIsDue = options.header
  }

  var mediaType: String { "text/csv; charset=utf-8" }

  func reset() {
    headerIsDue = options.header
    if options.columns == nil { columns = nil }
  }

  /// The columns, once an event has determined them or their header is written.
  var memory: [String] {
    guard let columns, !headerIsDue || options.columns == nil else { return [] }
    return columns.keys.map { String(decoding: $0.rawBytes, as: UTF8.self) }
  }

  func goOn(after memory: [String]) -> Bool {
    if memory.isEmpty { return true }
    if let own = options.columns, own != memory { return false }
    columns = FieldNames(memory.map { Array($0.utf8) })
    headerIsDue = false
    return true
  }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let value = parser.expand(value, into: arena)
    if value.is(.error) { return .error }
    let start = output.count
    let failure = value.is(.map) ? appendMap(value, to: output) : appendList(value, to: output)
    if failure != nil { output.truncate(to: start) }
    return failure
  }

  func appendHeader(to output: OutputBuffer) {
    if let columns { appendNames(columns, to: output) }
  }

  private func appendNames(_ columns: FieldNames, to output: OutputBuffer) {
    for (index, key) in columns.keys.enumerated() {
      if index > 0 { output.append(options.delimiter) }
      appendText(key.rawBytes, to: output)
    }
    output.append(UInt8(ascii: "\n"))
  }

  private func appendList(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    guard value.is(.list) else { return .kind(value.what) }
    var first = true
    for element in value.elements {
      if !first { output.append(options.delimiter) }
      first = false
      if let failure = appendField(element, to: output) { return failure }
    }
    output.append(UInt8(ascii: "\n"))
    return nil
  }

  private func appendMap(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let entries = value.entries
    let columns: FieldNames
    if let known = self.columns {
      columns = known
    } else {
      for entry in entries where !entry.key.is(.string) { return .key(entry.key.what) }
      if entries.isEmpty { return .kind(.map) }
      columns = FieldNames(entries.map { Array(JSONParser.unescape($0.key, into: arena).rawBytes) })
    }
    if headerIsDue { appendNames(columns, to: output) }
    var used = 0
    for (index, key) in columns.keys.enumerated() {
      if index > 0 { output.append(options.delimiter) }
      guard let member = find(key.rawBytes, in: entries, near: index) else { continue }
      used += 1
      if let failure = appendField(member, to: output) { return failure }
    }
    if options.columns == nil, used < entries.count { return .unknownColumn }
    output.append(UInt8(ascii: "\n"))
    self.columns = columns
    headerIsDue = false
    return nil
  }

  /// Members mostly have the order of the columns, so the search starts at the last hit.
  private func find(
    _ key: UnsafeRawBufferPointer, in entries: UnsafeBufferPointer<Entry>, near index: Int
  ) -> Value? {
    func matches(_ entry: Entry) -> Bool {
      entry.key.is(.string) && JSONParser.unescape(entry.key, into: arena).rawBytes.equals(key)
    }
    if index < entries.count, matches(entries[index]) { return entries[index].value }
    return entries.first(where: matches)?.value
  }

  private func appendField(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let value = value.unwrapped
    switch value.what {
    case .absent, .null: return nil
    case .string:
      appendText(JSONParser.unescape(value, into: arena).rawBytes, to: output)
      return nil
    case .bool, .int, .uint: return JSONWriter.append(value, to: output)
    case .double where value.asDouble.isFinite: return JSONWriter.append(value, to: output)
    default:
      text.clear()
      if let failure = JSONWriter.append(value, to: text) { return failure }
      var bytes = text.bytes
      // Timestamps, durations and "NaN" are JSON strings, and are written without their quotes.
      if bytes.count >= 2, bytes[0] == UInt8(ascii: "\"") { bytes = bytes.part(1, bytes.count - 1) }
      appendText(bytes, to: output)
      return nil
    }
  }

  private func appendText(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    let quote = options.quote
    let plain =
      !bytes.isEmpty
      && !bytes.contains { $0 == options.delimiter || $0 == quote || $0 == 0x0A || $0 == 0x0D }
    if plain {
      output.append(bytes)
      return
    }
    output.append(quote)
    var at = 0
    while let found = bytes.offset(of: quote, from: at) {
      output.append(bytes.part(at, found + 1))
      output.append(quote)
      at = found + 1
    }
    output.append(bytes.part(at, bytes.count))
    output.append(quote)
  }
}
