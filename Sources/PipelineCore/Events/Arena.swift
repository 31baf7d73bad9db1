import CJSON

#if canImport(Glibc)
  import Glibc
#endif

/// The memory for the values of one turn: allocation bumps a pointer, and everything is freed at once.
///
/// Not thread-safe: one arena belongs to one executor. Allocations are valid until ``reset()``.
public final class Arena {
  private var chunk: UnsafeMutableRawPointer
  private var used = 0
  private var capacity: Int
  /// Full chunks, and allocations too large for a chunk; `reset` frees them.
  private var retired: [UnsafeMutableRawPointer] = []
  /// Objects that must live as long as the values of this turn: batches and origins.
  private var kept: [AnyObject] = []
  /// Bytes allocated since the last reset, for limits and tests.
  package private(set) var allocated = 0
  /// Set to zero whenever the arena takes more memory from the system, so that a limiter checks it.
  var attention: UnsafeMutablePointer<Int>?

  private static let chunkSize = 64 << 10

  package init() {
    capacity = Self.chunkSize
    chunk = malloc(capacity)!
  }

  deinit {
    for old in retired { free(old) }
    free(chunk)
  }

  /// Memory of at least `count` bytes, aligned to 16, uninitialised.
  @inline(__always)
  package func allocate(_ count: Int) -> UnsafeMutableRawPointer {
    let start = (used + 15) & ~15
    if start &+ count <= capacity {
      used = start &+ count
      allocated &+= count
      return chunk + start
    }
    return allocateSlow(count)
  }

  @inline(never)
  private func allocateSlow(_ count: Int) -> UnsafeMutableRawPointer {
    allocated &+= count
    attention?.pointee = 0
    if count > Self.chunkSize / 4 {
      let own = malloc(count)!
      retired.append(own)
      return own
    }
    retired.append(chunk)
    chunk = malloc(Self.chunkSize)!
    capacity = Self.chunkSize
    used = count
    return chunk
  }

  /// Keeps `object` alive until the next reset.
  public func keep(_ object: AnyObject) {
    if let last = kept.last, last === object { return }
    kept.append(object)
  }

  /// Frees memory from `malloc` at the next reset.
  @inline(__always)
  func adopt(_ memory: UnsafeMutableRawPointer) { retired.append(memory) }

  /// Memory taken out of an arena; its values are valid as long as this object lives.
  final class DetachedMemory {
    private let memory: [UnsafeMutableRawPointer]
    private let kept: [AnyObject]

    fileprivate init(_ memory: [UnsafeMutableRawPointer], _ kept: [AnyObject]) {
      self.memory = memory
      self.kept = kept
    }

    deinit { for chunk in memory { free(chunk) } }
  }

  /// Takes out everything allocated since the last reset, so that it survives the next one.
  func detach() -> DetachedMemory {
    let detached = DetachedMemory(used > 0 || !retired.isEmpty ? retired + [chunk] : [], kept)
    if used > 0 || !retired.isEmpty {
      retired = []
      capacity = Self.chunkSize
      chunk = malloc(capacity)!
      used = 0
    }
    kept = []
    allocated = 0
    return detached
  }

  /// Frees every value in this arena.
  package func reset() {
    poison()
    if !retired.isEmpty {
      for old in retired { free(old) }
      retired.removeAll(keepingCapacity: true)
    }
    if !kept.isEmpty { kept.removeAll(keepingCapacity: true) }
    used = 0
    allocated = 0
  }

  /// In debug builds, overwrites the freed memory, so that a use after free is noticed.
  @inline(__always)
  private func poison() {
    #if DEBUG
      memset(chunk, Self.poisonByte, used)
    #endif
  }

  /// The byte that overwrites freed memory in debug builds.
  static let poisonByte: CInt = 0xA5

  // MARK: Values

  package func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    guard let source = bytes.baseAddress, bytes.count > 0 else {
      return UnsafeRawBufferPointer(start: nil, count: 0)
    }
    let target = allocate(bytes.count)
    target.copyMemory(from: source, byteCount: bytes.count)
    return UnsafeRawBufferPointer(start: target, count: bytes.count)
  }

  /// A text with a copy of `text`.
  public func string(_ text: String) -> Value {
    var text = text
    return text.withUTF8 { .string(copy(UnsafeRawBufferPointer($0))) }
  }

  package func elements(_ count: Int) -> UnsafeMutableBufferPointer<Value> {
    let memory = allocate(count * MemoryLayout<Value>.stride)
    return UnsafeMutableBufferPointer(
      start: memory.bindMemory(to: Value.self, capacity: count), count: count)
  }

  package func entries(_ count: Int) -> UnsafeMutableBufferPointer<Entry> {
    let memory = allocate(count * MemoryLayout<Entry>.stride)
    return UnsafeMutableBufferPointer(
      start: memory.bindMemory(to: Entry.self, capacity: count), count: count)
  }

  /// A list with copies of the elements; each must itself live as long as the arena's turn.
  public func list(_ values: some Collection<Value>) -> Value {
    let target = elements(values.count)
    _ = target.update(fromContentsOf: values)
    return Value(kind: .list, pointer: target.baseAddress, length: target.count)
  }

  /// The keys must be distinct.
  public func map(_ members: some Collection<(key: Value, value: Value)>) -> Value {
    let target = entries(members.count)
    var at = 0
    for member in members {
      target[at] = Entry(key: member.key, value: member.value)
      at += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: target.count)
  }

  /// The keys must be distinct.
  public func map(_ members: KeyValuePairs<StaticString, Value>) -> Value {
    map(members.map { (key: Value.literal($0.key), value: $0.value) })
  }

  package func optional(_ value: Value?) -> Value {
    guard let value else { return Value(kind: .optional) }
    let box = elements(1)
    box[0] = value
    return Value(kind: .optional, pointer: box.baseAddress, length: 1)
  }
}
