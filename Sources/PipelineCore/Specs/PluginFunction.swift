import Synchronization

/// A function of expressions, a decoder or an encoder of a plugin: a pure function that is opened at its first use.
///
/// The plugin is not loaded before that, so that checking a file runs no code of plugins.
package final class PluginFunction: ForeignFunction, OfferedFormat {
  package typealias Open =
    @Sendable (PluginComponentSpec, PluginArguments) -> Result<any PluginRowFunction, FunctionRefusal>

  package let offered: PluginComponentSpec
  /// The plugin's name.
  package let plugin: String
  /// Changes whenever the plugin does.
  package let digest: String
  /// Where the pipeline file names the plugin; nil: the plugin is in the plugin directory.
  package let location: SourceLocation?
  package let arguments: PluginArguments
  /// A hash of the parameters in the file: functions with the same ``digest`` and fingerprint are the same.
  private let fingerprint: UInt64
  private let make: Open
  private let opened = Mutex<Result<any PluginRowFunction, FunctionRefusal>?>(nil)
  /// The address of the opened function, retained, so that calls take no lock; 0: not opened yet, or it could not be.
  private let ready = Atomic<UInt>(0)

  private final class Ready: Sendable {
    let function: any PluginRowFunction
    init(_ function: any PluginRowFunction) { self.function = function }
  }

  package convenience init(
    _ offered: PluginComponentSpec, of plugin: String, at location: SourceLocation?, digest: String,
    open: @escaping Open
  ) {
    self.init(offered, plugin, location, digest, PluginArguments(of: offered), 0, open)
  }

  private init(
    _ offered: PluginComponentSpec, _ plugin: String, _ location: SourceLocation?, _ digest: String,
    _ arguments: PluginArguments, _ fingerprint: UInt64, _ make: @escaping Open
  ) {
    self.offered = offered
    self.plugin = plugin
    self.location = location
    self.digest = digest
    self.arguments = arguments
    self.fingerprint = fingerprint
    self.make = make
  }

  package var kind: ComponentKind { offered.kind }
  package var name: String { offered.name }

  /// The same format with the parameters of a file: those of `decode: { NAME: ... }`.
  package func with(_ node: YAMLNode?, _ context: inout DecodingContext) -> any OfferedFormat {
    let outer = (context.component, context.parameter, context.beside)
    context.beside = []
    let format = offered.spec { Format(self.offered) }.decode(node, &context)
    (context.component, context.parameter, context.beside) = outer
    var print = Fingerprint()
    if let node { print.add(node) }
    return PluginFunction(offered, plugin, location, digest, format.arguments, print.value, make)
  }

  /// A format as a component, whose parameters are decoded like those of any other.
  private struct Format: PluginParameters {
    let offered: PluginComponentSpec
    var arguments: PluginArguments

    init() { self.init(PluginComponentSpec(kind: .decoder, name: "plugin", summary: "")) }
    init(_ offered: PluginComponentSpec) {
      self.offered = offered
      arguments = PluginArguments(of: offered)
    }
  }

  package var identity: String { "\(offered.kind) \(offered.name) \(digest) \(fingerprint)" }

  package var format: PluginFormat {
    PluginFormat(
      self, name: offered.name, framing: offered.framing, makesList: offered.makesList, output: offered.output,
      mediaType: offered.mediaType)
  }

  /// The name by which expressions call the function: `geo.lookup`.
  package var callName: String { "\(plugin).\(offered.name)" }

  /// The name in pipeline files: of a function in a call, of a format at `decode` or `encode`.
  package var nameInFiles: String { offered.kind == .function ? callName : offered.name }

  /// The function as expressions see it; nil: it is a format.
  package var callable: CallableFunction? {
    guard offered.kind == .function else { return nil }
    var details = ["A function of the plugin \(offered.plugin)."]
    details += offered.parameters.map { "`\($0.name)`: \($0.help)" }
    if !offered.details.isEmpty { details.append(offered.details) }
    return CallableFunction(
      self, name: callName, summary: offered.summary, details: details.joined(separator: "\n\n"),
      parameters: offered.parameters.map { parameter in
        if case .expression(let type?) = parameter.type { return type }
        return .dyn
      },
      least: offered.parameters.lastIndex(where: \.isRequired).map { $0 + 1 } ?? 0, result: offered.output,
      examples: offered.examples.compactMap { one in one.result.map { (one.yaml, $0) } })
  }

  /// The parameters, for the reference.
  package var parameters: [ParameterInfo] { offered.spec { Format(self.offered) }.parameters.map(\.info) }

  deinit {
    if let ready = UnsafeRawPointer(bitPattern: ready.load(ordering: .acquiring)) {
      Unmanaged<Ready>.fromOpaque(ready).release()
    }
  }

  /// The function, opened once for all that use it.
  package func open() -> Result<any PluginRowFunction, FunctionRefusal> {
    if let ready = UnsafeRawPointer(bitPattern: ready.load(ordering: .acquiring)) {
      return .success(Unmanaged<Ready>.fromOpaque(ready).takeUnretainedValue().function)
    }
    return opened.withLock { opened in
      if let opened { return opened }
      let result = make(offered, arguments)
      opened = result
      if case .success(let function) = result {
        ready.store(UInt(bitPattern: Unmanaged.passRetained(Ready(function)).toOpaque()), ordering: .releasing)
      }
      return result
    }
  }
}

extension PluginComponentSpec {
  /// Whether it is a format with the name of a built-in one.
  package var isBuiltInFormat: Bool {
    kind == .decoder && DecoderFormat(rawValue: name) != nil || kind == .encoder && EncoderFormat(rawValue: name) != nil
  }
}

extension Fingerprint {
  /// Adds a value of the file.
  fileprivate mutating func add(_ node: YAMLNode) {
    if let items = node.items {
      add(UInt8(ascii: "["))
      for item in items { add(item) }
      add(UInt8(ascii: "]"))
    } else if let entries = node.entries {
      add(UInt8(ascii: "{"))
      for entry in entries {
        add(entry.name.utf8)
        add(UInt8(ascii: ":"))
        add(entry.value)
      }
      add(UInt8(ascii: "}"))
    } else {
      add((node.scalar?.string ?? "").utf8)
      add(UInt8(0))
    }
  }
}
