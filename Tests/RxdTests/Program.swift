import Foundation

/// Runs other programs to their end.
enum Program {
  /// The exit status, and the texts of standard output and standard error.
  ///
  /// - Parameter environment: Nil: that of the tests.
  static func run(
    _ path: String, _ arguments: [String], environment: [String: String]? = nil
  ) throws -> (status: Int32, output: String) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: path)
    process.arguments = arguments
    if let environment { process.environment = environment }
    let output = Pipe()
    process.standardOutput = output
    process.standardError = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    return (process.terminationStatus, text)
  }
}
