import CRxdPlugin

/// A plugin: its spec and its components. The library has one function that makes it:
///
///     @_cdecl("rxd_swift_plugin")
///     public func plugin() -> UnsafeMutableRawPointer { Plugin(spec: spec, [.row("shorten", Shorten.self)]).handle }
public final class Plugin {
  /// A component, by its kind and the name in the spec.
  public struct Component {
    let kind: String
    let name: String
    let isRow: Bool
    let make: (Opening) throws -> Instance

    public static func row<T: RowOperator>(_ name: String, _ type: T.Type) -> Component {
      Component(kind: "operator", name: name, isRow: true) { RowInstance(try T($0)) }
    }
    public static func stream<T: StreamOperator>(_ name: String, _ type: T.Type) -> Component {
      Component(kind: "operator", name: name, isRow: false) { StreamInstance(try T($0)) }
    }
    public static func source<T: Source>(_ name: String, _ type: T.Type) -> Component {
      Component(kind: "source", name: name, isRow: false) { SourceInstance(try T($0)) }
    }
    public static func sink<T: Sink>(_ name: String, _ type: T.Type) -> Component {
      Component(kind: "sink", name: name, isRow: false) { SinkInstance(try T($0)) }
    }
  }

  private let spec: String
  private let components: [Component]

  /// - Parameter spec: the JSON document of docs/plugin-contract.md.
  public init(spec: String, _ components: [Component]) {
    self.spec = spec
    self.components = components
  }

  /// What `rxd_swift_plugin` returns.
  public var handle: UnsafeMutableRawPointer { Unmanaged.passRetained(self).toOpaque() }

  func start(
    _ offered: UnsafePointer<rxd_host>, _ result: UnsafeMutablePointer<UnsafePointer<rxd_plugin>?>,
    _ problem: UnsafeMutablePointer<rxd_text>
  ) -> Int32 {
    guard offered.pointee.contract >= 1, Int(offered.pointee.size) >= MemoryLayout<rxd_host>.size else {
      problem.pointee = Self.forever("this plugin needs a newer rxd")
      return 2
    }
    host = offered.pointee
    known = components
    let table = UnsafeMutablePointer<rxd_component>.allocate(capacity: max(1, components.count))
    for (index, component) in components.enumerated() { table[index] = Self.entry(component) }
    let plugin = UnsafeMutablePointer<rxd_plugin>.allocate(capacity: 1)
    plugin.initialize(
      to: rxd_plugin(
        size: UInt32(MemoryLayout<rxd_plugin>.size), component_count: UInt32(components.count), components: table,
        component_size: MemoryLayout<rxd_component>.stride, spec: Self.forever(spec)))
    result.pointee = UnsafePointer(plugin)
    return 0
  }

  private static func forever(_ text: String) -> rxd_text {
    let bytes = UnsafeMutableBufferPointer<CChar>.allocate(capacity: text.utf8.count)
    _ = bytes.initialize(from: text.utf8.map { CChar(bitPattern: $0) })
    return rxd_text(bytes: bytes.baseAddress, count: bytes.count)
  }

  private static func entry(_ component: Component) -> rxd_component {
    var entry = rxd_component()
    entry.size = UInt32(MemoryLayout<rxd_component>.size)
    entry.name = forever(component.name)
    entry.kind = forever(component.kind)
    entry.close = { pointer in
      if let pointer { Unmanaged<Instance>.fromOpaque(pointer).release() }
    }
    switch component.kind {
    case "source":
      entry.open = { open("source", $0, $1) }
      entry.run = { instance($0).run($1, $2) }
    case "sink":
      entry.open = { open("sink", $0, $1) }
      entry.write = { instance($0).write($1, $2!, $3) }
    default:
      entry.open = { open("operator", $0, $1) }
      if component.isRow {
        entry.row = { instance($0).row($1, $2!, $3) }
      } else {
        entry.process = { instance($0).process($1, $2!, $3) }
        entry.save = { instance($0).save($1, $2!) }
      }
    }
    return entry
  }
}

nonisolated(unsafe) private var known: [Plugin.Component] = []

@_cdecl("rxd_swift_start")
func start(
  _ plugin: UnsafeMutableRawPointer, _ contract: UInt32, _ offered: UnsafePointer<rxd_host>,
  _ result: UnsafeMutablePointer<UnsafePointer<rxd_plugin>?>, _ problem: UnsafeMutablePointer<rxd_text>
) -> Int32 {
  Unmanaged<Plugin>.fromOpaque(plugin).takeUnretainedValue().start(offered, result, problem)
}

private func instance(_ pointer: UnsafeMutableRawPointer?) -> Instance {
  Unmanaged<Instance>.fromOpaque(pointer!).takeUnretainedValue()
}

private func open(
  _ kind: String, _ raw: UnsafePointer<rxd_opening>?, _ result: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
) -> Int32 {
  let call = Call(scope: raw!.pointee.scope)
  let name = raw!.pointee.component.string
  return Instance.attempt(call) {
    guard let component = known.first(where: { $0.kind == kind && $0.name == name }) else {
      throw Failure("the plugin has no \(kind) '\(name)'")
    }
    let made = try component.make(Opening(raw: raw!.pointee, call: call))
    result!.pointee = Unmanaged.passRetained(made).toOpaque()
    return 0
  }
}

/// An opened instance; each kind has some of the functions.
class Instance {
  static func attempt(_ call: Call, _ body: () throws -> Int32) -> Int32 {
    do { return try body() } catch let retry as Retry {
      retry.message.withText { message in "".withText { host.fail(call.scope, message, $0) } }
      return 3
    } catch {
      let failure = error as? Failure ?? Failure("\(error)")
      failure.message.withText { message in failure.place.withText { host.fail(call.scope, message, $0) } }
      return 2
    }
  }

  func row(_ scope: OpaquePointer?, _ event: UnsafeMutablePointer<rxd_value>, _ arguments: UnsafePointer<rxd_value>?)
    -> Int32
  { 2 }
  func process(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ output: OpaquePointer?) -> Int32 { 2 }
  func save(_ scope: OpaquePointer?, _ state: UnsafeMutablePointer<rxd_bytes>) -> Int32 { 2 }
  func run(_ scope: OpaquePointer?, _ source: OpaquePointer?) -> Int32 { 2 }
  func write(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ verdicts: OpaquePointer?) -> Int32 { 2 }
}

final class RowInstance<T: RowOperator>: Instance {
  private let one: T
  init(_ one: T) { self.one = one }

  override func row(
    _ scope: OpaquePointer?, _ event: UnsafeMutablePointer<rxd_value>, _ arguments: UnsafePointer<rxd_value>?
  ) -> Int32 {
    let call = Call(scope: scope)
    return Self.attempt(call) {
      guard let result = try one.row(Value(event.pointee, call), Arguments(raw: arguments, call: call), in: call) else {
        return 1
      }
      event.pointee = result.raw
      return 0
    }
  }
}

final class StreamInstance<T: StreamOperator>: Instance {
  private let one: T
  init(_ one: T) { self.one = one }

  override func process(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ output: OpaquePointer?) -> Int32 {
    let call = Call(scope: scope, batch: batch)
    for index in 0..<Int(batch.pointee.count) {
      let raw = batch.input(index)
      let input: Input
      switch raw.kind {
      case 0: input = .event(Value(raw.event, call), Arguments(raw: raw.arguments, call: call))
      case 1: input = .timer(raw.name.string)
      case 2: input = .complete
      default: continue
      }
      let output = Output(raw: output, index: index)
      do { try one.process(input, output, in: call) } catch {
        output.reject((error as? Failure)?.message ?? "\(error)")
      }
    }
    return 0
  }

  override func save(_ scope: OpaquePointer?, _ state: UnsafeMutablePointer<rxd_bytes>) -> Int32 {
    let call = Call(scope: scope)
    return Self.attempt(call) {
      let saved = try one.save(in: call)
      let memory = UnsafeMutableRawPointer.allocate(byteCount: max(1, saved.count), alignment: 1)
      saved.withUnsafeBytes { if let start = $0.baseAddress { memory.copyMemory(from: start, byteCount: $0.count) } }
      state.pointee = rxd_bytes(
        bytes: memory, count: saved.count, release: { $0?.pointee.owner?.deallocate() }, owner: memory)
      return 0
    }
  }
}

final class SourceInstance<T: Source>: Instance {
  private let one: T
  init(_ one: T) { self.one = one }

  override func run(_ scope: OpaquePointer?, _ source: OpaquePointer?) -> Int32 {
    Self.attempt(Call(scope: scope)) {
      try one.run(Sender(raw: source))
      return 0
    }
  }
}

final class SinkInstance<T: Sink>: Instance {
  private let one: T
  init(_ one: T) { self.one = one }

  override func write(_ scope: OpaquePointer?, _ batch: UnsafePointer<rxd_batch>, _ verdicts: OpaquePointer?) -> Int32 {
    let call = Call(scope: scope, batch: batch)
    return Self.attempt(call) {
      try one.write(SinkBatch(batch: batch, verdicts: verdicts, call: call), in: call)
      return 0
    }
  }
}
