import CLinux
import Glibc

/// A failed system call: its name, its object, and the reason.
package struct PosixError: Error, Sendable, Equatable, CustomStringConvertible {
  /// The value of errno.
  package var code: Int32
  /// The operation, to be read after "cannot": `open`, `read`, `write to`.
  package var operation: String
  /// The file or stream.
  package var path: String
  /// Further detail, appended to the sentence.
  package var detail: String?

  package init(_ operation: String, _ path: String, code: Int32 = errno, detail: String? = nil) {
    self.code = code
    self.operation = operation
    self.path = path
    self.detail =
      detail
      ?? (code == ELOOP && Self.isUnfollowed(path) ? "it is a symbolic link, and links are not followed here" : nil)
  }

  /// Whether a path is a link that leads somewhere, so that ELOOP comes from O_NOFOLLOW. Keeps errno.
  private static func isUnfollowed(_ path: String) -> Bool {
    let code = errno
    defer { errno = code }
    var status = stat()
    guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFLNK else { return false }
    return stat(path, &status) == 0 || errno != ELOOP
  }

  /// One sentence without a full stop: `cannot open /var/log/x: Permission denied`.
  package var message: String {
    var text = "cannot \(operation) \(path): "
    if let detail { text += detail } else { text += PosixError.text(code) }
    return text
  }

  package var description: String { message }

  /// The reader has closed the other end.
  package var isBrokenPipe: Bool { code == EPIPE }
  /// There is no room: disk, quota or file size limit; may be temporary.
  package var isFull: Bool { code == ENOSPC || code == EDQUOT || code == EFBIG }

  /// The disk or a table of descriptors is full.
  package var isShortage: Bool { isFull || code == EMFILE || code == ENFILE }

  /// The system's text for an errno.
  package static func text(_ code: Int32) -> String { String(cString: rx_error_text(code)) }
}

/// Repeats a call as long as a signal interrupts it. `call` returns -1 on failure and sets errno.
@inline(__always)
package func uninterrupted<Result: SignedInteger>(_ call: () -> Result) -> Result {
  while true {
    let result = call()
    if result != -1 || errno != EINTR { return result }
  }
}
