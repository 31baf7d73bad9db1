/// The positions of sources that a state holds.
public enum SavedPositions: Sendable {
  /// The position after the input that turns have taken, which fits the state of the operators.
  case taken
  /// The position after the acknowledged input: later input is read again.
  case acknowledged
}

/// Writes the state of a node: `state.write(held)`.
///
/// Values are read in the order in which they were written. Times are written relative to the moment of saving.
public struct StateWriter {
  private(set) var bytes: [UInt8] = []
  /// The ends of parts that change independently, ascending; some may be after the end of `bytes`.
  private(set) var cuts: [Int] = []
  private let context: Context
  /// The maximum nesting of lists and maps; deeper values would overflow the reader's stack.
  static let depthLimit = 128

  /// The context that all writers of one saved state share.
  final class Context {
    let executor: Executor
    let steps: StateTable.Builder
    let positions: SavedPositions
    /// Takes the pages of steps with state for many keys; nil: everything is written in place.
    let paging: StatePaging?
    /// Whether this is the context of a page. A page stays valid after the commit that writes it, so its times are
    /// relative to a fixed moment.
    let isOfPage: Bool
    /// The fixed moment, on the executor's clock.
    let startOfPages: Instant
    /// Whether a step's state for many keys is being written, in pages or in place. Bytes of other steps in it count as
    /// that step's.
    var isOfKeys: Bool
    /// The entry of the outermost record that is being written.
    var outerRecord: Int?
    /// The bytes of the pages of the step that is being written.
    var pageBytes = 0
    private(set) var origins: [Origin] = []
    private(set) var hasIdentities = false
    private var originIndex: [ObjectIdentifier: Int] = [:]
    /// Why the current record cannot be used.
    var fault: StateFault?
    /// The steps that have keys on the disk.
    var spilled: [SpilledOwner] = []

    init(
      _ executor: Executor, _ steps: StateTable.Builder, _ positions: SavedPositions, paging: StatePaging? = nil,
      startOfPages: Instant = Instant(nanoseconds: 0)
    ) {
      self.startOfPages = startOfPages
      self.positions = positions
      self.executor = executor
      self.steps = steps
      self.paging = paging
      isOfPage = false
      isOfKeys = false
    }

    init(pageOf other: Context) {
      positions = other.positions
      executor = other.executor
      steps = other.steps
      startOfPages = other.startOfPages
      paging = nil
      isOfPage = true
      isOfKeys = true
      // States with pages have a format with identities.
      hasIdentities = true
    }

    /// The index of an origin in the state's table; 0: none.
    func index(of origin: Origin) -> Int {
      if origin === Origin.none { return 0 }
      if let known = originIndex[ObjectIdentifier(origin)] { return known }
      origins.append(origin)
      if origin.identity != nil { hasIdentities = true }
      originIndex[ObjectIdentifier(origin)] = origins.count
      return origins.count
    }
  }

  /// - Parameter capacity: An estimate of the number of bytes.
  init(_ context: Context, capacity: Int = 0) {
    self.context = context
    if capacity > 0 { bytes.reserveCapacity(capacity) }
  }

  /// Writes one value.
  public mutating func write(_ value: some StateValue) { value.save(to: &self) }

  /// Writes a list of values, which ``StateReader/read(_:)`` reads as an array.
  public mutating func write<S: Collection>(each values: S) where S.Element: StateValue {
    write(UInt64(values.count))
    for value in values { value.save(to: &self) }
  }

  /// Writes a list of elements of any kind: ``StateReader/count()`` reads the length, then each element is read in
  /// turn. `body` writes at least one byte.
  public mutating func write<S: Collection>(each values: S, _ body: (inout StateWriter, S.Element) -> Void) {
    write(UInt64(values.count))
    for value in values { body(&self, value) }
  }

  // MARK: Parts that change independently

  /// Ends a part: the following state changes independently of the preceding state, and a store writes only the parts
  /// that have changed.
  package mutating func cut() { cuts.append(bytes.count) }

  /// Writes the output of `body`, and returns it. If it has neither times nor origins, it can be written again with
  /// ``append(encoded:)``, also in another state.
  package mutating func encoding(_ body: (inout StateWriter) -> Void) -> [UInt8] {
    let start = bytes.count
    body(&self)
    return Array(bytes[start...])
  }

  package mutating func append(encoded: [UInt8]) { bytes.append(contentsOf: encoded) }

  /// Writes a value that is not owned.
  public mutating func write(value: Value) { append(value, Self.depthLimit) }

  /// The kind of positions that sources write.
  public var positions: SavedPositions { context.positions }

  // MARK: Building blocks

  /// The moment to which times are relative.
  var now: Instant { context.isOfPage ? context.startOfPages : context.executor.now }

  func timer(_ wake: Wake) -> TimerQueue.Pending? { context.executor.pending(wake) }

  mutating func append(_ byte: UInt8) { bytes.append(byte) }

  mutating func append(fixed number: UInt64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) {
      bytes.append(UInt8(truncatingIfNeeded: number &>> shift))
    }
  }

  mutating func set(fixed number: UInt64, at start: Int) {
    for index in 0..<8 { bytes[start + index] = UInt8(truncatingIfNeeded: number &>> (8 * UInt64(index))) }
  }

  mutating func truncate(to count: Int) { bytes.removeLast(bytes.count - count) }

  /// Writes the numbered origins, which ``StateReader/readOrigins(haveIdentities:)`` reads.
  ///
  /// - Parameter haveIdentities: Whether the format has identities even if no origin has one.
  mutating func writeOrigins(haveIdentities: Bool = false) {
    let hasIdentities = hasIdentities || haveIdentities
    write(each: context.origins) { state, origin in
      state.write(origin.source)
      state.write(origin.path)
      state.write(origin.receivedAt)
      state.write(origin.fields)
      guard hasIdentities else { return }
      switch origin.identity {
      case nil: state.write(UInt8(0))
      case .origin(let name):
        state.write(UInt8(1))
        state.write(name)
      case .event(let name):
        state.write(UInt8(2))
        state.write(name)
      }
    }
  }

  /// Whether an origin has an identity, which requires another format.
  var hasIdentities: Bool { context.hasIdentities }

  mutating func append(_ other: StateWriter) { bytes.append(contentsOf: other.bytes) }

  mutating func append(counted content: UnsafeRawBufferPointer) {
    write(UInt64(content.count))
    bytes.append(contentsOf: content)
  }

  mutating func write(_ origin: Origin) { write(UInt64(context.index(of: origin))) }

  private mutating func append(_ value: Value, _ depth: Int) {
    guard depth > 0 else {
      context.fault = StateFault("a value is nested more than \(Self.depthLimit) deep")
      append(Value.Kind.null.rawValue)
      return
    }
    append(kind(of: value))
    switch value.what {
    case .absent, .null, .error: break
    case .bool: write(value.asBool)
    case .int, .duration: write(value.asInt)
    case .uint: write(value.asUInt)
    case .double where value.hasNumberText: append(counted: value.numberText)
    case .double: write(value.asDouble)
    case .string, .bytes, .type, .jsonList, .jsonMap: append(counted: value.rawBytes)
    case .timestamp:
      write(value.asInt)
      write(UInt64(value.length))
    case .list: write(each: value.elements) { $0.append($1, depth - 1) }
    case .map:
      write(each: value.entries) {
        $0.append($1.key, depth - 1)
        $0.append($1.value, depth - 1)
      }
    case .optional:
      write(value.wrapped != nil)
      if let wrapped = value.wrapped { append(wrapped, depth - 1) }
    }
  }

  /// The kind of a string with escapes.
  static let escaped: UInt8 = 0x40 | Value.Kind.string.rawValue
  /// The kind of a double that is written as its number text.
  static let numberText: UInt8 = 0x40 | Value.Kind.double.rawValue

  private func kind(of value: Value) -> UInt8 {
    switch value.what {
    // An error is the result of an expression and never part of a state.
    case .error: Value.Kind.null.rawValue
    case .string where value.isEscaped: Self.escaped
    case .double where value.hasNumberText: Self.numberText
    default: value.kind
    }
  }

  // MARK: Keys on the disk

  /// Whether the state is written with pages.
  var isPaged: Bool { context.paging != nil }

  /// Moves keys of a step with these pages to the disk; nil: all stay in memory.
  func spilling(_ pages: StatePages) -> Spilling? {
    guard pages.owner != 0, let spilling = context.paging?.spilling, spilling.isOn else { return nil }
    return spilling
  }

  /// A number for keys on the disk, under which there are none. Only while ``spilling(_:)`` moves keys.
  func newOwner() -> Int64 {
    guard let paging = context.paging else { preconditionFailure("a state without pages has no owners") }
    return paging.newOwner()
  }

  /// Notes that the state has keys on the disk.
  func add(_ spilled: SpilledOwner) { context.spilled.append(spilled) }

  // MARK: Records

  /// Writes a record: its key, its length, and the output of `body`. A record that could not be read again is left out,
  /// and the table keeps the fault.
  mutating func record(_ entry: StateTable.Key, _ body: (inout StateWriter) -> Void) {
    let start = bytes.count
    let index = context.steps.index(of: entry, isInPage: context.isOfPage)
    write(UInt64(index))
    let outer = context.fault
    context.fault = nil
    let isOutermost = context.outerRecord == nil
    if isOutermost { context.outerRecord = index }
    part(body)
    if isOutermost { context.outerRecord = nil }
    if let fault = context.fault {
      bytes.removeLast(bytes.count - start)
      context.steps.add(fault, of: entry, isInPage: context.isOfPage)
    }
    context.fault = outer
  }

  /// Writes a step's own state, inside its record.
  mutating func own(_ step: StepID, _ body: (inout StateWriter) -> Void) {
    let start = bytes.count
    body(&self)
    guard !context.isOfKeys else { return }
    context.steps.sizes[step.number] += bytes.count - start + context.pageBytes
    context.pageBytes = 0
  }

  /// The number of bytes of a part before its contents.
  static let partHead = 4

  /// Writes the output of `body`, preceded by its length.
  mutating func part(_ body: (inout StateWriter) -> Void) {
    let at = bytes.count
    bytes.append(contentsOf: [0, 0, 0, 0])
    body(&self)
    let count = bytes.count - at - 4
    for index in 0..<4 { bytes[at + index] = UInt8(truncatingIfNeeded: count >> (8 * index)) }
  }
}

extension StateWriter {
  /// Writes a step's state for each of its numbered keys; ``StateReader/readPages(_:_:then:)`` reads it.
  ///
  /// - Parameters:
  ///   - keys: The count of numbers; some may no longer have a key.
  ///   - body: Writes the state of the keys with the numbers of the range; nothing if all are gone. Its output must not
  ///     depend on anything that is not marked.
  mutating func write(_ pages: StatePages, keys: Int, _ body: (inout StateWriter, Range<Int>) -> Void) {
    func range(_ page: Int) -> Range<Int> {
      min(keys, page * StatePages.keysOfPage)..<min(keys, (page + 1) * StatePages.keysOfPage)
    }
    guard let paging = context.paging, paging.takes(pages, keys: keys) else {
      write(UInt8(0))
      let isInside = context.isOfKeys
      context.isOfKeys = true
      defer { context.isOfKeys = isInside }
      part { state in
        var first = 0
        while first < keys {
          body(&state, first..<min(keys, first + StatePages.keysOfPage))
          first += StatePages.keysOfPage
        }
      }
      return
    }
    if pages.owner == 0 { pages.begin(paging.newOwner(), keys: keys) }
    if _isDebugAssertConfiguration() { pages.checkUnmarked { page(of: range($0), body) } }
    pages.writeMarked(paging) { page(of: range($0), body) }
    write(UInt8(1))
    write(pages.owner)
    write(UInt64(pages.count))
    paging.add(pages, of: context.outerRecord ?? 0)
    context.pageBytes += pages.bytes
  }

  /// The output of `body` after the origins of its events, as it is read with ``StateReader/readOrigins(haveIdentities:)``; its times are
  /// relative to `epoch`. Nil: a value cannot be written.
  static func bytesWithOrigins(
    _ executor: Executor, epoch: Instant, _ body: (inout StateWriter) -> Void
  ) -> [UInt8]? {
    let context = Context(pageOf: Context(executor, StateTable.Builder(), .taken, startOfPages: epoch))
    var content = StateWriter(context)
    body(&content)
    guard context.fault == nil else { return nil }
    var whole = StateWriter(context)
    whole.writeOrigins(haveIdentities: true)
    whole.append(content)
    return whole.bytes
  }

  /// The bytes of a page: the origins of its events, and the output of `body`. Nil: a value cannot be written, so the
  /// record is left out.
  private func page(of keys: Range<Int>, _ body: (inout StateWriter, Range<Int>) -> Void) -> [UInt8]? {
    let context = Context(pageOf: context)
    var content = StateWriter(context)
    body(&content, keys)
    if let fault = context.fault {
      self.context.fault = self.context.fault ?? fault
      return nil
    }
    if content.bytes.isEmpty { return [] }
    var page = StateWriter(context)
    page.writeOrigins()
    page.append(content)
    return page.bytes
  }
}
