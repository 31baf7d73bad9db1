import CPlugin
import PipelineCore

/// The memory of a call of a native plugin, and why the call failed. Lives on the stack of the caller.
struct NativeScope {
  private var raw: rxd_scope

  /// `arena`: lives longer than the scope.
  init(_ arena: Arena) { raw = rxd_scope(arena: Unmanaged.passUnretained(arena).toOpaque(), failure: nil) }

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
  @inline(__always) var value: Value { Value(payload: word.0, head: word.1) }
}
