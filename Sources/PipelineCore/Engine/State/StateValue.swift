/// A part of an operator's state, which can be written and read, in a form that stays the same across versions.
///
/// Each value takes at least one byte, so a count is never larger than the number of bytes after it.
public protocol StateValue {
  /// Writes the value.
  func save(to state: inout StateWriter)
  /// Reads the output of ``save(to:)``; throws if the bytes are not of this type.
  init(from state: inout StateReader) throws(StateFault)
}

/// Why a saved state cannot be used. The node that it belongs to starts empty; everything else continues.
public struct StateFault: Error, Sendable, Equatable {
  /// A clause without full stop: `the counter is negative`.
  public var message: String
  /// A fault with its reason.
  public init(_ message: String) { self.message = message }

  static let truncated = StateFault("it ends too early")
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
  public func save(to state: inout StateWriter) {
    UInt64(bitPattern: (self &<< 1) ^ (self &>> 63)).save(to: &state)
  }
  public init(from state: inout StateReader) throws(StateFault) {
    let folded = try UInt64(from: &state)
    self = Int64(bitPattern: folded &>> 1) ^ -Int64(bitPattern: folded & 1)
  }
}

extension Int: StateValue {
  public func save(to state: inout StateWriter) { Int64(self).save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) {
    self = Int(try Int64(from: &state))
  }
}

extension Double: StateValue {
  public func save(to state: inout StateWriter) { state.append(fixed: bitPattern) }
  public init(from state: inout StateReader) throws(StateFault) {
    self = Double(bitPattern: try state.fixed64())
  }
}

extension String: StateValue {
  public func save(to state: inout StateWriter) {
    var text = self
    text.withUTF8 { state.append(counted: UnsafeRawBufferPointer($0)) }
  }
  public init(from state: inout StateReader) throws(StateFault) {
    let bytes = try state.counted()
    guard bytes.withUnsafeBytes(UTF8Text.isValid) else { throw StateFault("a text is not UTF-8") }
    self = String(decoding: bytes, as: UTF8.self)
  }
}

extension UInt8: StateValue {
  public func save(to state: inout StateWriter) { state.append(self) }
  public init(from state: inout StateReader) throws(StateFault) { self = try state.byte() }
}

extension TimeSpan: StateValue {
  public func save(to state: inout StateWriter) { nanoseconds.save(to: &state) }
  public init(from state: inout StateReader) throws(StateFault) {
    self.init(nanoseconds: try Int64(from: &state))
  }
}

/// Written relative to the moment of saving, and read relative to ``StateReader/now``.
extension Instant: StateValue {
  public func save(to state: inout StateWriter) {
    let isFinite = self != .distantFuture
    isFinite.save(to: &state)
    if isFinite { (self - state.now).save(to: &state) }
  }
  public init(from state: inout StateReader) throws(StateFault) {
    let isFinite = try Bool(from: &state)
    self = isFinite ? state.now + (try TimeSpan(from: &state)) : .distantFuture
  }
}

/// A pending timer, with its order among timers of the same instant; reading it schedules it for the restored node.
extension Wake: StateValue {
  public func save(to state: inout StateWriter) {
    let timer = state.timer(self)
    (timer != nil).save(to: &state)
    guard let timer else { return }
    timer.deadline.save(to: &state)
    timer.sequence.save(to: &state)
    timer.token.save(to: &state)
  }
  public init(from state: inout StateReader) throws(StateFault) {
    guard try Bool(from: &state) else {
      self = .none
      return
    }
    let deadline = try Instant(from: &state)
    let sequence = try UInt64(from: &state)
    self = try state.schedule(at: deadline, sequence, try Int(from: &state))
  }
}

extension OwnedValue: StateValue {
  public func save(to state: inout StateWriter) { state.write(value: value) }
  public init(from state: inout StateReader) throws(StateFault) { self = try state.ownedValue() }
}

extension StateWriter {
  /// Writes an event that is not owned; ``OwnedEvent`` reads it. The reply target, an HTTP request that waits for its
  /// answer, is not saved.
  mutating func write(_ event: Event) {
    write(value: event.value)
    write(value: event.key)
    write(event.origin.takeUnretainedValue())
    event.position.save(to: &self)
  }
}

extension OwnedEvent: StateValue {
  public func save(to state: inout StateWriter) { state.write(event) }
  public init(from state: inout StateReader) throws(StateFault) {
    let value = try OwnedValue(from: &state)
    let key = try OwnedValue(from: &state)
    let origin = try state.origin()
    let position = try Int64(from: &state)
    self.init(Event(value.value, key: key.value, origin: origin, position: position))
  }
}

extension Optional: StateValue where Wrapped: StateValue {
  public func save(to state: inout StateWriter) {
    (self != nil).save(to: &state)
    if let self { self.save(to: &state) }
  }
  public init(from state: inout StateReader) throws(StateFault) {
    self = try Bool(from: &state) ? try Wrapped(from: &state) : nil
  }
}

extension Array: StateValue where Element: StateValue {
  public func save(to state: inout StateWriter) { state.write(each: self) }
  public init(from state: inout StateReader) throws(StateFault) {
    self = []
    for _ in 0..<(try state.count()) { append(try Element(from: &state)) }
  }
}
