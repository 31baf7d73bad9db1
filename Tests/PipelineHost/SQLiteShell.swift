import Foundation

/// SQLite's own command-line shell.
package struct SQLiteShell: Sendable {
  package static let isInstalled = FileManager.default.isExecutableFile(atPath: "/usr/bin/sqlite3")
  package let path: String

  package init(_ path: String) { self.path = path }

  /// Runs statements; returns what the shell prints to its standard output and standard error.
  @discardableResult
  package func run(_ statements: String) throws -> String {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/sqlite3")
    process.arguments = ["-batch", path]
    let (input, output) = (Pipe(), Pipe())
    process.standardInput = input
    process.standardOutput = output
    process.standardError = output
    try process.run()
    input.fileHandleForWriting.write(Data(("PRAGMA busy_timeout = 600000;\n" + statements + "\n").utf8))
    try input.fileHandleForWriting.close()
    let text = output.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    // Drops the first line, which is the pragma's result.
    return String(decoding: text, as: UTF8.self).split(separator: "\n").dropFirst().joined(separator: "\n")
  }
}
