/// How a pattern parses lines.
package struct RegexDecoding: Sendable, Equatable {
  /// The well-known pattern for access logs of Apache and nginx; see ``CombinedLogDecoder``.
  package static let combined = "combined"

  /// RE2 syntax with named groups, `(?P<name>...)`; or `combined`. It may match anywhere in the line.
  package var pattern = ""
  /// The types of groups by name; other groups are strings.
  package var types: [String: FieldType] = [:]
  package init(pattern: String = "", types: [String: FieldType] = [:]) {
    self.pattern = pattern
    self.types = types
  }

  /// The maximum length of a pattern in bytes.
  static let patternLimit = 1 << 10

  /// The first name in sorted order that has a type but is not a field.
  func unknown(among names: [String]) -> String? { types.keys.sorted().first { !names.contains($0) } }
}

/// `regex`: the named groups of a pattern, in linear time (RE2). A group that did not match is null.
///
/// A line that does not match is rejected. Blank lines are rejected too, unless they match.
final class RegexDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  /// Whether each range is one row, line breaks included.
  private let isOneRow: Bool
  private let pattern: Pattern
  private let names: FieldNames
  /// The number and type of the group of each name.
  private let groups: [(number: Int, type: FieldType)]
  private let pairs: UnsafeMutableBufferPointer<Int>

  init(_ options: DecoderOptions) throws(CodecFailure) {
    invalidUTF8 = options.invalidUTF8
    isOneRow = options.unit == .row
    let text = Array(options.regex.pattern.utf8)
    if text.isEmpty {
      throw CodecFailure(option: "pattern", message: "there is no pattern; give one with named groups")
    }
    if text.count > RegexDecoding.patternLimit {
      throw CodecFailure(
        option: "pattern", message: "the pattern is longer than \(RegexDecoding.patternLimit) bytes")
    }
    let compiled = text.withUnsafeBytes { Pattern($0) }
    if let failure = compiled.failure {
      throw CodecFailure(
        option: "pattern", message: "the pattern does not compile: \(failure.reason)", offset: failure.offset,
        replacement: Self.withNamedGroups(text), help: PatternAdvice.help(text, failure.reason, inExpression: false))
    }
    let count = compiled.groupCount
    var found: [(name: String, number: Int)] = []
    for number in 1..<count + 1 {
      guard let name = compiled.groupName(number) else { continue }
      found.append((name, number))
    }
    if found.isEmpty {
      throw CodecFailure(
        option: "pattern",
        message: "the pattern has no named group, so events would be empty; write (?P<name>...)")
    }
    if let name = Dictionary(grouping: found, by: \.name).filter({ $1.count > 1 }).keys.min() {
      throw CodecFailure(
        option: "pattern", message: "two groups of the pattern are named '\(name)', and a field has one value",
        help: "Give each group a name of its own; a 'map' after it can take the one that is not null")
    }
    if let unknown = options.regex.unknown(among: found.map(\.name)) {
      throw CodecFailure(option: "types", message: "the pattern has no group named '\(unknown)'")
    }
    pattern = compiled
    names = FieldNames(found.map { Array($0.name.utf8) })
    groups = found.map { ($0.number, options.regex.types[$0.name] ?? .string) }
    pairs = .allocate(capacity: 2 * (count + 1))
    pairs.initialize(repeating: -1)
  }

  /// The pattern with RE2's syntax for named groups, `(?P<name>...)`; nil if it does not compile in that form either.
  private static func withNamedGroups(_ pattern: [UInt8]) -> String? {
    var result: [UInt8] = []
    var at = 0
    while at < pattern.count {
      if pattern[at] == UInt8(ascii: "\\"), at + 1 < pattern.count {
        result += pattern[at...at + 1]
        at += 2
        continue
      }
      result.append(pattern[at])
      at += 1
      // The look-behinds `(?<=` and `(?<!` are not named groups.
      if result.suffix(2) == Array("(?".utf8)[...], at + 1 < pattern.count, pattern[at] == UInt8(ascii: "<"),
        pattern[at + 1] != UInt8(ascii: "="), pattern[at + 1] != UInt8(ascii: "!")
      {
        result.append(UInt8(ascii: "P"))
      }
    }
    guard result != pattern else { return nil }
    let compiles = result.withUnsafeBytes { Pattern($0).failure == nil }
    return compiles ? String(decoding: result, as: UTF8.self) : nil
  }

  deinit { pairs.deallocate() }

  /// The fields and their types.
  var fields: [(name: String, type: FieldType)] {
    groups.enumerated().map { (names.name($0.offset), $0.element.type) }
  }

  var framing: Framing { .lines }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    arena.keep(names)
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    let first = offset == 0 ? text.byteOrderMarkLength : 0
    text.forEachRow(from: first, isOne: isOneRow) { line, at in
      let lineOffset = offset &+ Int64(at)
      guard let line = invalidUTF8.admit(line, offset: lineOffset, arena, rows) else { return }
      guard pattern.find(line, from: 0, into: pairs) else {
        rows.reject(line, offset: lineOffset, .noMatch)
        return
      }
      let entries = arena.entries(groups.count)
      for (index, group) in groups.enumerated() {
        var value = Value.null
        if pairs[2 * group.number] >= 0 {
          let part = line.part(pairs[2 * group.number], pairs[2 * group.number + 1])
          guard let read = group.type.read(part) else {
            rows.reject(line, offset: lineOffset, .type(group.type, field: names.name(index)))
            return
          }
          value = read
        }
        entries[index] = Entry(key: names.keys[index], value: value)
      }
      rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: lineOffset)
    }
  }
}
