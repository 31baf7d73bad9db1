#if canImport(Glibc)
  import Glibc
#endif

/// What a comparison asks.
enum Relation: UInt8 {
  case less, lessOrEqual, greater, greaterOrEqual, equal, notEqual

  /// The same comparison with its sides exchanged.
  var flipped: Relation {
    switch self {
    case .less: return .greater
    case .lessOrEqual: return .greaterOrEqual
    case .greater: return .less
    case .greaterOrEqual: return .lessOrEqual
    case .equal, .notEqual: return self
    }
  }
}

/// The outcome of an evaluation as a bool, as a byte: false, true, failed.
enum Truth {
  static let no: UInt8 = 0
  static let yes: UInt8 = 1
  static let failed: UInt8 = 2
}

extension Relation {
  @inline(__always)
  func holds<T: Comparable>(_ a: T, _ b: T) -> Bool {
    switch self {
    case .less: return a < b
    case .lessOrEqual: return a <= b
    case .greater: return a > b
    case .greaterOrEqual: return a >= b
    case .equal: return a == b
    case .notEqual: return a != b
    }
  }
}

extension Context {
  /// Values nest no deeper than this; beyond it two values count as different.
  private static let nesting = 1100

  /// The language's equality: numbers by value across their types, other kinds never alike. Never fails.
  func equal(_ a: Value, _ b: Value, depth: Int = 0) -> Bool {
    if a.kind == b.kind {
      switch a.what {
      case .null, .absent: return true
      case .bool, .int, .uint, .duration: return a.payload == b.payload
      case .double: return a.asDouble == b.asDouble
      case .string: return equalStrings(a, b)
      case .bytes, .type: return Self.equalBytes(a, b)
      case .timestamp: return a.payload == b.payload && a.length == b.length
      case .optional:
        guard let left = a.wrapped, let right = b.wrapped else {
          return a.pointer == nil && b.pointer == nil
        }
        return depth < Self.nesting && equal(left, right, depth: depth + 1)
      case .error: return false
      case .list, .map, .jsonList, .jsonMap: break
      }
    }
    if a.isNumber, b.isNumber { return equalNumbers(a, b) }
    guard depth < Self.nesting else { return false }
    if a.isAnyList, b.isAnyList {
      let (left, right) = (expanded(a), expanded(b))
      guard left.is(.list), right.is(.list), left.length == right.length else { return false }
      for index in 0..<Int(left.length) {
        if !equal(left.elements[index], right.elements[index], depth: depth + 1) { return false }
      }
      return true
    }
    if a.isAnyMap, b.isAnyMap {
      let (left, right) = (expanded(a), expanded(b))
      guard left.is(.map), right.is(.map), left.length == right.length else { return false }
      let index = left.length > 16 ? KeyIndex(right, self) : nil
      for entry in left.entries {
        let other = index?.find(entry.key, self) ?? (index == nil ? member(of: right, entry.key) : .absent)
        if other.isAbsent || !equal(entry.value, other, depth: depth + 1) { return false }
      }
      return true
    }
    return false
  }

  @inline(__always)
  func equalStrings(_ a: Value, _ b: Value) -> Bool {
    if (a.flags | b.flags) == 0 { return Self.equalBytes(a, b) }
    let (left, right) = (plain(a), plain(b))
    return left.flags == right.flags && Self.equalBytes(left, right)
  }

  @inline(__always)
  static func equalBytes(_ a: Value, _ b: Value) -> Bool {
    guard a.length == b.length else { return false }
    guard a.length > 0, let left = a.pointer, let right = b.pointer else { return true }
    return memcmp(left, right, Int(a.length)) == 0
  }

  /// Both are numbers.
  func equalNumbers(_ a: Value, _ b: Value) -> Bool {
    if a.is(.double) || b.is(.double) { return a.asNumber == b.asNumber }
    // An int and a uint, or two of a kind: equal bits mean equal numbers unless the int is negative.
    if a.kind == b.kind { return a.payload == b.payload }
    return a.payload == b.payload && a.payload >> 63 == 0
  }

  /// Order or equality of two values; ``Truth/failed`` where there is no order between their kinds.
  func compare(_ relation: Relation, _ a: Value, _ b: Value) -> UInt8 {
    switch relation {
    case .equal: return equal(a, b) ? Truth.yes : Truth.no
    case .notEqual: return equal(a, b) ? Truth.no : Truth.yes
    default: break
    }
    if a.kind == b.kind {
      switch a.what {
      case .int: return relation.holds(a.asInt, b.asInt) ? 1 : 0
      case .uint, .bool: return relation.holds(a.asUInt, b.asUInt) ? 1 : 0
      case .double: return relation.holds(a.asDouble, b.asDouble) ? 1 : 0
      case .duration: return relation.holds(a.asInt, b.asInt) ? 1 : 0
      case .timestamp:
        if a.payload != b.payload { return relation.holds(a.asInt, b.asInt) ? 1 : 0 }
        return relation.holds(a.length, b.length) ? 1 : 0
      case .string, .bytes:
        return relation.holds(Self.order(plain(a), plain(b)), 0) ? 1 : 0
      default: return Truth.failed
      }
    }
    guard a.isNumber, b.isNumber else { return Truth.failed }
    if a.is(.double) || b.is(.double) { return relation.holds(a.asNumber, b.asNumber) ? 1 : 0 }
    if a.is(.int) {
      let order = a.asInt < 0 ? -1 : a.payload < b.payload ? -1 : a.payload > b.payload ? 1 : 0
      return relation.holds(order, 0) ? 1 : 0
    }
    let order = b.asInt < 0 ? 1 : a.payload < b.payload ? -1 : a.payload > b.payload ? 1 : 0
    return relation.holds(order, 0) ? 1 : 0
  }

  /// Bytewise order, which in UTF-8 is the order of code points.
  static func order(_ a: Value, _ b: Value) -> Int {
    let common = Int(min(a.length, b.length))
    if common > 0, let left = a.pointer, let right = b.pointer {
      let order = Int(memcmp(left, right, common))
      if order != 0 { return order }
    }
    return a.length < b.length ? -1 : a.length > b.length ? 1 : 0
  }

  /// The value under `key` in a map in memory, or absent.
  func member(of map: Value, _ key: Value) -> Value {
    if key.is(.string), !key.isEscaped {
      for entry in map.entries where entry.key.length == key.length && entry.key.is(.string) {
        if Self.equalBytes(entry.key, key), entry.key.flags == key.flags { return entry.value }
      }
      return .absent
    }
    for entry in map.entries {
      if equal(entry.key, key) { return entry.value }
    }
    return .absent
  }
}

extension Value {
  @inline(__always)
  var isNumber: Bool { kind >= Kind.int.rawValue && kind <= Kind.double.rawValue }

  /// The number as a double; the nearest one where it is a large whole number.
  @inline(__always)
  var asNumber: Double {
    self.is(.double) ? asDouble : self.is(.int) ? Double(asInt) : Double(asUInt)
  }
}

/// Finds keys of a large map without looking at each.
final class KeyIndex {
  private let map: Value
  private let mask: Int
  private var table: [Int32]

  init(_ map: Value, _ context: Context) {
    self.map = map
    var size = 32
    while size < map.entries.count * 2 { size *= 2 }
    mask = size - 1
    table = Array(repeating: -1, count: size)
    for at in map.entries.indices { insert(at, context) }
  }

  private func insert(_ at: Int, _ context: Context) {
    var place = Self.hash(map.entries[at].key, context) & mask
    while table[place] >= 0 { place = (place + 1) & mask }
    table[place] = Int32(at)
  }

  func find(_ key: Value, _ context: Context) -> Value {
    guard let at = index(of: key, context) else { return .absent }
    return map.entries[at].value
  }

  func index(of key: Value, _ context: Context) -> Int? {
    var place = Self.hash(key, context) & mask
    while table[place] >= 0 {
      let at = Int(table[place])
      if context.equal(map.entries[at].key, key) { return at }
      place = (place + 1) & mask
    }
    return nil
  }

  /// Equal values have equal hashes: numbers are hashed by their value.
  static func hash(_ value: Value, _ context: Context) -> Int {
    var hasher = Hasher()
    switch value.what {
    case .int, .uint, .double:
      let number = value.asNumber
      hasher.combine(number == 0 ? 0 : number)
    case .string: hasher.combine(bytes: context.plain(value).rawBytes)
    case .bytes: hasher.combine(bytes: value.rawBytes)
    case .list, .map, .jsonList, .jsonMap: hasher.combine(1)
    case .timestamp, .bool, .duration: hasher.combine(value.payload)
    default: hasher.combine(value.kind)
    }
    return hasher.finalize()
  }
}
