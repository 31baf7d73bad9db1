import Foundation
import PipelineHost
import Testing

/// `scripts/as-user`, which runs the tests as a user without privileges.
@Suite(.timeLimit(.minutes(5)), .enabled(if: geteuid() == 0, "needs root"))
struct AsUserTests {
  private let script = Rxd.root + "/scripts/as-user"
  /// Prints its folder and the id of the process that it starts.
  private let command = ["bash", "-c", "sleep 1000 & echo $TMPDIR $!; wait"]

  private func words(of process: RunningRxd) throws -> [String] {
    let words = try #require(try process.line()).split(separator: " ").map(String.init)
    try #require(words.count == 2, "\(words)")
    return words
  }

  /// Whether a process is gone, or is a zombie.
  private func hasEnded(_ process: String) -> Bool {
    guard let status = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8) else { return true }
    return status.contains(") Z ")
  }

  @Test(arguments: [SIGTERM, SIGHUP, SIGINT]) func anEndedRunLeavesNothingBehind(signal: Int32) throws {
    let process = try RunningRxd(command, running: script)
    let words = try words(of: process)
    process.send(signal)
    #expect(try process.wait() == 128 + signal)
    #expect(!FileManager.default.fileExists(atPath: words[0]))
    #expect(Polling.until { hasEnded(words[1]) })
  }

  /// `make` ends only the script that it has started.
  @Test func theScriptThatRepeatsFailuresEndsTheRun() throws {
    let process = try RunningRxd([script] + command, running: Rxd.root + "/scripts/repeat-failures")
    let words = try words(of: process)
    process.send(SIGTERM)
    #expect(try process.wait() == 128 + SIGTERM)
    #expect(Polling.until { hasEnded(words[1]) && !FileManager.default.fileExists(atPath: words[0]) })
  }

  @Test func theStatusIsThatOfTheCommand() throws {
    for status in [Int32(0), 7] {
      let process = try RunningRxd(["bash", "-c", "read -r line; exit $line"], running: script)
      process.write("\(status)\n")
      #expect(try process.wait() == status)
    }
  }
}
