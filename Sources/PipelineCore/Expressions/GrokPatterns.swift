/// A pattern in which `%{NAME}` stands for a well-known pattern and `%{NAME:field:type}` captures its match.
///
/// Immutable and safe to share between threads.
final class GrokPattern: Sendable {
  /// The type of a field's value.
  enum Conversion: String, CaseIterable, Sendable {
    case string, int, long, float, double, number, bool, boolean
  }

  /// How the fields of well-known patterns are named.
  enum Naming: Sendable {
    case common
    /// The names of the Elastic Common Schema.
    case ecs
  }

  struct Fault: Error {
    var message: String
    var help: String?
  }

  /// The structure of a map of fields.
  indirect enum Shape: Sendable {
    /// The groups with this name, each with its conversion.
    case field([(group: Int, conversion: Conversion)])
    /// The members, each with the index of its key.
    case map([(key: Int, shape: Shape)])
  }

  let matcher: RegexMatcher
  let fields: [(key: Int, shape: Shape)]
  /// All keys of the shape. They live as long as the pattern.
  let names: Names

  /// Retained by values that consist of the names.
  final class Names: @unchecked Sendable {
    let keys: FieldNames
    init(_ names: [String]) { keys = FieldNames(names.map { Array($0.utf8) }) }
  }

  /// The maximum length of a pattern in bytes, before names are resolved.
  private static let sourceBytes = 16 << 10

  convenience init(
    _ source: UnsafeRawBufferPointer, _ definitions: [GrokDefinitions] = [], _ naming: Naming = .common
  ) throws(Fault) {
    try self.init(Array(source), definitions, naming)
  }

  init(_ source: [UInt8], _ definitions: [GrokDefinitions] = [], _ naming: Naming = .common) throws(Fault) {
    guard source.count <= Self.sourceBytes else {
      throw Fault(message: "the pattern has more than \(Self.sourceBytes) bytes")
    }
    let reading = Reading(definitions, naming)
    var fields: [(key: Int, shape: Shape)] = []
    var names: [String] = []
    do throws(RegexFault) {
      var parser = RegexParser(source, .grok, reading)
      let tree = try AtomicGroups.resolve(try parser.parse())
      matcher = RegexMatcher(try RegexProgram(tree, groups: reading.fields.count, .grok))
      for (index, field) in reading.fields.enumerated() {
        try Self.add(field.path[...], (index + 1, field.conversion), &fields, &names, field.path)
      }
    } catch {
      // Faults in a name or in a named pattern already have a message of their own.
      throw Fault(
        message: error.offset == nil ? error.message : "the pattern does not compile: \(error.message)",
        help: error.help)
    }
    self.fields = fields
    self.names = Names(names)
  }

  private static func add(
    _ path: ArraySlice<String>, _ field: (group: Int, conversion: Conversion),
    _ members: inout [(key: Int, shape: Shape)], _ names: inout [String], _ whole: [String]
  ) throws(RegexFault) {
    guard let name = path.first else { return }
    let at = members.firstIndex { names[$0.key] == name }
    let clash = RegexFault(
      message: "the field '\(whole.joined(separator: "."))' is part of another field, or has one in it",
      help: "A field is a value or a map of fields, not both.")
    if path.count == 1 {
      guard let at else {
        names.append(name)
        members.append((names.count - 1, .field([field])))
        return
      }
      guard case .field(let groups) = members[at].shape else { throw clash }
      members[at].shape = .field(groups + [field])
      return
    }
    var inner: [(key: Int, shape: Shape)] = []
    if let at {
      guard case .map(let known) = members[at].shape else { throw clash }
      inner = known
    }
    try add(path.dropFirst(), field, &inner, &names, whole)
    if let at {
      members[at].shape = .map(inner)
    } else {
      names.append(name)
      members.append((names.count - 1, .map(inner)))
    }
  }

  /// Finds the pattern in a text; ``matcher`` defines the layout of the offsets.
  func find(_ text: UnsafeRawBufferPointer, from start: Int, into groups: UnsafeMutableBufferPointer<Int>) -> Bool {
    matcher.find(text, from: start, anchored: false, mayGiveUp: false, into: groups) ?? false
  }

  /// The number of offsets for ``find(_:from:into:)``.
  var slotCount: Int { matcher.program.slotCount }

  // MARK: Names

  /// The state of parsing a pattern and the patterns that it refers to.
  private final class Reading: RegexParser.Resolver {
    var fields: [(path: [String], conversion: Conversion)] = []
    private let definitions: [GrokDefinitions]
    private let naming: Naming
    /// The names being resolved.
    private var open: [String] = []
    private var isLibrary = false
    private var resolved = 0
    private static let mostNames = 4000

    init(_ definitions: [GrokDefinitions], _ naming: Naming) {
      self.definitions = definitions
      self.naming = naming
    }

    func group(named name: String, at offset: Int) throws(RegexFault) -> Int? {
      try choose(name).map { name throws(RegexFault) in try add(name, .string) }
    }

    /// In the library, fields have two names, `common|ecs`, either of which may be empty.
    private func choose(_ field: String) -> String? {
      guard isLibrary else { return field }
      let names = field.split(separator: "|", omittingEmptySubsequences: false)
      let chosen = String(names.count == 1 || naming == .common ? names[0] : names[1])
      return chosen.isEmpty ? nil : chosen
    }

    private func add(_ field: String, _ conversion: Conversion) throws(RegexFault) -> Int {
      fields.append((try path(field), conversion))
      return fields.count
    }

    /// `[a][b]` and `a.b` are fields of nested maps.
    private func path(_ field: String) throws(RegexFault) -> [String] {
      var parts: [Substring]
      if field.hasPrefix("["), field.hasSuffix("]") {
        parts = field.dropFirst().dropLast().split(separator: "][", omittingEmptySubsequences: false)
      } else {
        parts = field.split(separator: ".", omittingEmptySubsequences: false)
      }
      guard !parts.contains(where: \.isEmpty), !parts.contains(where: { $0.contains("[") || $0.contains("]") }) else {
        throw RegexFault(
          message: "'\(field)' cannot be the name of a field", help: "Write field, outer.field or [outer][field].")
      }
      return parts.map(String.init)
    }

    func reference(_ inside: String, _ parser: borrowing RegexParser) throws(RegexFault) -> RegexTree {
      let parts = inside.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
      let name = parts.first ?? ""
      resolved += 1
      guard resolved <= Self.mostNames else { throw RegexFault(message: "the pattern grows too large") }
      var field: String?
      var conversion = Conversion.string
      if parts.count > 1 {
        guard !parts[1].isEmpty else {
          throw RegexFault(
            message: "the field of %{\(name):} has no name", help: "Write %{\(name)} or %{\(name):field}.")
        }
        if let chosen = choose(parts[1]) {
          let named = chosen.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
          field = named[0]
          if named.count > 1 { conversion = try type(named.dropFirst().joined(separator: ":")) }
          if field?.isEmpty == true { field = nil }
        }
      }
      let number = try field.map { name throws(RegexFault) in try add(name, conversion) }
      let tree = try meaning(name, parser)
      return number.map { .group($0, tree) } ?? tree
    }

    private func type(_ name: String) throws(RegexFault) -> Conversion {
      if let known = Conversion(rawValue: name) { return known }
      let names = Conversion.allCases.map(\.rawValue)
      throw RegexFault(
        message: "a grok field cannot be of type '\(name)'",
        help: NearestName.of(name, among: names).map { "Did you mean '\($0)'?" }
          ?? "The types are \(names.joined(separator: ", ")).")
    }

    private func meaning(_ name: String, _ parser: borrowing RegexParser) throws(RegexFault) -> RegexTree {
      var text: String?
      for one in definitions where text == nil { text = one[name] }
      let isKnown = text == nil
      if text == nil { text = GrokLibrary.meaning(name, naming) }
      guard let text else {
        let all = GrokLibrary.names + definitions.flatMap(\.names)
        throw RegexFault(
          message: "there is no grok pattern '\(name)'",
          help: NearestName.of(name, among: all.sorted()).map { "Did you mean '\($0)'?" }
            ?? "'rxd describe grok' lists the patterns.")
      }
      guard !open.contains(name) else {
        throw RegexFault(
          message: "the grok pattern '\(name)' is part of itself: \((open + [name]).joined(separator: ", "))")
      }
      open.append(name)
      let outer = isLibrary
      isLibrary = isKnown
      defer {
        isLibrary = outer
        open.removeLast()
      }
      var inner = RegexParser(Array(text.utf8), .grok, flags: parser.flags, depth: parser.depth + 4, self)
      do throws(RegexFault) {
        return try inner.parse()
      } catch {
        var error = error
        if !isKnown, !error.message.contains("grok pattern '") {
          error.message = "in the grok pattern '\(name)': \(error.message)"
          error.offset = nil
        }
        throw error
      }
    }
  }
}

/// User-defined patterns by name.
package struct GrokDefinitions: Sendable, Equatable {
  private var patterns: [String: String]

  /// Names and definitions in grok's syntax; every name must satisfy ``isName(_:)``.
  package init(_ patterns: [String: String] = [:]) { self.patterns = patterns }

  subscript(name: String) -> String? { patterns[name] }
  var names: [String] { Array(patterns.keys) }
  var isEmpty: Bool { patterns.isEmpty }

  /// Whether a name is valid in `%{...}`.
  static func isName(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy {
        ASCII.isLetterOrUnderscore($0) || ASCII.isDigit($0) || $0 == 0x2D || $0 == 0x2E
      }
  }
}
