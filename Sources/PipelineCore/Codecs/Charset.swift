#if canImport(Glibc)
  import Glibc
#endif

/// The encoding of an input's characters, if it is not UTF-8.
package struct Charset: Sendable, Equatable {
  enum Kind: Sendable, Equatable {
    /// Each byte is the code point of the same value.
    case latin1
    case windows1252
    /// Code units of two bytes. Nil: a byte order mark determines their order; without one they are little-endian.
    case utf16(isBig: Bool?)
    /// Converted by the C library, line by line. The charset must encode line feeds and letters as ASCII does.
    case library
  }

  /// In lower case.
  package let name: String
  let kind: Kind
  /// The maximum length in bytes of a line of UTF-16.
  package var maxLine = 1 << 20

  /// The names of charsets that need no library.
  package static let builtin = [
    "utf-8", "utf-16", "utf-16le", "utf-16be", "iso-8859-1", "latin1", "windows-1252", "cp1252",
  ]

  /// The names of ISO 8859-1, in which each byte is one character.
  package static let namesOfLatin1 = ["latin1", "iso-8859-1", "latin-1"]

  /// Whether the name stands for UTF-8.
  package static func isUTF8(_ name: String) -> Bool {
    ["utf-8", "utf8", "us-ascii", "ascii"].contains(name.lowercased())
  }

  package init(_ name: String) throws(CodecFailure) {
    let lower = name.lowercased()
    self.name = lower
    switch lower {
    case "utf-16", "utf16": kind = .utf16(isBig: nil)
    case "utf-16le", "utf16le": kind = .utf16(isBig: false)
    case "utf-16be", "utf16be": kind = .utf16(isBig: true)
    case let name where Self.namesOfLatin1.contains(name): kind = .latin1
    case "windows-1252", "cp1252": kind = .windows1252
    default:
      kind = .library
      guard lower.utf8.count <= 64, lower.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") }),
        let converter = CharsetConverter(lower)
      else {
        throw CodecFailure(
          option: "charset", message: "there is no charset '\(Printable.cut(name))'",
          help:
            "Write a name such as utf-16le, latin1, windows-1252 or shift_jis; 'iconv -l' lists those of this system")
      }
      let letters = Array("\n\"',;0123456789=[]{}ABCXYZabcxyz".utf8)
      guard letters.withUnsafeBytes({ converter.convert($0, replacing: false) }).text == letters else {
        throw CodecFailure(
          option: "charset",
          message: "'\(name)' does not extend ASCII, so it is not supported",
          help: "Convert the input with iconv(1), as the program of an 'exec' source")
      }
    }
  }

  package var isUTF16: Bool { !keepsLineFeeds }

  /// Whether a line feed is a single byte, so that lines are found before they are converted.
  var keepsLineFeeds: Bool { if case .utf16 = kind { false } else { true } }
}

/// Converts to UTF-8 with the C library. Not thread-safe.
final class CharsetConverter {
  private let handle: iconv_t

  /// Nil if the library does not have the charset.
  init?(_ name: String) {
    guard let handle = iconv_open("UTF-8", name), Int(bitPattern: handle) != -1 else { return nil }
    self.handle = handle
  }

  deinit { iconv_close(handle) }

  /// Returns the text in UTF-8 and the offset of the first invalid byte, or nil. With `replacing`, each invalid byte becomes U+FFFD.
  func convert(_ input: UnsafeRawBufferPointer, replacing: Bool) -> (text: [UInt8], fault: Int?) {
    iconv(handle, nil, nil, nil, nil)
    var text: [UInt8] = []
    var fault: Int?
    let piece = 4096
    var copy = [CChar](unsafeUninitializedCapacity: input.count + 1) { buffer, count in
      for (index, byte) in input.enumerated() { buffer[index] = CChar(bitPattern: byte) }
      count = input.count
    }
    copy.append(0)
    copy.withUnsafeMutableBufferPointer { source in
      guard let base = source.baseAddress else { return }
      var next: UnsafeMutablePointer<CChar>? = base
      var rest = input.count
      while true {
        var written = 0
        var code: Int32 = 0
        var ended = false
        let more = [UInt8](unsafeUninitializedCapacity: piece) { buffer, count in
          buffer.withMemoryRebound(to: CChar.self) { room in
            var out = room.baseAddress
            var left = piece
            // A call without input writes the closing sequence of charsets with shift states.
            let result = rest > 0 ? iconv(handle, &next, &rest, &out, &left) : iconv(handle, nil, nil, &out, &left)
            code = result == -1 ? errno : 0
            ended = rest == 0 && code == 0
            written = piece - left
          }
          count = written
        }
        text += more
        if ended { return }
        if code == EILSEQ || code == EINVAL, rest > 0, let at = next {
          fault = fault ?? at - base
          guard replacing else { return }
          text += [0xEF, 0xBF, 0xBD]
          next = at + 1
          rest -= 1
          if rest == 0 { return }
        } else if code != 0, code != E2BIG {
          return
        }
      }
    }
    return (text, fault)
  }
}

extension Charset {
  /// The characters of windows-1252 from 0x80 to 0x9F. Its five undefined bytes are read as control characters, as
  /// browsers do.
  static let windows: [UInt32] = [
    0x20AC, 0x81, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D, 0x017D,
    0x8F,
    0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D, 0x017E,
    0x0178,
  ]

  static func append(_ scalar: UInt32, to text: inout [UInt8]) {
    switch scalar {
    case 0..<0x80: text.append(UInt8(scalar))
    case 0x80..<0x800:
      text.append(UInt8(0xC0 | scalar >> 6))
      text.append(UInt8(0x80 | scalar & 0x3F))
    case 0x800..<0x1_0000:
      text.append(UInt8(0xE0 | scalar >> 12))
      text.append(UInt8(0x80 | scalar >> 6 & 0x3F))
      text.append(UInt8(0x80 | scalar & 0x3F))
    default:
      text.append(UInt8(0xF0 | scalar >> 18 & 0x07))
      text.append(UInt8(0x80 | scalar >> 12 & 0x3F))
      text.append(UInt8(0x80 | scalar >> 6 & 0x3F))
      text.append(UInt8(0x80 | scalar & 0x3F))
    }
  }
}
