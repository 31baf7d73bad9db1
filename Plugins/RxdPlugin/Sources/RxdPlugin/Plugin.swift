import CRxdPlugin

/// A plugin: its name and its components. The library exports one function that creates it:
///
///     @_cdecl("rxd_swift_plugin")
///     public func plugin() -> UnsafeMutableRawPointer {
///       Plugin("text-tools", version: "1.0.0", summary: "Small operators.", [CatalogueEntry(row: Shorten.self)]).handle
///     }
public final class Plugin {
  private let name: String
  private let version: String
  private let summary: String
  private let uses: [String]
  private let components: [CatalogueEntry]

  /// - Parameters:
  ///   - summary: one sentence with a full stop.
  ///   - uses: further files that belong to the plugin; relative paths start at the directory of its file.
  public init(
    _ name: String, version: String, summary: String, uses: [String] = [], _ components: [CatalogueEntry]
  ) {
    self.name = name
    self.version = version
    self.summary = summary
    self.uses = uses
    self.components = components
  }

  /// The result of `rxd_swift_plugin`.
  public var handle: UnsafeMutableRawPointer { Unmanaged.passRetained(self).toOpaque() }

  /// The JSON document of docs/plugin-contract.md.
  private func document() throws -> String {
    var members: [(String, JSONDocument)] = [
      ("plugin", .text(name)), ("version", .text(version)), ("contract", .raw("1")), ("summary", .text(summary)),
    ]
    if !uses.isEmpty { members.append(("uses", .list(uses.map(JSONDocument.text)))) }
    members.append(("components", .list(try components.map { try $0.document() })))
    return JSONDocument.object(members).text
  }

  fileprivate func start(
    _ offered: UnsafePointer<rxd_host>, _ result: UnsafeMutablePointer<UnsafePointer<rxd_plugin>?>,
    _ problem: UnsafeMutablePointer<rxd_text>
  ) -> Int32 {
    guard offered.pointee.contract >= 1, Int(offered.pointee.size) >= MemoryLayout<rxd_host>.size else {
      problem.pointee = Self.forever("this plugin needs a newer rxd")
      return 2
    }
    rxd_swift_set_host(offered)
    known = components
    let document: String
    do { document = try self.document() } catch {
      problem.pointee = Self.forever((error as? SpecFault)?.message ?? "\(error)")
      return 2
    }
    let table = UnsafeMutablePointer<rxd_component>.allocate(capacity: max(1, components.count))
    for (index, component) in components.enumerated() { table[index] = Self.entry(component) }
    let plugin = UnsafeMutablePointer<rxd_plugin>.allocate(capacity: 1)
    plugin.initialize(
      to: rxd_plugin(
        size: UInt32(MemoryLayout<rxd_plugin>.size), component_count: UInt32(components.count), components: table,
        component_size: MemoryLayout<rxd_component>.stride, spec: Self.forever(document)))
    result.pointee = UnsafePointer(plugin)
    return 0
  }

  private static func forever(_ text: String) -> rxd_text {
    let bytes = UnsafeMutableBufferPointer<CChar>.allocate(capacity: text.utf8.count)
    _ = bytes.initialize(from: text.utf8.map { CChar(bitPattern: $0) })
    return rxd_text(bytes: bytes.baseAddress, count: bytes.count)
  }

  private static func entry(_ component: CatalogueEntry) -> rxd_component {
    var entry = rxd_component()
    entry.size = UInt32(MemoryLayout<rxd_component>.size)
    entry.name = forever(component.name)
    entry.kind = forever(component.form.kind)
    entry.close = { pointer in
      guard let pointer else { return }
      let instance = Unmanaged<Instance>.fromOpaque(pointer)
      instance._withUnsafeGuaranteedRef { $0.close() }
      instance.release()
    }
    switch component.form {
    case .source:
      entry.open = { open("source", $0!, $1!) }
      entry.run = { raw, scope, source in called(raw, scope) { instance, _ in instance.run(scope, source) } }
    case .sink:
      entry.open = { open("sink", $0!, $1!) }
      entry.write = { raw, scope, batch, verdicts in
        called(raw, scope) { instance, _ in instance.write(scope, batch!, verdicts) }
      }
    case .row:
      entry.open = { open("operator", $0!, $1!) }
      entry.row = { raw, scope, event, arguments in
        called(raw, scope) { instance, slot in instance.row(scope, slot, event!, arguments) }
      }
    case .stream:
      entry.open = { open("operator", $0!, $1!) }
      entry.process = { raw, scope, batch, output in
        called(raw, scope) { instance, _ in instance.process(scope, batch!, output) }
      }
      entry.save = { raw, scope, state in
        called(raw, scope) { instance, _ in
          let saved = instance.save(scope)
          let memory = UnsafeMutableRawPointer.allocate(byteCount: max(1, saved.count), alignment: 1)
          saved.withUnsafeBytes {
            if let start = $0.baseAddress { memory.copyMemory(from: start, byteCount: $0.count) }
          }
          state!.pointee = rxd_bytes(
            bytes: memory, count: saved.count, release: { $0?.pointee.owner?.deallocate() }, owner: memory)
          return 0
        }
      }
    }
    return entry
  }
}

/// Set before anything else is called.
nonisolated(unsafe) private var known: [CatalogueEntry] = []

@_cdecl("rxd_swift_start")
func start(
  _ plugin: UnsafeMutableRawPointer, _ contract: UInt32, _ offered: UnsafePointer<rxd_host>,
  _ result: UnsafeMutablePointer<UnsafePointer<rxd_plugin>?>, _ problem: UnsafeMutablePointer<rxd_text>
) -> Int32 {
  Unmanaged<Plugin>.fromOpaque(plugin).takeUnretainedValue().start(offered, result, problem)
}

/// A call begins on this thread.
@inline(__always)
private func called(
  _ pointer: UnsafeMutableRawPointer?, _ scope: OpaquePointer?, _ body: (Instance, Int) -> Int32
) -> Int32 {
  let slot = Int(rxd_swift_enter(scope))
  return Unmanaged<Instance>.fromOpaque(pointer!)._withUnsafeGuaranteedRef { body($0, slot) }
}

private func open(
  _ kind: String, _ raw: UnsafePointer<rxd_opening>, _ result: UnsafeMutablePointer<UnsafeMutableRawPointer?>
) -> Int32 {
  let opening = Opening(raw)
  _ = rxd_swift_enter(opening.scope)
  do {
    guard let entry = known.first(where: { $0.form.kind == kind && $0.name == opening.component }) else {
      throw Failure(message: "the plugin has no \(kind) '\(opening.component)'")
    }
    let instance = try entry.open(opening)
    result.pointee = Unmanaged.passRetained(instance).toOpaque()
    return instance.hasFinished ? Int32(bitPattern: RXD_FINISH.rawValue) : 0
  } catch {
    return Instance.fail(opening.scope, error as? Failure ?? Failure(message: "\(error)"))
  }
}
