import PipelineCore
import Storage

/// The HTTP protocol between `rxd run --replicate` and `rxd standby`:
///
/// | request | answer |
/// |---|---|
/// | `GET /` | 200 |
/// | `GET /stores/NAME?store=` | 200 and the position of the copy |
/// | `PUT /stores/NAME/log?store=&salt=&from=&after=&whole=`, frames as the body | 204; 409 and the position that they do not continue |
/// | `PUT /stores/NAME/file?store=&offset=&total=&sending=&whole=`, a piece of the file as the body | likewise |
///
/// `store` is the identity of the store, a hexadecimal number. 423: another store of this name was sent in the last minute. 410: the
/// standby has been promoted. A position is ``LogPosition/text`` or `none`. Every request carries the version of the
/// protocol; other versions are refused with 400.
enum StandbyProtocol {
  static let version = "2"
  static let versionHeader = "rxd-standby"
  /// The maximum body: more than the largest piece with the log's header.
  static let bodyBytes = 5 << 20

  static func text(_ position: LogPosition?) -> String {
    position?.text ?? "none"
  }

  /// Parses a position; the outer nil: the text is not one.
  static func position(_ text: some StringProtocol) -> LogPosition?? {
    if text == "none" { return .some(nil) }
    return LogPosition(text: text).map { .some($0) }
  }

  /// A pipeline's name as a segment of a path.
  static func segment(_ name: String) -> String {
    name.utf8.map { byte in
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "_"): String(UnicodeScalar(byte))
      default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
      }
    }.joined()
  }

  /// The name in a segment; nil: it cannot be a file name in the directory of the stores.
  static func name(_ segment: some StringProtocol) -> String? {
    var bytes: [UInt8] = []
    var rest = Array(segment.utf8)[...]
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "%") else {
        bytes.append(byte)
        continue
      }
      guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
        return nil
      }
      bytes.append(value)
      rest = rest.dropFirst(2)
    }
    guard !bytes.isEmpty, bytes.count <= 200, bytes.first != UInt8(ascii: "."), !bytes.contains(UInt8(ascii: "/")),
      !bytes.contains(0)
    else { return nil }
    return String(validating: bytes, as: UTF8.self)
  }
}
