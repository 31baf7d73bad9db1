import CLinux
import Glibc

/// A failed system call: which, on what, and why.
public struct PosixError: Error, Sendable, Equatable, CustomStringConvertible {
  /// The value of errno.
  public var code: Int32
  /// The operation, to be read after "cannot": `open`, `read`, `write to`.
  public var operation: String
  /// The file or stream.
  public var path: String
  /// Further detail, appended to the sentence.
  public var detail: String?

  public init(_ operation: String, _ path: String, code: Int32 = errno, detail: String? = nil) {
    self.code = code
    self.operation = operation
    self.path = path
    self.detail = detail
  }

  /// One sentence without a full stop: `cannot open /var/log/x: Permission denied`.
  public var message: String {
    var text = "cannot \(operation) \(path): "
    if let detail { text += detail } else { text += PosixError.text(code) }
    return text
  }

  public var description: String { message }

  /// The reader has closed the other end.
  public var isBrokenPipe: Bool { code == EPIPE }
  /// There is no room: disk, quota or file size limit; may be temporary.
  public var isFull: Bool { code == ENOSPC || code == EDQUOT || code == EFBIG }

  /// The disk or a table of descriptors is full.
  public var isShortage: Bool { isFull || code == EMFILE || code == ENFILE }

  /// The system's text for an errno.
  public static func text(_ code: Int32) -> String { String(cString: rx_error_text(code)) }
}

/// Repeats a call as long as a signal interrupts it. `call` returns -1 on failure and sets errno.
@inline(__always)
package func uninterrupted<Result: SignedInteger>(_ call: () -> Result) -> Result {
  while true {
    let result = call()
    if result != -1 || errno != EINTR { return result }
  }
}
