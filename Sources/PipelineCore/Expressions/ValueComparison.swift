#if canImport(Glibc)
  import Glibc
#endif

/// A comparison, as the set of orders that satisfy it.
enum Relation: UInt8 {
  case less = 1
  case equal = 2
  case lessOrEqual = 3
  case greater = 4
  case greaterOrEqual = 6
  case notEqual = 13

  /// The operator's symbol.
  var symbol: String {
    switch self {
    case .less: return "<"
    case .lessOrEqual: return "<="
    case .greater: return ">"
    case .greaterOrEqual: return ">="
    case .equal: return "=="
    case .notEqual: return "!="
    }
  }

  /// The equivalent comparison with exchanged sides.
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

/// The outcome of an evaluation as a bool, in a byte: false, true, failed.
enum Truth {
  static let no: UInt8 = 0
  static let yes: UInt8 = 1
  static let failed: UInt8 = 2
}

/// The order of two values, one bit each.
enum Order {
  static let less: UInt8 = 1
  static let equal: UInt8 = 2
  static let greater: UInt8 = 4
  /// One of them is NaN.
  static let none: UInt8 = 8

  @inline(__always)
  static func of<T: Comparable & FixedWidthInteger>(_ a: T, _ b: T) -> UInt8 {
    a < b ? less : a == b ? equal : greater
  }

  @inline(__always)
  static func of(_ a: Double, _ b: Double) -> UInt8 {
    a < b ? less : a == b ? equal : a > b ? greater : none
  }
}

extension Relation {
  @inline(__always)
  func holds(_ order: UInt8) -> UInt8 { rawValue & order != 0 ? Truth.yes : Truth.no }
}

extension Context {
  /// The deepest nesting that is compared; values nested more deeply count as different.
  private static let nesting = 1100

  /// The language's equality: numbers are compared by value across their types; values of different kinds are never
  /// equal. Never fails.
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
    return areEqual(left, right, Int(a.length))
  }

  /// Both values must be numbers.
  func equalNumbers(_ a: Value, _ b: Value) -> Bool {
    if a.is(.double) || b.is(.double) { return a.asNumber == b.asNumber }
    // An int and a uint, or two of one kind: equal bits mean equal numbers unless the int is negative.
    if a.kind == b.kind { return a.payload == b.payload }
    return a.payload == b.payload && a.payload >> 63 == 0
  }

  /// Order or equality of two values; ``Truth/failed`` if their kinds have no order.
  func compare(_ relation: Relation, _ a: Value, _ b: Value) -> UInt8 {
    switch relation {
    case .equal: return equal(a, b) ? Truth.yes : Truth.no
    case .notEqual: return equal(a, b) ? Truth.no : Truth.yes
    default: break
    }
    if a.kind == b.kind {
      switch a.what {
      case .int, .duration: return relation.holds(Order.of(a.asInt, b.asInt))
      case .uint, .bool: return relation.holds(Order.of(a.asUInt, b.asUInt))
      case .double: return relation.holds(Order.of(a.asDouble, b.asDouble))
      case .timestamp:
        return relation.holds(
          a.payload != b.payload ? Order.of(a.asInt, b.asInt) : Order.of(a.length, b.length))
      case .string, .bytes:
        return relation.holds(Order.of(Self.order(plain(a), plain(b)), 0))
      default: return Truth.failed
      }
    }
    guard a.isNumber, b.isNumber else { return Truth.failed }
    if a.is(.double) || b.is(.double) { return relation.holds(Order.of(a.asNumber, b.asNumber)) }
    if a.is(.int) {
      return relation.holds(a.asInt < 0 ? Order.less : Order.of(a.payload, b.payload))
    }
    return relation.holds(b.asInt < 0 ? Order.greater : Order.of(a.payload, b.payload))
  }

  /// Compares two values of one simple kind without calls; returns a value above ``Truth/failed`` if it cannot.
  /// `relation` is the raw value of a ``Relation``.
  @inline(__always)
  static func quick(_ relation: UInt8, _ a: Value, _ b: Value) -> UInt8 {
    guard a.kind == b.kind else { return undecided }
    switch a.kind {
    case Value.Kind.int.rawValue:
      return relation & Order.of(a.asInt, b.asInt) != 0 ? 1 : 0
    case Value.Kind.string.rawValue:
      guard (a.flags | b.flags) == 0 else { return undecided }
      // Texts are only tested for equality here, not ordered.
      if relation == Relation.equal.rawValue { return equalBytes(a, b) ? 1 : 0 }
      if relation == Relation.notEqual.rawValue { return equalBytes(a, b) ? 0 : 1 }
      return undecided
    case Value.Kind.double.rawValue:
      return relation & Order.of(a.asDouble, b.asDouble) != 0 ? 1 : 0
    case Value.Kind.bool.rawValue:
      return relation & Order.of(a.payload, b.payload) != 0 ? 1 : 0
    default:
      return undecided
    }
  }

  static let undecided: UInt8 = 3

  /// Bytewise order, which in UTF-8 is the order of code points.
  static func order(_ a: Value, _ b: Value) -> Int {
    let common = Int(min(a.length, b.length))
    if common > 0, let left = a.pointer, let right = b.pointer {
      let order = Int(memcmp(left, right, common))
      if order != 0 { return order }
    }
    return a.length < b.length ? -1 : a.length > b.length ? 1 : 0
  }

  /// The value of `key` in a map in memory, or absent.
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

  /// The number as a double; the nearest one for a large whole number.
  @inline(__always)
  var asNumber: Double {
    self.is(.double) ? asDouble : self.is(.int) ? Double(asInt) : Double(asUInt)
  }
}

/// Finds keys of a large map by hash; immutable.
final class KeyIndex: Sendable {
  private let map: Value
  private let mask: Int
  /// Open addressing: indexes in the map, -1 if free.
  private let table: [Int32]

  /// `map` must live as long as the index.
  init(_ map: Value, _ context: Context) {
    self.map = map
    var size = 32
    while size < map.entries.count * 2 { size *= 2 }
    let mask = size - 1
    var table = [Int32](repeating: -1, count: size)
    for at in map.entries.indices {
      var slot = Self.hash(map.entries[at].key, context) & mask
      while table[slot] >= 0 { slot = (slot + 1) & mask }
      table[slot] = Int32(truncatingIfNeeded: at)
    }
    self.mask = mask
    self.table = table
  }

  func find(_ key: Value, _ context: Context) -> Value {
    guard let at = index(of: key, context) else { return .absent }
    return map.entries[at].value
  }

  func index(of key: Value, _ context: Context) -> Int? {
    var slot = Self.hash(key, context) & mask
    while table[slot] >= 0 {
      let at = Int(table[slot])
      if context.equal(map.entries[at].key, key) { return at }
      slot = (slot + 1) & mask
    }
    return nil
  }

  /// Equal values have equal hashes: numbers are hashed by value.
  static func hash(_ value: Value, _ context: Context, depth: Int = 0) -> Int {
    var hasher = Hasher()
    switch value.what {
    case .int, .uint, .double:
      let number = value.asNumber
      hasher.combine(number == 0 ? 0 : number)
    case .string: hasher.combine(bytes: context.plain(value).rawBytes)
    case .bytes: hasher.combine(bytes: value.rawBytes)
    case .list, .map, .jsonList, .jsonMap:
      // Anything nested more deeply does not affect the hash.
      let whole = depth < 100 ? context.expanded(value) : .null
      if whole.is(.list) {
        for element in whole.elements { hasher.combine(hash(element, context, depth: depth + 1)) }
      } else if whole.is(.map) {
        // The sum does not depend on the order of the members.
        var sum = 0
        for entry in whole.entries {
          var member = Hasher()
          member.combine(hash(entry.key, context, depth: depth + 1))
          member.combine(hash(entry.value, context, depth: depth + 1))
          sum &+= member.finalize()
        }
        hasher.combine(sum)
      }
    case .timestamp, .bool, .duration: hasher.combine(value.payload)
    default: hasher.combine(value.kind)
    }
    return hasher.finalize()
  }
}
