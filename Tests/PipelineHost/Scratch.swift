import Foundation

/// A directory that is removed when the test ends.
package final class Scratch: Sendable {
  package let path: String

  package init() {
    path = NSTemporaryDirectory() + "rxd-test-\(getpid())-\(UInt64.random(in: 0 ... .max))"
    mkdir(path, 0o700)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  package func callAsFunction(_ name: String) -> String { path + "/" + name }

  /// Appends to a file, which is created if necessary, in one write.
  package func append(_ bytes: [UInt8], to name: String) {
    let file = open(self(name), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(file) }
    precondition(write(file, bytes, bytes.count) == bytes.count)
  }

  package func append(_ text: String, to name: String) { append(Array(text.utf8), to: name) }

  /// Makes a file as large as the file system permits: to its writer, the disk then looks full. False: the file system
  /// has no such limit.
  package func makeFull(_ name: String) -> Bool {
    append("", to: name)
    var (fits, most) = (Int64(0), Int64.max)
    while fits < most {
      let size = fits + (most - fits) / 2 + (most - fits) % 2
      if truncate(self(name), off_t(size)) == 0 { fits = size } else { most = size - 1 }
    }
    return truncate(self(name), off_t(fits)) == 0 && fits > 1 << 40
  }

  package func read(_ name: String) -> String {
    String(decoding: FileManager.default.contents(atPath: self(name)) ?? Data(), as: UTF8.self)
  }
}
