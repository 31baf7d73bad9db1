import Foundation
import PipelineHost
import Testing

/// `scripts/as-user`, which runs the tests as a user without privileges.
@Suite(.timeLimit(.minutes(5)), .enabled(if: geteuid() == 0, "needs root"))
struct AsUserTests {
  private let script = Rxd.root + "/scripts/as-user"

  @Test(arguments: [SIGTERM, SIGHUP, SIGINT]) func anEndedRunLeavesNothingBehind(signal: Int32) throws {
    let process = try RunningRxd(["bash", "-c", "sleep 1000 & echo $TMPDIR $!; wait"], running: script)
    let words = try #require(try process.line()).split(separator: " ").map(String.init)
    try #require(words.count == 2, "\(words)")
    process.send(signal)
    #expect(try process.wait() == 128 + signal)
    #expect(!FileManager.default.fileExists(atPath: words[0]))
    // It is gone, or has ended and only waits for its parent.
    let status = "/proc/\(words[1])/stat"
    #expect(
      Polling.until { (try? String(contentsOfFile: status, encoding: .utf8)).map { $0.contains(") Z ") } ?? true })
  }

  @Test func theStatusIsThatOfTheCommand() throws {
    for status in [Int32(0), 7] {
      let process = try RunningRxd(["bash", "-c", "read -r line; exit $line"], running: script)
      process.write("\(status)\n")
      #expect(try process.wait() == status)
    }
  }
}
