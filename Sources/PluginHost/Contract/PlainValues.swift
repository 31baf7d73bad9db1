import PipelineCore

extension PluginServices {
  /// The values of an instance outside of any pipeline.
  init(_ log: @escaping @Sendable (Services.Level, String) -> Void) {
    route = PluginRoute(to: Executor(clock: VirtualTime()))
    step = StepID(0)
    meter = PluginMeter()
    self.log = log
    said = PluginLog(most: .max, log, meter)
    worker = ImmediateWorker()
    memory = MemoryBudget()
  }
}

extension PluginComponentSpec {
  /// The parameters of a frame, which are plain: durations in nanoseconds, sizes in bytes.
  func arguments(_ given: Value, isTyped: Bool) -> PluginArguments {
    let arena = Arena()
    let tree = given.is(.jsonMap) ? JSONParser().expand(given, into: arena) : given
    return PluginArguments(
      values: parameters.map { parameter in
        let value = tree.is(.map) ? tree.memberNamed(parameter.name) : .absent
        return value.isAbsent ? nil : parameter.type.plain(isTyped ? TypedJSON.read(value, in: arena) : value, arena)
      })
  }
}

extension Value {
  fileprivate func memberNamed(_ name: String) -> Value {
    for entry in entries where entry.key.rawBytes.elementsEqual(name.utf8) { return entry.value }
    return .absent
  }
}

extension PluginParameterType {
  /// A value in the form of frames; nil if it is of another type.
  fileprivate func plain(_ value: Value, _ arena: Arena) -> PluginValue? {
    func text() -> String { String(decoding: JSONParser.unescape(value, into: arena).rawBytes, as: UTF8.self) }
    switch self {
    case .boolean: return value.is(.bool) ? .boolean(value.asBool) : nil
    case .integer: return value.is(.int) ? .integer(Int(value.asInt)) : nil
    case .number:
      return value.is(.double) ? .number(value.asDouble) : value.is(.int) ? .number(Double(value.asInt)) : nil
    case .text, .choice: return value.is(.string) ? .text(text()) : nil
    case .secret: return value.is(.string) ? .secret(Secret(text())) : nil
    case .duration: return value.is(.int) || value.is(.duration) ? .duration(TimeSpan(nanoseconds: value.asInt)) : nil
    case .size: return value.is(.int) ? .size(ByteSize(Int(value.asInt))) : nil
    case .json: return .json(LiteralParameter(value))
    case .list(let element):
      guard value.isAnyList else { return element.plain(value, arena).map { .list([$0]) } }
      return .list(Self.tree(value, arena).elements.compactMap { element.plain($0, arena) })
    case .table(let element):
      guard value.isAnyMap else { return nil }
      return .table(
        Self.tree(value, arena).entries.compactMap { entry in
          let name = String(decoding: JSONParser.unescape(entry.key, into: arena).rawBytes, as: UTF8.self)
          return element.plain(entry.value, arena).map { (name: name, value: $0) }
        })
    case .expression, .template: return nil
    }
  }

  private static func tree(_ value: Value, _ arena: Arena) -> Value {
    value.is(.jsonMap) || value.is(.jsonList) ? JSONParser().expand(value, into: arena) : value
  }
}

/// Values without a JSON form, as objects with one member.
enum TypedJSON {
  /// Valid until `arena` is reset.
  static func read(_ value: Value, in arena: Arena) -> Value {
    let tree = value.is(.jsonMap) || value.is(.jsonList) ? JSONParser().expand(value, into: arena) : value
    if tree.is(.list) { return arena.list(tree.elements.map { read($0, in: arena) }) }
    guard tree.is(.map) else { return tree }
    if tree.length == 1 {
      let (key, held) = (tree.entries[0].key.rawBytes, tree.entries[0].value)
      if key.elementsEqual("$duration".utf8), held.is(.int) { return .duration(nanoseconds: held.asInt) }
      if key.elementsEqual("$timestamp".utf8), held.is(.int) { return .timestamp(wallTime: held.asInt) }
      if key.elementsEqual("$bytes".utf8), held.is(.string) {
        let bytes = Base64.decode(String(decoding: held.rawBytes, as: UTF8.self)) ?? []
        return bytes.withUnsafeBytes { .bytes(arena.copy($0)) }
      }
    }
    return arena.map(tree.entries.map { (key: $0.key, value: read($0.value, in: arena)) })
  }

  static func write(_ value: Value, in arena: Arena) -> Value {
    switch value.what {
    case .duration: arena.map([(key: arena.string("$duration"), value: .int(value.asInt))])
    case .timestamp:
      arena.map([
        (key: arena.string("$timestamp"), value: .int(value.asInt &* 1_000_000_000 &+ Int64(value.length)))
      ])
    case .bytes: arena.map([(key: arena.string("$bytes"), value: arena.string(Base64.encode(Array(value.rawBytes))))])
    case .list: arena.list(value.elements.map { write($0, in: arena) })
    case .map: arena.map(value.entries.map { (key: $0.key, value: write($0.value, in: arena)) })
    default: value
    }
  }
}

extension Base64 {
  static func encode(_ bytes: [UInt8]) -> String {
    let text = OutputBuffer(capacity: 64)
    bytes.withUnsafeBytes { JSONWriter.appendBase64($0, to: text) }
    return String(decoding: text.bytes, as: UTF8.self)
  }

  /// Nil: it is none.
  static func decode(_ text: String) -> [UInt8]? {
    var text = text
    return text.withUTF8 { decode(UnsafeRawBufferPointer($0)).map(Array.init) }
  }
}
