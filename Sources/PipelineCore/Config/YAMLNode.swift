/// One value of a YAML file, with its location.
///
/// Aliases are already resolved; a node that replaces one has the location of the anchor.
public struct YAMLNode: Sendable {
  /// The content of a value, by its kind.
  package enum Content: Sendable {
    case scalar(YAMLScalar)
    case sequence([YAMLNode])
    case mapping([YAMLEntry])
  }

  package var content: Content
  /// The whole value with its quotes or brackets, without anchor and tag.
  package var location: SourceLocation

  package init(_ content: Content, at location: SourceLocation) {
    self.content = content
    self.location = location
  }
}

/// One key of a mapping with its value. The keys of a mapping differ byte by byte.
package struct YAMLEntry: Sendable {
  /// At most 256 bytes, not empty, without control characters, never interpolated.
  package var key: YAMLScalar
  package var value: YAMLNode

  package init(key: YAMLScalar, value: YAMLNode) {
    self.key = key
    self.value = value
  }

  package var name: String { key.text.string }
  package var locatedName: Located<String> { Located(name, at: key.location) }
}

/// A text, number, boolean or null.
package struct YAMLScalar: Sendable {
  /// The notation of a scalar.
  package enum Style: Sendable { case plain, singleQuoted, doubleQuoted, literal, folded }

  /// The kind of the text by YAML 1.2's core schema. Scalars that are not plain are strings, unless a core tag such as
  /// `!!int` says otherwise. `yes`, `no`, `on` and `off` are strings.
  package enum Kind: Sendable { case null, bool, int, float, string }

  /// The decoded text, with the location of every byte in the file.
  package var text: LocatedText
  package var style: Style
  package var kind: Kind
  /// The whole scalar with its quotes.
  package var location: SourceLocation
  /// Whether a tag determines the kind.
  package var isTagged = false

  /// Whether a secret was inserted. Then neither the text nor any part of it may be printed or stored: print ``shown``.
  package var containsSecret = false
  /// Whether the text contains a `${...}` because the environment was not read. The text is then not the value, so no
  /// check of the value may fail.
  package var isPlaceholder = false
  /// Whether the text contained a `${...}`, even if its default was used.
  package var isInterpolated = false
  /// The inserted parts of ``text``, in order.
  package var insertions: [Range<Int>] { text.insertions }

  package init(
    text: LocatedText, style: Style = .plain, kind: Kind? = nil, location: SourceLocation? = nil
  ) {
    self.text = text
    self.style = style
    self.kind = kind ?? (style == .plain ? YAMLCoreSchema.kind(of: text.text) : .string)
    self.location = location ?? text.location
  }

  package var string: String { text.string }
  package var isPlain: Bool { style == .plain }

  /// The number, if this is an integer that fits.
  package var int: Int64? { kind == .int ? YAMLCoreSchema.int(text.text) : nil }
  /// The number, if this is an integer or a float.
  package var double: Double? {
    kind == .float || kind == .int ? YAMLCoreSchema.double(text.text) : nil
  }
  package var bool: Bool? { kind == .bool ? text.text.first.map { $0 | 0x20 == 0x74 } : nil }

  /// The text for messages, with control characters escaped, at most 80 characters, or `(secret)`.
  package var shown: String { containsSecret ? "(secret)" : Printable.cut(text.text) }
}

extension YAMLScalar: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  package var description: String { shown }
  package var debugDescription: String { shown }
  /// Hides the text from `dump` and from test failures.
  package var customMirror: Mirror {
    containsSecret
      ? Mirror(self, children: [])
      : Mirror(
        self,
        children: ["text": text.string, "style": "\(style)", "kind": "\(kind)"] as KeyValuePairs)
  }
}

extension YAMLEntry {
  /// The error for `from:a` in braces, which YAML reads as a key without a value; nil unless the word before the colon
  /// is known.
  func missingSpace(among known: some Collection<String>) -> Diagnostic? {
    guard value.isNull, value.location.length == 0, key.style == .plain,
      let colon = key.text.text.firstIndex(of: UInt8(ascii: ":")),
      known.contains(String(decoding: key.text.text[..<colon], as: UTF8.self))
    else { return nil }
    let location = key.text.location(colon, colon + 1)
    return Diagnostic(
      .missingColon, "the ':' after a key must be followed by a space", at: location,
      help: "Write \(Printable.cut(key.text.text[...colon])) \(Printable.cut(key.text.text[(colon + 1)...]))",
      fixIts: [.init(location, ": ")])
  }
}

extension YAMLNode {
  package var scalar: YAMLScalar? {
    if case .scalar(let scalar) = content { scalar } else { nil }
  }
  package var items: [YAMLNode]? {
    if case .sequence(let items) = content { items } else { nil }
  }
  package var entries: [YAMLEntry]? {
    if case .mapping(let entries) = content { entries } else { nil }
  }

  /// The value of `key`; nil if there is none or this is not a mapping.
  package subscript(key: String) -> YAMLNode? {
    guard case .mapping(let entries) = content else { return nil }
    let wanted = Array(key.utf8)
    return entries.first { $0.key.text.text == wanted }?.value
  }

  package var isNull: Bool { scalar?.kind == .null && scalar?.isPlaceholder == false }
  /// The text of a scalar of any kind.
  package var string: String? { scalar?.string }
  package var int: Int64? { scalar?.int }
  package var double: Double? { scalar?.double }
  package var bool: Bool? { scalar?.bool }

  /// The first scalar with a secret, in the order of the file; nil if there is none.
  var firstSecret: YAMLNode? {
    switch content {
    case .scalar(let scalar): return scalar.containsSecret ? self : nil
    case .sequence(let items):
      for item in items { if let found = item.firstSecret { return found } }
    case .mapping(let entries):
      for entry in entries { if let found = entry.value.firstSecret { return found } }
    }
    return nil
  }

  /// The kind for messages such as "must be a list, not `kindName`".
  package var kindName: String {
    switch content {
    case .sequence: "a list"
    case .mapping: "a mapping"
    case .scalar(let scalar):
      switch scalar.kind {
      case .null: "nothing"
      case .bool: "a boolean"
      case .int, .float: "a number"
      case .string: "a text"
      }
    }
  }

  /// The value for messages: a scalar's text, or `[…]` or `{…}`.
  package var shown: String {
    switch content {
    case .scalar(let scalar): scalar.shown
    case .sequence: "[…]"
    case .mapping: "{…}"
    }
  }
}

extension YAMLNode: CustomStringConvertible {
  /// One line in flow style, for tests; secrets are hidden.
  public var description: String {
    switch content {
    case .scalar(let scalar):
      scalar.kind == .string ? "\"\(scalar.shown)\"" : scalar.kind == .null ? "null" : scalar.shown
    case .sequence(let items): "[" + items.map(\.description).joined(separator: ", ") + "]"
    case .mapping(let entries):
      "{" + entries.map { "\($0.key.shown): \($0.value)" }.joined(separator: ", ") + "}"
    }
  }
}
