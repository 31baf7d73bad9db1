import CRxdPlugin

/// The table of rxd's functions, which lives as long as the process.
@inline(__always)
var host: rxd_host {
  _read { yield rxd_swift_host().pointee }
}

extension rxd_text {
  init(_ bytes: UnsafeRawBufferPointer) {
    self.init(bytes: bytes.baseAddress?.assumingMemoryBound(to: CChar.self), count: bytes.count)
  }
  var string: String { String(decoding: buffer, as: UTF8.self) }
  var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count) }
}

extension String {
  /// Calls `body` with the text, which is valid until it returns.
  func withText<Result>(_ body: (rxd_text) -> Result) -> Result {
    var text = self
    return text.withUTF8 { body(rxd_text(UnsafeRawBufferPointer($0))) }
  }
}

extension [UInt8] {
  /// Calls `body` with the bytes, which are valid until it returns.
  func withText<Result>(_ body: (rxd_text) -> Result) -> Result { withUnsafeBytes { body(rxd_text($0)) } }
}

extension UnsafePointer<rxd_batch> {
  /// A newer rxd may pass larger inputs, so `input_size` is the stride.
  func input(_ index: Int) -> rxd_input {
    (UnsafeRawPointer(pointee.inputs!) + index * pointee.input_size).loadUnaligned(as: rxd_input.self)
  }
}
