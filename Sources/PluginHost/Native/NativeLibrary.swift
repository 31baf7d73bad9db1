import CPlugin
import Glibc
import PipelineCore
import Synchronization

/// A loaded shared library. It is never unloaded: its functions may be on a stack, and its values in a state.
final class NativeLibrary: @unchecked Sendable {
  /// The document with its specs.
  let document: [UInt8]
  private let plugin: rxd_plugin

  /// The libraries that have been loaded from one path.
  private struct Versions {
    var byDigest: [String: Result<NativeLibrary, PluginFault>] = [:]
    /// The files that are mapped, and their digests without the files that they use.
    var mapped: [(device: dev_t, inode: ino_t, code: String?)] = []
  }
  private static let loaded = Mutex<[String: Versions]>([:])

  /// Whether the library is loaded, and has read the files that it reads at its start.
  static func isLoaded(_ file: PluginFile, digest: String) -> Bool {
    loaded.withLock { $0[file.path]?.byDigest[digest] != nil }
  }

  /// The library loaded under `digest` is also known under a second digest, which includes the files that its spec names.
  static func note(_ file: PluginFile, digest: String, as whole: String) {
    loaded.withLock { loaded in
      let library = loaded[file.path]?.byDigest[digest]
      loaded[file.path]?.byDigest[whole] = library
    }
  }

  /// Loads a library once in a process. A file that replaces it is loaded in addition; the old library stays loaded,
  /// and pipelines that were compiled with it keep using it.
  ///
  /// - Parameters:
  ///   - digest: of the library and of the files that it uses.
  ///   - contract: the version offered to the library; if it is not our own, the library is loaded for this call only.
  static func load(
    _ file: PluginFile, digest: String, contract: Int = PluginSpec.contract
  ) throws(PluginFault) -> NativeLibrary {
    if contract != PluginSpec.contract { return try NativeLibrary(file.path, contract) }
    let result = loaded.withLock { loaded -> Result<NativeLibrary, PluginFault> in
      var versions = loaded[file.path] ?? Versions()
      if let known = versions.byDigest[digest] { return known }
      var status = stat()
      let isThere = stat(file.path, &status) == 0
      // dlopen would return the old library, with pages of the new file mapped into it.
      if isThere, let old = versions.mapped.first(where: { $0.device == status.st_dev && $0.inode == status.st_ino }) {
        return .failure(
          PluginFault(
            old.code == file.codeDigest
              ? "a file that it uses has changed since it was loaded; restart rxd, or put a copy of the library in its place with 'install'"
              : "its file was overwritten while it is loaded, which changes running code; restart rxd, and put the next version in its place with 'mv' or 'install'"
          ))
      }
      let result: Result<NativeLibrary, PluginFault>
      do throws(PluginFault) {
        result = .success(try NativeLibrary(Self.alias(file.path, versions.mapped.count), contract))
        versions.mapped.append((status.st_dev, status.st_ino, file.codeDigest))
      } catch { result = .failure(error) }
      versions.byDigest[digest] = result
      loaded[file.path] = versions
      return result
    }
    return try result.get()
  }

  /// Uses another name of the same file, because the loader compares names before files.
  private static func alias(_ path: String, _ version: Int) -> String {
    guard let slash = path.lastIndex(of: "/") else { return String(repeating: "./", count: version + 1) + path }
    return path[...slash] + String(repeating: "./", count: version) + path[path.index(after: slash)...]
  }

  private init(_ path: String, _ contract: Int) throws(PluginFault) {
    var problem: UnsafePointer<CChar>?
    guard let library = rx_load(path, &problem) else {
      throw PluginFault("it cannot be loaded: \(problem.map { String(cString: $0) } ?? "no reason was given")")
    }
    guard let magic = rx_symbol(library, "rxd_plugin_magic") else {
      throw PluginFault("it is not a plugin: it does not export 'rxd_plugin_magic'")
    }
    try Self.check(magic.assumingMemoryBound(to: rxd_magic.self).pointee)
    guard let symbol = rx_symbol(library, "rxd_plugin_init") else {
      throw PluginFault("it is not a plugin: it does not export 'rxd_plugin_init'")
    }
    let start = unsafeBitCast(
      symbol,
      to: (@convention(c) (
        UInt32, UnsafePointer<rxd_host>?, UnsafeMutablePointer<UnsafePointer<rxd_plugin>?>?,
        UnsafeMutablePointer<rxd_text>?
      ) -> Int32).self)
    var offered: UnsafePointer<rxd_plugin>?
    var text = rxd_text.none
    let status = start(UInt32(contract), HostTable.pointer, &offered, &text)
    guard status == 0, let offered else {
      throw PluginFault(
        "it refuses to start: \(text.count == 0 ? "it gave no reason" : Printable.cut(text.string, limit: 500))")
    }
    guard offered.pointee.size >= UInt32(MemoryLayout<rxd_plugin>.size) else {
      throw PluginFault(
        "its table has \(offered.pointee.size) bytes, and contract 1 has \(MemoryLayout<rxd_plugin>.size)")
    }
    plugin = offered.pointee
    guard plugin.spec.bytes != nil, plugin.spec.count > 0, plugin.spec.count <= 16 << 20 else {
      throw PluginFault("it has no spec")
    }
    guard plugin.component_count == 0 || plugin.components != nil && plugin.component_size >= 8 else {
      throw PluginFault("its components have no table")
    }
    document = Array(plugin.spec.buffer)
  }

  private static func check(_ magic: rxd_magic) throws(PluginFault) {
    let name = withUnsafeBytes(of: magic.name) { Array($0) }
    guard name.starts(with: Array("rxdplug".utf8)) else {
      throw PluginFault("it is not a plugin: 'rxd_plugin_magic' is not that of rxd_plugin.h")
    }
    guard Int(magic.contract) <= PluginSpec.contract, magic.contract >= 1 else {
      throw PluginFault("it was compiled for contract \(magic.contract), and this rxd knows \(PluginSpec.contract)")
    }
    guard magic.pointer_bytes == UInt8(MemoryLayout<Int>.size) else {
      throw PluginFault(
        "its pointers have \(magic.pointer_bytes) bytes, and those of this rxd have \(MemoryLayout<Int>.size)")
    }
    let isLittle = UInt16(1).littleEndian == 1
    guard (magic.little_endian == 1) == isLittle else {
      throw PluginFault("its byte order differs from that of this machine")
    }
    guard magic.batch_format == 1 else {
      throw PluginFault("its batches have format \(magic.batch_format), and this rxd knows 1")
    }
  }

  // MARK: Components

  /// The functions of a component; missing ones are null.
  private func component(_ spec: PluginComponentSpec) throws(PluginFault) -> rxd_component {
    let base = UnsafeRawPointer(plugin.components)
    for index in 0..<Int(plugin.component_count) {
      guard let start = base.map({ $0 + index * plugin.component_size }) else { break }
      // Newer plugins have larger tables, older ones smaller.
      let size = min(Int(start.loadUnaligned(as: UInt32.self)), plugin.component_size, MemoryLayout<rxd_component>.size)
      var component = rxd_component()
      withUnsafeMutableBytes(of: &component) { $0.copyMemory(from: UnsafeRawBufferPointer(start: start, count: size)) }
      if component.name.string == spec.name, component.kind.string == spec.kind.rawValue { return component }
    }
    throw PluginFault("its spec has the \(spec.kind.rawValue) '\(spec.name)', but its table of functions does not")
  }

  /// How the functions differ from the spec; nil if they match.
  func problem(_ spec: PluginComponentSpec) -> String? {
    do throws(PluginFault) {
      let component = try component(spec)
      let missing: String? =
        switch spec.kind {
        case .source: component.run == nil ? "run" : nil
        case .sink: component.write == nil ? "write" : nil
        case .function, .decoder, .encoder: component.row == nil ? "row" : nil
        default: spec.form == .row ? component.row == nil ? "row" : nil : component.process == nil ? "process" : nil
        }
      if let missing { return "the \(spec.kind.rawValue) '\(spec.name)' has no function '\(missing)'" }
      if spec.stateVersion > 0, component.save == nil { return "'\(spec.name)' has state but no function 'save'" }
      return nil
    } catch { return error.message }
  }

  /// Opens an instance.
  func open(
    _ spec: PluginComponentSpec, _ opening: PluginOpening, _ log: PluginLog, _ meter: PluginMeter
  ) throws(PluginFault) -> NativeHandle {
    try NativeHandle(try component(spec), spec, opening, log, meter)
  }
}

/// A pure function of a native plugin.
final class NativeRow: PluginRowFunction {
  private let handle: NativeHandle
  private let instance: UInt
  private let row:
    @Sendable @convention(c) (
      UnsafeMutableRawPointer?, OpaqueScope?, UnsafeMutablePointer<rxd_value>?, UnsafePointer<rxd_value>?
    ) -> Int32
  typealias OpaqueScope = UnsafeMutablePointer<rxd_scope>

  init(_ handle: NativeHandle) throws(PluginFault) {
    guard let row = handle.component.row else { throw PluginFault("it has no function 'row'") }
    self.handle = handle
    self.row = unsafeBitCast(row, to: type(of: self.row))
    instance = UInt(bitPattern: handle.pointer)
  }

  var endsAtOnce: Bool { handle.hasFinished }

  func call(_ value: inout Value, _ arguments: UnsafePointer<Value>?, _ arena: Arena) -> RowVerdict {
    var scope = NativeScope(arena)
    let status = scope.withPointer { scope in
      withUnsafeMutableBytes(of: &value) { value in
        row(
          UnsafeMutableRawPointer(bitPattern: instance), scope,
          value.baseAddress?.assumingMemoryBound(to: rxd_value.self),
          UnsafeRawPointer(arguments)?.assumingMemoryBound(to: rxd_value.self))
      }
    }
    switch status {
    case 0:
      scope.end()
      return .pass
    case Int32(RXD_DROP.rawValue):
      scope.end()
      return .drop
    case Int32(RXD_LAST.rawValue):
      scope.end()
      return .last
    case Int32(RXD_FINISH.rawValue):
      scope.end()
      return .finish
    default: return .failed(scope.takeFailure().message)
    }
  }
}
