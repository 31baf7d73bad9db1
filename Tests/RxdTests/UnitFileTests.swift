import Foundation
import Testing

private let hasSystemd = FileManager.default.isExecutableFile(atPath: "/usr/bin/systemd-analyze")

/// The systemd units: they are well-formed, and leave little of the machine exposed.
@Suite(.enabled(if: hasSystemd, "needs systemd-analyze, of the package systemd"))
struct UnitFileTests {
  /// The exposure level that the units may have at most.
  static let bar = 1.3

  private func analyze(_ arguments: String...) throws -> (status: Int32, output: String) {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/systemd-analyze")
    process.arguments = arguments
    let output = Pipe()
    process.standardOutput = output
    process.standardError = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    return (process.terminationStatus, text)
  }

  @Test(arguments: ["rxd.service", "rxd@.service"])
  func unitIsSoundAndTight(_ name: String) throws {
    let folder = try Scratch()
    let text = try String(contentsOfFile: "\(Rxd.root)/systemd/\(name)", encoding: .utf8)
    // An instance of a template, and the binary that there is.
    let unit = try folder.write(
      name.replacingOccurrences(of: "@.", with: "@search."),
      text.replacingOccurrences(of: "/usr/bin/rxd", with: Rxd.binary))
    let verified = try analyze("verify", unit)
    #expect(verified.status == 0, "\(verified.output)")
    #expect(verified.output == "")
    let security = try analyze("security", "--offline=true", unit)
    let level = security.output.split(separator: "\n").last { $0.contains("Overall exposure") }?
      .split(separator: ":").last?.split(separator: " ").first.flatMap { Double($0) }
    #expect(try #require(level) <= Self.bar)
  }

  @Test func aBadFileIsNotTriedAgain() throws {
    for name in ["rxd.service", "rxd@.service"] {
      let text = try String(contentsOfFile: "\(Rxd.root)/systemd/\(name)", encoding: .utf8)
      for line in ["Type=notify", "RestartPreventExitStatus=64 78", "ExecReload=/bin/kill -HUP $MAINPID"] {
        #expect(text.contains("\n\(line)\n"), "\(name): \(line)")
      }
    }
  }
}
