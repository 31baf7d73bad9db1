import CRxdPlugin

/// The functions of rxd, set before anything else is called; they live as long as the process.
nonisolated(unsafe) var host = rxd_host()

/// What a value is. Kinds may be added.
public enum Kind: Int32, Sendable {
  case absent, null, bool, int, uint, double, text, bytes, list, object, timestamp, duration, other
}

/// One call of a plugin: what is made in it lives until it returns. Never keep one.
public struct Call {
  let scope: OpaquePointer?
  var batch: UnsafePointer<rxd_batch>?

  /// When the inputs of this call came, in nanoseconds since 1970; virtual in tests. 0 outside of `process` and `write`.
  public var wallTime: Int64 { batch?.pointee.wall_time ?? 0 }
  /// The same on a clock that nobody sets; virtual in tests.
  public var monotonicTime: Int64 { batch?.pointee.monotonic_time ?? 0 }

  public var null: Value { Value(host.make_null(), self) }
  public func bool(_ value: Bool) -> Value { Value(host.make_bool(value ? 1 : 0), self) }
  public func int(_ value: Int64) -> Value { Value(host.make_int(value), self) }
  public func double(_ value: Double) -> Value { Value(host.make_double(value), self) }
  /// In nanoseconds since 1970.
  public func timestamp(_ nanoseconds: Int64) -> Value { Value(host.make_timestamp(nanoseconds), self) }
  public func duration(_ duration: Duration) -> Value { Value(host.make_duration(duration.nanoseconds), self) }
  public func text(_ text: String) -> Value { text.withText { Value(host.make_text(scope, $0), self) } }
  public func bytes(_ bytes: [UInt8]) -> Value { bytes.withText { Value(host.make_bytes(scope, $0), self) } }
  public func list(_ values: [Value]) -> Value {
    let raw = values.map(\.raw)
    return Value(host.make_list(scope, raw, raw.count), self)
  }
  public func object(_ members: KeyValuePairs<String, Value>) -> Value { object(members.map { ($0.key, $0.value) }) }
  /// Of a name that is there twice, the later one counts.
  public func object(_ members: [(name: String, value: Value)]) -> Value {
    // All names in one piece of memory, which stays where it is during the call.
    var bytes: [UInt8] = []
    var ends: [Int] = []
    for (name, _) in members {
      bytes += name.utf8
      ends.append(bytes.count)
    }
    let values = members.map(\.value.raw)
    return bytes.withUnsafeBytes { bytes in
      var start = 0
      let names = ends.map { end in
        defer { start = end }
        return rxd_text(UnsafeRawBufferPointer(rebasing: bytes[start..<end]))
      }
      return Value(host.make_object(scope, names, values, values.count), self)
    }
  }
  /// Nil: it is not JSON.
  public func json(_ text: String) -> Value? {
    var raw = rxd_value()
    return text.withText { host.parse_json(scope, $0, &raw) } == 0 ? Value(raw, self) : nil
  }
  /// What ``Value/encoded`` has made; nil: it is none of that.
  public func decode(_ bytes: [UInt8]) -> Value? {
    var raw = rxd_value()
    return bytes.withText { host.decode(scope, $0, &raw) } == 0 ? Value(raw, self) : nil
  }
}

/// A value of an event. It lives until the call returns that it belongs to: keep ``encoded``, or what the properties give.
public struct Value {
  var raw: rxd_value
  let call: Call

  init(_ raw: rxd_value, _ call: Call) {
    self.raw = raw
    self.call = call
  }

  public var kind: Kind { withUnsafePointer(to: raw) { Kind(rawValue: host.kind($0)) ?? .other } }
  /// Nil: it is of another kind.
  public var bool: Bool? { kind == .bool ? withUnsafePointer(to: raw) { host.boolean($0) != 0 } : nil }
  public var duration: Duration? {
    kind == .duration ? withUnsafePointer(to: raw) { .nanoseconds(host.integer($0)) } : nil
  }
  /// Of whole numbers that fit, times (nanoseconds since 1970) and durations (nanoseconds).
  public var int: Int64? {
    switch kind {
    case .int, .timestamp, .duration: withUnsafePointer(to: raw) { host.integer($0) }
    default: nil
    }
  }
  /// Of any number.
  public var double: Double? {
    switch kind {
    case .int, .uint, .double: withUnsafePointer(to: raw) { host.number($0) }
    default: nil
    }
  }
  public var text: String? {
    kind == .text ? withUnsafePointer(to: raw) { host.text(call.scope, $0).string } : nil
  }
  public var bytes: [UInt8]? {
    kind == .bytes ? withUnsafePointer(to: raw) { Array(host.text(call.scope, $0).buffer) } : nil
  }
  /// Of members or elements.
  public var count: Int { withUnsafePointer(to: raw) { host.count(call.scope, $0) } }
  /// ``Kind/absent``: there is no such member.
  public subscript(name: String) -> Value {
    name.withText { name in withUnsafePointer(to: raw) { Value(host.member(call.scope, $0, name), call) } }
  }
  /// ``Kind/absent``: behind the end.
  public subscript(index: Int) -> Value {
    withUnsafePointer(to: raw) { Value(host.element(call.scope, $0, index), call) }
  }
  /// Of an object, in order.
  public var members: [(name: String, value: Value)] {
    (0..<count).map { index in
      var name = rxd_text()
      let value = withUnsafePointer(to: raw) { host.entry(call.scope, $0, index, &name) }
      return (name.string, Value(value, call))
    }
  }
  /// On one line.
  public var json: String { withUnsafePointer(to: raw) { host.json(call.scope, $0).string } }
  /// For what is kept between calls and in a state: ``Call/decode(_:)`` reads it, also in another process and a later version.
  public var encoded: [UInt8] { withUnsafePointer(to: raw) { Array(host.encode(call.scope, $0).buffer) } }
  /// The same object with this member.
  public func with(_ name: String, _ value: Value) -> Value {
    name.withText { name in
      withUnsafePointer(to: raw) { object in
        withUnsafePointer(to: value.raw) { Value(host.with_member(call.scope, object, name, $0), call) }
      }
    }
  }
}

extension rxd_text {
  init(_ bytes: UnsafeRawBufferPointer) {
    self.init(bytes: bytes.baseAddress?.assumingMemoryBound(to: CChar.self), count: bytes.count)
  }
  var string: String { String(decoding: buffer, as: UTF8.self) }
  var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count) }
}

extension String {
  /// Calls `body` with the text, which is valid until it returns.
  func withText<Result>(_ body: (rxd_text) -> Result) -> Result {
    var text = self
    return text.withUTF8 { body(rxd_text(UnsafeRawBufferPointer($0))) }
  }
}

extension [UInt8] {
  /// Calls `body` with the bytes, which are valid until it returns.
  func withText<Result>(_ body: (rxd_text) -> Result) -> Result { withUnsafeBytes { body(rxd_text($0)) } }
}

extension Duration {
  /// The nearest that 64 bits can hold.
  var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    let (whole, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    let (sum, isTooLarge) = whole.addingReportingOverflow(attoseconds / 1_000_000_000)
    return overflows || isTooLarge ? (seconds < 0 ? .min : .max) : sum
  }
}
