// Values as components of other packages read them. Hot code of this package compares kinds and reads slots instead.

extension Value {
  /// The boolean; nil: the value is not a boolean.
  public var bool: Bool? { self.is(.bool) ? asBool : nil }

  /// The whole number; nil: the value is not a whole number, or does not fit.
  public var int: Int64? {
    switch what {
    case .int: asInt
    case .uint: Int64(exactly: asUInt)
    default: nil
    }
  }

  /// The number, whole or not; nil: the value is not a number.
  public var double: Double? {
    switch what {
    case .int: Double(asInt)
    case .uint: Double(asUInt)
    case .double: asDouble
    default: nil
    }
  }

  /// The text; nil: the value is not a text.
  public var text: String? {
    guard self.is(.string) else { return nil }
    if !isEscaped { return String(decoding: rawBytes, as: UTF8.self) }
    let buffer = OutputBuffer(capacity: Int(length) + 1)
    JSONWriter.appendUnescaped(self, to: buffer)
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// The value as one line of JSON, as `encode: json` writes it; nil: it has no JSON form, or is nested too deep.
  public var json: String? {
    let buffer = OutputBuffer(capacity: 256)
    guard JSONWriter.append(self, to: buffer) == nil else { return nil }
    return String(decoding: buffer.bytes, as: UTF8.self)
  }
}

extension EventFrame {
  /// Memory for values that live until the end of the turn.
  public var arena: Arena { frame.arena }

  /// The member of an object; absent: there is no member of this name, or `value` is not an object. Valid until the end
  /// of the turn.
  public func member(_ name: String, of value: Value) -> Value { value.member(name, frame.json, frame.arena) }

  /// The elements of a list, also of one that is still JSON text; empty: `value` is not a list. Valid until the end of
  /// the turn.
  public func elements(of value: Value) -> UnsafeBufferPointer<Value> {
    value.expandedElements(frame.json, frame.arena)
  }
}

extension Execution {
  /// The member of an object; absent: there is no member of this name, or `value` is not an object. Valid until the end
  /// of the turn.
  public func member(_ name: String, of value: Value) -> Value { value.member(name, json, executor.arena) }

  /// The elements of a list, also of one that is still JSON text; empty: `value` is not a list. Valid until the end of
  /// the turn.
  public func elements(of value: Value) -> UnsafeBufferPointer<Value> { value.expandedElements(json, executor.arena) }
}

extension Value {
  fileprivate func member(_ name: String, _ json: JSONParser, _ arena: Arena) -> Value {
    let map = json.expand(self, into: arena)
    guard map.is(.map) else { return .absent }
    for entry in map.entries where entry.key.is(.string) {
      let key = entry.key.isEscaped ? JSONParser.unescape(entry.key, into: arena) : entry.key
      if key.rawBytes.elementsEqual(name.utf8) { return entry.value }
    }
    return .absent
  }

  fileprivate func expandedElements(_ json: JSONParser, _ arena: Arena) -> UnsafeBufferPointer<Value> {
    let list = json.expand(self, into: arena)
    return list.is(.list) ? list.elements : UnsafeBufferPointer(start: nil, count: 0)
  }
}
