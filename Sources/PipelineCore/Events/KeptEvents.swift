import CJSON

#if canImport(Glibc)
  import Glibc
#endif

/// A queue of kept events, oldest first.
///
/// Events are packed into chunks of memory, the texts of each after its record, so that an event needs no separate
/// allocation. A record never moves. Removed events stay valid until the end of the turn. Not thread-safe.
final class KeptEvents {
  /// One event, with data of the queue's owner.
  struct Record {
    /// The time at which the event must be removed.
    var due: Instant
    /// The number of the event's key.
    var number: Int32
    var isMatched: Bool
    /// The next event with the same key.
    var sibling: Pointer?

    fileprivate(set) var value: Value
    /// The part of the value that expressions read: a map of these fields, or the whole value.
    fileprivate(set) var seen: Value
    fileprivate var key: Value
    /// The chunk retains it.
    fileprivate var origin: Unmanaged<Origin>
    fileprivate var position: Int64
    /// The next newer event.
    fileprivate(set) var next: Pointer?

    var event: Event { Event(value, key: key, from: origin, position: position) }
  }
  typealias Pointer = UnsafeMutablePointer<Record>

  /// Memory for records and their texts.
  private final class Chunk {
    let start: UnsafeMutableRawPointer
    let capacity: Int
    @exclusivity(unchecked) var used = 0
    /// The number of the chunk's events that have not been removed.
    @exclusivity(unchecked) var live = 0
    /// The origins of the chunk's events; the last one belongs to the newest event.
    @exclusivity(unchecked) var origins: [Origin] = []

    /// The bytes that were populated in advance; the first access to any other page causes a page fault.
    @exclusivity(unchecked) private(set) var populated: Int

    init(_ capacity: Int) {
      self.capacity = capacity
      start = malloc(capacity)!
      populated = capacity < KeptEvents.largestChunk ? capacity : 0
    }

    /// Asks the system for the pages up to `end` and some beyond it in one call, which takes less time than a page
    /// fault for each.
    @inline(never)
    func populate(to end: Int) {
      let page = 4096
      let target = min(capacity, max(end, populated + KeptEvents.populatedAtOnce))
      let first = Int(bitPattern: start + populated) & -page
      let last = Int(bitPattern: start + target) & -page
      // If this fails, page faults populate the memory instead.
      if last > first { madvise(UnsafeMutableRawPointer(bitPattern: first), last - first, MADV_POPULATE_WRITE) }
      populated = target
    }

    deinit {
      #if DEBUG
        memset(start, Arena.poisonByte, capacity)
      #endif
      free(start)
    }
  }

  /// Bytes after a chunk's events: JSON text is read with wide loads that may run past its end.
  private static let padding = 64
  private static let smallestChunk = 4 << 10
  private static let largestChunk = 2 << 20
  /// The bytes of memory that are populated at once: so few that they are still in the processor's cache when events
  /// fill them.
  private static let populatedAtOnce = 64 << 10

  /// The chunks, oldest first; new events go into the last.
  @exclusivity(unchecked) private var chunks: [Chunk] = []
  @exclusivity(unchecked) private(set) var count = 0
  /// The bytes in use in `chunks`.
  @exclusivity(unchecked) private var used = 0
  /// The bytes of the events, including removed ones whose memory has not been freed.
  var bytes: Int { count == 0 ? 0 : used }
  @exclusivity(unchecked) private(set) var first: Pointer?
  @exclusivity(unchecked) private var last: Pointer?

  /// Appends a copy of an event. `seen`: a map whose keys outlive this object and whose values are scalars or slices of
  /// the event's text; a map of any other kind is ignored.
  func append(_ event: Event, seen: Value?, due: Instant, number: Int, isMatched: Bool, _ arena: Arena) -> Pointer {
    let header = (MemoryLayout<Record>.size + 15) & ~15
    let ahead = header + (seen.map { Int($0.length) } ?? 0) * MemoryLayout<Entry>.stride
    let keySize = event.key.isScalar ? 0 : OwnedValue.size(of: event.key)
    let chunk = chunk(ahead + Self.size(of: event.value) + keySize, arena)
    let start = chunk.start + chunk.used
    var cursor = start + ahead
    let value = Self.copy(event.value, &cursor)
    let key = keySize == 0 ? event.key : OwnedValue.copy(event.key, &cursor)
    used &+= (cursor - chunk.start) &- chunk.used
    chunk.used = cursor - chunk.start
    chunk.live &+= 1
    if chunk.origins.last.map({ Unmanaged.passUnretained($0).toOpaque() != event.origin.toOpaque() }) ?? true {
      chunk.origins.append(event.origin.takeUnretainedValue())
    }
    let record = start.bindMemory(to: Record.self, capacity: 1)
    record.initialize(
      to: Record(
        due: due, number: Int32(number), isMatched: isMatched, value: value, seen: value, key: key,
        origin: event.origin, position: event.position))
    if let seen, let copy = Self.copy(seen, of: event.value, to: value, start + header) { record.pointee.seen = copy }
    if let last { last.pointee.next = record } else { first = record }
    last = record
    count &+= 1
    return record
  }

  /// Removes the first event; it stays valid until the end of the turn.
  func removeFirst(keeping arena: Arena) {
    guard let oldest = first else { return }
    first = oldest.pointee.next
    if first == nil { last = nil }
    count &-= 1
    let chunk = chunks[0]
    chunk.live &-= 1
    // The last chunk is kept for further events, unless it is large and nearly unused.
    if chunk.live == 0, chunks.count > 1 || chunk.capacity > Self.smallestChunk {
      arena.keep(chunk)
      used &-= chunk.used
      chunks.removeFirst()
    }
  }

  /// Removes all events; they stay valid until the end of the turn.
  func removeAll(keeping arena: Arena) {
    for chunk in chunks { arena.keep(chunk) }
    chunks = []
    first = nil
    last = nil
    count = 0
    used = 0
  }

  /// All events, oldest first.
  var all: [Pointer] {
    var all: [Pointer] = []
    var next = first
    while let record = next {
      all.append(record)
      next = record.pointee.next
    }
    return all
  }

  /// Returns a chunk with enough room.
  @inline(__always)
  private func chunk(_ need: Int, _ arena: Arena) -> Chunk {
    if let chunk = chunks.last, chunk.used &+ need &+ Self.padding <= chunk.capacity {
      if chunk.used &+ need > chunk.populated { chunk.populate(to: chunk.used &+ need) }
      return chunk
    }
    return newChunk(need, arena)
  }

  @inline(never)
  private func newChunk(_ need: Int, _ arena: Arena) -> Chunk {
    if count == 0 { removeAll(keeping: arena) }
    // A new chunk is as large as all existing ones together, so that many events need few chunks, and few events little
    // memory.
    let kept = chunks.reduce(0) { $0 + $1.capacity }
    let chunk = Chunk(max(need + Self.padding, min(Self.largestChunk, max(Self.smallestChunk, kept))))
    chunks.append(chunk)
    return chunk
  }

  private static func isText(_ value: Value) -> Bool {
    value.is(.jsonMap) || value.is(.jsonList) || value.is(.string) || value.is(.bytes)
  }

  private static func size(of value: Value) -> Int {
    if value.isScalar { return 0 }
    return isText(value) ? (Int(value.length) + 15) & ~15 : OwnedValue.size(of: value)
  }

  private static func copy(_ value: Value, _ cursor: inout UnsafeMutableRawPointer) -> Value {
    if value.isScalar { return value }
    guard isText(value) else { return OwnedValue.copy(value, &cursor) }
    let start = cursor
    if let source = value.pointer { memcpy(start, source, Int(value.length)) }
    cursor += (Int(value.length) + 15) & ~15
    var result = value
    result.payload = UInt64(UInt(bitPattern: start))
    return result
  }

  /// A copy of a map of slices of `text`, as slices of `copy`, with its members at `target`; nil if that is impossible.
  private static func copy(_ seen: Value, of text: Value, to copy: Value, _ target: UnsafeMutableRawPointer) -> Value? {
    guard text.is(.jsonMap) else { return nil }
    let members = target.bindMemory(to: Entry.self, capacity: Int(seen.length))
    let shift = copy.payload &- text.payload
    func isInside(_ address: UInt64, _ count: Int) -> Bool {
      address &- text.payload <= UInt64(text.length) &- min(UInt64(count), UInt64(text.length))
    }
    for (index, entry) in seen.entries.enumerated() {
      var value = entry.value
      if value.isScalar {
      } else if isText(value), isInside(value.payload, Int(value.length)) {
        value.payload &+= shift
      } else if value.is(.double) {
        let number = value.numberText
        let address = UInt64(UInt(bitPattern: number.baseAddress))
        guard isInside(address, number.count) else { return nil }
        value = .double(
          value.asDouble,
          text: UnsafeRawBufferPointer(start: UnsafeRawPointer(bitPattern: UInt(address &+ shift)), count: number.count)
        )
      } else {
        return nil
      }
      members[index] = Entry(key: entry.key, value: value)
    }
    var result = seen
    result.payload = UInt64(UInt(bitPattern: members))
    return result
  }
}
