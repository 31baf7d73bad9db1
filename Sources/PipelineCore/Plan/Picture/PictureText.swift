/// The maximum widths of texts. The pictures use monospaced fonts, in which a character takes at most 0.6 of the size;
/// characters that such a font lacks come from another font.
enum PictureText {
  static let advance = 0.61

  /// The maximum width of a character, relative to the font's size.
  private static func units(_ scalar: Unicode.Scalar) -> Double {
    switch scalar.value {
    case 0x20..<0x250: advance
    case 0x2010...0x2027, 0x2030...0x205E: 0.85
    case 0x300..<0x370, 0x200D, 0xFE00...0xFE0F: 0
    case 0x370..<0x1100: 0.85
    default: scalar.properties.isEmojiPresentation ? 1.5 : 1.15
    }
  }

  static func width(_ text: String, size: Double) -> Double {
    // Whole pixels, so that pictures hold no long fractions.
    (text.unicodeScalars.reduce(0) { $0 + units($1) } * size).rounded(.up)
  }

  /// Whether a part of the text may need another font.
  static func isUnusual(_ text: String) -> Bool {
    text.unicodeScalars.contains { $0.value >= 0x250 && $0 != "…" && $0 != "×" }
  }

  /// As much of the text as fits, with `…` for the rest.
  static func cut(_ text: String, size: Double, to limit: Double) -> String {
    if width(text, size: size) <= limit { return text }
    var used = 0.85 * size
    var result = ""
    for character in text {
      used += character.unicodeScalars.reduce(0) { $0 + units($1) } * size
      if used > limit { break }
      result.append(character)
    }
    while result.last == " " { result.removeLast() }
    return result + "…"
  }
}
