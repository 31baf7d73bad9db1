/// Reads the values that a ``StateWriter`` wrote, in the same order: `held = try state.read()`.
///
/// The bytes may be damaged: every value is checked. Times are those of the executor that restores.
public struct StateReader {
  /// The version of the component in which the state was written.
  public private(set) var version: Int
  /// Whether the step's parameters have changed since. Such state is passed only to components with
  /// ``Persistence/position(version:)``.
  package private(set) var hasOtherParameters: Bool
  /// The rule for the time that has passed since the state was saved.
  private(set) var whenLate: WhenLate
  /// Whether the component would write the state in the same form.
  private var isInPresentForm = false
  private let bytes: [UInt8]
  private var at: Int
  private let end: Int
  private let context: Context
  /// The target that restored timers wake.
  private var target: (any TimerTarget)?

  /// The range of a page in the saved state.
  struct PageRange {
    var number: Int
    var bytes: Range<Int>
  }

  /// The context that all readers of one restoration share.
  final class Context {
    let executor: Executor
    let json: JSONParser
    let arena: Arena
    /// Whether the arena holds only the values that are being read.
    private let ownsArena: Bool
    var origins: [Origin] = []
    /// The time that has passed since the state was saved.
    var elapsed = TimeSpan.zero
    /// The wall-clock time of saving, in nanoseconds since 1970.
    var savedAt: Int64 = 0
    /// The highest timer number in the state.
    var lastTimer: UInt64 = 0
    /// The executor's clock at the moment of saving, to which times in pages are relative; 0: the reader's part is not
    /// a page.
    fileprivate(set) var clock: Int64 = 0
    /// The value of `clock` for the pages of the state.
    var clockOfPages: Int64 = 0
    /// The ranges of each owner's pages, in the order of the page numbers.
    var pages: [Int64: [PageRange]] = [:]
    /// The owners whose pages in the store the next commits keep.
    var ownersThatGoOn: Set<Int64> = []
    /// Has the keys that are on the disk; nil: none can be read.
    let spilling: Spilling?

    init(_ executor: Executor, spilling: Spilling? = nil) {
      self.executor = executor
      self.spilling = spilling
      arena = Arena()
      json = JSONParser()
      ownsArena = true
    }

    /// A context that reads into the memory of a turn.
    init(_ executor: Executor, arena: Arena, json: JSONParser) {
      self.executor = executor
      self.arena = arena
      self.json = json
      ownsArena = false
      spilling = nil
    }

    /// A context that reads a page of a state.
    init(pageOf other: Context) {
      executor = other.executor
      arena = other.arena
      json = other.json
      ownsArena = other.ownsArena
      spilling = other.spilling
      elapsed = other.elapsed
      savedAt = other.savedAt
      lastTimer = other.lastTimer
      clock = other.clockOfPages
    }

    /// Makes times relative to this moment on the executor's clock, as in a page.
    func setNow(_ moment: Instant) { clock = (executor.now - moment).nanoseconds }

    func valueIsOwned() { if ownsArena { arena.reset() } }
  }

  init(
    _ bytes: [UInt8], _ range: Range<Int>, _ context: Context, version: Int = 0,
    target: (any TimerTarget)? = nil, hasOtherParameters: Bool = false, whenLate: WhenLate = .fire
  ) {
    self.whenLate = whenLate
    self.bytes = bytes
    at = range.lowerBound
    end = range.upperBound
    self.context = context
    self.version = version
    self.target = target
    self.hasOtherParameters = hasOtherParameters
  }

  /// Reads one value, as ``StateWriter/write(_:)`` wrote it.
  public mutating func read<T: StateValue>(_ type: T.Type = T.self) throws(StateFault) -> T {
    try T(from: &self)
  }

  /// Reads a number and checks that it lies in `range`.
  public mutating func read(in range: ClosedRange<Int>) throws(StateFault) -> Int {
    let number = try Int(from: &self)
    guard range.contains(number) else {
      throw StateFault("a number is \(number), which is not within \(range.lowerBound) ... \(range.upperBound)")
    }
    return number
  }

  /// Reads the number of elements that follow; never more than the bytes left.
  public mutating func count() throws(StateFault) -> Int {
    let count = try UInt64(from: &self)
    guard count <= UInt64(end - at) else { throw .truncated }
    return Int(count)
  }

  /// Reads a timer that wakes `other` instead of the step whose state is read.
  mutating func readTimer(of other: any TimerTarget) throws(StateFault) -> Wake {
    let own = target
    target = other
    defer { target = own }
    return try read()
  }

  /// The time since the state was saved; 0 if the clock was set back since.
  package var elapsed: TimeSpan { context.elapsed }

  /// The wall-clock time of saving, in nanoseconds since 1970.
  package var savedAt: Int64 { context.savedAt }

  /// The moment of saving, to which times are relative; the present, if the pipeline's clock stood still since.
  package var now: Instant {
    let passed = (whenLate == .resume ? 0 : context.elapsed.nanoseconds) &+ context.clock
    return context.executor.now + TimeSpan(nanoseconds: 0 &- passed)
  }

  /// Has the keys that are on the disk; nil: none can be read.
  var spilling: Spilling? { context.spilling }

  // MARK: Building blocks

  /// A reader of the same part for a step with this rule.
  func following(_ rule: WhenLate) -> StateReader {
    var reader = self
    reader.whenLate = rule
    return reader
  }

  /// Makes this a reader for a step with this rule. `isInPresentForm`: the component would write the same bytes now.
  mutating func follow(_ rule: WhenLate, isInPresentForm: Bool) {
    whenLate = rule
    self.isInPresentForm = isInPresentForm
  }

  /// Makes this the reader of a component.
  mutating func begin(version: Int, target: (any TimerTarget)?) {
    self.version = version
    self.target = target
  }

  /// Whether everything has been read.
  package var isAtEnd: Bool { at == end }

  /// The index of the next byte in the saved state.
  var offset: Int { at }
  /// The number of bytes left.
  var remaining: Int { end - at }

  mutating func byte() throws(StateFault) -> UInt8 {
    guard at < end else { throw .truncated }
    defer { at += 1 }
    return bytes[at]
  }

  mutating func fixed64() throws(StateFault) -> UInt64 {
    var number: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 64, by: 8) { number |= UInt64(try byte()) << shift }
    return number
  }

  /// Reads a byte count and the bytes.
  mutating func counted() throws(StateFault) -> ArraySlice<UInt8> {
    let count = try self.count()
    defer { at += count }
    return bytes[at..<at + count]
  }

  mutating func skip(_ count: Int) throws(StateFault) {
    guard count <= end - at else { throw .truncated }
    at += count
  }

  /// Reads a part and its length, and returns the part's reader.
  mutating func part(version: Int = 0, target: (any TimerTarget)? = nil) throws(StateFault) -> StateReader {
    var count = 0
    for index in 0..<4 { count |= Int(try byte()) << (8 * index) }
    guard count <= end - at else { throw .truncated }
    defer { at += count }
    return StateReader(bytes, at..<at + count, context, version: version, target: target, whenLate: whenLate)
  }

  /// A reader of the same part for a component.
  func reader(version: Int, target: (any TimerTarget)?, hasOtherParameters: Bool = false) -> StateReader {
    var reader = StateReader(
      bytes, at..<end, context, version: version, target: target, hasOtherParameters: hasOtherParameters,
      whenLate: whenLate)
    reader.isInPresentForm = isInPresentForm && !hasOtherParameters
    return reader
  }

  func schedule(at deadline: Instant, _ sequence: UInt64, _ token: Int) throws(StateFault) -> Wake {
    guard let target, sequence <= context.lastTimer else { throw StateFault("a timer has no owner") }
    let now = context.executor.now
    guard whenLate == .skip, context.elapsed > .zero, deadline <= now else {
      return context.executor.reschedule(at: deadline, sequence, target, token)
    }
    let late = SkippedTimer(target, Lateness(due: deadline, restored: now))
    return context.executor.reschedule(at: deadline, sequence, late, token)
  }

  /// Reads the origins that ``StateWriter/writeOrigins()`` wrote.
  mutating func readOrigins(haveIdentities: Bool) throws(StateFault) {
    for _ in 0..<(try count()) {
      var origin = Origin(source: try read(), path: try read(), receivedAt: try read(), fields: try read())
      if haveIdentities, let identity = try identity() { origin = origin.with(identity) }
      context.origins.append(origin)
    }
  }

  private mutating func identity() throws(StateFault) -> EventIdentity? {
    switch try byte() {
    case 0: nil
    case 1: .origin(try read())
    case 2: .event(try read())
    default: throw StateFault("an identity is of no known kind")
    }
  }

  /// Reads an event whose values live in the context's arena.
  mutating func event() throws(StateFault) -> Event {
    let value = try value(StateWriter.depthLimit)
    let key = try self.value(StateWriter.depthLimit)
    let origin = try origin()
    return Event(value, key: key, origin: origin, position: try read())
  }

  mutating func origin() throws(StateFault) -> Origin {
    let index = try UInt64(from: &self)
    if index == 0 { return .none }
    guard index <= UInt64(context.origins.count) else { throw StateFault("the origin of an event is unknown") }
    return context.origins[Int(index) - 1]
  }

  mutating func ownedValue() throws(StateFault) -> OwnedValue {
    defer { context.valueIsOwned() }
    return OwnedValue(try value(StateWriter.depthLimit))
  }

  private mutating func value(_ depth: Int) throws(StateFault) -> Value {
    guard depth > 0 else { throw StateFault("a value is nested too deep") }
    let arena = context.arena
    let kind = try byte()
    if kind == StateWriter.escaped { return try escaped() }
    if kind == StateWriter.numberText {
      guard let number = JSONParser.number(try copy()), number.is(.double) else {
        throw StateFault("a number is none")
      }
      return number
    }
    guard kind < Value.Kind.error.rawValue, let what = Value.Kind(rawValue: kind) else {
      throw StateFault("a value is of no known kind")
    }
    switch what {
    case .absent: return .absent
    case .null, .error: return .null
    case .bool: return .bool(try read())
    case .int: return .int(try read(Int64.self))
    case .duration: return .duration(nanoseconds: try read())
    case .uint: return .uint(try read())
    case .double: return .double(try read())
    case .string, .type:
      let text = try copy()
      guard UTF8Text.isValid(text) else { throw StateFault("a text is not UTF-8") }
      return Value(kind: what, pointer: text.baseAddress, length: text.count)
    case .bytes: return .bytes(try copy())
    case .jsonList, .jsonMap:
      let text = try copy()
      let value = context.json.open(text)
      guard value.is(what), Int(value.length) == text.count else { throw StateFault("a value is not JSON") }
      return value
    case .timestamp:
      let seconds = try read(Int64.self)
      guard let nanoseconds = UInt32(exactly: try read(UInt64.self)), nanoseconds < 1_000_000_000 else {
        throw StateFault("a time is none")
      }
      return .timestamp(seconds: seconds, nanoseconds: nanoseconds)
    case .list:
      var elements: [Value] = []
      for _ in 0..<(try count()) { elements.append(try value(depth - 1)) }
      return arena.list(elements)
    case .map:
      var entries: [(key: Value, value: Value)] = []
      for _ in 0..<(try count()) { entries.append((try value(depth - 1), try value(depth - 1))) }
      return arena.map(entries)
    case .optional: return arena.optional(try read() ? try value(depth - 1) : nil)
    }
  }

  private mutating func copy() throws(StateFault) -> UnsafeRawBufferPointer {
    let bytes = try counted()
    let memory = context.arena.allocate(bytes.count)
    bytes.withUnsafeBytes {
      if let source = $0.baseAddress { memory.copyMemory(from: source, byteCount: $0.count) }
    }
    return UnsafeRawBufferPointer(start: memory, count: bytes.count)
  }

  /// Reads the content of a JSON string, without the quotes.
  private mutating func escaped() throws(StateFault) -> Value {
    let content = try counted()
    let literal = context.arena.allocate(content.count + 2)
    literal.storeBytes(of: UInt8(ascii: "\""), as: UInt8.self)
    content.withUnsafeBytes {
      if let source = $0.baseAddress { (literal + 1).copyMemory(from: source, byteCount: $0.count) }
    }
    literal.storeBytes(of: UInt8(ascii: "\""), toByteOffset: content.count + 1, as: UInt8.self)
    let value = context.json.open(
      UnsafeRawBufferPointer(start: literal, count: content.count + 2), checking: .everything)
    guard value.is(.string), Int(value.length) == content.count else { throw StateFault("a text is not JSON") }
    return value
  }
}

extension StateReader {
  /// Reads the rest of a saved state, which consists of its pages: returns the ranges of each owner's pages, in the
  /// order of the page numbers.
  /// - Throws: The pages are damaged.
  mutating func pageRanges() throws(StateFault) -> [Int64: [PageRange]] {
    var found: [Int64: [PageRange]] = [:]
    while !isAtEnd {
      let owner = Int64(bitPattern: try fixed64())
      let number = Int64(bitPattern: try fixed64())
      let sum = try fixed64()
      let count = try fixed64()
      guard count <= UInt64(remaining) else { throw .truncated }
      let range = offset..<offset + Int(count)
      guard (0...StatePages.lastPage).contains(number),
        bytes[range].withUnsafeBytes({ StatePage.sum($0, owner, number) }) == sum
      else {
        throw StateFault("page \(number) of owner \(owner) is damaged")
      }
      try skip(Int(count))
      found[owner, default: []].append(PageRange(number: Int(number), bytes: range))
    }
    return found.mapValues { $0.sorted { $0.number < $1.number } }
  }

  /// Reads the output of ``StateWriter/write(_:keys:_:)``.
  ///
  /// - Parameters:
  ///   - pages: Keeps the pages in the store, if the same bytes would be written now.
  ///   - body: Reads the state of one key; called until all are read, with the number that the key must have from now
  ///     on; nil: any number.
  ///   - last: Called when all keys have been read. Marks that it sets do not count as changes.
  mutating func readPages(
    _ pages: StatePages, _ body: (inout StateReader, Int?) throws(StateFault) -> Void,
    then last: () throws(StateFault) -> Void = {}
  ) throws(StateFault) {
    guard try byte() != 0 else {
      var all = try part(version: version, target: target)
      while !all.isAtEnd { try body(&all, nil) }
      return try last()
    }
    let owner: Int64 = try read()
    let count: UInt64 = try read()
    let ranges = context.pages[owner] ?? []
    guard UInt64(ranges.count) == count else { throw StateFault("\(ranges.count) of its \(count) pages were found") }
    var goesOn = isInPresentForm && context.ownersThatGoOn.contains(owner)
    for range in ranges {
      var page = try page(range.bytes)
      var number = range.number * StatePages.keysOfPage
      let end = number + StatePages.keysOfPage
      while !page.isAtEnd {
        // Debug builds have smaller pages than release builds.
        if number == end { goesOn = false }
        try body(&page, goesOn ? number : nil)
        number += 1
      }
    }
    try last()
    if goesOn {
      pages.goOn(owner, ranges.map { ($0.number, bytes[$0.bytes]) })
    }
  }

  /// Reads the origins of a page. Returns the reader of the rest, which has the same timer target as this reader.
  private func page(_ range: Range<Int>) throws(StateFault) -> StateReader {
    var page = StateReader(
      bytes, range, Context(pageOf: context), version: version, target: target,
      hasOtherParameters: hasOtherParameters, whenLate: whenLate)
    try page.readOrigins(haveIdentities: true)
    return page
  }
}
