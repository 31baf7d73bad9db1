internal import CCompress
import PipelineCore

/// Decompresses bodies with a content coding of HTTP.
package enum Decompressor {
  package enum Format: String, Sendable, CaseIterable {
    case gzip, deflate, zstd

    var number: Int32 {
      switch self {
      case .gzip: Int32(RX_GZIP)
      case .deflate: Int32(RX_DEFLATE)
      case .zstd: Int32(RX_ZSTD)
      }
    }
  }

  /// The meaning of a `Content-Encoding`.
  enum Coding: Equatable {
    case none
    case compressed(Format)
    /// Not supported: unknown, or several codings.
    case unknown

    init(_ name: String) {
      let name = name.lowercased()
      if name.isEmpty || name == "identity" {
        self = .none
      } else if let format = Format(rawValue: name == "x-gzip" ? "gzip" : name) {
        self = .compressed(format)
      } else {
        self = .unknown
      }
    }
  }

  package enum Outcome: Sendable {
    case bytes(Slab)
    /// The content exceeds the limit; the rest was not decompressed.
    case tooLarge
    /// The body is not in that format, or truncated.
    case damaged
    /// The library is not installed, or memory is short.
    case unavailable
  }

  /// Decompresses a whole body.
  /// - Parameter limit: The maximum size of the content in bytes. At most one byte more is decompressed.
  package static func decompress(_ body: Slab, _ format: Format, limit: Int) -> Outcome {
    guard body.count > 0 else { return .bytes(body) }
    guard let decompressor = rx_decompressor_new(format.number) else { return .unavailable }
    defer { rx_decompressor_free(decompressor) }
    let most = limit == .max ? limit : limit + 1
    var content = Slab(capacity: min(most, max(4 * min(body.count, most / 4), 4 << 10)))
    var at = 0
    while true {
      if content.count > limit { return .tooLarge }
      if content.count == content.capacity {
        let larger = Slab(capacity: content.capacity > most / 2 ? most : 2 * content.capacity)
        larger.append(content.bytes)
        content = larger
      }
      var used = 0
      var made = 0
      let code = rx_decompress(
        decompressor, body.start + at, body.count - at, &used, content.start + content.count,
        content.capacity - content.count, &made)
      at += used
      content.count += made
      switch code {
      case Int32(RX_WHOLE): return content.count > limit ? .tooLarge : .bytes(content)
      case Int32(RX_MORE): continue
      default: return .damaged
      }
    }
  }
}
