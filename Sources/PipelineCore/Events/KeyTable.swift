import CDigest

#if canImport(Glibc)
  import Glibc
#endif

/// A set of texts: a flat hash table over bytes. A lookup does not allocate.
///
/// A text has a number while it is in the table; numbers are reused. Each table has its own hash seed, so that the
/// senders of keys cannot predict collisions. Not thread-safe.
final class KeyTable {
  /// Texts up to this length are stored in the entry.
  private static let inlineBytes = 24

  /// 48 bytes: `hash`, `length`, then the text or a pointer to it.
  private struct Entry {
    var hash: UInt64
    /// -1: the number is unused.
    var length: Int
    var text: (UInt64, UInt64, UInt64) = (0, 0, 0)
  }
  private struct Slot {
    /// The high bits of the hash; if they differ, the entry need not be compared.
    var tag: UInt32
    /// -1: the slot is empty.
    var number: Int32
    static let empty = Slot(tag: 0, number: -1)
  }

  private var entries: UnsafeMutablePointer<Entry>
  private var entryCapacity = 8
  private var entryCount = 0
  private var free: [Int32] = []
  /// Open addressing: a text is in the slot of its hash's low bits or, if that is taken, in the next free one.
  private var slots: UnsafeMutablePointer<Slot>
  private var mask: Int
  private let seed: UInt64
  private(set) var count = 0
  /// The bytes of the texts.
  private(set) var textBytes = 0

  /// An estimate of the memory that a text of this length takes, with its entry and its slots.
  static func bytes(of length: Int) -> Int {
    MemoryLayout<Entry>.stride + 3 * MemoryLayout<Slot>.stride + (length > inlineBytes ? length + 16 : 0)
  }

  init() {
    mask = 15
    slots = .allocate(capacity: mask + 1)
    slots.initialize(repeating: .empty, count: mask + 1)
    entries = Self.memory(nil, entryCapacity)
    seed = UInt64.random(in: 0...UInt64.max)
  }

  deinit {
    for number in 0..<entryCount { release(number) }
    Glibc.free(entries)
    slots.deallocate()
  }

  func hash(_ text: UnsafeRawBufferPointer) -> UInt64 { rx_xxh3_seeded(text.baseAddress, text.count, seed) }

  private static func tag(_ hash: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: hash >> 32) }

  /// The number of a text, or nil.
  func find(_ text: UnsafeRawBufferPointer, _ hash: UInt64) -> Int? {
    let slots = slots
    let mask = mask
    let tag = Self.tag(hash)
    var at = Int(truncatingIfNeeded: hash) & mask
    while true {
      let slot = slots[at]
      if slot.number < 0 { return nil }
      if slot.tag == tag, holds(Int(slot.number), text) { return Int(slot.number) }
      at = (at &+ 1) & mask
    }
  }

  @inline(__always)
  private func holds(_ number: Int, _ text: UnsafeRawBufferPointer) -> Bool {
    guard entries[number].length == text.count else { return false }
    guard let start = text.baseAddress else { return true }
    return areEqual(bytes(number), start, text.count)
  }

  @inline(__always)
  private func bytes(_ number: Int) -> UnsafeMutableRawPointer {
    let inside = UnsafeMutableRawPointer(entries + number) + MemoryLayout<Entry>.offset(of: \Entry.text)!
    return entries[number].length <= Self.inlineBytes
      ? inside : UnsafeMutableRawPointer(bitPattern: UInt(entries[number].text.0))!
  }

  private func release(_ number: Int) {
    if entries[number].length > Self.inlineBytes { Glibc.free(bytes(number)) }
    entries[number].length = -1
  }

  /// Adds a text that is not in the table; returns its number.
  func insert(_ text: UnsafeRawBufferPointer, _ hash: UInt64) -> Int {
    let number: Int
    if let again = free.popLast() {
      number = Int(again)
    } else {
      number = newNumber()
    }
    put(text, hash, at: number)
    return number
  }

  private func newNumber() -> Int {
    if entryCount == entryCapacity { growEntries() }
    entryCount += 1
    return entryCount - 1
  }

  private func put(_ text: UnsafeRawBufferPointer, _ hash: UInt64, at number: Int) {
    if (count + 1) * 2 > mask { grow() }
    (entries + number).initialize(to: Entry(hash: hash, length: text.count))
    if text.count > Self.inlineBytes { entries[number].text.0 = UInt64(UInt(bitPattern: malloc(text.count)!)) }
    if let start = text.baseAddress { bytes(number).copyMemory(from: start, byteCount: text.count) }
    put(number)
    count += 1
    textBytes &+= text.count
  }

  /// The text with this number; valid until the table changes.
  func text(_ number: Int) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes(number), count: entries[number].length)
  }

  /// The numbers that texts have.
  var numbers: [Int] { (0..<entryCount).filter(has) }

  /// Whether a text has this number.
  func has(_ number: Int) -> Bool { number < entryCount && entries[number].length >= 0 }

  /// Inserts a text that must be new, such as a text of a saved state; nil: it is already in the table.
  ///
  /// - Parameter number: The number for the text, higher than that of any other text so far; nil: any.
  func insertNew(_ text: ArraySlice<UInt8>, at number: Int?) -> Int? {
    text.withUnsafeBytes { insertNew($0, at: number) }
  }

  func insertNew(_ text: UnsafeRawBufferPointer, at number: Int?) -> Int? {
    let hash = hash(text)
    guard find(text, hash) == nil else { return nil }
    guard let number else { return insert(text, hash) }
    guard number >= entryCount else { return nil }
    while entryCount < number {
      let unused = newNumber()
      (entries + unused).initialize(to: Entry(hash: 0, length: -1))
      free.append(Int32(unused))
    }
    put(text, hash, at: newNumber())
    return number
  }

  /// Removes the text with this number, which must be in the table.
  func remove(_ number: Int) {
    guard entries[number].length >= 0 else { return assertionFailure("a key was removed twice") }
    var hole = Int(truncatingIfNeeded: entries[number].hash) & mask
    while slots[hole].number != Int32(number) { hole = (hole &+ 1) & mask }
    // Entries after the hole are moved into it where possible, so that no search ends too early.
    var at = hole
    while true {
      at = (at &+ 1) & mask
      let other = slots[at]
      if other.number < 0 { break }
      let home = Int(truncatingIfNeeded: entries[Int(other.number)].hash) & mask
      if (at &- home) & mask >= (at &- hole) & mask {
        slots[hole] = other
        hole = at
      }
    }
    slots[hole] = .empty
    textBytes &-= entries[number].length
    release(number)
    free.append(Int32(number))
    count -= 1
  }

  func removeAll() {
    for number in 0..<entryCount { release(number) }
    entryCount = 0
    free.removeAll()
    slots.update(repeating: .empty, count: mask + 1)
    count = 0
    textBytes = 0
  }

  private func put(_ number: Int) {
    let hash = entries[number].hash
    var at = Int(truncatingIfNeeded: hash) & mask
    while slots[at].number >= 0 { at = (at &+ 1) & mask }
    slots[at] = Slot(tag: Self.tag(hash), number: Int32(number))
  }

  private func grow() {
    slots.deallocate()
    mask = mask &* 2 &+ 1
    slots = .allocate(capacity: mask + 1)
    slots.initialize(repeating: .empty, count: mask + 1)
    for number in 0..<entryCount where entries[number].length >= 0 { put(number) }
  }

  private func growEntries() {
    entryCapacity *= 2
    entries = Self.memory(entries, entryCapacity)
  }

  /// Memory for this many entries, with the contents of the old memory: the kernel moves large allocations without
  /// copying them.
  private static func memory(_ old: UnsafeMutablePointer<Entry>?, _ capacity: Int) -> UnsafeMutablePointer<Entry> {
    realloc(old, capacity * MemoryLayout<Entry>.stride)!.bindMemory(to: Entry.self, capacity: capacity)
  }
}
