public import CJSON

/// One value of an event: sixteen trivially copyable bytes, no reference counting.
///
/// A larger value points into memory with another owner: the slab of its batch, the turn's ``Arena``, or a literal of a
/// compiled expression. It is valid until the end of the turn; an owner that keeps it longer copies it into an
/// ``OwnedValue``.
public typealias Value = rx_value

/// One member of a map.
public typealias Entry = rx_entry

// CJSON belongs to this package, so no other module can add these conformances.
// swift-format-ignore: AvoidRetroactiveConformances
extension Value: @unchecked @retroactive Sendable {}
// swift-format-ignore: AvoidRetroactiveConformances
extension Entry: @unchecked @retroactive Sendable {}

extension Value {
  /// The kind of a value.
  public enum Kind: UInt8, Sendable {
    case absent = 0
    case null = 1
    case bool = 2
    case int = 3
    case uint = 4
    case double = 5
    case string = 6
    case bytes = 7
    case list = 8
    case map = 9
    /// An array that is still JSON text.
    case jsonList = 10
    /// An object that is still JSON text.
    case jsonMap = 11
    case timestamp = 12
    case duration = 13
    case type = 14
    case optional = 15
    case error = 16
  }

  @inline(__always)
  package init(kind: Kind, payload: UInt64 = 0, length: UInt32 = 0, flags: UInt8 = 0, aux: UInt16 = 0) {
    self.init(
      payload: payload,
      head: UInt64(kind.rawValue) | UInt64(flags) << 8 | UInt64(aux) << 16 | UInt64(length) << 32)
  }

  // MARK: The parts of `head`, in the order in which `rx_value.h` has them for C++

  /// One of ``Kind``'s raw values.
  @inline(__always)
  package var kind: UInt8 { UInt8(truncatingIfNeeded: head) }
  @inline(__always)
  package var flags: UInt8 {
    get { UInt8(truncatingIfNeeded: head >> 8) }
    set { head = head & ~0xFF00 | UInt64(newValue) << 8 }
  }
  @inline(__always)
  package var aux: UInt16 {
    get { UInt16(truncatingIfNeeded: head >> 16) }
    set { head = head & ~0xFFFF_0000 | UInt64(newValue) << 16 }
  }
  /// The number of bytes, elements or members.
  @inline(__always)
  package var length: UInt32 {
    get { UInt32(truncatingIfNeeded: head >> 32) }
    set { head = head & 0xFFFF_FFFF | UInt64(newValue) << 32 }
  }

  /// The kind as an enum; `kind` itself is the byte that hot code compares.
  @inline(__always)
  public var what: Kind {
    // The cases are declared in the order of their raw values, from 0, so the byte is the case.
    unsafeBitCast(kind, to: Kind.self)
  }

  /// Whether the value is of this kind.
  @inline(__always)
  public func `is`(_ other: Kind) -> Bool { kind == other.rawValue }

  // MARK: Making values

  /// No value: the result of reading a missing field. It cannot be written.
  @inline(__always) public static var absent: Value { Value(kind: .absent) }
  /// JSON's `null`.
  @inline(__always) public static var null: Value { Value(kind: .null) }
  /// A boolean.
  @inline(__always) public static func bool(_ flag: Bool) -> Value {
    Value(kind: .bool, payload: flag ? 1 : 0)
  }
  /// A whole number.
  @inline(__always) public static func int(_ number: Int64) -> Value {
    Value(kind: .int, payload: UInt64(bitPattern: number))
  }
  /// A whole number.
  @inline(__always) public static func int(_ number: Int) -> Value { .int(Int64(number)) }
  /// A whole number from 0 to 2^64 - 1.
  @inline(__always) public static func uint(_ number: UInt64) -> Value {
    Value(kind: .uint, payload: number)
  }
  /// A floating-point number.
  @inline(__always) public static func double(_ number: Double) -> Value {
    Value(kind: .double, payload: number.bitPattern)
  }
  /// A double that is written as `text`, a JSON number; a text longer than 255 bytes is dropped. The bytes must outlive
  /// the value.
  static func double(_ number: Double, text: UnsafeRawBufferPointer) -> Value {
    let address = UInt64(UInt(bitPattern: text.baseAddress))
    guard (1...Int(RX_TEXT_LIMIT)).contains(text.count), address >> 48 == 0 else { return .double(number) }
    return Value(
      payload: number.bitPattern, head: UInt64(Kind.double.rawValue) | UInt64(text.count) << 8 | address << 16)
  }
  /// A timestamp. `nanoseconds` must be within the second: 0 ..< 1,000,000,000.
  @inline(__always) public static func timestamp(seconds: Int64, nanoseconds: UInt32) -> Value {
    Value(kind: .timestamp, payload: UInt64(bitPattern: seconds), length: nanoseconds)
  }
  /// A duration, in nanoseconds.
  @inline(__always) public static func duration(nanoseconds: Int64) -> Value {
    Value(kind: .duration, payload: UInt64(bitPattern: nanoseconds))
  }
  /// A string. The bytes must outlive the value; they must be valid UTF-8.
  @inline(__always) package static func string(_ bytes: UnsafeRawBufferPointer) -> Value {
    Value(kind: .string, pointer: bytes.baseAddress, length: bytes.count)
  }
  @inline(__always) package static func bytes(_ bytes: UnsafeRawBufferPointer) -> Value {
    Value(kind: .bytes, pointer: bytes.baseAddress, length: bytes.count)
  }
  /// A string that lives as long as the process.
  @inline(__always) public static func literal(_ text: StaticString) -> Value {
    Value(kind: .string, pointer: UnsafeRawPointer(text.utf8Start), length: text.utf8CodeUnitCount)
  }

  @inline(__always)
  package init(kind: Kind, pointer: UnsafeRawPointer?, length: Int, flags: UInt8 = 0) {
    self.init(
      kind: kind, payload: UInt64(UInt(bitPattern: pointer)), length: UInt32(truncatingIfNeeded: length),
      flags: flags)
  }

  // MARK: Reading values. Each property assumes the kind in its name.

  /// Whether a boolean is true.
  @inline(__always) public var asBool: Bool { payload != 0 }
  /// The number of an `int`; the nanoseconds of a `duration`; the seconds since 1970 of a `timestamp`.
  @inline(__always) public var asInt: Int64 { Int64(bitPattern: payload) }
  /// The number of a `uint`.
  @inline(__always) public var asUInt: UInt64 { payload }
  /// The number of a `double`.
  @inline(__always) public var asDouble: Double { Double(bitPattern: payload) }
  /// Whether a double has a number text, because its shortest form differs (`1.50`, `1e3`, 30 digits). Only writers use
  /// the text; everything else uses the number.
  @inline(__always) var hasNumberText: Bool { flags != 0 }
  /// The number text of a double, a JSON number; empty if there is none.
  @inline(__always) var numberText: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: UnsafeRawPointer(bitPattern: UInt(head >> 16)), count: Int(flags))
  }
  /// The value without a number text.
  package var withoutNumberText: Value { self.is(.double) ? .double(asDouble) : self }
  @inline(__always) package var pointer: UnsafeRawPointer? {
    UnsafeRawPointer(bitPattern: UInt(payload))
  }
  /// The bytes of a string, of bytes, of a type's name or of JSON text. If ``isEscaped``, the content of a JSON literal
  /// with its backslashes.
  @inline(__always) package var rawBytes: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: pointer, count: Int(length))
  }
  @inline(__always) package var isEscaped: Bool { flags & 1 != 0 }
  /// Whether JSON text is known to be well formed: its whole grammar, or that of the text that contains it, has been
  /// checked.
  @inline(__always) var isChecked: Bool { aux & UInt16(RX_CHECKED) != 0 }

  /// JSON text that is a part of `text`: checked if `text` is.
  @inline(__always)
  func part(of text: Value) -> Value {
    guard text.isChecked, self.is(.jsonMap) || self.is(.jsonList) else { return self }
    return Value(kind: what, payload: payload, length: length, flags: flags, aux: UInt16(RX_CHECKED))
  }

  /// Whether a string is known to need no escape in JSON. Only a hint.
  @inline(__always) var isPlain: Bool { aux & UInt16(RX_PLAIN) != 0 }

  var hasNothingToEscape: Bool {
    !isEscaped && rawBytes.allSatisfy { $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }
  }

  /// The string with the hint, if it needs no escape.
  func markedPlain() -> Value {
    guard self.is(.string), hasNothingToEscape else { return self }
    var marked = self
    marked.aux = UInt16(RX_PLAIN)
    return marked
  }

  /// The elements of a `list`; not of a `jsonList`. Valid until the end of the turn.
  @inline(__always) public var elements: UnsafeBufferPointer<Value> {
    UnsafeBufferPointer(
      start: pointer?.assumingMemoryBound(to: Value.self), count: Int(length))
  }
  /// The members of a `map`, in their order; not of a `jsonMap`. Valid until the end of the turn.
  @inline(__always) public var entries: UnsafeBufferPointer<Entry> {
    UnsafeBufferPointer(
      start: pointer?.assumingMemoryBound(to: Entry.self), count: Int(length))
  }
  /// The value inside an optional, or nil for `optional.none()`.
  @inline(__always) package var wrapped: Value? {
    pointer?.assumingMemoryBound(to: Value.self).pointee
  }

  /// Whether there is no value, as for a missing field.
  @inline(__always) public var isAbsent: Bool { kind == Kind.absent.rawValue }
  /// Whether it is JSON's `null`.
  @inline(__always) public var isNull: Bool { kind == Kind.null.rawValue }
  /// Whether it is the failure of an expression.
  @inline(__always) public var isError: Bool { kind == Kind.error.rawValue }
  @inline(__always) package var isTrue: Bool { kind == Kind.bool.rawValue && payload != 0 }
  /// Whether it is a list, including one that is still JSON text.
  @inline(__always) public var isAnyList: Bool {
    kind == Kind.list.rawValue || kind == Kind.jsonList.rawValue
  }
  /// Whether it is an object, including one that is still JSON text.
  @inline(__always) public var isAnyMap: Bool {
    kind == Kind.map.rawValue || kind == Kind.jsonMap.rawValue
  }
}
