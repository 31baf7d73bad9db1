/// A version: numbers separated by dots, then optional text. Versions with equal numbers are ordered by their texts.
struct PluginVersion: Comparable {
  let numbers: [Int]
  /// What follows the numbers, as `-rc1`: a version with it comes before the one without it, as in Semantic Versioning.
  let rest: String
  /// Whether the text begins with a number.
  let isNumbered: Bool

  init(_ text: String) {
    isNumbered = text.first.map { $0.isASCII && $0.isNumber } ?? false
    var numbers: [Int] = []
    var rest = text[...]
    while let first = rest.first, first.isASCII, first.isNumber {
      let digits = rest.prefix { $0.isASCII && $0.isNumber }
      // A number that is too large for a version is the largest.
      numbers.append(Int(digits) ?? .max)
      rest = rest[digits.endIndex...]
      guard rest.first == ".", let next = rest.dropFirst().first, next.isASCII, next.isNumber else { break }
      rest = rest.dropFirst()
    }
    while numbers.last == 0 { numbers.removeLast() }
    self.numbers = numbers
    // Build metadata has no order.
    self.rest = String(rest.prefix { $0 != "+" })
  }

  static func == (a: PluginVersion, b: PluginVersion) -> Bool { a.numbers == b.numbers && a.rest == b.rest }

  static func < (a: PluginVersion, b: PluginVersion) -> Bool {
    if a.numbers != b.numbers { return a.numbers.lexicographicallyPrecedes(b.numbers) }
    if a.rest.isEmpty || b.rest.isEmpty { return !a.rest.isEmpty && b.rest.isEmpty }
    return a.rest < b.rest
  }
}

/// The versions that a pipeline file accepts: comparisons that must all hold, as `>=1.2 <2`.
package struct VersionRange: Sendable, Equatable {
  private enum Relation: String {
    case atLeast = ">="
    case atMost = "<="
    case above = ">"
    case below = "<"
    case equal = "="
  }
  private var bounds: [(relation: Relation, version: String)] = []
  /// As written.
  package let text: String

  /// Nil: the text is not a range.
  package init?(_ text: String) {
    self.text = text
    for part in text.split(whereSeparator: { $0 == " " || $0 == "," }) {
      let sign = part.prefix { "<>=".contains($0) }
      let version = part[sign.endIndex...]
      guard let relation = sign.isEmpty ? .equal : Relation(rawValue: String(sign)),
        PluginVersion(String(version)).isNumbered
      else { return nil }
      bounds.append((relation, String(version)))
    }
    if bounds.isEmpty { return nil }
  }

  package func contains(_ text: String) -> Bool {
    let version = PluginVersion(text)
    return bounds.allSatisfy { relation, bound in
      let bound = PluginVersion(bound)
      return switch relation {
      case .atLeast: version >= bound
      case .atMost: version <= bound
      case .above: version > bound
      case .below: version < bound
      case .equal: version == bound
      }
    }
  }

  package static func == (a: VersionRange, b: VersionRange) -> Bool { a.text == b.text }
}
