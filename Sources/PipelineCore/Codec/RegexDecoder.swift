import CRE2

/// How lines are taken apart by a pattern.
public struct RegexDecoding: Sendable, Equatable {
  /// The well-known pattern for access logs of Apache and nginx; see ``CombinedLogDecoder``.
  public static let combined = "combined"

  /// RE2 syntax with named groups, `(?P<name>...)`; or `combined`. It may match anywhere in the line.
  public var pattern = ""
  /// The types of groups, by name; those that are not named are strings.
  public var types: [String: FieldType] = [:]
  public init(pattern: String = "", types: [String: FieldType] = [:]) {
    self.pattern = pattern
    self.types = types
  }

  /// Longer patterns are refused, in bytes.
  static let patternLimit = 1 << 10

  /// The types that name no field, sorted; to be refused.
  func unknown(among names: [String]) -> String? { types.keys.sorted().first { !names.contains($0) } }
}

/// `regex`: the named groups of a pattern, in linear time (RE2). A group that took no part is null.
///
/// A line that does not match is refused. Blank lines are refused too, unless they match.
final class RegexDecoder: EventDecoder {
  private let invalidUTF8: InvalidUTF8
  private let pattern: OpaquePointer
  private let names: FieldNames
  /// For each name, the number of its group and its type.
  private let groups: [(number: Int, type: FieldType)]
  private let pairs: UnsafeMutableBufferPointer<Int>

  init(_ options: DecoderOptions) throws(CodecFailure) {
    invalidUTF8 = options.invalidUTF8
    let text = Array(options.regex.pattern.utf8)
    if text.isEmpty {
      throw CodecFailure(option: "pattern", message: "there is no pattern; give one with named groups")
    }
    if text.count > RegexDecoding.patternLimit {
      throw CodecFailure(
        option: "pattern", message: "the pattern is longer than \(RegexDecoding.patternLimit) bytes")
    }
    let compiled = text.withUnsafeBytes {
      rx_re2_compile($0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
    }
    guard let compiled else {
      throw CodecFailure(option: "pattern", message: "the pattern does not compile")
    }
    var offset = -1
    if let reason = rx_re2_error(compiled, &offset) {
      let message = String(cString: reason)
      rx_re2_free(compiled)
      throw CodecFailure(
        option: "pattern", message: "the pattern does not compile: \(message)",
        offset: offset >= 0 ? offset : nil, replacement: Self.withNamedGroups(text),
        help: PatternAdvice.help(text, message, inExpression: false))
    }
    let count = Int(rx_re2_group_count(compiled))
    var found: [(name: String, number: Int)] = []
    for number in 0..<count {
      guard let name = rx_re2_group_name(compiled, Int32(number + 1)) else { continue }
      found.append((String(cString: name), number + 1))
    }
    var failure: CodecFailure?
    if found.isEmpty {
      failure = CodecFailure(
        option: "pattern",
        message: "the pattern has no named group, so events would be empty; write (?P<name>...)")
    } else if let name = Dictionary(grouping: found, by: \.name).filter({ $1.count > 1 }).keys.min() {
      failure = CodecFailure(
        option: "pattern", message: "two groups of the pattern are named '\(name)', and a field has one value",
        help: "Give each group a name of its own; a 'map' behind it can take the one that is not null")
    } else if let unknown = options.regex.unknown(among: found.map(\.name)) {
      failure = CodecFailure(option: "types", message: "the pattern has no group named '\(unknown)'")
    }
    if let failure {
      rx_re2_free(compiled)
      throw failure
    }
    pattern = compiled
    names = FieldNames(found.map { Array($0.name.utf8) })
    groups = found.map { ($0.number, options.regex.types[$0.name] ?? .string) }
    pairs = .allocate(capacity: 2 * (count + 1))
    pairs.initialize(repeating: -1)
  }

  /// The pattern with groups named the way of RE2, `(?P<name>...)`, if it compiles then; nil: it does not.
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
      // Not `(?<=` and `(?<!`, which look behind.
      if result.suffix(2) == Array("(?".utf8)[...], at + 1 < pattern.count, pattern[at] == UInt8(ascii: "<"),
        pattern[at + 1] != UInt8(ascii: "="), pattern[at + 1] != UInt8(ascii: "!")
      {
        result.append(UInt8(ascii: "P"))
      }
    }
    guard result != pattern else { return nil }
    let compiled = result.withUnsafeBytes {
      rx_re2_compile($0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
    }
    defer { rx_re2_free(compiled) }
    return rx_re2_error(compiled, nil) == nil ? String(decoding: result, as: UTF8.self) : nil
  }

  deinit {
    rx_re2_free(pattern)
    pairs.deallocate()
  }

  /// The fields and what they are read as.
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
    text.forEachLine(from: first) { line, at in
      let place = offset &+ Int64(at)
      guard let line = invalidUTF8.admit(line, offset: place, arena, rows) else { return }
      let matched = rx_re2_find(
        pattern, line.baseAddress?.assumingMemoryBound(to: CChar.self), line.count, 0, 0, pairs.baseAddress,
        Int32(pairs.count / 2))
      guard matched else {
        rows.reject(line, offset: place, .noMatch)
        return
      }
      let entries = arena.entries(groups.count)
      for (index, group) in groups.enumerated() {
        var value = Value.null
        if pairs[2 * group.number] >= 0 {
          let part = line.part(pairs[2 * group.number], pairs[2 * group.number + 1])
          guard let read = group.type.read(part) else {
            rows.reject(line, offset: place, .type(group.type, field: names.name(index)))
            return
          }
          value = read
        }
        entries[index] = Entry(key: names.keys[index], value: value)
      }
      rows.append(Value(kind: .map, pointer: entries.baseAddress, length: entries.count), offset: place)
    }
  }
}
