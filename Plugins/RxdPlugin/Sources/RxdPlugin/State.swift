/// A value that a state contains. Its encoding must stay the same across versions.
public protocol StateValue {
  func save(to state: inout StateWriter)
  init(from state: inout StateReader) throws(StateFault)
}

/// Why a saved state cannot be used. The instance is refused, and rxd reports the reason.
public struct StateFault: Error, Sendable, Equatable {
  /// A clause without full stop: `the counter is negative`.
  public var message: String
  public init(_ message: String) { self.message = message }

  static let truncated = StateFault("it ends too early")
}

/// The part of a running component that outlives the process.
public enum Persistence: Sendable, Equatable {
  /// The component has no state.
  case nothing
  /// The component saves and restores its state with `save` and `restore`. A new format needs a higher version.
  case state(version: Int)
  /// The positions of a source, valid for any parameters.
  case position(version: Int)
}

/// The position up to which a source saves.
public enum SavedPositions: Sendable {
  /// The position after the events sent so far: rxd keeps each position until the events before it are acknowledged.
  case taken
  /// The position after the acknowledged events.
  case acknowledged
}

/// Writes the state of a node: `state.write(held)`. Values are read in the order in which they were written.
public struct StateWriter {
  private(set) var bytes: [UInt8] = []

  init() {}

  public mutating func write(_ value: some StateValue) { value.save(to: &self) }

  /// Writes a list of values, which ``StateReader/read(_:)`` reads as an array.
  public mutating func write<S: Collection>(each values: S) where S.Element: StateValue {
    write(UInt64(values.count))
    for value in values { value.save(to: &self) }
  }

  /// Writes a list of any elements: ``StateReader/count()`` reads the length, and the caller then reads each element.
  /// `body` must write at least one byte.
  public mutating func write<S: Collection>(each values: S, _ body: (inout StateWriter, S.Element) -> Void) {
    write(UInt64(values.count))
    for value in values { body(&self, value) }
  }

  /// Writes a value that is not owned.
  public mutating func write(value: Value) { append(counted: value.encoded) }

  /// The position that a source writes.
  public var positions: SavedPositions { .taken }

  mutating func append(_ byte: UInt8) { bytes.append(byte) }
  mutating func append(counted content: some Collection<UInt8>) {
    write(UInt64(content.count))
    bytes.append(contentsOf: content)
  }
}

/// Reads the output of a ``StateWriter``, in the same order: `held = try state.read()`. The bytes may be damaged: every value is
/// checked.
public struct StateReader {
  /// The version of the component's state when it was written.
  public let version: Int
  private let bytes: [UInt8]
  private var at = 0
  let timers: Timers?

  init(_ bytes: [UInt8], version: Int, _ timers: Timers?) {
    self.bytes = bytes
    self.version = version
    self.timers = timers
  }

  public mutating func read<T: StateValue>(_ type: T.Type = T.self) throws(StateFault) -> T { try T(from: &self) }

  /// Reads a number and checks that it lies in `range`.
  public mutating func read(in range: ClosedRange<Int>) throws(StateFault) -> Int {
    let number = try Int(from: &self)
    guard range.contains(number) else {
      throw StateFault("a number is \(number), which is not within \(range.lowerBound) ... \(range.upperBound)")
    }
    return number
  }

  /// Reads the number of elements that follow; never more than the number of remaining bytes.
  public mutating func count() throws(StateFault) -> Int {
    let count = try UInt64(from: &self)
    guard count <= UInt64(bytes.count - at) else { throw .truncated }
    return Int(count)
  }

  /// Whether everything has been read.
  public var isAtEnd: Bool { at == bytes.count }

  mutating func byte() throws(StateFault) -> UInt8 {
    guard at < bytes.count else { throw .truncated }
    defer { at += 1 }
    return bytes[at]
  }

  mutating func counted() throws(StateFault) -> [UInt8] {
    let count = try self.count()
    defer { at += count }
    return Array(bytes[at..<at + count])
  }
}

extension Bool: StateValue {
  public func save(to state: inout StateWriter) { state.append(self ? 1 : 0) }
  public init(from state: inout StateReader) throws(StateFault) {
    switch try state.byte() {
    case 0: self = false
    case 1: self = true
    default: throw StateFault("a flag is neither set nor cleared")
    }
  }
}

extension UInt8: StateValue {
  public func save(to state: inout StateWriter) { state.append(self) }
  public init(from state: inout StateReader) throws(StateFault) { self = try state.byte() }
}

extension UInt64: StateValue {
  public func save(to state: inout StateWriter) {
    var rest = self
    while rest >= 0x80 {
      state.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    state.append(UInt8(rest))
  }
  public init(from state: inout StateReader) throws(StateFault) {
    var value: UInt64 = 0
    for shift in stride(from: UInt64(0), to: 70, by: 7) {
      let byte = try state.byte()
      // The tenth byte has one bit left.
      if shift == 63, byte > 1 { break }
      value |= UInt64(byte & 0x7F) << shift
      if byte < 0x80 {
        self = value
        return
      }
    }
    throw StateFault("a number is too large")
  }
}

extension Int64: StateValue {
  public func save(to state: inout StateWriter) { UInt64(bitPattern: (self &<< 1) ^ (self &>> 63)).save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) {
    let folded = try UInt64(from: &state)
    self = Int64(bitPattern: folded &>> 1) ^ -Int64(bitPattern: folded & 1)
  }
}

extension Int: StateValue {
  public func save(to state: inout StateWriter) { Int64(self).save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) { self = Int(try Int64(from: &state)) }
}

extension Double: StateValue {
  public func save(to state: inout StateWriter) { bitPattern.save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) { self = Double(bitPattern: try UInt64(from: &state)) }
}

extension String: StateValue {
  public func save(to state: inout StateWriter) { state.append(counted: utf8) }
  public init(from state: inout StateReader) throws(StateFault) {
    guard let text = String(validating: try state.counted(), as: UTF8.self) else {
      throw StateFault("a text is not UTF-8")
    }
    self = text
  }
}

extension TimeSpan: StateValue {
  public func save(to state: inout StateWriter) { nanoseconds.save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) { self.init(nanoseconds: try Int64(from: &state)) }
}

extension Instant: StateValue {
  public func save(to state: inout StateWriter) { nanoseconds.save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) { self.init(nanoseconds: try Int64(from: &state)) }
}

extension Wake: StateValue {
  public func save(to state: inout StateWriter) {
    state.write(number)
    state.write(token)
  }
  public init(from state: inout StateReader) throws(StateFault) {
    let wake = Wake(number: try state.read(), token: try state.read())
    // A source sets its timers again itself.
    guard wake.isSet, let timers = state.timers else {
      self = .none
      return
    }
    guard timers.adopt(wake) else { throw StateFault("a timer has no owner") }
    self = wake
  }
}

extension OwnedValue: StateValue {
  public func save(to state: inout StateWriter) { state.append(counted: encoded) }
  public init(from state: inout StateReader) throws(StateFault) {
    guard let value = Arena.current.decode(try state.counted()) else { throw StateFault("a value is damaged") }
    self.init(value)
  }
}

extension OwnedEvent: StateValue {
  public func save(to state: inout StateWriter) { state.write(value) }
  public init(from state: inout StateReader) throws(StateFault) {
    self.init(Event(try OwnedValue(from: &state).value))
  }
}

extension Optional: StateValue where Wrapped: StateValue {
  public func save(to state: inout StateWriter) {
    state.write(self != nil)
    if let value = self { state.write(value) }
  }
  public init(from state: inout StateReader) throws(StateFault) {
    self = try state.read(Bool.self) ? .some(try state.read()) : .none
  }
}

extension Array: StateValue where Element: StateValue {
  public func save(to state: inout StateWriter) { state.write(each: self) }
  public init(from state: inout StateReader) throws(StateFault) {
    self = []
    for _ in 0..<(try state.count()) { append(try state.read()) }
  }
}
