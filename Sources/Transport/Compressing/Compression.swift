import Glibc

/// Compressed formats, recognised by their first bytes. No text can start with them.
enum Compression: String, CaseIterable {
  case gzip, zstd, xz, bzip2

  /// The format of a stream with these first bytes.
  init?(startOf bytes: UnsafeRawBufferPointer) {
    for known in Self.allCases where bytes.starts(with: known.start) {
      if known == .bzip2 {
        // A text may start with BZh9, so the mark of the first block, or of an empty stream, must follow.
        let mark = bytes.dropFirst(4).prefix(6)
        guard
          mark.elementsEqual([0x31, 0x41, 0x59, 0x26, 0x53, 0x59])
            || mark.elementsEqual([0x17, 0x72, 0x45, 0x38, 0x50, 0x90])
        else { continue }
      }
      self = known
      return
    }
    return nil
  }

  /// Nil: the format cannot be decompressed.
  var format: Decompressor.Format? {
    switch self {
    case .gzip: .gzip
    case .zstd: .zstd
    case .xz, .bzip2: nil
    }
  }

  private var start: [UInt8] {
    switch self {
    case .gzip: [0x1F, 0x8B, 0x08]
    case .zstd: [0x28, 0xB5, 0x2F, 0xFD]
    case .xz: [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00]
    case .bzip2: Array("BZh".utf8)
    }
  }
}

/// Throws if these first bytes show that the stream is compressed.
func refuseCompressed(_ start: UnsafeRawBufferPointer, _ name: String) throws(PosixError) {
  guard let form = Compression(startOf: start) else { return }
  let isStream = name == FileDescriptor.standardInput.name
  throw PosixError(
    "read", name, code: EINVAL,
    detail: "it is compressed with \(form.rawValue), which is not decompressed here: use '\(form.rawValue) -dc"
      + (isStream ? " | rxd ...'" : " FILE | rxd ...' and the source 'stdin', or leave it out of 'path'"))
}
