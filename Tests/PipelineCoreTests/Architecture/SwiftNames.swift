/// The names that a Swift file declares and uses, as far as its text shows. Comments and the text of literals do not count;
/// interpolations are code.
struct SwiftNames {
  /// The types that it declares, including nested ones.
  private(set) var types: Set<String> = []
  /// The top-level types that it declares.
  private(set) var offeredTypes: Set<String> = []
  /// The functions, variables and cases that it declares at any level, including local ones.
  private(set) var values: Set<String> = []
  /// Members of extensions that other files can use, and global functions and variables.
  private(set) var additions: Set<String> = []
  /// Identifiers that start with a capital letter.
  private(set) var usedTypes: Set<String> = []
  /// Other names after a dot or before a parenthesis, and bare names that are not labels or parameters here.
  private(set) var usedValues: Set<String> = []

  init(_ text: String) {
    let tokens = Array(text.utf8).withUnsafeBufferPointer { SwiftTokens($0).tokens }
    readDeclarations(tokens)
    readUses(tokens)
  }

  private enum Scope {
    case type
    case addition
    case code
  }

  private static let typeWords: Set<String> = ["class", "struct", "enum", "protocol", "actor", "extension"]
  private static let valueWords: Set<String> = ["func", "var", "let", "case"]

  private mutating func readDeclarations(_ tokens: [SwiftTokens.Token]) {
    var scopes: [Scope] = []
    var next = Scope.code
    var isPrivate = false
    for (index, token) in tokens.enumerated() {
      let following = index + 1 < tokens.count ? tokens[index + 1].text : ""
      switch token.text {
      case "{":
        scopes.append(next)
        (next, isPrivate) = (.code, false)
      case "}":
        _ = scopes.popLast()
        (next, isPrivate) = (.code, false)
      case "private", "fileprivate": isPrivate = following != "("
      case let word where token.isBehindDot || !(Self.typeWords.contains(word) || Self.valueWords.contains(word)):
        if word == "typealias", !following.isEmpty { declareType(following, outside: scopes.isEmpty) }
      case "extension": next = isPrivate ? .type : .addition
      case let word where Self.typeWords.contains(word):
        // `class func` and `any class` do not declare a type.
        guard following.first?.isUppercase == true else { continue }
        declareType(following, outside: scopes.isEmpty)
        next = .type
      default:
        guard let first = following.first, first.isLowercase || first == "_" else { continue }
        values.insert(following)
        if token.text == "case", scopes.last.map({ $0 != .code }) ?? false { readCases(tokens, from: index + 2) }
        if !isPrivate, scopes.last.map({ $0 == .addition }) ?? true { additions.insert(following) }
        isPrivate = false
      }
    }
  }

  /// The other cases of one line: `case a(Int), b, c`.
  private mutating func readCases(_ tokens: [SwiftTokens.Token], from start: Int) {
    var depth = 0
    var isName = false
    for token in tokens[start...] {
      switch token.text {
      case "(": depth += 1
      case ")": depth -= 1
      case ",": isName = depth == 0
      case _ where depth > 0: continue
      case let name where isName:
        values.insert(name)
        isName = false
      default: return
      }
    }
  }

  private mutating func declareType(_ name: String, outside: Bool) {
    types.insert(name)
    if outside { offeredTypes.insert(name) }
  }

  private mutating func readUses(_ tokens: [SwiftTokens.Token]) {
    var alone: Set<String> = []
    var labels: Set<String> = []
    for (index, token) in tokens.enumerated() {
      guard let first = token.text.first, first.isLetter || first == "_" else { continue }
      let following = index + 1 < tokens.count ? tokens[index + 1] : nil
      if first.isUppercase {
        usedTypes.insert(token.text)
      } else if token.isBehindDot || following?.text == "(" {
        usedValues.insert(token.text)
      } else if following?.text == ":" || following?.text == "in" {
        labels.insert(token.text)
      } else {
        alone.insert(token.text)
      }
    }
    usedValues.formUnion(alone.subtracting(labels))
  }
}

/// Identifiers, keywords, braces, parentheses, commas and colons of a Swift file.
struct SwiftTokens {
  struct Token {
    var text: String
    var isBehindDot: Bool
  }

  private(set) var tokens: [Token] = []
  private let bytes: UnsafeBufferPointer<UInt8>
  private var at = 0

  init(_ bytes: UnsafeBufferPointer<UInt8>) {
    self.bytes = bytes
    read(untilParenthesis: false)
  }

  private func byte(_ offset: Int = 0) -> UInt8 { at + offset < bytes.count ? bytes[at + offset] : 0 }

  private static func isWord(_ byte: UInt8) -> Bool {
    byte == UInt8(ascii: "_") || byte >= 0x80
      || (byte | 0x20) >= UInt8(ascii: "a") && (byte | 0x20) <= UInt8(ascii: "z")
      || byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9")
  }

  /// Reads code to the end, or to the parenthesis that ends an interpolation.
  private mutating func read(untilParenthesis: Bool) {
    var depth = 0
    var isBehindDot = false
    while at < bytes.count {
      let current = bytes[at]
      switch current {
      case UInt8(ascii: "/") where byte(1) == UInt8(ascii: "/"):
        while at < bytes.count, bytes[at] != UInt8(ascii: "\n") { at += 1 }
        continue
      case UInt8(ascii: "/") where byte(1) == UInt8(ascii: "*"):
        while at < bytes.count, !(byte() == UInt8(ascii: "*") && byte(1) == UInt8(ascii: "/")) { at += 1 }
        at += 2
        continue
      case UInt8(ascii: "#") where byte(1) == UInt8(ascii: "/"):
        at += 2
        while at < bytes.count, !(byte() == UInt8(ascii: "/") && byte(1) == UInt8(ascii: "#")) { at += 1 }
        at += 2
        continue
      case UInt8(ascii: "\""), UInt8(ascii: "#"):
        if !readText() { at += 1 }
        isBehindDot = false
        continue
      case _ where Self.isWord(current):
        let start = at
        while at < bytes.count, Self.isWord(bytes[at]) { at += 1 }
        tokens.append(
          Token(text: String(decoding: bytes[start..<at], as: UTF8.self), isBehindDot: isBehindDot))
        isBehindDot = false
        continue
      case UInt8(ascii: "("): depth += 1
      case UInt8(ascii: ")"):
        if untilParenthesis, depth == 0 {
          at += 1
          return
        }
        depth -= 1
      default: break
      }
      switch current {
      case UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "("), UInt8(ascii: ")"), UInt8(ascii: ","),
        UInt8(ascii: ":"):
        // A colon after a space belongs to `? :` or to an inheritance list.
        if current != UInt8(ascii: ":") || at > 0 && Self.isWord(bytes[at - 1]) {
          tokens.append(Token(text: String(UnicodeScalar(current)), isBehindDot: false))
        }
      default: break
      }
      // `0..<count` is a range, not a member.
      isBehindDot =
        current == UInt8(ascii: ".") && (at == 0 || bytes[at - 1] != UInt8(ascii: "."))
        || isBehindDot && current == UInt8(ascii: "`")
      at += 1
    }
  }

  /// Reads a string literal, including raw and multi-line ones. False: none begins here.
  private mutating func readText() -> Bool {
    var hashes = 0
    while byte(hashes) == UInt8(ascii: "#") { hashes += 1 }
    guard byte(hashes) == UInt8(ascii: "\"") else { return false }
    at += hashes
    let quotes = byte(1) == UInt8(ascii: "\"") && byte(2) == UInt8(ascii: "\"") ? 3 : 1
    at += quotes
    while at < bytes.count {
      if byte() == UInt8(ascii: "\\"), (0..<hashes).allSatisfy({ byte(1 + $0) == UInt8(ascii: "#") }) {
        at += 1 + hashes
        guard byte() == UInt8(ascii: "(") else {
          at += 1
          continue
        }
        at += 1
        read(untilParenthesis: true)
      } else if (0..<quotes).allSatisfy({ byte($0) == UInt8(ascii: "\"") }),
        (0..<hashes).allSatisfy({ byte(quotes + $0) == UInt8(ascii: "#") })
      {
        at += quotes + hashes
        return true
      } else {
        at += 1
      }
    }
    return true
  }
}
