/// Classifies single bytes of texts.
enum ASCII {
  static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }

  static func isLetterOrUnderscore(_ byte: UInt8) -> Bool {
    (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte == 0x5F
  }

  /// Whether a byte needs no escape anywhere in a URL (RFC 3986, unreserved): letters, digits and `-._~`.
  @inline(__always)
  static func isUnreserved(_ byte: UInt8) -> Bool {
    isLetterOrUnderscore(byte) || isDigit(byte) || byte == 0x2D || byte == 0x2E || byte == 0x7E
  }

  /// The hexadecimal digit of a number below 16, in upper case.
  @inline(__always)
  static func hexDigit(_ number: UInt8) -> UInt8 { number < 10 ? 0x30 + number : 0x37 + number }

  /// The value of a hexadecimal digit; nil for any other byte.
  static func hexValue(_ byte: UInt8) -> UInt32? {
    switch byte {
    case 0x30...0x39: UInt32(byte - 0x30)
    case 0x41...0x46: UInt32(byte - 0x41 + 10)
    case 0x61...0x66: UInt32(byte - 0x61 + 10)
    default: nil
    }
  }
}

extension Sequence<UInt8> {
  /// Whether the text contains `{{`; without it, the text is not a template. Faster than the standard library's search,
  /// which prepares a table.
  var hasOpeningBraces: Bool {
    var followsBrace = false
    for byte in self {
      if byte == 0x7B, followsBrace { return true }
      followsBrace = byte == 0x7B
    }
    return false
  }
}
