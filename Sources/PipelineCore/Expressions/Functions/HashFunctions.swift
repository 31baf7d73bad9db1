import CDigest

/// The algorithms of `hash` and `hmac`.
enum Digest: String, CaseIterable {
  case md5, sha1, sha224, sha256, sha384, sha512, crc32, xxh3, fnv1a

  /// The algorithms with a key.
  static let keyed: [Digest] = [.md5, .sha1, .sha224, .sha256, .sha384, .sha512]

  init?(_ name: Value) {
    guard name.is(.string) else { return nil }
    self.init(rawValue: String(decoding: name.rawBytes, as: UTF8.self))
  }

  /// The library's number for the algorithm.
  private var number: Int32? {
    switch self {
    case .md5: Int32(RX_MD5)
    case .sha1: Int32(RX_SHA1)
    case .sha224: Int32(RX_SHA224)
    case .sha256: Int32(RX_SHA256)
    case .sha384: Int32(RX_SHA384)
    case .sha512: Int32(RX_SHA512)
    case .crc32, .xxh3, .fnv1a: nil
    }
  }

  /// The digest, or nil if the system's library rejects the algorithm.
  func of(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
    switch self {
    case .crc32: return Self.bigEndian(UInt64(rx_crc32(bytes.baseAddress, bytes.count)), 4)
    case .xxh3: return Self.bigEndian(rx_xxh3(bytes.baseAddress, bytes.count), 8)
    case .fnv1a: return Self.bigEndian(Self.fnv1a(bytes), 8)
    default: break
    }
    guard let number else { return nil }
    var out = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
    let count = rx_digest(number, bytes.baseAddress, bytes.count, &out)
    return count == 0 ? nil : Array(out.prefix(count))
  }

  func of(_ bytes: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer) -> [UInt8]? {
    guard let number else { return nil }
    var out = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
    let count = rx_hmac(number, key.baseAddress, key.count, bytes.baseAddress, bytes.count, &out)
    return count == 0 ? nil : Array(out.prefix(count))
  }

  private static func bigEndian(_ number: UInt64, _ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: number >> UInt64(8 * (count - 1 - $0))) }
  }

  private static func fnv1a(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
  }

  /// The fault of an unknown algorithm, with a suggestion.
  static func fault(_ name: Value, among known: [Digest]) -> (message: String, help: String) {
    let name = String(decoding: name.rawBytes, as: UTF8.self)
    let names = known.map(\.rawValue)
    let nearest = NearestName.of(name, among: names).map { "Did you mean '\($0)'? " } ?? ""
    return ("there is no hash '\(name)'", nearest + "There are \(names.joined(separator: ", ")).")
  }
}

extension FunctionRegistry {
  /// Digests and UUIDs.
  static let hashes: [FunctionSpec] = [
    FunctionSpec(
      "hash", "The hash of a text or of bytes, in hexadecimal digits.",
      [.string, .bytes].flatMap { kind -> [FunctionOverload] in
        [
          .global([kind], .string) { hash($0, .fnv1a) },
          .global([kind, .string], .string, prepare: { known($0, 1, Digest.allCases) }) { arguments in
            guard let way = Digest(arguments[1]) else { return unknown(arguments, arguments[1], Digest.allCases) }
            return hash(arguments, way)
          },
        ]
      },
      examples: [
        ("hash('hello', 'sha256')", "'2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'"),
        ("hash('hello', 'md5')", "'5d41402abc4b2a76b9719d911017c592'"), ("hash('hello', 'crc32')", "'3610a686'"),
        ("hash('a')", "'af63dc4c8601ec8c'"),
      ],
      details:
        """
        The second argument is `md5`, `sha1`, `sha224`, `sha256`, `sha384`, `sha512`, `crc32`, `xxh3` or `fnv1a`. \
        Without it the hash is `fnv1a` with 64 bits: quick, the same in every run, and no secret. `md5` and `sha1` \
        are for compatibility with existing data; use another for new data.
        """
    ),
    FunctionSpec(
      "hmac", "The hash of a text or of bytes with a secret key (RFC 2104), in hexadecimal digits.",
      [.string, .bytes].flatMap { kind in
        [ExpressionType.string, .bytes].map { key in
          .global([kind, key, .string], .string, prepare: { known($0, 2, Digest.keyed) }) { arguments in
            guard let way = Digest(arguments[2]), Digest.keyed.contains(way) else {
              return unknown(arguments, arguments[2], Digest.keyed)
            }
            return hexadecimal(way.of(arguments[0].rawBytes, key: arguments[1].rawBytes), arguments)
          }
        }
      },
      examples: [
        (
          "hmac('what do ya want for nothing?', 'Jefe', 'sha256')",
          "'5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'"
        )
      ],
      details:
        "The third argument is `md5`, `sha1`, `sha224`, `sha256`, `sha384` or `sha512`. For base64 write `base64.encode(hex.decode(hmac(...)))`."
    ),
    uuid(5, .sha1, "uuid.v5('dns', 'example.org')", "'aad03681-8b63-5304-89e0-8ca8f49461b5'"),
    uuid(3, .md5, "uuid.v3('dns', 'example.org')", "'04738bdf-b25a-3829-a801-b21a1d25095b'"),
  ]

  private static func hash(_ arguments: Arguments, _ way: Digest) -> Value {
    hexadecimal(way.of(arguments[0].rawBytes), arguments)
  }

  private static func hexadecimal(_ digest: [UInt8]?, _ arguments: Arguments) -> Value {
    guard let digest else {
      return arguments.context.failure(.invalidArgument, .absent, "this system does not offer the hash")
    }
    return arguments.context.build { buffer in
      for byte in digest { HexText.append(byte, to: buffer) }
    }
  }

  private static func known(
    _ constants: FunctionOverload.Constants, _ index: Int, _ ways: [Digest]
  ) -> FunctionOverload.Preparation {
    guard let name = constants[index], name.is(.string) else { return .none }
    if let way = Digest(name), ways.contains(way) { return .none }
    let fault = Digest.fault(name, among: ways)
    return .fault(index, message: fault.message, help: fault.help)
  }

  private static func unknown(_ arguments: Arguments, _ name: Value, _ ways: [Digest]) -> Value {
    let fault = Digest.fault(name, among: ways)
    return arguments.context.failure(.invalidArgument, .absent, text: fault.message)
  }

  // MARK: UUIDs

  /// The namespaces of RFC 9562 by name; they differ in one byte.
  private static let namespaces: [(name: String, byte: UInt8)] = [
    ("dns", 0x10), ("url", 0x11), ("oid", 0x12), ("x500", 0x14),
  ]

  private static func namespace(_ name: Value) -> [UInt8]? {
    let text = String(decoding: name.rawBytes, as: UTF8.self)
    if let known = namespaces.first(where: { $0.name == text }) {
      return [
        0x6b, 0xa7, 0xb8, known.byte, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8,
      ]
    }
    var bytes: [UInt8] = []
    var high: Int?
    for (at, byte) in name.rawBytes.enumerated() {
      if at == 8 || at == 13 || at == 18 || at == 23 {
        guard byte == 0x2D else { return nil }
        continue
      }
      guard let digit = ASCII.hexValue(byte) else { return nil }
      if let first = high {
        bytes.append(UInt8(truncatingIfNeeded: first << 4 | Int(digit)))
        high = nil
      } else {
        high = Int(digit)
      }
    }
    return bytes.count == 16 && high == nil ? bytes : nil
  }

  private static func uuid(
    _ version: UInt8, _ way: Digest, _ call: String, _ result: String
  ) -> FunctionSpec {
    let fault: FunctionOverload.Prepare = { constants in
      guard let name = constants[0], name.is(.string), namespace(name) == nil else { return .none }
      return .fault(
        0, message: "this is not a namespace of UUIDs", help: "Write 'dns', 'url', 'oid', 'x500' or a UUID.")
    }
    return FunctionSpec(
      "uuid.v\(version)",
      "The UUID of a name in a namespace (version \(version), \(way.rawValue)): the same input gives the same UUID.",
      [
        .global([.string, .string], .string, prepare: fault) { arguments in
          guard var bytes = namespace(arguments[0]) else {
            return arguments.context.failure(.invalidArgument, arguments[0], "no namespace of UUIDs")
          }
          bytes += arguments[1].rawBytes
          guard var digest = bytes.withUnsafeBytes({ way.of($0) }), digest.count >= 16 else {
            return hexadecimal(nil, arguments)
          }
          digest[6] = digest[6] & 0x0F | version << 4
          digest[8] = digest[8] & 0x3F | 0x80
          return arguments.context.build { buffer in
            for (at, byte) in digest.prefix(16).enumerated() {
              if at == 4 || at == 6 || at == 8 || at == 10 { buffer.append(0x2D) }
              HexText.append(byte, to: buffer)
            }
          }
        }
      ], examples: [(call, result)],
      details: "The namespace is `dns`, `url`, `oid`, `x500` or a UUID. Events that arrive twice get the same UUID.")
  }
}

/// Bytes written as two hexadecimal digits each.
package enum HexText {
  static func append(_ byte: UInt8, to buffer: OutputBuffer) {
    for digit in [byte >> 4, byte & 15] { buffer.append(digit < 10 ? 0x30 + digit : 0x57 + digit) }
  }

  package static func text(_ bytes: some Sequence<UInt8>) -> String {
    let buffer = OutputBuffer()
    for byte in bytes { append(byte, to: buffer) }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// The bytes; nil if the text is not made of pairs of digits.
  package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    let digits = text.utf8.map { ASCII.hexValue($0).map { UInt8($0) } }
    guard digits.count.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      bytes.append(high << 4 | low)
    }
    return bytes
  }
}
