/// A set of code points.
struct RegexSet: Hashable, Sendable {
  /// One item of a class.
  struct Part: Hashable, Sendable {
    var ranges: [ClosedRange<UInt32>] = []
    /// Unicode's general categories, one bit each; see ``RegexSet/bit(_:)``.
    var categories: UInt32 = 0
    var isNegated = false
    /// Whether letters match in either case.
    var isFolded = false
  }

  var parts: [Part]
  var isNegated = false
  /// Whether the set also matches an invalid UTF-8 byte, which no code point matches.
  var matchesInvalid = false

  /// The pseudo code point of an invalid UTF-8 byte.
  static let invalid = UInt32.max

  init(_ parts: [Part], isNegated: Bool = false) {
    self.parts = parts
    self.isNegated = isNegated
  }

  init(_ ranges: ClosedRange<UInt32>..., folded: Bool = false) {
    parts = [Part(ranges: ranges, isFolded: folded)]
  }

  init(_ scalar: UInt32, folded: Bool = false) {
    parts = [Part(ranges: [scalar...scalar], isFolded: folded)]
  }

  /// Every code point, and every invalid byte.
  static let everything: Self = {
    var set = Self(0...0x10FFFF)
    set.matchesInvalid = true
    return set
  }()
  static let allButNewline = Self([Part(ranges: [0x0A...0x0A])], isNegated: true)

  func contains(_ scalar: UInt32) -> Bool {
    if scalar == Self.invalid { return matchesInvalid }
    return parts.contains { $0.contains(scalar) } != isNegated
  }

  /// Whether a code point beyond ASCII is in the set by itself, or by a range or category.
  var namesNonASCII: Bool {
    parts.contains { part in part.categories != 0 || part.ranges.contains { $0.upperBound > 0x7F } }
  }

  static func bit(_ category: Unicode.GeneralCategory) -> UInt32 {
    let index: UInt32 =
      switch category {
      case .uppercaseLetter: 0
      case .lowercaseLetter: 1
      case .titlecaseLetter: 2
      case .modifierLetter: 3
      case .otherLetter: 4
      case .nonspacingMark: 5
      case .spacingMark: 6
      case .enclosingMark: 7
      case .decimalNumber: 8
      case .letterNumber: 9
      case .otherNumber: 10
      case .connectorPunctuation: 11
      case .dashPunctuation: 12
      case .openPunctuation: 13
      case .closePunctuation: 14
      case .initialPunctuation: 15
      case .finalPunctuation: 16
      case .otherPunctuation: 17
      case .mathSymbol: 18
      case .currencySymbol: 19
      case .modifierSymbol: 20
      case .otherSymbol: 21
      case .spaceSeparator: 22
      case .lineSeparator: 23
      case .paragraphSeparator: 24
      case .control: 25
      case .format: 26
      case .surrogate: 27
      case .privateUse: 28
      case .unassigned: 29
      @unknown default: 29
      }
    return 1 << index
  }

  /// The general categories by their names in patterns.
  static let categories: [String: UInt32] = {
    let all: [(String, Unicode.GeneralCategory)] = [
      ("Lu", .uppercaseLetter), ("Ll", .lowercaseLetter), ("Lt", .titlecaseLetter), ("Lm", .modifierLetter),
      ("Lo", .otherLetter), ("Mn", .nonspacingMark), ("Mc", .spacingMark), ("Me", .enclosingMark),
      ("Nd", .decimalNumber), ("Nl", .letterNumber), ("No", .otherNumber), ("Pc", .connectorPunctuation),
      ("Pd", .dashPunctuation), ("Ps", .openPunctuation), ("Pe", .closePunctuation), ("Pi", .initialPunctuation),
      ("Pf", .finalPunctuation), ("Po", .otherPunctuation), ("Sm", .mathSymbol), ("Sc", .currencySymbol),
      ("Sk", .modifierSymbol), ("So", .otherSymbol), ("Zs", .spaceSeparator), ("Zl", .lineSeparator),
      ("Zp", .paragraphSeparator), ("Cc", .control), ("Cf", .format), ("Co", .privateUse), ("Cn", .unassigned),
    ]
    var result: [String: UInt32] = [:]
    for (name, category) in all {
      result[name] = bit(category)
      result[String(name.prefix(1)), default: 0] |= bit(category)
    }
    return result
  }()
}

extension RegexSet.Part {
  func contains(_ scalar: UInt32) -> Bool {
    let found = holds(scalar) || (isFolded && otherCases(scalar))
    return found != isNegated
  }

  private func holds(_ scalar: UInt32) -> Bool {
    for range in ranges where range.contains(scalar) { return true }
    guard categories != 0, let scalar = Unicode.Scalar(scalar) else { return false }
    return RegexSet.bit(scalar.properties.generalCategory) & categories != 0
  }

  private func otherCases(_ scalar: UInt32) -> Bool {
    if scalar < 0x80 {
      guard (scalar | 0x20) >= 0x61, (scalar | 0x20) <= 0x7A else { return false }
      if holds(scalar ^ 0x20) { return true }
      // The long s (U+017F) and the kelvin sign (U+212A) are case variants of ASCII letters.
      if scalar | 0x20 == 0x73 { return holds(0x17F) }
      if scalar | 0x20 == 0x6B { return holds(0x212A) }
      return false
    }
    guard let scalar = Unicode.Scalar(scalar) else { return false }
    func only(_ text: String) -> Unicode.Scalar? {
      text.unicodeScalars.count == 1 ? text.unicodeScalars.first : nil
    }
    let upper = only(scalar.properties.uppercaseMapping) ?? scalar
    let lower = only(upper.properties.lowercaseMapping) ?? scalar
    return holds(upper.value) || holds(lower.value)
      || only(scalar.properties.lowercaseMapping).map { holds($0.value) } ?? false
  }
}

/// A parsed regular expression.
indirect enum RegexTree: Sendable {
  enum Assertion: Hashable, Sendable {
    case beginText, endText, beginLine, endLine
    case wordBoundary(Bool)
    /// Whether the code point before or after is in the set, compared with the flag; at the ends of the text there is
    /// none.
    case behind(RegexSet, Bool)
    case ahead(RegexSet, Bool)
  }

  case empty
  case set(RegexSet)
  case sequence([RegexTree])
  case choice([RegexTree])
  /// `most`: nil for any number.
  case repetition(RegexTree, least: Int, most: Int?, isGreedy: Bool)
  /// The group's number, from 1.
  case group(Int, RegexTree)
  case assertion(Assertion)
  /// Once matched, its contents are not matched in another way; `at` is its offset.
  case atomic(RegexTree, at: Int)

  /// Whether it can match the empty text.
  var isNullable: Bool {
    switch self {
    case .empty, .assertion: true
    case .set: false
    case .sequence(let all): all.allSatisfy(\.isNullable)
    case .choice(let all): all.contains(where: \.isNullable)
    case .repetition(let inner, let least, _, _): least == 0 || inner.isNullable
    case .group(_, let inner), .atomic(let inner, _): inner.isNullable
    }
  }
}

/// Why a pattern cannot be used.
struct RegexFault: Error {
  var message: String
  /// The byte offset in the pattern, if known.
  var offset: Int?
  var help: String?

  /// A fault that is not at the parser's position; `offset` is nil if it has no position.
  init(message: String, offset: Int? = nil, help: String? = nil) {
    self.message = message
    self.offset = offset
    self.help = help
  }
}
