import CRxdPlugin

/// A value of an event. It is valid until the current call returns; store an ``OwnedValue`` to keep it.
public struct Value {
  var raw: rxd_value
  /// The memory of the value; nil for numbers, times and null, which need none.
  let scope: OpaquePointer?

  /// The kind of a value.
  public enum Kind: UInt8, Sendable {
    case absent, null, bool, int, uint, double, string, bytes, list, map, timestamp, duration, other
  }

  @inline(__always)
  init(_ raw: rxd_value, _ scope: OpaquePointer?) {
    self.raw = raw
    self.scope = scope
  }

  // MARK: Making values; an ``Arena`` makes the others

  /// There is no value.
  public static var absent: Value { Value(rxd_value(), nil) }
  public static var null: Value { Value(host.make_null(), nil) }
  public static func bool(_ flag: Bool) -> Value { Value(host.make_bool(flag ? 1 : 0), nil) }
  public static func int(_ number: Int64) -> Value { Value(host.make_int(number), nil) }
  public static func int(_ number: Int) -> Value { .int(Int64(number)) }
  public static func double(_ number: Double) -> Value { Value(host.make_double(number), nil) }
  /// Makes a timestamp from nanoseconds since 1970.
  public static func timestamp(wallTime: Int64) -> Value { Value(host.make_timestamp(wallTime), nil) }
  public static func duration(nanoseconds: Int64) -> Value { Value(host.make_duration(nanoseconds), nil) }

  // MARK: Reading values

  /// The kind as an enum.
  public var what: Kind {
    withUnsafePointer(to: raw) { Kind(rawValue: UInt8(truncatingIfNeeded: host.kind($0))) ?? .other }
  }
  @inline(__always)
  public func `is`(_ other: Kind) -> Bool { withUnsafePointer(to: raw) { host.kind($0) } == Int32(other.rawValue) }

  /// The kind in words: "a text".
  public var kindName: String {
    switch what {
    case .absent: "nothing"
    case .null: "null"
    case .bool: "a boolean"
    case .int, .uint: "a whole number"
    case .double: "a number"
    case .string: "a text"
    case .bytes: "bytes"
    case .list: "a list"
    case .map: "an object"
    case .timestamp: "a time"
    case .duration: "a duration"
    case .other: "a value of another kind"
    }
  }

  public var isAbsent: Bool { self.is(.absent) }
  public var isNull: Bool { self.is(.null) }
  public var isTrue: Bool { withUnsafePointer(to: raw) { host.boolean($0) } != 0 }
  /// Always false: rxd rejects an event whose expression fails before the plugin receives it.
  public var isError: Bool { false }
  public var isAnyList: Bool { self.is(.list) }
  public var isAnyMap: Bool { self.is(.map) }

  /// The boolean; false for other kinds.
  public var asBool: Bool { isTrue }
  /// A whole number, a time (nanoseconds since 1970) or a duration (nanoseconds); 0 for other kinds.
  public var asInt: Int64 { withUnsafePointer(to: raw) { host.integer($0) } }
  /// The whole number; 0 for other kinds.
  public var asUInt: UInt64 { UInt64(json) ?? 0 }
  /// The number of any numeric kind; 0 for other kinds.
  public var asDouble: Double { withUnsafePointer(to: raw) { host.number($0) } }
  /// The bytes of a text or of bytes, valid as long as the value; empty for other kinds.
  public var rawBytes: UnsafeRawBufferPointer { withUnsafePointer(to: raw) { host.text(scope, $0).buffer } }

  /// The boolean; nil for other kinds.
  public var bool: Bool? { self.is(.bool) ? asBool : nil }
  /// A whole number that fits, a time (nanoseconds since 1970) or a duration (nanoseconds); nil for other kinds.
  public var int: Int64? {
    switch what {
    case .int, .timestamp, .duration: asInt
    default: nil
    }
  }
  /// The number of any numeric kind; nil for other kinds.
  public var double: Double? {
    switch what {
    case .int, .uint, .double: asDouble
    default: nil
    }
  }
  public var text: String? { self.is(.string) ? String(decoding: rawBytes, as: UTF8.self) : nil }
  public var bytes: [UInt8]? { self.is(.bytes) ? Array(rawBytes) : nil }
  public var duration: TimeSpan? { self.is(.duration) ? TimeSpan(nanoseconds: asInt) : nil }

  /// The number of members or elements.
  public var count: Int { withUnsafePointer(to: raw) { host.count(scope, $0) } }
  /// The member of an object; absent if there is none.
  public subscript(name: String) -> Value {
    name.withText { name in withUnsafePointer(to: raw) { Value(host.member(scope, $0, name), scope) } }
  }
  /// The element of a list; absent past the end.
  public subscript(index: Int) -> Value { withUnsafePointer(to: raw) { Value(host.element(scope, $0, index), scope) } }

  /// The elements of a list.
  public var elements: Elements { Elements(value: self, count: self.is(.list) ? count : 0) }
  /// The entries of an object, in order.
  public var entries: Entries { Entries(value: self, count: self.is(.map) ? count : 0) }
  /// The members of an object, in order.
  public var members: [(name: String, value: Value)] { entries.map { ($0.key.text ?? "", $0.value) } }

  /// The value as JSON, on one line.
  public var json: String { withUnsafePointer(to: raw) { host.json(scope, $0).string } }
  /// The value as bytes that ``Arena/decode(_:)`` can read, even in another process and a later version.
  public var encoded: [UInt8] {
    withUnsafePointer(to: raw) { Array(host.encode(scope ?? rxd_swift_scope(), $0).buffer) }
  }

  /// A copy of the object with this member set.
  public func with(_ name: String, _ value: Value) -> Value {
    name.withText { name in
      withUnsafePointer(to: raw) { object in
        withUnsafePointer(to: value.raw) { Value(host.with_member(scope, object, name, $0), scope) }
      }
    }
  }

  /// The elements of a list.
  public struct Elements: RandomAccessCollection {
    let value: Value
    public let count: Int
    public var startIndex: Int { 0 }
    public var endIndex: Int { count }
    public subscript(index: Int) -> Value { value[index] }
  }

  /// The entries of a map.
  public struct Entries: RandomAccessCollection {
    let value: Value
    public let count: Int
    public var startIndex: Int { 0 }
    public var endIndex: Int { count }
    public subscript(index: Int) -> Entry {
      var name = rxd_text()
      let member = withUnsafePointer(to: value.raw) { host.entry(value.scope, $0, index, &name) }
      return Entry(key: Value(host.make_text(value.scope, name), value.scope), value: Value(member, value.scope))
    }
  }

  /// Compares by content: numbers of different kinds are equal if their values are, and the order of members does not matter.
  func equals(_ other: Value) -> Bool {
    switch (what, other.what) {
    case (.int, .int), (.timestamp, .timestamp), (.duration, .duration): return asInt == other.asInt
    case (.bool, .bool): return asBool == other.asBool
    case (.int, .uint), (.uint, .int): return false
    case (.int, .double), (.double, .int), (.double, .double), (.uint, .double), (.double, .uint):
      return asDouble == other.asDouble
    case (.uint, .uint): return json == other.json
    case (.string, .string), (.bytes, .bytes): return rawBytes.elementsEqual(other.rawBytes)
    case (.null, .null), (.absent, .absent): return true
    case (.list, .list): return count == other.count && zip(elements, other.elements).allSatisfy { $0.equals($1) }
    case (.map, .map): return count == other.count && entries.allSatisfy { $0.value.equals(other[$0.key.text ?? ""]) }
    default: return false
    }
  }
}

/// A member of an object.
public struct Entry {
  public var key: Value
  public var value: Value
}

/// The memory of values made during one call; freed when the call returns.
public struct Arena {
  let scope: OpaquePointer?

  /// The memory of the call that this thread is in.
  static var current: Arena { Arena(scope: rxd_swift_scope()) }

  public func string(_ text: String) -> Value { text.withText { Value(host.make_text(scope, $0), scope) } }
  /// A text; invalid UTF-8 is replaced.
  public func string(_ bytes: UnsafeRawBufferPointer) -> Value { Value(host.make_text(scope, rxd_text(bytes)), scope) }
  public func bytes(_ bytes: [UInt8]) -> Value { bytes.withText { Value(host.make_bytes(scope, $0), scope) } }
  public func list(_ values: some Collection<Value>) -> Value {
    let raw = values.map(\.raw)
    return Value(host.make_list(scope, raw, raw.count), scope)
  }
  /// A list of the values of held events.
  public func list(of events: [OwnedEvent]) -> Value { list(events.map(\.event.value)) }
  public func map(_ members: KeyValuePairs<StaticString, Value>) -> Value {
    let names = members.map {
      rxd_text(UnsafeRawBufferPointer(start: $0.key.utf8Start, count: $0.key.utf8CodeUnitCount))
    }
    let values = members.map(\.value.raw)
    return Value(host.make_object(scope, names, values, values.count), scope)
  }
  /// A map; of equal keys, the last one wins.
  public func map(_ members: some Collection<(key: Value, value: Value)>) -> Value {
    let names = members.map { rxd_text($0.key.rawBytes) }
    let values = members.map(\.value.raw)
    return Value(host.make_object(scope, names, values, values.count), scope)
  }
  /// The value of a JSON text; nil if the text is not JSON.
  public func json(_ text: String) -> Value? {
    var raw = rxd_value()
    return text.withText { host.parse_json(scope, $0, &raw) } == 0 ? Value(raw, scope) : nil
  }
  /// Reads a result of ``Value/encoded``; nil: the bytes are invalid.
  public func decode(_ bytes: [UInt8]) -> Value? {
    var raw = rxd_value()
    return bytes.withText { host.decode(scope, $0, &raw) } == 0 ? Value(raw, scope) : nil
  }
}

/// A value that is held between calls.
public struct OwnedValue: Sendable {
  private enum Content {
    /// A value that needs no memory.
    case plain(UInt64, UInt64)
    case encoded([UInt8])
  }
  private var content: Content

  public init() { self.init(.null) }
  public init(_ value: Value) {
    switch value.what {
    case .null, .bool, .int, .timestamp, .duration: content = .plain(value.raw.word.0, value.raw.word.1)
    default: content = .encoded(value.encoded)
    }
  }
  public mutating func assign(_ new: Value) { self = OwnedValue(new) }
  /// Assigns a value that needs no memory; returns false if it needs some.
  public mutating func assign(scalar new: Value) -> Bool {
    self = OwnedValue(new)
    return true
  }
  /// The value, in the memory of the call that this thread is in.
  public var value: Value {
    switch content {
    case .plain(let one, let two): Value(rxd_value(word: (one, two)), nil)
    case .encoded(let bytes): Arena.current.decode(bytes) ?? .absent
    }
  }
  /// Does nothing: ``value`` is already in the memory of the call.
  public func keep(in arena: Arena) {}
  /// See ``Value/encoded``.
  var encoded: [UInt8] { if case .encoded(let bytes) = content { bytes } else { value.encoded } }
  public var byteCount: Int { if case .encoded(let bytes) = content { bytes.count } else { 0 } }
}

/// An event.
public struct Event {
  public var value: Value
  public init(_ value: Value) { self.value = value }
  /// The same event with another value.
  public func with(_ value: Value) -> Event { Event(value) }
}

/// An event that is held between calls.
public struct OwnedEvent: Sendable {
  private(set) var value: OwnedValue
  public init(_ event: Event) { value = OwnedValue(event.value) }
  public mutating func assign(_ event: Event) { value.assign(event.value) }
  /// The event, in the memory of the call that this thread is in.
  public var event: Event { Event(value.value) }
  /// Does nothing: ``event`` is already in the memory of the call.
  public func keep(in arena: Arena) {}
  public var byteCount: Int { value.byteCount }
}
