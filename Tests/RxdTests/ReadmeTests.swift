import Foundation
import Testing

/// The output that the README shows is the program's real output.
@Suite(.timeLimit(.minutes(5)))
struct ReadmeTests {
  struct Shown: CustomTestStringConvertible, Sendable {
    var command: String
    var output: String
    var testDescription: String { command }
  }

  /// Blocks that begin with `$ `, except those that build and install.
  static let shown: [Shown] = {
    let readme = (try? String(contentsOfFile: Rxd.root + "/README.md", encoding: .utf8)) ?? ""
    return readme.components(separatedBy: "```\n").filter { $0.hasPrefix("$ ") && !$0.hasPrefix("$ make") }.map {
      block in
      let end = block.firstIndex(of: "\n") ?? block.endIndex
      return Shown(
        command: String(block[..<end].dropFirst(2)), output: String(block[end...].dropFirst()))
    }
  }()

  @Test func thereAreSome() { #expect(Self.shown.count >= 4) }

  @Test(arguments: shown) func blockIsWhatIsPrinted(_ shown: Shown) throws {
    let folder = try Scratch()
    try FileManager.default.createSymbolicLink(atPath: folder.path + "/rxd", withDestinationPath: Rxd.binary)
    for name in ["pipelines", "docs"] {
      try FileManager.default.createSymbolicLink(
        atPath: folder.path + "/" + name, withDestinationPath: Rxd.root + "/" + name)
    }
    try FileManager.default.copyItem(
      atPath: Rxd.root + "/Tests/Golden/Readme/search.yaml", toPath: folder.path + "/search.yaml")
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", shown.command]
    process.currentDirectoryURL = URL(fileURLWithPath: folder.path)
    process.environment = ["PATH": folder.path + ":/usr/bin:/bin", "HOME": folder.path, "LANG": "C.UTF-8"]
    let output = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = output
    process.standardError = FileHandle.nullDevice
    try process.run()
    let text = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    #expect(text == shown.output)
  }
}
