/// An IP address: 4 or 16 bytes. An IPv4 address mapped to IPv6 is stored as the IPv4 address.
struct IPAddress: Equatable {
  var bytes: [UInt8]

  var isV4: Bool { bytes.count == 4 }
  var bitCount: Int { bytes.count * 8 }

  init(bytes: [UInt8]) { self.bytes = bytes }

  /// Parses an address without a zone. `isStrict` rejects the mixed notation of a mapped IPv4 address, as CEL does;
  /// otherwise it is accepted, because sockets that serve both families report their peers in it.
  init?(_ text: UnsafeRawBufferPointer, isStrict: Bool = false) {
    guard text.count <= 45 else { return nil }
    if let v4 = Self.v4(text) {
      bytes = v4
      return
    }
    guard let v6 = Self.v6(text) else { return nil }
    let isMapped = v6[0..<10].allSatisfy { $0 == 0 } && v6[10] == 255 && v6[11] == 255
    if isMapped {
      if isStrict, text.contains(0x2E) { return nil }
      bytes = Array(v6[12...])
    } else {
      bytes = v6
    }
  }

  private static func v4(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    let parts = text.split(separator: 0x2E, omittingEmptySubsequences: false)
    guard parts.count == 4 else { return nil }
    var bytes: [UInt8] = []
    for part in parts {
      guard (1...3).contains(part.count), part.count == 1 || part[part.startIndex] != 0x30,
        let value = NumberText.uint(UnsafeRawBufferPointer(rebasing: part)), value < 256
      else { return nil }
      bytes.append(UInt8(value))
    }
    return bytes
  }

  private static func v6(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    var groups: [UInt16] = []
    var gap: Int?
    var at = 0
    if text.count >= 2, text[0] == 0x3A {
      guard text[1] == 0x3A else { return nil }
      gap = 0
      at = 2
    }
    while at < text.count {
      let start = at
      var value: UInt32 = 0
      while at < text.count, let digit = ASCII.hexValue(text[at]) {
        value = value << 4 | digit
        at += 1
        guard at - start <= 4 else { return nil }
      }
      guard at > start else { return nil }
      if at < text.count, text[at] == 0x2E {
        guard let v4 = v4(UnsafeRawBufferPointer(rebasing: text[start...])), groups.count <= 6 else {
          return nil
        }
        groups.append(UInt16(v4[0]) << 8 | UInt16(v4[1]))
        groups.append(UInt16(v4[2]) << 8 | UInt16(v4[3]))
        at = text.count
        break
      }
      groups.append(UInt16(value))
      guard groups.count <= 8 else { return nil }
      guard at < text.count else { break }
      guard text[at] == 0x3A else { return nil }
      at += 1
      guard at < text.count else { return nil }
      if text[at] == 0x3A {
        guard gap == nil else { return nil }
        gap = groups.count
        at += 1
      }
    }
    if let gap {
      guard groups.count < 8 else { return nil }
      groups.insert(contentsOf: Array(repeating: 0, count: 8 - groups.count), at: gap)
    }
    guard groups.count == 8 else { return nil }
    return groups.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }
  }

  /// The canonical text (RFC 5952).
  func append(to buffer: OutputBuffer) {
    if isV4 {
      for (index, byte) in bytes.enumerated() {
        if index > 0 { buffer.append(0x2E) }
        NumberText.append(UInt64(byte), to: buffer)
      }
      return
    }
    let groups = (0..<8).map { UInt16(bytes[2 * $0]) << 8 | UInt16(bytes[2 * $0 + 1]) }
    var best = 0..<0
    var at = 0
    while at < 8 {
      var end = at
      while end < 8, groups[end] == 0 { end += 1 }
      if end - at > max(best.count, 1) { best = at..<end }
      at = max(end, at + 1)
    }
    at = 0
    while at < 8 {
      if at == best.lowerBound, !best.isEmpty {
        buffer.append("::")
        at = best.upperBound
        continue
      }
      if at > 0, at != best.upperBound || best.isEmpty { buffer.append(0x3A) }
      buffer.append(String(groups[at], radix: 16))
      at += 1
    }
  }

  func masked(_ prefix: Int) -> IPAddress {
    var result = bytes
    for index in result.indices {
      let kept = min(max(prefix - index * 8, 0), 8)
      result[index] &= kept == 0 ? 0 : UInt8(truncatingIfNeeded: 0xFF << (8 - kept))
    }
    return IPAddress(bytes: result)
  }

  var isUnspecified: Bool { bytes.allSatisfy { $0 == 0 } }
  var isLoopback: Bool {
    isV4 ? bytes[0] == 127 : bytes[15] == 1 && bytes[0..<15].allSatisfy { $0 == 0 }
  }
  var isMulticast: Bool { isV4 ? bytes[0] & 0xF0 == 0xE0 : bytes[0] == 0xFF }
  var isLinkLocalUnicast: Bool {
    isV4 ? bytes[0] == 169 && bytes[1] == 254 : bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80
  }
  var isLinkLocalMulticast: Bool {
    isV4 ? bytes[0] == 224 && bytes[1] == 0 && bytes[2] == 0 : bytes[0] == 0xFF && bytes[1] & 0x0F == 2
  }
  var isGlobalUnicast: Bool {
    !(isV4 && bytes.allSatisfy { $0 == 255 }) && !isUnspecified && !isLoopback && !isMulticast
      && !isLinkLocalUnicast
  }
}

/// A range of IP addresses: an address and the length of its prefix.
struct IPRange: Equatable {
  var address: IPAddress
  var prefix: Int

  init(address: IPAddress, prefix: Int) {
    self.address = address
    self.prefix = prefix
  }

  /// In a range of mapped addresses, the prefix counts the bits of IPv6.
  init?(_ text: UnsafeRawBufferPointer, isStrict: Bool = false) {
    guard let slash = text.lastIndex(of: 0x2F) else { return nil }
    let digits = UnsafeRawBufferPointer(rebasing: text[(slash + 1)...])
    let written = UnsafeRawBufferPointer(rebasing: text[..<slash])
    guard let address = IPAddress(written, isStrict: isStrict), digits.count <= 3, var prefix = NumberText.uint(digits),
      digits.count == 1 || digits[0] != 0x30
    else { return nil }
    if address.isV4, written.contains(0x3A), written.contains(0x2E) {
      guard prefix >= 96 else { return nil }
      prefix -= 96
    }
    guard prefix <= address.bitCount else { return nil }
    self.address = address
    self.prefix = Int(prefix)
  }

  func append(to buffer: OutputBuffer) {
    address.append(to: buffer)
    buffer.append(0x2F)
    NumberText.append(UInt64(prefix), to: buffer)
  }

  func contains(_ other: IPAddress) -> Bool {
    other.isV4 == address.isV4 && other.masked(prefix) == address.masked(prefix)
  }

  func contains(_ other: IPRange) -> Bool { other.prefix >= prefix && contains(other.address) }
}

extension FunctionRegistry {
  private static let ipType = ExpressionType.abstract("net.IP", [])
  private static let cidrType = ExpressionType.abstract("net.CIDR", [])

  /// Addresses, based on CEL's network extension. The value of an address is its canonical text, so output needs no
  /// conversion.
  static let network: [FunctionSpec] = [
    FunctionSpec(
      "ip", "An IP address from text, or the address of a range.",
      [
        .global([.string], ipType) { arguments in
          IPAddress(arguments[0].rawBytes, isStrict: arguments.context.isStrict).map { make($0, arguments.context) }
            ?? arguments.context.failure(.conversion, arguments[0], "net.IP")
        },
        .member([cidrType], ipType) { make(range($0[0]).address, $0.context) },
      ],
      examples: [("string(ip('2001:DB8::68'))", "'2001:db8::68'"), ("string(ip('::ffff:10.0.0.1'))", "'10.0.0.1'")]),
    FunctionSpec(
      "cidr", "A range of IP addresses from text such as 10.0.0.0/8.",
      [
        .global([.string], cidrType) { arguments in
          IPRange(arguments[0].rawBytes, isStrict: arguments.context.isStrict).map { make($0, arguments.context) }
            ?? arguments.context.failure(.conversion, arguments[0], "net.CIDR")
        }
      ], examples: [("string(cidr('10.0.0.0/8'))", "'10.0.0.0/8'")]),
    FunctionSpec(
      "isIP", "Whether a text is an IP address.",
      [.global([.string], .bool) { .bool(IPAddress($0[0].rawBytes, isStrict: $0.context.isStrict) != nil) }],
      examples: [("isIP('192.168.0.1.0')", "false")]),
    FunctionSpec(
      "isCIDR", "Whether a text is a range of IP addresses.",
      [.global([.string], .bool) { .bool(IPRange($0[0].rawBytes, isStrict: $0.context.isStrict) != nil) }],
      examples: [("isCIDR('10.0.0.0/8')", "true")]),
    FunctionSpec(
      "ip.isCanonical", "Whether a text is an IP address in its canonical form.",
      [
        .global([.string], .bool) { arguments in
          guard let address = IPAddress(arguments[0].rawBytes, isStrict: arguments.context.isStrict) else {
            return arguments.context.failure(.conversion, arguments[0], "net.IP")
          }
          return .bool(Context.equalBytes(make(address, arguments.context), arguments[0]))
        }
      ], examples: [("ip.isCanonical('2001:DB8::68')", "false")]),
    FunctionSpec(
      "family", "4 or 6, the version of the address.",
      [.member([ipType], .int) { .int(address($0[0]).isV4 ? 4 : 6) }],
      examples: [("ip('127.0.0.1').family()", "4")]),
    property("isUnspecified", "Whether the address is 0.0.0.0 or ::.", ("0.0.0.0", "true"), \.isUnspecified),
    property("isLoopback", "Whether the address is that of the host itself.", ("127.0.0.1", "true"), \.isLoopback),
    property(
      "isGlobalUnicast", "Whether the address is one host's, not loopback, link-local or multicast.",
      ("192.168.0.1", "true"), \.isGlobalUnicast),
    property(
      "isLinkLocalMulticast", "Whether the address is multicast on the link.", ("224.0.0.1", "true"),
      \.isLinkLocalMulticast),
    property(
      "isLinkLocalUnicast", "Whether the address is one host's on the link.", ("169.254.1.1", "true"),
      \.isLinkLocalUnicast),
    FunctionSpec(
      "containsIP", "Whether an address lies in the range.",
      [
        .member([cidrType, ipType], .bool) { .bool(range($0[0]).contains(address($0[1]))) },
        .member([cidrType, .string], .bool) { arguments in
          IPAddress(arguments[1].rawBytes, isStrict: arguments.context.isStrict).map {
            .bool(range(arguments[0]).contains($0))
          }
            ?? arguments.context.failure(.conversion, arguments[1], "net.IP")
        },
      ], examples: [("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "true")]),
    FunctionSpec(
      "containsCIDR", "Whether a range lies in the range.",
      [
        .member([cidrType, cidrType], .bool) { .bool(range($0[0]).contains(range($0[1]))) },
        .member([cidrType, .string], .bool) { arguments in
          IPRange(arguments[1].rawBytes, isStrict: arguments.context.isStrict).map {
            .bool(range(arguments[0]).contains($0))
          }
            ?? arguments.context.failure(.conversion, arguments[1], "net.CIDR")
        },
      ], examples: [("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true")]),
    FunctionSpec(
      "masked", "The range with the bits of its address after the prefix cleared.",
      [
        .member([cidrType], cidrType) { arguments in
          let range = range(arguments[0])
          return make(
            IPRange(address: range.address.masked(range.prefix), prefix: range.prefix), arguments.context)
        }
      ], examples: [("string(cidr('10.1.2.3/8').masked())", "'10.0.0.0/8'")]),
    FunctionSpec(
      "prefixLength", "The length of the range's prefix in bits.",
      [.member([cidrType], .int) { .int(range($0[0]).prefix) }],
      examples: [("cidr('10.0.0.0/8').prefixLength()", "8")]),
  ]

  private static func property(
    _ name: String, _ summary: String, _ example: (String, String),
    _ path: KeyPath<IPAddress, Bool> & Sendable
  ) -> FunctionSpec {
    FunctionSpec(
      name, summary, [.member([ipType], .bool) { .bool(address($0[0])[keyPath: path]) }],
      examples: [("ip('\(example.0)').\(name)()", example.1)])
  }

  private static func make(_ address: IPAddress, _ context: Context) -> Value {
    var value = context.build { address.append(to: $0) }
    value.flags = Value.ipFlag
    return value
  }

  private static func make(_ range: IPRange, _ context: Context) -> Value {
    var value = context.build { range.append(to: $0) }
    value.flags = Value.cidrFlag
    return value
  }

  /// `value` must be the result of `make`.
  private static func address(_ value: Value) -> IPAddress {
    IPAddress(value.rawBytes) ?? IPAddress(bytes: [0, 0, 0, 0])
  }

  private static func range(_ value: Value) -> IPRange {
    IPRange(value.rawBytes) ?? IPRange(address: IPAddress(bytes: [0, 0, 0, 0]), prefix: 0)
  }
}
