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

  public var null: Value { Value(host.make_null(), self) }
  public func bool(_ value: Bool) -> Value { Value(host.make_bool(value ? 1 : 0), self) }
  public func int(_ value: Int64) -> Value { Value(host.make_int(value), self) }
  public func double(_ value: Double) -> Value { Value(host.make_double(value), self) }
  /// In nanoseconds since 1970.
  public func timestamp(_ nanoseconds: Int64) -> Value { Value(host.make_timestamp(nanoseconds), self) }
  /// In nanoseconds.
  public func duration(_ nanoseconds: Int64) -> Value { Value(host.make_duration(nanoseconds), self) }
  public func text(_ text: String) -> Value { text.lent { Value(host.make_text(scope, $0), self) } }
  public func bytes(_ bytes: [UInt8]) -> Value { bytes.lent { Value(host.make_bytes(scope, $0), self) } }
  public func list(_ values: [Value]) -> Value {
    let raw = values.map(\.raw)
    return Value(host.make_list(scope, raw, raw.count), self)
  }
  public func object(_ members: KeyValuePairs<String, Value>) -> Value {
    var object = Value(host.make_object(scope, [rxd_text()], [rxd_value()], 0), self)
    for (name, value) in members { object = object.with(name, value) }
    return object
  }
  /// Nil: it is not JSON.
  public func json(_ text: String) -> Value? {
    var raw = rxd_value()
    return text.lent { host.parse_json(scope, $0, &raw) } == 0 ? Value(raw, self) : nil
  }
  /// What ``Value/encoded`` has made; nil: it is none of that.
  public func decode(_ bytes: [UInt8]) -> Value? {
    var raw = rxd_value()
    return bytes.lent { host.decode(scope, $0, &raw) } == 0 ? Value(raw, self) : nil
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
    kind == .text ? withUnsafePointer(to: raw) { String(decoding: host.text(call.scope, $0).buffer, as: UTF8.self) } : nil
  }
  public var bytes: [UInt8]? {
    kind == .bytes ? withUnsafePointer(to: raw) { Array(host.text(call.scope, $0).buffer) } : nil
  }
  /// Of members or elements.
  public var count: Int { withUnsafePointer(to: raw) { host.count(call.scope, $0) } }
  /// ``Kind/absent``: there is no such member.
  public subscript(name: String) -> Value {
    name.lent { name in withUnsafePointer(to: raw) { Value(host.member(call.scope, $0, name), call) } }
  }
  /// ``Kind/absent``: behind the end.
  public subscript(index: Int) -> Value { withUnsafePointer(to: raw) { Value(host.element(call.scope, $0, index), call) } }
  /// Of an object, in order.
  public var members: [(name: String, value: Value)] {
    (0..<count).map { index in
      var name = rxd_text()
      let value = withUnsafePointer(to: raw) { host.entry(call.scope, $0, index, &name) }
      return (String(decoding: name.buffer, as: UTF8.self), Value(value, call))
    }
  }
  /// On one line.
  public var json: String { withUnsafePointer(to: raw) { String(decoding: host.json(call.scope, $0).buffer, as: UTF8.self) } }
  /// For what is kept between calls and in a state: ``Call/decode(_:)`` reads it, also in another process and a later version.
  public var encoded: [UInt8] { withUnsafePointer(to: raw) { Array(host.encode(call.scope, $0).buffer) } }
  /// The same object with this member.
  public func with(_ name: String, _ value: Value) -> Value {
    name.lent { name in
      withUnsafePointer(to: raw) { object in
        withUnsafePointer(to: value.raw) { Value(host.with_member(call.scope, object, name, $0), call) }
      }
    }
  }
}

extension rxd_text {
  var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count) }
}

extension String {
  func lent<Result>(_ body: (rxd_text) -> Result) -> Result {
    var text = self
    return text.withUTF8 { UnsafeRawBufferPointer($0).lent(body) }
  }
}

extension [UInt8] {
  func lent<Result>(_ body: (rxd_text) -> Result) -> Result { withUnsafeBytes { $0.lent(body) } }
}

extension UnsafeRawBufferPointer {
  fileprivate func lent<Result>(_ body: (rxd_text) -> Result) -> Result {
    body(rxd_text(bytes: baseAddress?.assumingMemoryBound(to: CChar.self), count: count))
  }
}
