import CJSON

#if canImport(Glibc)
  import Glibc
#endif

/// Guesses the format of an input from its start if the configured decoder does not fit.
enum DecoderAdvice {
  /// The length of the start that is examined.
  static let sampleBytes = 4096

  /// The probable format with advice: `looks like CSV: write 'decode: csv'`. Nil: the decoder may be right.
  ///
  /// - Parameter hasRejected: Whether rows of the sample were rejected. If none were, only formats that the decoder
  ///   certainly misreads are reported.
  static func advice(_ options: DecoderOptions, startingAs input: UnsafeRawBufferPointer, hasRejected: Bool) -> String?
  {
    guard options.readsText else { return nil }
    let sample = input.part(0, min(input.count, sampleBytes))
    if let found = encoding(sample, isCharsetKnown: options.charset != nil) { return found }
    let text = sample.part(sample.byteOrderMarkLength, sample.count)
    let (first, second) = lines(text)
    switch options.format {
    case .json, .ndjson, .jsonDocuments:
      guard options.unit != .row else { return nil }
      if options.format != .jsonDocuments, options.framing == .lines, let form = json(text), form != .lines {
        return "looks like \(form.rawValue): write 'decode: jsonDocuments'"
      }
      return json(text) == nil ? lineFormat(first, second) : nil
    case .csv:
      guard !options.csv.skips else { return nil }
      if let form = json(text) { return form.advice }
      guard options.csv.header == .firstRow || hasRejected else { return nil }
      return delimiter(first, second, besides: options.csv.delimiter).map {
        "looks like CSV with \($0.name) between the fields: write 'decode: { csv: { delimiter: \"\($0.text)\" } }'"
      }
    // A container's line may contain any text, JSON included.
    case .text, .lines, .whole, .bytes, .container: return nil
    default:
      guard hasRejected else { return nil }
      // The advice must never be the format that the file already configures.
      let own = "write 'decode: \(options.format.rawValue)'"
      return json(text)?.advice
        ?? (options.format == .regex ? nil : lineFormat(first, second).flatMap { $0.hasSuffix(own) ? nil : $0 })
    }
  }

  /// Advice for bytes that are not UTF-8 text.
  private static func encoding(_ sample: UnsafeRawBufferPointer, isCharsetKnown: Bool) -> String? {
    guard !isCharsetKnown else { return nil }
    if sample.starts(with: [0xFF, 0xFE]) { return "is UTF-16: write 'charset: utf-16'" }
    if sample.starts(with: [0xFE, 0xFF]) { return "is UTF-16: write 'charset: utf-16'" }
    if sample.starts(with: [0x1F, 0x8B, 0x08]) {
      return "is compressed with gzip: decompress it, or write 'decode: bytes'"
    }
    var zeros = (0, 0)
    var controls = 0
    var index = 0
    while index < sample.count {
      let end = min(index + 8, sample.count)
      if end - index == 8 {
        // Most parts of a text have no control characters: no byte is below 0x20.
        let part = sample.loadUnaligned(fromByteOffset: index, as: UInt64.self)
        if (part &- 0x2020_2020_2020_2020) & ~part & 0x8080_8080_8080_8080 == 0 {
          index = end
          continue
        }
      }
      while index < end {
        let byte = sample[index]
        if byte == 0 { if index & 1 == 0 { zeros.0 += 1 } else { zeros.1 += 1 } }
        if byte < 0x20, byte != 0x09, byte != 0x0A, byte != 0x0D, byte != 0x0C, byte != 0x1B, byte != 0x1E {
          controls += 1
        }
        index += 1
      }
    }
    let half = sample.count / 2
    if half >= 4, zeros.1 * 10 >= half * 8, zeros.0 * 10 < half {
      return "looks like UTF-16: write 'charset: utf-16le'"
    }
    if half >= 4, zeros.0 * 10 >= half * 8, zeros.1 * 10 < half {
      return "looks like UTF-16: write 'charset: utf-16be'"
    }
    if sample.count >= 16, controls * 10 > sample.count { return "is not text: write 'decode: bytes'" }
    // A character that the end of the sample cuts is not an error.
    if let at = UTF8Text.firstError(sample), at + 4 < sample.count, controls == 0 {
      return "is not UTF-8: write 'charset: windows-1252', or the charset that it has"
    }
    return nil
  }

  private enum JSONForm: String {
    case lines = "JSON documents, one a line"
    case several = "JSON documents over several lines"
    case concatenated = "JSON documents one after another"
    var advice: String {
      "looks like \(rawValue): write 'decode: \(self == .lines ? "ndjson" : "jsonDocuments")'"
    }
  }

  private static func json(_ text: UnsafeRawBufferPointer) -> JSONForm? {
    if text.first == 0x1E { return .concatenated }
    var start = 0
    while start < text.count, text.part(start, start + 1).isBlank { start += 1 }
    let body = text.part(start, text.count)
    guard body.first == UInt8(ascii: "{") || body.first == UInt8(ascii: "[") else { return nil }
    // After the bracket, the text must be JSON as well.
    var next = 1
    while next < body.count, body.part(next, next + 1).isBlank { next += 1 }
    guard next < body.count else { return .several }
    switch body[next] {
    case UInt8(ascii: "\""), UInt8(ascii: "}"), UInt8(ascii: "]"): break
    case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "-"), 0x30...0x39, UInt8(ascii: "t"), UInt8(ascii: "f"),
      UInt8(ascii: "n"):
      if body.first == UInt8(ascii: "{") { return nil }
    default: return nil
    }
    let line = body.part(0, body.offset(of: 0x0A) ?? body.count)
    guard let base = line.baseAddress?.assumingMemoryBound(to: CChar.self) else { return nil }
    let end = rx_json_document_end(base, line.count, 0)
    if end <= 0 { return line.count < body.count ? .several : nil }
    return line.part(end, line.count).isBlank ? .lines : .concatenated
  }

  /// The format of lines that are not JSON.
  private static func lineFormat(_ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer) -> String? {
    if isSyslog(first) { return "looks like syslog: write 'decode: syslog'" }
    if isLogfmt(first) { return "looks like logfmt: write 'decode: logfmt'" }
    if let found = delimiter(first, second, besides: nil) {
      return found.text == ","
        ? "looks like CSV: write 'decode: csv'"
        : "looks like CSV with \(found.name) between the fields: write 'decode: { csv: { delimiter: \"\(found.text)\" } }'"
    }
    guard !first.isEmpty else { return nil }
    return "looks like lines of text: write 'decode: text', or 'decode: regex' with a pattern"
  }

  private static func isSyslog(_ line: UnsafeRawBufferPointer) -> Bool {
    guard line.first == UInt8(ascii: "<"), let end = line.offset(of: UInt8(ascii: ">")), 2...4 ~= end else {
      return false
    }
    return line.part(1, end).allSatisfy { 0x30...0x39 ~= $0 }
  }

  /// At least two pairs, and nothing before the first.
  private static func isLogfmt(_ line: UnsafeRawBufferPointer) -> Bool {
    let words = line.split(separator: 0x20)
    func isPair(_ word: Slice<UnsafeRawBufferPointer>) -> Bool {
      guard let sign = word.firstIndex(of: UInt8(ascii: "=")), sign > word.startIndex else { return false }
      return word[..<sign].allSatisfy {
        $0 | 0x20 > 0x60 && $0 | 0x20 < 0x7B || 0x30...0x39 ~= $0 || $0 == 0x5F || $0 == 0x2E
      }
    }
    return words.first.map(isPair) == true && words.count(where: isPair) >= 2
  }

  /// The delimiter that occurs equally often in both lines, other than `besides`.
  private static func delimiter(
    _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, besides known: UInt8?
  ) -> (name: String, text: String)? {
    func count(_ byte: UInt8, _ line: UnsafeRawBufferPointer) -> Int { line.count { $0 == byte } }
    if let known, count(known, first) > 0 { return nil }
    for (byte, name, text) in [
      (UInt8(ascii: ","), "a comma", ","), (UInt8(ascii: ";"), "a semicolon", ";"),
      (UInt8(ascii: "\t"), "a tab", "\\t"),
      (UInt8(ascii: "|"), "'|'", "|"),
    ] where byte != known {
      let found = count(byte, first)
      if found > 0, found == count(byte, second) { return (name, text) }
    }
    return nil
  }

  /// The first two lines that are not blank.
  private static func lines(_ text: UnsafeRawBufferPointer) -> (UnsafeRawBufferPointer, UnsafeRawBufferPointer) {
    var found: [UnsafeRawBufferPointer] = []
    _ = text.forEachLine(
      from: 0,
      while: { line, _ in
        if !line.isBlank { found.append(line) }
        return found.count < 2
      })
    let none = UnsafeRawBufferPointer(start: nil, count: 0)
    return (found.first ?? none, found.count > 1 ? found[1] : none)
  }
}
