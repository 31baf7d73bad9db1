/// Reads the fields of an event that expressions will need later, while the event's tokens are still indexed.
final class SeenFields {
  private let projection: Projection
  private let frame: EvaluationFrame
  private let keys: [OwnedValue]

  /// `fields`: the first names of the paths; nil if they are unknown.
  init?(_ fields: Set<String>?, arena: Arena, json: JSONParser) {
    guard let fields, !fields.isEmpty, fields.count <= Self.limit else { return nil }
    projection = Projection()
    var keys: [OwnedValue] = []
    for field in fields.sorted() {
      _ = projection.slot(for: [field], needs: .value)
      var text = field
      keys.append(text.withUTF8 { OwnedValue(Value.string(UnsafeRawBufferPointer($0)).markedPlain()) })
    }
    projection.freeze()
    self.keys = keys
    frame = EvaluationFrame(slots: projection.slotCount, arena: arena, json: json)
  }

  /// Above this number, keeping the whole text takes less memory.
  private static let limit = 16

  /// A map of the existing fields, whose texts are slices of the event's; nil if the event is not JSON text or is
  /// malformed. Valid until the end of the turn.
  func read(_ event: Value) -> Value? {
    guard event.is(.jsonMap), !projection.fill(event, frame.state).isError else { return nil }
    let members = frame.arena.entries(keys.count)
    var count = 0
    for (index, key) in keys.enumerated() {
      let value = frame.state.pointee.slots[index]
      if value.isAbsent { continue }
      members[count] = Entry(key: key.value, value: value)
      count &+= 1
    }
    return Value(kind: .map, pointer: members.baseAddress, length: count)
  }
}
