/// Builds values from the programs of a mapping.
final class ValueBuilder {
  /// The source of one value: a program, or the contents of a list or an object.
  private struct Part {
    var key = Value.null
    var program: Unmanaged<Program>?
    var inner: Unmanaged<ValueBuilder>?
  }
  private enum Kind { case program, object, list }
  private let kind: Kind
  // Raw memory, so that an event needs neither bounds checks nor retain and release.
  private let parts: UnsafeMutableBufferPointer<Part>
  /// Retains the objects to which the parts point.
  private let owned: [AnyObject]
  /// Owns the texts of the keys.
  private let keys: [OwnedValue]

  init?(_ node: MappingParameter.Node) {
    var parts: [Part] = []
    var owned: [AnyObject] = []
    var keys: [OwnedValue] = []
    func add(_ node: MappingParameter.Node) -> Bool {
      var part = Part()
      if case .expression(let parameter) = node {
        guard let program = parameter.program else { return false }
        owned.append(program)
        part.program = .passUnretained(program)
      } else {
        guard let inner = ValueBuilder(node) else { return false }
        owned.append(inner)
        part.inner = .passUnretained(inner)
      }
      parts.append(part)
      return true
    }
    switch node {
    case .expression:
      kind = .program
      guard add(node) else { return nil }
    case .object(let members):
      kind = .object
      for member in members {
        guard add(member.node) else { return nil }
        var text = member.key
        let key = text.withUTF8 { OwnedValue(Value.string(UnsafeRawBufferPointer($0)).markedPlain()) }
        keys.append(key)
        parts[parts.count - 1].key = key.value
      }
    case .list(let items):
      kind = .list
      for item in items {
        guard add(item) else { return nil }
      }
    }
    self.parts = .allocate(capacity: parts.count)
    _ = self.parts.initialize(from: parts)
    self.owned = owned
    self.keys = keys
  }

  deinit { parts.deallocate() }

  /// The program, if the whole value is one expression.
  var single: Program? { kind == .program ? parts[0].program?.takeUnretainedValue() : nil }

  @inline(__always)
  private func value(_ part: Part, _ frame: EventFrame, _ failed: inout Unmanaged<Program>?) -> Value {
    if let program = part.program {
      let value = program._withUnsafeGuaranteedRef { $0.evaluate(frame) }
      if value.isError { failed = program }
      return value
    }
    return part.inner?._withUnsafeGuaranteedRef { $0.build(frame, &failed) } ?? .null
  }

  /// The value for the loaded event; an error value if a part fails, and the failing program in `failed`.
  func build(_ frame: EventFrame, _ failed: inout Unmanaged<Program>?) -> Value {
    switch kind {
    case .program: return value(parts[0], frame, &failed)
    case .list:
      let target = Context(state: frame.evaluation).elements(parts.count)
      for index in 0..<parts.count {
        let value = value(parts[index], frame, &failed)
        if value.isError { return value }
        target[index] = value.is(.optional) ? value.wrapped ?? .null : value
      }
      return Value(kind: .list, pointer: target.baseAddress, length: parts.count)
    case .object:
      let target = Context(state: frame.evaluation).entries(parts.count)
      var count = 0
      for index in 0..<parts.count {
        var value = value(parts[index], frame, &failed)
        if value.isError { return value }
        if value.is(.optional) {
          guard let wrapped = value.wrapped else { continue }
          value = wrapped
        }
        target[count] = Entry(key: parts[index].key, value: value)
        count &+= 1
      }
      return Value(kind: .map, pointer: target.baseAddress, length: count)
    }
  }
}

extension MappingParameter {
  /// Creates the builder of the values; nil before binding without errors.
  func makeBuilder() -> ValueBuilder? { root.flatMap(ValueBuilder.init) }
}

extension FiguresParameter {
  /// Creates the builder of the values around the figures.
  func makeBuilder() -> ValueBuilder? { around.makeBuilder() }
}
