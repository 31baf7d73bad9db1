import CPlugin
import PipelineCore

/// The memory of a call of a native plugin, and why the call failed. Lives on the stack of the caller.
struct NativeScope {
  private var raw: rxd_scope

  /// `arena`: lives longer than the scope.
  init(_ arena: Arena) {
    raw = rxd_scope()
    raw.arena = Unmanaged.passUnretained(arena).toOpaque()
  }

  /// Calls `body` with the pointer to the scope that the plugin receives.
  @inline(__always)
  mutating func withPointer<Result>(_ body: (UnsafeMutablePointer<rxd_scope>) -> Result) -> Result {
    withUnsafeMutablePointer(to: &raw, body)
  }

  /// Removes and returns the failure that `fail` reported.
  mutating func takeFailure() -> PluginFault {
    guard let failure = raw.failure else { return PluginFault("it failed without saying why") }
    raw.failure = nil
    let said = Unmanaged<Message>.fromOpaque(failure).takeRetainedValue()
    return PluginFault(said.message, at: said.path)
  }

  /// Frees the message of a plugin that called `fail` but then returned success.
  mutating func end() { if raw.failure != nil { _ = takeFailure() } }

  final class Message {
    let message: String
    let path: String
    init(_ message: String, _ path: String) {
      self.message = message
      self.path = path
    }
  }
}

extension UnsafeMutablePointer<rxd_scope> {
  /// Makes it the scope of values in another arena, and forgets values that were expanded in the former arena.
  func use(_ arena: Arena) {
    let failure = pointee.failure
    pointee = rxd_scope()
    pointee.failure = failure
    pointee.arena = Unmanaged.passUnretained(arena).toOpaque()
  }

  /// A list or a map that is no longer JSON text, nested ones included; absent if the text is malformed. The last two are known, so that a
  /// plugin that walks through one by index does not expand it for each of its parts.
  func tree(of value: Value) -> Value {
    guard value.is(.jsonMap) || value.is(.jsonList) else { return value }
    let raw = value.raw
    if pointee.known.0.isSame(as: raw) { return pointee.tree.0.value }
    if pointee.known.1.isSame(as: raw) { return pointee.tree.1.value }
    let parsed = NativeParser.current.expand(value, into: memory)
    let tree = parsed.isError ? Value.absent : parsed
    if pointee.next == 0 {
      (pointee.known.0, pointee.tree.0, pointee.next) = (raw, tree.raw, 1)
    } else {
      (pointee.known.1, pointee.tree.1, pointee.next) = (raw, tree.raw, 0)
    }
    return tree
  }

  /// Whether ``tree(of:)`` knows the value.
  func knows(_ value: Value) -> Bool {
    let raw = value.raw
    return pointee.known.0.isSame(as: raw) || pointee.known.1.isSame(as: raw)
  }

  @inline(__always)
  var memory: Arena { Unmanaged<Arena>.fromOpaque(pointee.arena).takeUnretainedValue() }
}

extension rxd_text {
  @inline(__always)
  var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count) }
  var string: String { String(decoding: buffer, as: UTF8.self) }

  @inline(__always)
  init(_ buffer: UnsafeRawBufferPointer) {
    self.init(bytes: buffer.baseAddress?.assumingMemoryBound(to: CChar.self), count: buffer.count)
  }

  static var none: rxd_text { rxd_text(bytes: nil, count: 0) }
}

extension Value {
  /// The value as plugins see it: the same two words.
  @inline(__always) var raw: rxd_value { rxd_value(word: (payload, head)) }
}

extension rxd_value {
  @inline(__always) func isSame(as other: rxd_value) -> Bool { word.0 == other.word.0 && word.1 == other.word.1 }
  @inline(__always) var value: Value { Value(payload: word.0, head: word.1) }
}
