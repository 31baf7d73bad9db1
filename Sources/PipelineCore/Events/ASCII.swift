/// Classifies single bytes of texts.
enum ASCII {
  static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }

  static func isLetterOrUnderscore(_ byte: UInt8) -> Bool {
    (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte == 0x5F
  }

  /// The value of a hexadecimal digit; nil if it is none.
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
  /// Whether the text contains `{{`, without which it is no template. Faster than the standard library's search, which prepares a table.
  var hasOpeningBraces: Bool {
    var followsBrace = false
    for byte in self {
      if byte == 0x7B, followsBrace { return true }
      followsBrace = byte == 0x7B
    }
    return false
  }
}
