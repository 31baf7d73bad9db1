/// The text of one file, with an index of its lines.
public final class SourceText: Sendable {
  /// The name that the user gave; without a file, `<stdin>` or `<expression>`.
  public let name: String
  /// The name of text from standard input.
  package static let standardInputName = "<stdin>"
  /// The whole text, UTF-8 unless a diagnostic says otherwise.
  public let bytes: [UInt8]
  /// Byte offset of the first byte of each line.
  private let lineStarts: [Int]
  /// The use of a template, a repetition or an include that produced this copy of the text; nil for the text itself.
  package let origin: Diagnostic.Note?

  /// A copy of the text for `origin`.
  package init(_ other: SourceText, origin: Diagnostic.Note) {
    name = other.name
    bytes = other.bytes
    lineStarts = other.lineStarts
    self.origin = origin
  }

  package init(name: String, bytes: [UInt8]) {
    self.name = name
    origin = nil
    self.bytes = bytes
    var starts = [0]
    for (index, byte) in bytes.enumerated() where byte == 0x0A { starts.append(index + 1) }
    lineStarts = starts
  }

  package convenience init(name: String, text: String) {
    self.init(name: name, bytes: Array(text.utf8))
  }

  /// Line and column of a byte offset, both from 1; columns count Unicode code points.
  package func position(at offset: Int) -> (line: Int, column: Int) {
    let offset = min(max(offset, 0), bytes.count)
    var low = 0
    var high = lineStarts.count - 1
    while low < high {
      let middle = (low + high + 1) / 2
      if lineStarts[middle] <= offset { low = middle } else { high = middle - 1 }
    }
    var column = 1
    for byte in bytes[lineStarts[low]..<offset] where byte & 0xC0 != 0x80 { column += 1 }
    return (low + 1, column)
  }

  /// The byte range of line `number` (from 1) without its line break.
  package func lineRange(_ number: Int) -> Range<Int> {
    guard number >= 1, number <= lineStarts.count else { return bytes.count..<bytes.count }
    let start = lineStarts[number - 1]
    var end = number < lineStarts.count ? lineStarts[number] - 1 : bytes.count
    if end > start, bytes[end - 1] == 0x0D { end -= 1 }
    return start..<end
  }

  /// The name of a preset's text is this prefix and the preset's name.
  package static let presetPrefix = "preset:"

  /// Whether this is the original text of a preset.
  package var isOfPreset: Bool { name.hasPrefix(Self.presetPrefix) }

  /// The preset that this text, or the text it was copied from, belongs to; nil if there is none.
  package var preset: String? {
    var text: SourceText? = self
    while let one = text {
      if one.isOfPreset { return String(one.name.dropFirst(Self.presetPrefix.count)) }
      text = one.origin?.location?.text
    }
    return nil
  }

  /// The text of the pipeline file that leads to this copy through templates and included files; the text itself if it
  /// is not a copy.
  package var outermost: SourceText {
    var text = self
    while let other = text.origin?.location?.text { text = other }
    return text
  }

  package var lineCount: Int { lineStarts.count }
}

/// A range of bytes in a file. A `length` of 0 means a point.
public struct SourceLocation: Sendable, Equatable {
  /// The text that contains the range.
  public var text: SourceText
  /// The offset of the first byte, from 0.
  public var offset: Int
  /// The number of bytes; 0 for a point between two bytes.
  public var length: Int

  package init(_ text: SourceText, offset: Int, length: Int = 0) {
    self.text = text
    self.offset = offset
    self.length = length
  }

  /// The line, from 1.
  public var line: Int { text.position(at: offset).line }
  /// The column of the first byte, from 1.
  public var column: Int { text.position(at: offset).column }

  public static func == (a: SourceLocation, b: SourceLocation) -> Bool {
    a.text.name == b.text.name && a.offset == b.offset && a.length == b.length
  }
}

extension SourceLocation: CustomStringConvertible {
  /// `file:line:column`, both from 1.
  public var description: String {
    let position = text.position(at: offset)
    return "\(text.name):\(position.line):\(position.column)"
  }
}

/// A text inside a file, with the location of every byte in the file.
///
/// The text of an expression in a block scalar, in quotes, or after interpolation is not a slice of the file:
/// `offsets[i]` is the file offset of byte `i` of ``text``, and `offsets[count]` that of its end.
package struct LocatedText: Sendable, Equatable {
  package var text: [UInt8]
  package var source: SourceText
  package var offsets: [Int32]
  /// How the file quotes the text: a fix must be escaped accordingly.
  package enum Quoting: Sendable {
    /// As in a block scalar: every character is literal.
    case none
    /// Without quotes: some characters would end the text or change its kind.
    case plain
    case single, double
  }
  package var quoting = Quoting.none
  /// The secret parts of ``text``, in order: they must not be printed. Print ``shown``.
  package var secrets: [Range<Int>] = []
  /// The parts of ``text`` that replaced a `${...}`, in order; each of their bytes has the offset of that `${...}`.
  package var insertions: [Range<Int>] = []
  /// Whether a secret was inserted.
  package var isSecret: Bool { !secrets.isEmpty }

  /// `offsets` must have one element more than `text`.
  package init(text: [UInt8], source: SourceText, offsets: [Int32]) {
    self.text = text
    self.source = source
    self.offsets = offsets
  }

  /// A text that is a file of its own.
  package init(_ text: String, name: String = "<expression>") {
    self.text = Array(text.utf8)
    source = SourceText(name: name, bytes: self.text)
    offsets = (0...Int32(self.text.count)).map { $0 }
  }

  package var string: String { String(decoding: text, as: UTF8.self) }

  /// The file location of bytes `start ..< end` of the text; for inserted text, the whole `${...}`.
  package func location(_ start: Int, _ end: Int) -> SourceLocation {
    let start = min(max(start, 0), text.count)
    let end = min(max(end, start), text.count)
    let from = Int(offsets[start])
    var to = end > start ? Int(offsets[end - 1]) + 1 : from
    if end > start, let insertion = insertions.first(where: { $0.contains(end - 1) }) {
      to = max(to, Int(offsets[insertion.upperBound]))
    }
    return SourceLocation(source, offset: from, length: max(to - from, 0))
  }

  /// The part from `start` to `end`, with its locations.
  package func slice(_ start: Int, _ end: Int) -> LocatedText {
    var part = LocatedText(text: Array(text[start..<end]), source: source, offsets: Array(offsets[start...end]))
    part.quoting = quoting == .plain ? .none : quoting
    func within(_ range: Range<Int>) -> Range<Int>? {
      let (from, to) = (max(range.lowerBound, start), min(range.upperBound, end))
      return from < to ? from - start..<to - start : nil
    }
    part.secrets = secrets.compactMap(within)
    part.insertions = insertions.compactMap(within)
    return part
  }

  /// The text with `(secret)` in place of each secret, for printing.
  package var shown: [UInt8] { shown(0, text.count) }

  /// Bytes `start ..< end` of the text, with `(secret)` in place of each secret that overlaps them.
  package func shown(_ start: Int, _ end: Int) -> [UInt8] {
    var result: [UInt8] = []
    var at = start
    for secret in secrets where secret.lowerBound < end && secret.upperBound > start {
      if at < secret.lowerBound { result += text[at..<secret.lowerBound] }
      result += Self.mask.utf8
      at = max(at, secret.upperBound)
    }
    if at < end { result += text[at..<end] }
    return result
  }

  /// The text that is printed in place of a secret.
  package static let mask = "(secret)"

  /// A diagnostic of this text. If it concerns a secret, or quotes a part of one, its message and help are removed,
  /// because either may quote the secret; the code and the location stay.
  package func concealing(_ diagnostic: Diagnostic) -> Diagnostic {
    guard isSecret else { return diagnostic }
    let words =
      ([diagnostic.message, diagnostic.help ?? ""] + diagnostic.notes.map(\.message)
      + diagnostic.fixIts.map(\.replacement)).map { Array($0.utf8) }
    // Messages truncate and escape what they quote, so even a short part of a secret counts as a quotation.
    let quotes = secrets.contains { secret in
      let value = text[secret]
      let size = min(value.count, 4)
      return stride(from: value.startIndex, through: value.endIndex - size, by: 1).contains { start in
        let piece = value[start..<start + size]
        return words.contains { $0.firstRange(of: piece) != nil }
      }
    }
    let isAbout = secrets.contains { secret in
      guard let location = diagnostic.location, location.text === source else { return false }
      let offset = Int(offsets[secret.lowerBound])
      return location.offset <= offset && offset < location.offset + max(location.length, 1)
    }
    guard quotes || isAbout else { return diagnostic }
    return Diagnostic(
      diagnostic.code, "a text with a secret in it does not fit here; the reason would show the secret",
      at: diagnostic.location, severity: diagnostic.severity, help: diagnostic.code.summary)
  }

  /// A fix that replaces bytes `start ..< end` by `replacement`, escaped for the quotes around the text.
  package func fix(_ start: Int, _ end: Int, _ replacement: String) -> Diagnostic.FixIt {
    var written = replacement
    switch quoting {
    case .none: break
    case .plain:
      let all = Array(text[..<min(start, text.count)]) + Array(replacement.utf8) + Array(text[min(end, text.count)...])
      if Self.needsQuotes(replacement, isFirst: start == 0), !text.contains(0x0A) {
        let whole = Self.escaped(
          Self.escaped(String(decoding: all, as: UTF8.self), "\\", with: "\\"), "\"", with: "\\")
        return Diagnostic.FixIt(location, "\"\(whole)\"")
      }
    case .single: written = Self.escaped(replacement, "'", with: "'")
    case .double: written = Self.escaped(Self.escaped(replacement, "\\", with: "\\"), "\"", with: "\\")
    }
    return Diagnostic.FixIt(location(start, end), written)
  }

  /// A fix that replaces the whole text, including its quotes in the file, by `replacement` in double quotes: for a
  /// text that contains quotes.
  package func rewritten(_ replacement: String) -> Diagnostic.FixIt {
    var replaced = location
    let mark: UInt8? = quoting == .single ? 0x27 : quoting == .double ? 0x22 : nil
    let end = replaced.offset + replaced.length
    if let mark, replaced.offset > 0, end < source.bytes.count, source.bytes[replaced.offset - 1] == mark,
      source.bytes[end] == mark
    {
      replaced.offset -= 1
      replaced.length += 2
    }
    guard quoting != .none else { return Diagnostic.FixIt(replaced, replacement) }
    let escaped = Self.escaped(Self.escaped(replacement, "\\", with: "\\"), "\"", with: "\\")
    return Diagnostic.FixIt(replaced, "\"\(escaped)\"")
  }

  /// Whether YAML would read a text without quotes as something else.
  private static func needsQuotes(_ text: String, isFirst: Bool) -> Bool {
    let bytes = Array(text.utf8)
    if isFirst, let first = bytes.first, "!&*|>@`%#'\"-?[{".utf8.contains(first) { return true }
    if bytes.contains(where: { ",[]{}".utf8.contains($0) }) { return true }
    return zip(bytes, bytes.dropFirst()).contains { $0 == (0x3A, 0x20) || $0 == (0x20, 0x23) }
  }

  package static func escaped(_ text: String, _ mark: Unicode.Scalar, with escape: Unicode.Scalar) -> String {
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      if scalar == mark { result.append(escape) }
      result.append(scalar)
    }
    return String(result)
  }

  /// The location of the whole text.
  package var location: SourceLocation { location(0, text.count) }

  package static func == (a: LocatedText, b: LocatedText) -> Bool {
    a.text == b.text && a.source.name == b.source.name && a.offsets.first == b.offsets.first
  }
}
