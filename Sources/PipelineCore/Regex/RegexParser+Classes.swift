/// Bracket expressions.
extension RegexParser {
  mutating func bracket() throws(RegexFault) -> RegexSet {
    let start = at
    at += 1
    var set = RegexSet([])
    set.isNegated = pass("^")
    var isFirst = true
    var hasBracket = false
    while true {
      guard at < bytes.count else { throw fault("missing ]", at: start) }
      if bytes[at] == UInt8(ascii: "]"), !isFirst {
        at += 1
        if hasBracket, peek("]") {
          throw fault("'[' inside a class is ambiguous", help: "Write \\[ for the bracket itself.", at: start)
        }
        return set
      }
      isFirst = false
      if peek("[:"), let part = try posixClass() {
        set.parts.append(part)
        continue
      }
      if dialect == .grok, peek("&&") {
        throw fault("'&&', the intersection of two classes, is not supported", help: "Write the characters themselves.")
      }
      if dialect == .grok, bytes[at] == UInt8(ascii: "["), let inner = try nested() {
        set.parts += inner
        continue
      }
      if bytes[at] == UInt8(ascii: "\\") {
        at += 1
        if let part = try classEscape() {
          set.parts.append(part)
          continue
        }
        at -= 1
      }
      if dialect == .grok, bytes[at] == UInt8(ascii: "[") { hasBracket = true }
      let low = try bound(start)
      var high = low
      if peek("-"), at + 1 < bytes.count, bytes[at + 1] != UInt8(ascii: "]") {
        let start = at
        at += 1
        if dialect == .grok, bytes[at] == UInt8(ascii: "\\"), at + 1 < bytes.count,
          "dDwWsShHpP".utf8.contains(bytes[at + 1])
        {
          // `[a-\d]`: the hyphen is literal.
          at = start
        } else {
          high = try bound(start)
          guard low <= high else { throw fault("a range of characters is in the wrong order", at: start) }
        }
      }
      set.parts.append(.init(ranges: [low...high], isFolded: flags.foldsCase))
    }
  }

  private mutating func bound(_ start: Int) throws(RegexFault) -> UInt32 {
    if bytes[at] == UInt8(ascii: "\\") {
      at += 1
      if dialect == .grok, at < bytes.count, bytes[at] == UInt8(ascii: "b") {
        at += 1
        return 0x08
      }
      return try escapedScalar(start)
    }
    return try scalar()
  }

  /// Reads a class within a class, as in `[[[:alnum:]]_%]`; nil if the bracket is literal.
  private mutating func nested() throws(RegexFault) -> [RegexSet.Part]? {
    guard peek("[[:") else { return nil }
    let start = at
    let set = try bracket()
    if set.isNegated {
      throw fault(
        "a negated class inside a class is not supported", help: "Write the characters themselves.", at: start)
    }
    return set.parts
  }

  private mutating func posixClass() throws(RegexFault) -> RegexSet.Part? {
    let start = at
    var next = at + 2
    let isNegated = next < bytes.count && bytes[next] == UInt8(ascii: "^")
    if isNegated { next += 1 }
    guard let colon = bytes[min(next, bytes.count)...].firstIndex(of: UInt8(ascii: ":")), colon + 1 < bytes.count,
      bytes[colon + 1] == UInt8(ascii: "]")
    else { return nil }
    let name = String(decoding: bytes[next..<colon], as: UTF8.self)
    guard var part = posix(name) else { throw fault("there is no class of characters '[:\(name):]'", at: start) }
    part.isNegated = isNegated
    at = colon + 2
    return part
  }

  func posix(_ name: String) -> RegexSet.Part? {
    var part: RegexSet.Part
    let unicode: [String]
    switch name {
    case "alpha": (part, unicode) = (.init(ranges: [0x41...0x5A, 0x61...0x7A]), ["L", "M"])
    case "alnum": (part, unicode) = (.init(ranges: [0x30...0x39, 0x41...0x5A, 0x61...0x7A]), ["L", "M", "Nd"])
    case "upper": (part, unicode) = (.init(ranges: [0x41...0x5A]), ["Lu"])
    case "lower": (part, unicode) = (.init(ranges: [0x61...0x7A]), ["Ll"])
    case "word": (part, unicode) = (wordPart, [])
    case "digit": (part, unicode) = (Self.digits, [])
    case "xdigit": (part, unicode) = (Self.hexadecimal, [])
    case "space": (part, unicode) = (.init(ranges: [0x09...0x0D, 0x20...0x20]), [])
    case "blank": (part, unicode) = (.init(ranges: [0x09...0x09, 0x20...0x20]), [])
    case "cntrl": (part, unicode) = (.init(ranges: [0x00...0x1F, 0x7F...0x7F]), [])
    case "graph": (part, unicode) = (.init(ranges: [0x21...0x7E]), ["L", "M", "N", "P", "S"])
    case "print": (part, unicode) = (.init(ranges: [0x20...0x7E]), ["L", "M", "N", "P", "S", "Zs"])
    case "punct":
      (part, unicode) = (.init(ranges: [0x21...0x2F, 0x3A...0x40, 0x5B...0x60, 0x7B...0x7E]), ["P"])
    case "ascii": (part, unicode) = (.init(ranges: [0x00...0x7F]), [])
    default: return nil
    }
    if dialect == .grok { for one in unicode { part.categories |= RegexSet.categories[one] ?? 0 } }
    part.isFolded = flags.foldsCase
    return part
  }
}
