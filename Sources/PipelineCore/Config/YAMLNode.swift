/// One value of a YAML file, with its location.
///
/// Aliases are already replaced; such a node has the location of its anchor.
public struct YAMLNode: Sendable {
  /// The kind of a value, with its content.
  public enum Content: Sendable {
    case scalar(YAMLScalar)
    case sequence([YAMLNode])
    case mapping([YAMLEntry])
  }

  public var content: Content
  /// The whole value with its quotes or brackets, without anchor and tag.
  public var location: SourceLocation

  public init(_ content: Content, at location: SourceLocation) {
    self.content = content
    self.location = location
  }
}

/// One key of a mapping with its value. The keys of a mapping differ byte by byte.
public struct YAMLEntry: Sendable {
  /// At most 256 bytes, not empty, without control characters, never interpolated.
  public var key: YAMLScalar
  public var value: YAMLNode

  public init(key: YAMLScalar, value: YAMLNode) {
    self.key = key
    self.value = value
  }

  public var name: String { key.text.string }
  public var locatedName: Located<String> { Located(name, at: key.location) }
}

/// A text, number, boolean or null.
public struct YAMLScalar: Sendable {
  /// The notation of a scalar.
  public enum Style: Sendable { case plain, singleQuoted, doubleQuoted, literal, folded }

  /// The kind of the text by YAML 1.2's core schema. Only plain scalars are anything but strings, unless a core tag
  /// such as `!!int` says so. `yes`, `no`, `on` and `off` are strings.
  public enum Kind: Sendable { case null, bool, int, float, string }

  /// The decoded text; every byte has its location in the file.
  public var text: LocatedText
  public var style: Style
  public var kind: Kind
  /// The whole scalar with its quotes.
  public var location: SourceLocation
  /// Whether a tag determines the kind.
  public var isTagged = false

  /// Whether a secret was inserted. Then neither the text nor any part of it may be printed or stored: print ``shown``.
  public var containsSecret = false
  /// Whether the text contains a `${...}` because the environment was not read: the text is not the value, so every
  /// check of the value must pass.
  public var isPlaceholder = false
  /// Whether the text contained a `${...}`, even if its default was used.
  public var isInterpolated = false
  /// The inserted parts of ``text``, in order.
  public var insertions: [Range<Int>] { text.insertions }

  public init(
    text: LocatedText, style: Style = .plain, kind: Kind? = nil, location: SourceLocation? = nil
  ) {
    self.text = text
    self.style = style
    self.kind = kind ?? (style == .plain ? YAMLCoreSchema.kind(of: text.text) : .string)
    self.location = location ?? text.location
  }

  public var string: String { text.string }
  public var isPlain: Bool { style == .plain }

  /// The number, if this is an integer that fits.
  public var int: Int64? { kind == .int ? YAMLCoreSchema.int(text.text) : nil }
  /// The number, if this is an integer or a float.
  public var double: Double? {
    kind == .float || kind == .int ? YAMLCoreSchema.double(text.text) : nil
  }
  public var bool: Bool? { kind == .bool ? text.text.first.map { $0 | 0x20 == 0x74 } : nil }

  /// The text for messages, with control characters escaped, at most 80 characters, or `(secret)`.
  public var shown: String { containsSecret ? "(secret)" : Printable.cut(text.text) }
}

extension YAMLScalar: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  public var description: String { shown }
  public var debugDescription: String { shown }
  /// Hides the text from `dump` and from test failures.
  public var customMirror: Mirror {
    containsSecret
      ? Mirror(self, children: [])
      : Mirror(
        self,
        children: ["text": text.string, "style": "\(style)", "kind": "\(kind)"] as KeyValuePairs)
  }
}

extension YAMLEntry {
  /// `from:a` in braces, which YAML reads as a key without a value; nil unless the word before the colon is known.
  func missingSpace(among known: some Collection<String>) -> Diagnostic? {
    guard value.isNull, value.location.length == 0, key.style == .plain,
      let colon = key.text.text.firstIndex(of: UInt8(ascii: ":")),
      known.contains(String(decoding: key.text.text[..<colon], as: UTF8.self))
    else { return nil }
    let place = key.text.location(colon, colon + 1)
    return Diagnostic(
      .missingColon, "the ':' behind a key must be followed by a space", at: place,
      help: "Write \(Printable.cut(key.text.text[...colon])) \(Printable.cut(key.text.text[(colon + 1)...]))",
      fixIts: [.init(place, ": ")])
  }
}

extension YAMLNode {
  public var scalar: YAMLScalar? {
    if case .scalar(let scalar) = content { scalar } else { nil }
  }
  public var items: [YAMLNode]? {
    if case .sequence(let items) = content { items } else { nil }
  }
  public var entries: [YAMLEntry]? {
    if case .mapping(let entries) = content { entries } else { nil }
  }

  /// The value of `key`, nil if there is none or this is no mapping.
  public subscript(key: String) -> YAMLNode? {
    guard case .mapping(let entries) = content else { return nil }
    let wanted = Array(key.utf8)
    return entries.first { $0.key.text.text == wanted }?.value
  }

  public var isNull: Bool { scalar?.kind == .null && scalar?.isPlaceholder == false }
  /// The text of a scalar of any kind.
  public var string: String? { scalar?.string }
  public var int: Int64? { scalar?.int }
  public var double: Double? { scalar?.double }
  public var bool: Bool? { scalar?.bool }

  /// The first scalar with a secret, in the order of the file; nil if there is none.
  var firstSecret: YAMLNode? {
    switch content {
    case .scalar(let scalar): scalar.containsSecret ? self : nil
    case .sequence(let items): items.lazy.compactMap(\.firstSecret).first
    case .mapping(let entries): entries.lazy.compactMap(\.value.firstSecret).first
    }
  }

  /// The kind for messages such as "must be a list, not `kindName`".
  public var kindName: String {
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
  public var shown: String {
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
