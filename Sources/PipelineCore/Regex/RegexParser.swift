/// Parses a regular expression.
///
/// The dialect `re2` parses a part of RE2's syntax with exactly RE2's meaning, and throws for the rest; the caller must
/// have compiled the pattern with RE2 before. The dialect `grok` parses grok patterns: `%{NAME}`, and those of
/// Oniguruma's extensions that an automaton supports.
struct RegexParser {
  enum Dialect: Sendable { case re2, grok }

  /// Resolves `%{...}` and named groups; unnamed groups capture nothing in grok.
  protocol Resolver: AnyObject {
    /// The number of a new group with this name; nil if it captures nothing.
    func group(named name: String, at offset: Int) throws(RegexFault) -> Int?
    /// The tree for the text between `%{` and `}`.
    func reference(_ inside: String, _ parser: borrowing RegexParser) throws(RegexFault) -> RegexTree
  }

  struct Flags {
    var foldsCase = false
    var dotMatchesNewline = false
    var linesAnchor = false
    var isUngreedy = false
  }

  static let mostRepetitions = 1000
  private static let deepest = 250

  let dialect: Dialect
  let bytes: [UInt8]
  var at = 0
  private(set) var flags: Flags
  private(set) var depth: Int
  private let resolver: (any Resolver)?
  private(set) var groupCount = 0

  init(_ bytes: [UInt8], _ dialect: Dialect, flags: Flags? = nil, depth: Int = 0, _ resolver: (any Resolver)? = nil) {
    self.bytes = bytes
    self.dialect = dialect
    self.resolver = resolver
    self.depth = depth
    self.flags =
      flags ?? Flags(dotMatchesNewline: dialect == .grok, linesAnchor: dialect == .grok)
  }

  /// Parses the whole pattern.
  mutating func parse() throws(RegexFault) -> RegexTree {
    let tree = try alternatives()
    if at < bytes.count { throw fault("there is a ')' without its '('") }
    return tree
  }

  func fault(_ message: String, help: String? = nil, at offset: Int? = nil) -> RegexFault {
    RegexFault(message: message, offset: offset ?? at, help: help)
  }

  func peek(_ text: StaticString) -> Bool {
    let count = text.utf8CodeUnitCount
    guard bytes.count - at >= count else { return false }
    for index in 0..<count where bytes[at + index] != text.utf8Start[index] { return false }
    return true
  }

  mutating func pass(_ text: StaticString) -> Bool {
    guard peek(text) else { return false }
    at += text.utf8CodeUnitCount
    return true
  }

  // MARK: Structure

  private mutating func alternatives() throws(RegexFault) -> RegexTree {
    depth += 1
    defer { depth -= 1 }
    guard depth < Self.deepest else { throw fault("the pattern is nested too deeply") }
    var all: [RegexTree] = [try sequence()]
    while pass("|") { all.append(try sequence()) }
    return all.count == 1 ? all[0] : .choice(all)
  }

  private mutating func sequence() throws(RegexFault) -> RegexTree {
    var all: [RegexTree] = []
    while at < bytes.count, !peek("|"), !peek(")") {
      let start = at
      guard var item = try item() else { continue }
      var count = 0
      while let repeated = try repetition(of: item, at: start) {
        if dialect == .re2, count > 0 { throw fault("a repetition of a repetition") }
        item = repeated
        count += 1
      }
      all.append(item)
    }
    return all.count == 1 ? all[0] : all.isEmpty ? .empty : .sequence(all)
  }

  /// `item` with the quantifier at this offset, or nil if there is none.
  private mutating func repetition(of item: RegexTree, at start: Int) throws(RegexFault) -> RegexTree? {
    guard at < bytes.count else { return nil }
    var least = 0
    var most: Int?
    var isCounted = false
    switch bytes[at] {
    case UInt8(ascii: "*"): at += 1
    case UInt8(ascii: "+"):
      least = 1
      at += 1
    case UInt8(ascii: "?"):
      most = 1
      at += 1
    case UInt8(ascii: "{"):
      guard let bounds = bounds() else { return nil }
      (least, most) = bounds
      isCounted = true
      guard least <= Self.mostRepetitions, most ?? 0 <= Self.mostRepetitions else {
        throw fault("a repetition of more than \(Self.mostRepetitions)", at: start)
      }
      if let most, most < least { throw fault("the bounds of a repetition are in the wrong order", at: start) }
    default: return nil
    }
    if pass("?") { return .repetition(item, least: least, most: most, isGreedy: flags.isUngreedy) }
    let tree = RegexTree.repetition(item, least: least, most: most, isGreedy: !flags.isUngreedy)
    if dialect == .grok, !isCounted, pass("+") { return .atomic(tree, at: start) }
    return tree
  }

  /// Parses `{2}`, `{2,}`, `{2,3}`, in grok also `{,3}`; nil if the brace is literal.
  private mutating func bounds() -> (Int, Int?)? {
    var next = at + 1
    func number() -> Int? {
      let start = next
      var value = 0
      while next < bytes.count, ASCII.isDigit(bytes[next]) {
        value = min(value &* 10 &+ Int(bytes[next] - 0x30), 1_000_000)
        next += 1
      }
      return next > start ? value : nil
    }
    let first = number()
    guard next < bytes.count else { return nil }
    if bytes[next] == UInt8(ascii: "}") {
      guard let first else { return nil }
      at = next + 1
      return (first, first)
    }
    guard bytes[next] == UInt8(ascii: ",") else { return nil }
    next += 1
    let second = number()
    guard next < bytes.count, bytes[next] == UInt8(ascii: "}") else { return nil }
    guard first != nil || (dialect == .grok && second != nil) else { return nil }
    at = next + 1
    return (first ?? 0, second)
  }

  /// Parses one item that a quantifier may follow; nil for items that match nothing: flags, a comment.
  private mutating func item() throws(RegexFault) -> RegexTree? {
    let byte = bytes[at]
    switch byte {
    case UInt8(ascii: "("): return try parenthesis()
    case UInt8(ascii: "["): return .set(try bracket())
    case UInt8(ascii: "."):
      at += 1
      return .set(flags.dotMatchesNewline ? RegexSet(0...0x10FFFF) : .allButNewline)
    case UInt8(ascii: "^"):
      at += 1
      return .assertion(flags.linesAnchor ? .beginLine : .beginText)
    case UInt8(ascii: "$"):
      at += 1
      return .assertion(flags.linesAnchor ? .endLine : .endText)
    case UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "?"):
      throw fault("there is nothing to repeat before '\(Character(Unicode.Scalar(byte)))'")
    case UInt8(ascii: "\\"): return try escape()
    case UInt8(ascii: "%"):
      if dialect == .grok, peek("%{") { return try reference() }
    default: break
    }
    return .set(literal(try scalar()))
  }

  private func literal(_ scalar: UInt32) -> RegexSet { RegexSet(scalar, folded: flags.foldsCase) }

  /// The code point at this offset.
  mutating func scalar() throws(RegexFault) -> UInt32 {
    let (scalar, length) = bytes.withUnsafeBytes { UTF8Scalar.read($0, at) }
    guard scalar != RegexSet.invalid else { throw fault("the pattern is not UTF-8") }
    at += length
    return scalar
  }

  private mutating func reference() throws(RegexFault) -> RegexTree {
    let start = at
    guard let close = bytes[at...].firstIndex(of: UInt8(ascii: "}")) else {
      throw fault("'%{' is not closed", help: "Write %{NAME} or %{NAME:field}.")
    }
    let inside = String(decoding: bytes[at + 2..<close], as: UTF8.self)
    at = close + 1
    guard let resolver else { throw fault("named patterns are not available here", at: start) }
    return try resolver.reference(inside, self)
  }

  private mutating func parenthesis() throws(RegexFault) -> RegexTree? {
    let start = at
    at += 1
    guard pass("?") else {
      if dialect == .grok { return try rest(start) }
      groupCount += 1
      let number = groupCount
      return .group(number, try rest(start))
    }
    if pass(":") { return try rest(start) }
    if pass("P<") { return try named(close: UInt8(ascii: ">"), start) }
    guard dialect == .grok else { return try flagged(start) }
    if pass("#") {
      guard let close = bytes[at...].firstIndex(of: UInt8(ascii: ")")) else {
        throw fault("'(?#' is not closed", at: start)
      }
      at = close + 1
      return nil
    }
    if pass(">") { return .atomic(try rest(start), at: start) }
    for (text, isAhead, isPositive) in [
      ("=", true, true), ("!", true, false), ("<=", false, true), ("<!", false, false),
    ] {
      guard bytes[at...].starts(with: text.utf8) else { continue }
      at += text.utf8.count
      guard let set = Self.single(try rest(start)) else {
        throw fault(
          "'(?\(text)...)' can look at one character only",
          help: "Put a class there, as in (?\(text)[0-9]), or match the text itself, outside the field.", at: start)
      }
      return .assertion(isAhead ? .ahead(set, isPositive) : .behind(set, isPositive))
    }
    if pass("<") { return try named(close: UInt8(ascii: ">"), start) }
    if pass("'") { return try named(close: UInt8(ascii: "'"), start) }
    for (text, what) in [
      ("(", "a condition"), ("~", "an absence"), ("&", "a call of a group"), ("P=", "a reference to a group"),
      ("P>", "a call of a group"), ("|", "a branch reset"),
    ] where bytes[at...].starts(with: text.utf8) {
      throw fault("'(?\(text)', \(what), is not supported: patterns are matched in linear time", at: start)
    }
    return try flagged(start)
  }

  private mutating func rest(_ start: Int) throws(RegexFault) -> RegexTree {
    let outer = flags
    let tree = try alternatives()
    flags = outer
    guard pass(")") else { throw fault("missing )", at: start) }
    return tree
  }

  private mutating func named(close: UInt8, _ start: Int) throws(RegexFault) -> RegexTree {
    guard let end = bytes[at...].firstIndex(of: close), end > at else {
      throw fault("the name of a group is empty or not closed", at: start)
    }
    let name = String(decoding: bytes[at..<end], as: UTF8.self)
    at = end + 1
    if let resolver {
      let number = try resolver.group(named: name, at: start)
      let inner = try rest(start)
      return number.map { .group($0, inner) } ?? inner
    }
    groupCount += 1
    let number = groupCount
    return .group(number, try rest(start))
  }

  /// Parses `(?i)` and `(?i:...)`.
  private mutating func flagged(_ start: Int) throws(RegexFault) -> RegexTree? {
    var changed = flags
    var value = true
    while at < bytes.count {
      let byte = bytes[at]
      at += 1
      switch byte {
      case UInt8(ascii: "i"): changed.foldsCase = value
      case UInt8(ascii: "s"): changed.dotMatchesNewline = value
      case UInt8(ascii: "m"):
        if dialect == .grok {
          // In Oniguruma the flag `m` changes `.`; `^` and `$` always match at line boundaries.
          changed.dotMatchesNewline = value
        } else {
          changed.linesAnchor = value
        }
      case UInt8(ascii: "U") where dialect == .re2: changed.isUngreedy = value
      case UInt8(ascii: "x") where dialect == .grok:
        if value { throw fault("the flag 'x', free spacing, is not supported", at: start) }
      case UInt8(ascii: "-") where value: value = false
      case UInt8(ascii: ")"):
        flags = changed
        return nil
      case UInt8(ascii: ":"):
        let outer = flags
        flags = changed
        let tree = try alternatives()
        flags = outer
        guard pass(")") else { throw fault("missing )", at: start) }
        return tree
      default:
        throw fault("'(?' is followed by neither a group nor a flag", help: "The flags are i, m and s.", at: start)
      }
    }
    throw fault("missing )", at: start)
  }

  /// The set of a tree that matches exactly one code point.
  private static func single(_ tree: RegexTree) -> RegexSet? {
    switch tree {
    case .set(let set): return set
    case .choice(let all):
      var parts: [RegexSet.Part] = []
      for one in all {
        guard let set = single(one), !set.isNegated || set.parts.count == 1 else { return nil }
        if set.isNegated {
          var part = set.parts[0]
          part.isNegated.toggle()
          parts.append(part)
        } else {
          parts += set.parts
        }
      }
      return RegexSet(parts)
    default: return nil
    }
  }

  // MARK: Escapes

  static let digits = RegexSet.Part(ranges: [0x30...0x39])
  static let hexadecimal = RegexSet.Part(ranges: [0x30...0x39, 0x41...0x46, 0x61...0x66])

  var wordPart: RegexSet.Part { Self.wordPart(dialect) }
  private var spacePart: RegexSet.Part {
    dialect == .grok
      ? .init(ranges: [0x09...0x0D, 0x20...0x20]) : .init(ranges: [0x09...0x0A, 0x0C...0x0D, 0x20...0x20])
  }

  /// The meaning of `\w`: in grok letters, marks and digits of every script.
  static func wordPart(_ dialect: Dialect) -> RegexSet.Part {
    let ascii: [ClosedRange<UInt32>] = [0x30...0x39, 0x41...0x5A, 0x5F...0x5F, 0x61...0x7A]
    guard dialect == .grok else { return .init(ranges: ascii) }
    let all = ["L", "M", "N", "Pc"].reduce(0) { $0 | (RegexSet.categories[$1] ?? 0) }
    return .init(ranges: ascii, categories: all)
  }

  /// Parses a class with a backslash, such as `\d` and `\pL`; `at` is after the backslash.
  mutating func classEscape() throws(RegexFault) -> RegexSet.Part? {
    guard at < bytes.count else { return nil }
    var part: RegexSet.Part
    switch bytes[at] | 0x20 {
    case UInt8(ascii: "d"): part = Self.digits
    case UInt8(ascii: "w"): part = wordPart
    case UInt8(ascii: "s"): part = spacePart
    case UInt8(ascii: "h") where dialect == .grok: part = Self.hexadecimal
    case UInt8(ascii: "p"): return try property()
    default: return nil
    }
    part.isFolded = flags.foldsCase
    part.isNegated = bytes[at] & 0x20 == 0
    at += 1
    return part
  }

  private mutating func property() throws(RegexFault) -> RegexSet.Part {
    let start = at - 1
    // RE2 has Unicode tables of its own.
    guard dialect == .grok else { throw fault("a Unicode class") }
    var isNegated = bytes[at] == UInt8(ascii: "P")
    at += 1
    var name = ""
    if pass("{") {
      if pass("^") { isNegated.toggle() }
      guard let close = bytes[at...].firstIndex(of: UInt8(ascii: "}")) else {
        throw fault("'\\p{' is not closed", at: start)
      }
      name = String(decoding: bytes[at..<close], as: UTF8.self)
      at = close + 1
    } else if at < bytes.count {
      name = String(decoding: bytes[at..<at + 1], as: UTF8.self)
      at += 1
    }
    if let mask = RegexSet.categories[name] { return .init(categories: mask, isNegated: isNegated) }
    if var part = posix(name.lowercased()) {
      part.isNegated = isNegated
      return part
    }
    throw fault(
      "there is no class of characters '\(name)'",
      help: "Unicode's general categories are supported, as in \\p{L} and \\p{Nd}; scripts are not.", at: start)
  }

  private mutating func escape() throws(RegexFault) -> RegexTree? {
    let start = at
    at += 1
    guard at < bytes.count else { throw fault("the pattern ends in a backslash", at: start) }
    if let part = try classEscape() { return .set(RegexSet([part])) }
    switch bytes[at] {
    case UInt8(ascii: "A"):
      at += 1
      return .assertion(.beginText)
    case UInt8(ascii: "z"):
      at += 1
      return .assertion(.endText)
    case UInt8(ascii: "b"):
      at += 1
      return .assertion(.wordBoundary(true))
    case UInt8(ascii: "B"):
      // RE2 also finds such a boundary between the bytes of a code point.
      if dialect == .re2 { throw fault("no word boundary") }
      at += 1
      return .assertion(.wordBoundary(false))
    case UInt8(ascii: "Q") where dialect == .re2: throw fault("a quotation")
    case UInt8(ascii: "C") where dialect == .re2: throw fault("a single byte")
    case UInt8(ascii: "R") where dialect == .grok:
      at += 1
      return .choice([.sequence([.set(RegexSet(0x0D)), .set(RegexSet(0x0A))]), .set(RegexSet(0x0A...0x0D))])
    case UInt8(ascii: "Z") where dialect == .grok:
      throw fault("'\\Z' is not possible", help: "Write $ for the end of a line, \\z for that of the text.", at: start)
    case UInt8(ascii: "1")...UInt8(ascii: "9") where dialect == .grok, UInt8(ascii: "k") where dialect == .grok,
      UInt8(ascii: "g") where dialect == .grok:
      throw fault(
        "'\\\(Character(Unicode.Scalar(bytes[at])))', a reference to a group, is not supported: patterns are matched in linear time",
        at: start)
    case UInt8(ascii: "G") where dialect == .grok, UInt8(ascii: "K") where dialect == .grok,
      UInt8(ascii: "X") where dialect == .grok:
      throw fault("'\\\(Character(Unicode.Scalar(bytes[at])))' is not possible", at: start)
    default: return .set(literal(try escapedScalar(start)))
    }
  }

  /// Parses the escape of a code point; `at` is after the backslash.
  mutating func escapedScalar(_ start: Int) throws(RegexFault) -> UInt32 {
    guard at < bytes.count else { throw fault("the pattern ends in a backslash", at: start) }
    let byte = bytes[at]
    switch byte {
    case UInt8(ascii: "n"):
      at += 1
      return 0x0A
    case UInt8(ascii: "t"):
      at += 1
      return 0x09
    case UInt8(ascii: "r"):
      at += 1
      return 0x0D
    case UInt8(ascii: "f"):
      at += 1
      return 0x0C
    case UInt8(ascii: "v"):
      at += 1
      return 0x0B
    case UInt8(ascii: "a"):
      at += 1
      return 0x07
    case UInt8(ascii: "e") where dialect == .grok:
      at += 1
      return 0x1B
    case UInt8(ascii: "x"):
      at += 1
      return try hexadecimal(most: 2, start)
    case UInt8(ascii: "u") where dialect == .grok:
      at += 1
      return try hexadecimal(most: 4, start)
    case UInt8(ascii: "0"):
      // At most two more octal digits follow.
      var value: UInt32 = 0
      var count = 0
      while at < bytes.count, count < 3, bytes[at] >= 0x30, bytes[at] <= 0x37 {
        value = value * 8 + UInt32(bytes[at] - 0x30)
        at += 1
        count += 1
      }
      return value
    default:
      if ASCII.isDigit(byte) || ASCII.isLetterOrUnderscore(byte) && byte != UInt8(ascii: "_") {
        throw fault("there is no escape '\\\(Character(Unicode.Scalar(byte)))'", at: start)
      }
      return try scalar()
    }
  }

  private mutating func hexadecimal(most: Int, _ start: Int) throws(RegexFault) -> UInt32 {
    var value: UInt32 = 0
    var count = 0
    let isBraced = pass("{")
    while at < bytes.count, let digit = Character(Unicode.Scalar(bytes[at])).hexDigitValue, isBraced || count < most {
      value = min(value &* 16 &+ UInt32(digit), 0x1000000)
      at += 1
      count += 1
    }
    guard count > 0, isBraced || count == most, !isBraced || pass("}"), Unicode.Scalar(value) != nil else {
      throw fault("a code point is written with hexadecimal digits, as \\x{1F600}", at: start)
    }
    return value
  }
}
