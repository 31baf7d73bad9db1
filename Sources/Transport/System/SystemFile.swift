import Glibc

/// Files that the kernel writes as they are read: their sizes are unknown.
package enum SystemFile {
  /// The contents, at most `limit` bytes; nil if the file cannot be read, with the reason in errno.
  package static func read(_ path: String, limit: Int = 1 << 20) -> [UInt8]? {
    let descriptor = uninterrupted { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) }
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var room = 4096
    while bytes.count < limit {
      let start = bytes.count
      bytes.append(contentsOf: repeatElement(0, count: min(room, limit - start)))
      let count = bytes.withUnsafeMutableBytes { buffer in
        uninterrupted { Glibc.read(descriptor, buffer.baseAddress! + start, buffer.count - start) }
      }
      guard count > 0 else {
        let code = errno
        bytes.removeLast(bytes.count - start)
        errno = code
        return count == 0 ? bytes : nil
      }
      bytes.removeLast(bytes.count - start - count)
      room = min(room * 2, 1 << 18)
    }
    return bytes
  }
}
