/// The positions of sources that a state holds.
public enum SavedPositions: Sendable {
  /// After the input that turns have taken, which fits the state of the operators.
  case taken
  /// After the acknowledged input: later input is read again.
  case acknowledged
}

/// Writes the state of a node: `state.write(held)`.
///
/// Values are read in the order in which they were written. Times are written relative to the moment of saving.
public struct StateWriter {
  private(set) var bytes: [UInt8] = []
  /// The ends of parts that change independently, ascending; some may lie behind the end.
  private(set) var cuts: [Int] = []
  private let context: Context
  /// The deepest nesting of lists and maps; deeper ones would overflow the reader's stack.
  static let depthLimit = 128

  /// The context that all writers of one saving share.
  final class Context {
    let executor: Executor
    let steps: StateTable.Builder
    let positions: SavedPositions
    private(set) var origins: [Origin] = []
    private(set) var hasIdentities = false
    private var originIndex: [ObjectIdentifier: Int] = [:]
    /// Why the record that is being written cannot be used.
    var fault: StateFault?

    init(_ executor: Executor, _ steps: StateTable.Builder, _ positions: SavedPositions) {
      self.positions = positions
      self.executor = executor
      self.steps = steps
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

  /// - Parameter capacity: How many bytes will probably be written; a guess.
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

  /// Writes a list of anything: ``StateReader/count()`` reads the length, then each element is read in turn. `body`
  /// writes at least one byte.
  public mutating func write<S: Collection>(each values: S, _ body: (inout StateWriter, S.Element) -> Void) {
    write(UInt64(values.count))
    for value in values { body(&self, value) }
  }

  // MARK: Parts that change independently

  /// Ends a part: the following state changes independently of the preceding state, and a store writes only the parts that have changed.
  package mutating func cut() { cuts.append(bytes.count) }

  /// Writes what `body` writes, and returns it. It can be written again with ``append(encoded:)``, in another state too, if it has
  /// neither times nor origins.
  package mutating func encoding(_ body: (inout StateWriter) -> Void) -> [UInt8] {
    let start = bytes.count
    body(&self)
    return Array(bytes[start...])
  }

  package mutating func append(encoded: [UInt8]) { bytes.append(contentsOf: encoded) }

  /// Writes a value that is not owned.
  public mutating func write(value: Value) { append(value, Self.depthLimit) }

  /// The position that a source writes.
  public var positions: SavedPositions { context.positions }

  // MARK: Building blocks

  var now: Instant { context.executor.now }

  func timer(_ wake: Wake) -> TimerQueue.Pending? { context.executor.pending(wake) }

  mutating func append(_ byte: UInt8) { bytes.append(byte) }

  mutating func append(fixed number: UInt64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) {
      bytes.append(UInt8(truncatingIfNeeded: number &>> shift))
    }
  }

  mutating func truncate(to count: Int) { bytes.removeLast(bytes.count - count) }

  /// Writes the origins that have been numbered, which ``StateReader/readOrigins()`` reads.
  mutating func writeOrigins() {
    let hasIdentities = hasIdentities
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

  /// Whether an origin has an identity, which another format has.
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
    // An error is the result of an expression and never state.
    case .error: Value.Kind.null.rawValue
    case .string where value.isEscaped: Self.escaped
    case .double where value.hasNumberText: Self.numberText
    default: value.kind
    }
  }

  // MARK: Records

  /// Writes a record: its key, its length, and what `body` writes. A record that could not be read again is left out,
  /// and `context.fault` says why.
  mutating func record(_ entry: StateTable.Key, _ body: (inout StateWriter) -> Void) {
    let start = bytes.count
    write(UInt64(context.steps.index(of: entry)))
    let outer = context.fault
    context.fault = nil
    part(body)
    if let fault = context.fault {
      bytes.removeLast(bytes.count - start)
      context.steps.faults.append((entry, fault))
    }
    context.fault = outer
  }

  /// Writes a step's own state, inside its record.
  mutating func own(_ step: StepID, _ body: (inout StateWriter) -> Void) {
    let start = bytes.count
    body(&self)
    context.steps.sizes[step.number] += bytes.count - start
  }

  /// How many bytes a part has before its contents.
  static let partHead = 4

  /// Writes what `body` writes, preceded by its length.
  mutating func part(_ body: (inout StateWriter) -> Void) {
    let at = bytes.count
    bytes.append(contentsOf: [0, 0, 0, 0])
    body(&self)
    let count = bytes.count - at - 4
    for index in 0..<4 { bytes[at + index] = UInt8(truncatingIfNeeded: count >> (8 * index)) }
  }
}
