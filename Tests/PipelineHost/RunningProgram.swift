import Foundation

/// The program itself as a process, with pipes to the test as standard streams.
package final class RunningProgram {
  package let input: FileHandle
  package let output: FileHandle
  package let errors: FileHandle
  private let process = Process()

  /// The path of the built program, next to the tests; nil if it was not built.
  package static let path: String? = {
    var folder = URL(fileURLWithPath: CommandLine.arguments.first ?? "").deletingLastPathComponent()
    for _ in 0..<6 {
      let candidate = folder.appendingPathComponent("rxd").path
      var isFolder = ObjCBool(false)
      if FileManager.default.fileExists(atPath: candidate, isDirectory: &isFolder), !isFolder.boolValue {
        return candidate
      }
      folder = folder.deletingLastPathComponent()
    }
    return nil
  }()

  /// Starts `rxd run` with a file that contains the text.
  package init(_ yaml: String, in scratch: Scratch, errorsTo file: String? = nil) throws {
    let name = "pipeline-\(UInt32.random(in: 0 ... .max)).yaml"
    scratch.append(yaml, to: name)
    let (input, output, errors) = (Pipe(), Pipe(), Pipe())
    self.input = input.fileHandleForWriting
    self.output = output.fileHandleForReading
    self.errors = errors.fileHandleForReading
    process.executableURL = URL(fileURLWithPath: RunningProgram.path ?? "/nonexistent")
    process.arguments = ["run", scratch(name)]
    process.standardInput = input
    process.standardOutput = output
    process.standardError = errors
    signal(SIGPIPE, SIG_IGN)
    try process.run()
    try? input.fileHandleForReading.close()
    try? output.fileHandleForWriting.close()
    try? errors.fileHandleForWriting.close()
  }

  package var id: Int32 { process.processIdentifier }

  package func send(_ text: String) { try? input.write(contentsOf: Data(text.utf8)) }

  /// Reads the output until it contains the text; the whole output if that ends first.
  package func read(until text: String) -> String {
    var all = ""
    while !all.contains(text) {
      let data = output.availableData
      if data.isEmpty { return all }
      all += String(decoding: data, as: UTF8.self)
    }
    return all
  }

  package func readAll() -> String {
    String(decoding: output.readDataToEndOfFile(), as: UTF8.self)
  }

  /// Waits for the end; returns the exit status.
  package func wait() -> Int32 {
    process.waitUntilExit()
    return process.terminationStatus
  }

  package func interrupt() { process.interrupt() }
}
