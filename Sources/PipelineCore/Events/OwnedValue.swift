import CJSON

#if canImport(Glibc)
  import Glibc
#endif

/// A value that outlives the turn that made it, such as the state of an operator.
///
/// Copies share the memory until one of them is assigned. Repeated assignment to one variable allocates only when a
/// value is larger than all before it.
public struct OwnedValue: @unchecked Sendable {
  /// Valid until this `OwnedValue` (and each copy) is freed or assigned to.
  public private(set) var value: Value
  private var block: Block?
  /// The memory of the previous content, kept for lists and maps that are replaced repeatedly: a new value may point
  /// into the old one while it is copied.
  private var spare: Block?

  /// Immutable while shared: `assign` writes only into a block with a single owner.
  private final class Block {
    var memory: UnsafeMutableRawPointer
    var capacity: Int
    init(_ capacity: Int) {
      self.capacity = capacity
      memory = malloc(max(capacity, 16))!
    }
    deinit {
      #if DEBUG
        memset(memory, Arena.poisonByte, max(capacity, 16))
      #endif
      free(memory)
    }
  }

  /// Contains null.
  public init() {
    value = .null
  }

  /// A deep copy of `value`.
  public init(_ value: Value) {
    self.value = .null
    assign(value)
  }

  /// The bytes of memory in addition to the sixteen of the value itself.
  package var byteCount: Int { block?.capacity ?? 0 }

  /// Replaces the content with a deep copy of `new`, which may point into this value.
  package mutating func assign(_ new: Value) {
    if new.is(.map), value.is(.map), overwrite(with: new) { return }
    let need = new.isScalar ? 0 : Self.size(of: new)
    if need == 0 {
      value = new
      if let block, block.capacity > Self.keptCapacity { self.block = nil }
      return
    }
    let isFlat =
      new.is(.string) || new.is(.jsonMap) || new.is(.jsonList) || new.is(.bytes) || new.is(.double)
    if isFlat, Self.isReusable(&block, need), let block {
      // A value may be assigned a part of itself, which must be copied into other memory.
      let start = UInt(bitPattern: block.memory)
      let at = new.is(.double) ? UInt(bitPattern: new.numberText.baseAddress) : UInt(new.payload)
      if at < start || at >= start + UInt(block.capacity) {
        var cursor = block.memory
        value = Self.copy(new, &cursor)
        return
      }
    }
    let target = Self.isReusable(&spare, need) ? spare : nil
    spare = nil
    let fresh = target ?? Block(need)
    var cursor = fresh.memory
    value = Self.copy(new, &cursor)
    if !isFlat, let block, block.capacity <= Self.keptCapacity { spare = block }
    block = fresh
  }

  /// Replaces the content if neither the old nor the new one needs memory; returns whether it did.
  @inline(__always)
  mutating func assign(scalar new: Value) -> Bool {
    guard block == nil, new.isScalar else { return false }
    value = new
    return true
  }

  /// Overwrites the members of a map in place if old and new have the same names and all are scalars, as in a running
  /// total of a few figures.
  private mutating func overwrite(with new: Value) -> Bool {
    guard new.length == value.length, new.length <= 16, isKnownUniquelyReferenced(&block) else { return false }
    let (old, new) = (value.entries, new.entries)
    for index in 0..<new.count {
      let (was, will) = (old[index], new[index])
      guard was.value.isScalar, will.value.isScalar, was.key.is(.string), will.key.is(.string),
        was.key.flags == will.key.flags, was.key.length == will.key.length,
        let known = was.key.pointer, let name = will.key.pointer, areEqual(known, name, Int(will.key.length))
      else { return false }
    }
    // The block has a single owner, as was checked above.
    let target = UnsafeMutablePointer(mutating: old.baseAddress)
    for index in 0..<new.count { target?[index].value = new[index].value }
    return true
  }

  /// Whether this is a map with `count` members, all of them scalars.
  func isMap(ofScalars count: Int) -> Bool {
    value.is(.map) && value.length == count && value.entries.allSatisfy(\.value.isScalar)
  }

  /// Overwrites the scalars of a map's members with `members`, of which there must be the same number. False if the map
  /// is shared; it is then unchanged.
  @inline(__always)
  mutating func overwriteMembers(with members: UnsafePointer<Value>) -> Bool {
    guard isKnownUniquelyReferenced(&block), let first = value.entries.baseAddress else { return false }
    // The block has a single owner, as was checked above.
    let target = UnsafeMutablePointer(mutating: first)
    for index in 0..<Int(value.length) { target[index].value = members[index] }
    return true
  }

  private static let keptCapacity = 4096

  /// Whether the block has a single owner and a suitable size for `need` bytes.
  private static func isReusable(_ block: inout Block?, _ need: Int) -> Bool {
    guard isKnownUniquelyReferenced(&block), let capacity = block?.capacity else { return false }
    return need <= capacity && capacity <= 8 * need + keptCapacity
  }

  /// Replaces the content; values returned earlier stay valid until the end of the turn.
  ///
  /// For values that have been emitted. `new` may point into the old content.
  @inline(__always)
  package mutating func assign(_ new: Value, retiring arena: @autoclosure () -> Arena) {
    if block == nil, new.isScalar { value = new } else { retire(new, arena()) }
  }

  @inline(never)
  private mutating func retire(_ new: Value, _ arena: Arena) {
    let old = block
    block = nil
    spare = nil
    assign(new)
    if let old { arena.keep(old) }
  }

  /// Keeps the content alive until the end of the turn, even if this value is freed.
  public func keep(in arena: Arena) {
    if let block { arena.keep(block) }
  }

  private static func padded(_ count: Int) -> Int { (count + 15) & ~15 }

  static func size(of value: Value) -> Int {
    switch value.what {
    case .string, .bytes, .type:
      return padded(Int(value.length))
    case .double:
      return padded(Int(value.flags))
    case .jsonList, .jsonMap:
      // JSON text is read with wide loads that may run past its end.
      return padded(Int(value.length) + 64)
    case .list:
      return value.elements.reduce(value.elements.count * 16) { $0 + size(of: $1) }
    case .map:
      return value.entries.reduce(value.entries.count * 32) {
        $0 + size(of: $1.key) + ($1.value.isScalar ? 0 : size(of: $1.value))
      }
    case .optional:
      return value.wrapped.map { 16 + size(of: $0) } ?? 0
    default:
      return 0
    }
  }

  static func copy(_ value: Value, _ cursor: inout UnsafeMutableRawPointer) -> Value {
    var result = value
    switch value.what {
    case .string, .bytes, .type, .jsonList, .jsonMap:
      let start = cursor
      if let source = value.pointer, value.length > 0 {
        start.copyMemory(from: source, byteCount: Int(value.length))
      }
      let json = value.is(.jsonList) || value.is(.jsonMap)
      if json { memset(start + Int(value.length), 0x20, 64) }
      cursor += padded(Int(value.length) + (json ? 64 : 0))
      result.payload = UInt64(UInt(bitPattern: start))
    case .double:
      guard value.hasNumberText, let source = value.numberText.baseAddress else { return value }
      let text = value.numberText
      cursor.copyMemory(from: source, byteCount: text.count)
      result = .double(value.asDouble, text: UnsafeRawBufferPointer(start: cursor, count: text.count))
      cursor += padded(text.count)
    case .list:
      let target = cursor.bindMemory(to: Value.self, capacity: value.elements.count)
      result.payload = UInt64(UInt(bitPattern: cursor))
      cursor += value.elements.count * 16
      for (index, element) in value.elements.enumerated() {
        target[index] = copy(element, &cursor)
      }
    case .map:
      let target = cursor.bindMemory(to: Entry.self, capacity: value.entries.count)
      result.payload = UInt64(UInt(bitPattern: cursor))
      cursor += value.entries.count * 32
      for (index, entry) in value.entries.enumerated() {
        let key = copy(entry.key, &cursor)
        target[index] = Entry(key: key, value: entry.value.isScalar ? entry.value : copy(entry.value, &cursor))
      }
    case .optional:
      if let wrapped = value.wrapped {
        let target = cursor.bindMemory(to: Value.self, capacity: 1)
        result.payload = UInt64(UInt(bitPattern: cursor))
        cursor += 16
        target[0] = copy(wrapped, &cursor)
      }
    default:
      break
    }
    return result
  }
}

/// A value in memory that its owner frees explicitly: half as large as an ``OwnedValue``, for the many values that
/// windows keep.
struct HeldValue {
  let value: Value
  private let memory: UnsafeMutableRawPointer?

  /// A deep copy.
  init(_ new: Value) {
    let need = new.isScalar ? 0 : OwnedValue.size(of: new)
    guard need > 0 else {
      value = new
      memory = nil
      return
    }
    let start = malloc(need)!
    var cursor = start
    value = OwnedValue.copy(new, &cursor)
    memory = start
  }

  /// The size in bytes of the memory that the value points to.
  var byteCount: Int { rx_memory_size(memory) }

  /// Frees the memory; the value must no longer be used.
  func free() {
    #if DEBUG
      if let memory { memset(memory, Arena.poisonByte, OwnedValue.size(of: value)) }
    #endif
    Glibc.free(memory)
  }

  /// Frees the memory at the end of the turn, because emitted values may point to it.
  @inline(__always)
  func free(after arena: @autoclosure () -> Arena) { if let memory { arena().adopt(memory) } }
}

extension Value {
  /// The kinds, as bits, whose values point to no memory. A double with a number text points to that text.
  private static var scalars: UInt32 {
    1 << UInt32(Kind.absent.rawValue) | 1 << UInt32(Kind.null.rawValue) | 1 << UInt32(Kind.bool.rawValue)
      | 1 << UInt32(Kind.int.rawValue) | 1 << UInt32(Kind.uint.rawValue) | 1 << UInt32(Kind.double.rawValue)
      | 1 << UInt32(Kind.timestamp.rawValue) | 1 << UInt32(Kind.duration.rawValue)
  }

  /// Whether the value is complete in its sixteen bytes. A double with a text is not.
  @inline(__always)
  var isScalar: Bool {
    // If flags, length and text are all zero, the head is the kind; of the others, only a timestamp is a scalar.
    head < 0x100 ? Self.scalars &>> UInt32(truncatingIfNeeded: head) & 1 != 0 : kind == Kind.timestamp.rawValue
  }

  /// Whether lists and maps are nested more than `limit` deep. JSON text counts as one level, because the parser limits
  /// its depth.
  @inline(__always)
  package func isDeeper(than limit: Int) -> Bool { isScalar ? false : isNestedDeeper(than: limit) }

  private func isNestedDeeper(than limit: Int) -> Bool {
    switch what {
    case .list:
      if limit == 0 { return true }
      for element in elements where element.isDeeper(than: limit - 1) { return true }
      return false
    case .map:
      if limit == 0 { return true }
      for entry in entries where entry.value.isDeeper(than: limit - 1) { return true }
      return false
    case .optional: return wrapped?.isDeeper(than: limit) ?? false
    default: return false
    }
  }
}

extension Arena {
  /// A deep copy that lives until the end of the turn. JSON text and strings are copied too.
  package func copy(_ value: Value) -> Value {
    let owned = OwnedValue(value)
    owned.keep(in: self)
    return owned.value
  }
}
