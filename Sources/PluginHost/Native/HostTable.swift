import CPlugin
import Glibc
import PipelineCore

/// The functions of ``rxd_host``. Plugins call each of them on any thread, with values that belong to the current call.
enum HostTable {
  /// Lives as long as the process.
  nonisolated(unsafe) static let pointer: UnsafePointer<rxd_host> = {
    let table = UnsafeMutablePointer<rxd_host>.allocate(capacity: 1)
    table.initialize(to: make())
    return UnsafePointer(table)
  }()

  private static func make() -> rxd_host {
    var host = rxd_host()
    host.size = UInt32(MemoryLayout<rxd_host>.size)
    host.contract = UInt32(PluginSpec.contract)
    read(&host)
    write(&host)
    speak(&host)
    operate(&host)
    source(&host)
    return host
  }

  // MARK: Reading

  private static func read(_ host: inout rxd_host) {
    host.kind = { Int32(HostTable.kind($0?.pointee.value ?? .absent)) }
    host.boolean = { $0?.pointee.value.isTrue == true ? 1 : 0 }
    host.integer = { value in
      guard let value = value?.pointee.value else { return 0 }
      return switch value.what {
      case .int, .duration: value.asInt
      case .uint: Int64(clamping: value.asUInt)
      case .double:
        Int64(exactly: value.asDouble.rounded(.towardZero))
          ?? (value.asDouble > 0 ? .max : value.asDouble < 0 ? .min : 0)
      case .timestamp: value.asInt &* 1_000_000_000 &+ Int64(value.length)
      default: 0
      }
    }
    host.unsigned_integer = { value in
      guard let value = value?.pointee.value else { return 0 }
      return switch value.what {
      case .int: UInt64(max(0, value.asInt))
      case .uint: value.asUInt
      default: 0
      }
    }
    host.number = { value in
      guard let value = value?.pointee.value else { return 0 }
      return switch value.what {
      case .int: Double(value.asInt)
      case .uint: Double(value.asUInt)
      case .double: value.asDouble
      default: 0
      }
    }
    host.text = { scope, value in
      guard let scope, let value = value?.pointee.value, value.is(.string) || value.is(.bytes) else { return .none }
      return rxd_text(JSONParser.unescape(value, into: scope.memory).rawBytes)
    }
    host.count = { scope, value in
      guard let scope, let value = value?.pointee.value else { return 0 }
      let tree = scope.tree(of: value)
      return tree.is(.list) || tree.is(.map) ? Int(tree.length) : 0
    }
    host.member = { scope, object, name in
      guard let value = object?.pointee.value else { return Value.absent.raw }
      return HostTable.member(value, name.buffer).raw
    }
    host.element = { scope, list, index in
      guard let value = list?.pointee.value else { return Value.absent.raw }
      switch value.what {
      case .jsonList:
        // Often only the first element is requested; later ones are found in the expanded list.
        if index > 0 || scope?.knows(value) == true, let scope {
          let tree = scope.tree(of: value)
          return (tree.is(.list) && index < Int(tree.length) ? tree.elements[index] : .absent).raw
        }
        let element = JSONParser.element(value, at: index)
        return (element.isError ? .absent : element).raw
      case .list: return (index < Int(value.length) ? value.elements[index] : .absent).raw
      default: return Value.absent.raw
      }
    }
    host.entry = { scope, object, index, name in
      guard let scope, let value = object?.pointee.value else { return Value.absent.raw }
      let tree = scope.tree(of: value)
      guard tree.is(.map), index < Int(tree.length) else { return Value.absent.raw }
      let entry = tree.entries[index]
      name?.pointee = HostTable.name(entry.key, scope)
      return entry.value.raw
    }
    host.json = { scope, value in
      guard let scope, let value = value?.pointee.value else { return .none }
      let buffer = OutputBuffer(capacity: 256)
      guard JSONWriter.append(value, to: buffer) == nil else { return .none }
      return rxd_text(scope.memory.copy(buffer.bytes))
    }
    host.encode = { scope, value in
      guard let scope, let value = value?.pointee.value else { return .none }
      return KeptValue.encode(value).withUnsafeBytes { rxd_text(scope.memory.copy($0)) }
    }
    host.decode = { scope, bytes, value in
      guard let scope, let decoded = KeptValue.decode(Array(bytes.buffer)) else { return Int32(RXD_FAILED.rawValue) }
      value?.pointee = scope.memory.copy(decoded.value).raw
      return 0
    }
  }

  private static func kind(_ value: Value) -> UInt32 {
    switch value.what {
    case .absent: RXD_ABSENT.rawValue
    case .null: RXD_NULL.rawValue
    case .bool: RXD_BOOL.rawValue
    case .int: RXD_INT.rawValue
    case .uint: RXD_UINT.rawValue
    case .double: RXD_DOUBLE.rawValue
    case .string: RXD_TEXT.rawValue
    case .bytes: RXD_BYTES.rawValue
    case .list, .jsonList: RXD_LIST.rawValue
    case .map, .jsonMap: RXD_OBJECT.rawValue
    case .timestamp: RXD_TIMESTAMP.rawValue
    case .duration: RXD_DURATION.rawValue
    case .type, .optional, .error: RXD_OTHER.rawValue
    }
  }

  /// The key of a member as the encoder `json` writes it.
  private static func name(_ key: Value, _ scope: UnsafeMutablePointer<rxd_scope>) -> rxd_text {
    switch key.what {
    case .string: rxd_text(JSONParser.unescape(key, into: scope.memory).rawBytes)
    case .int: rxd_text(scope.memory.string("\(key.asInt)").rawBytes)
    case .uint: rxd_text(scope.memory.string("\(key.asUInt)").rawBytes)
    case .bool: rxd_text(scope.memory.string(key.isTrue ? "true" : "false").rawBytes)
    default: .none
    }
  }

  @inline(__always)
  private static func member(_ value: Value, _ name: UnsafeRawBufferPointer) -> Value {
    if value.is(.jsonMap) {
      let found = JSONParser.lookup(value, key: name)
      return found.isError ? .absent : found
    }
    guard value.is(.map) else { return .absent }
    for entry in value.entries where entry.key.is(.string) && Int(entry.key.length) == name.count {
      if name.elementsEqual(entry.key.rawBytes) { return entry.value }
    }
    return .absent
  }

  // MARK: Making

  private static func write(_ host: inout rxd_host) {
    host.make_null = { Value.null.raw }
    host.make_bool = { Value.bool($0 != 0).raw }
    host.make_int = { Value.int($0).raw }
    host.make_uint = { number in (Int64(exactly: number).map(Value.int) ?? Value.uint(number)).raw }
    host.make_double = { Value.double($0).raw }
    host.make_timestamp = { nanoseconds in
      var (seconds, rest) = nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
      if rest < 0 {
        seconds -= 1
        rest += 1_000_000_000
      }
      return Value.timestamp(seconds: seconds, nanoseconds: UInt32(rest)).raw
    }
    host.make_duration = { Value.duration(nanoseconds: $0).raw }
    host.make_text = { scope, text in
      guard let scope else { return Value.absent.raw }
      return HostTable.text(text, scope).raw
    }
    host.make_bytes = { scope, bytes in
      guard let scope else { return Value.absent.raw }
      return Value.bytes(scope.memory.copy(bytes.buffer)).raw
    }
    host.make_list = { scope, elements, count in
      guard let scope else { return Value.absent.raw }
      return scope.memory.list(UnsafeBufferPointer(start: elements, count: elements == nil ? 0 : count).map(\.value))
        .raw
    }
    host.make_object = { scope, names, values, count in
      guard let scope, let names, let values else { return Value.absent.raw }
      let members = (0..<count).map { (key: HostTable.text(names[$0], scope), value: values[$0].value) }
      return scope.memory.map(members).raw
    }
    host.with_member = { scope, object, name, value in
      guard let scope, let object = object?.pointee.value, let value = value?.pointee.value else {
        return Value.absent.raw
      }
      return HostTable.with(object, HostTable.text(name, scope), value, scope).raw
    }
    host.parse_json = { scope, json, value in
      guard let scope else { return Int32(RXD_FAILED.rawValue) }
      let found = HostTable.json(json, scope.memory)
      guard !found.isError else { return Int32(RXD_FAILED.rawValue) }
      value?.pointee = found.raw
      return 0
    }
  }

  fileprivate static func text(_ text: rxd_text, _ scope: UnsafeMutablePointer<rxd_scope>) -> Value {
    if UTF8Text.isValid(text.buffer) { return .string(scope.memory.copy(text.buffer)) }
    return scope.memory.string(text.string)
  }

  /// Reads a document; JSON text is read with wide loads that may run past its end.
  static func json(_ json: rxd_text, _ arena: Arena) -> Value {
    let padded = arena.allocate(json.count + 64)
    if let bytes = json.bytes { padded.copyMemory(from: bytes, byteCount: json.count) }
    (padded + json.count).initializeMemory(as: UInt8.self, repeating: 0x20, count: 64)
    return NativeParser.current.open(
      UnsafeRawBufferPointer(start: padded, count: json.count), checking: .everything)
  }

  private static func with(
    _ object: Value, _ name: Value, _ value: Value, _ scope: UnsafeMutablePointer<rxd_scope>
  ) -> Value {
    let tree = scope.tree(of: object)
    var members: [(key: Value, value: Value)] = []
    var isThere = false
    if tree.is(.map) {
      members.reserveCapacity(Int(tree.length) + 1)
      for entry in tree.entries {
        let key = JSONParser.unescape(entry.key, into: scope.memory)
        let isSame = key.rawBytes.elementsEqual(name.rawBytes)
        if isSame { isThere = true }
        members.append((key, isSame ? value : entry.value))
      }
    }
    if !isThere { members.append((name, value)) }
    return scope.memory.map(members)
  }

  // MARK: Log and failures

  private static func speak(_ host: inout rxd_host) {
    host.fail = { scope, message, path in
      guard let scope else { return }
      if let before = scope.pointee.failure { Unmanaged<NativeScope.Message>.fromOpaque(before).release() }
      let said = NativeScope.Message(Printable.cut(message.string, limit: 500), path.string)
      scope.pointee.failure = Unmanaged.passRetained(said).toOpaque()
    }
    host.log = { instance, level, message in
      guard let target = instance?.pointee.target else { return }
      let context = Unmanaged<NativeContext>.fromOpaque(target).takeUnretainedValue()
      context.log(Services.Level(rawValue: level.string) ?? .info, message.string)
    }
    host.count_up = { instance, name, by in
      guard let target = instance?.pointee.target else { return }
      Unmanaged<NativeContext>.fromOpaque(target).takeUnretainedValue().count(name.string, by)
    }
    host.gauge = { instance, name, of, value in
      guard let target = instance?.pointee.target else { return }
      Unmanaged<NativeContext>.fromOpaque(target).takeUnretainedValue().gauge(name.string, of.string, value)
    }
  }

  // MARK: Operators and sinks

  private static func operate(_ host: inout rxd_host) {
    host.send = { output, index, event in
      guard let target = output?.pointee.target, let event else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue().send(index, event.pointee.value)
    }
    host.reject = { output, index, message in
      guard let target = output?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue()
        .answer(index, .rejected(Printable.cut(message.string, limit: 500)))
    }
    host.timer = { output, name, after in
      guard let target = output?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue().set(name.string, after < 0 ? nil : after)
    }
    host.finish = { output, index in
      guard let target = output?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue().finish(index)
    }
    host.delivered = { verdicts, count in
      guard let target = verdicts?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue().delivered(count)
    }
    host.delivered_at = { verdicts, index in
      guard let target = verdicts?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue().delivered(at: index)
    }
    host.refuse = { verdicts, index, message in
      guard let target = verdicts?.pointee.target else { return }
      Unmanaged<NativeAnswers>.fromOpaque(target).takeUnretainedValue()
        .answer(index, .rejected(Printable.cut(message.string, limit: 500)))
    }
  }

  // MARK: Sources

  private static func source(_ host: inout rxd_host) {
    host.source_scope = { source in source.map { NativeSource.of($0).scope } ?? nil }
    host.add = { source, event, token in
      guard let source, let event else { return Int32(RXD_STOP.rawValue) }
      return NativeSource.of(source).add(event.pointee.value, token)
    }
    host.add_json = { source, json, token in
      guard let source else { return Int32(RXD_STOP.rawValue) }
      return NativeSource.of(source).add(json: json, token)
    }
    host.flush = { source in source.map { NativeSource.of($0).flush() } ?? Int32(RXD_STOP.rawValue) }
    host.position = { source, position in
      if let source { NativeSource.of(source).set(position: Array(position.buffer)) }
    }
    host.acks = { source, acks, most, wait in
      guard let source, let acks else { return 0 }
      return NativeSource.of(source).take(UnsafeMutableBufferPointer(start: acks, count: most), wait)
    }
    host.wake_descriptor = { source in source.map { NativeSource.of($0).wakeDescriptor } ?? -1 }
    host.is_stopping = { source in source.map { NativeSource.of($0).stopping } ?? 2 }
    host.reject_input = { source, input, message, token in
      if let source { NativeSource.of(source).reject(input, message, token) }
    }
    host.name = { source, name in
      if let source { NativeSource.of(source).set(name: name) }
    }
    host.loaded = { source in source.map { NativeSource.of($0).loaded() } ?? Int32(RXD_STOP.rawValue) }
    host.is_closing = { instance in
      guard let target = instance?.pointee.target else { return 1 }
      let context = Unmanaged<NativeContext>.fromOpaque(target).takeUnretainedValue()
      return context.isClosing.load(ordering: .acquiring) ? 1 : 0
    }
  }
}
