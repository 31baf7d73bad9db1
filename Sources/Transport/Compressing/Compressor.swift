internal import CCompress

/// Compresses bodies, one after the other. Used by one thread at a time.
package final class Compressor: @unchecked Sendable {
  package enum Format: String, Sendable {
    case gzip, zstd

    fileprivate var number: Int32 { self == .gzip ? Int32(RX_GZIP) : Int32(RX_ZSTD) }
    /// The levels, from fast to small.
    package var levels: ClosedRange<Int> { self == .gzip ? 1...9 : 1...19 }
    /// The library's default level.
    package var usualLevel: Int { self == .gzip ? 6 : 3 }
    /// The file name of the library.
    package var library: String { self == .gzip ? "libz.so.1" : "libzstd.so.1" }
  }

  private let compressor: OpaquePointer

  /// Nil if the library is not installed or memory is short. `level` must be one of the format's.
  package init?(_ format: Format, level: Int) {
    guard let made = rx_compressor_new(format.number, Int32(clamping: level)) else { return nil }
    compressor = made
  }

  deinit { rx_compressor_free(compressor) }

  /// The compressed bytes, deterministic. Nil if memory is short, or if gzip's input is larger than two gigabytes.
  package func compress(_ bytes: [UInt8]) -> [UInt8]? {
    let bound = rx_compress_bound(compressor, bytes.count)
    guard bound > 0 else { return nil }
    let made = [UInt8](unsafeUninitializedCapacity: bound) { room, count in
      count = bytes.withUnsafeBytes { rx_compress(compressor, $0.baseAddress, $0.count, room.baseAddress, bound) }
    }
    return made.isEmpty ? nil : made
  }
}
