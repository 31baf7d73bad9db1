import Glibc
import PipelineCore
import PipelineRuntime
import Transport

extension FixedFile {
  /// Writes the file, if anything has changed.
  func write() throws {
    guard count > 0, let source = loaded.source else { return }
    try Self.replace(loaded.path, with: source.bytes)
  }

  /// Replaces a file of the user, keeping its permissions and following links.
  static func replace(_ path: String, with bytes: [UInt8]) throws {
    var status = stat()
    let mode = stat(path, &status) == 0 ? status.st_mode & 0o7777 : 0o644
    var target = path
    if let real = realpath(path, nil) {
      target = String(cString: real)
      free(real)
    }
    let text = OutputBuffer()
    bytes.withUnsafeBytes { text.append($0) }
    do throws(PosixError) {
      try replaceFile(target, with: text.bytes, permissions: mode)
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
  }
}
