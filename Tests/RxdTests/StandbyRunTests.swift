import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// A second machine that has the stores of the first, with the real program: two directories of one machine.
@Suite(.timeLimit(.minutes(10)))
struct StandbyRunTests {
  private let machines: TwoMachines

  init() throws { machines = try TwoMachines() }

  /// The first machine is lost at any moment: on the second one the sum goes on as if nothing had happened. Repeats are those of a crash.
  @Test func theSecondGoesOn() throws {
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    var generator = SplitMix(UInt64(Date().timeIntervalSince1970))
    var sent = 0
    for _ in 0..<4 {
      let process = try machines.run(machines.first, url, "--replicate-wait")
      for _ in 0..<5 {
        let more = Int(generator.next() % 400) + 1
        try machines.append(sent + 1...sent + more)
        sent += more
        poll(nil, 0, Int32(generator.next() % 60))
      }
      // At least one commit is on its way.
      poll(nil, 0, Int32(200 + generator.next() % 900))
      process.send(SIGKILL)
      _ = try process.wait()
    }
    let promotion = try Rxd.run("promote-standby", machines.second)
    #expect(promotion.status == 0 && promotion.output.contains("is a state directory now"), "\(promotion.errors)")
    try machines.append(sent + 1...sent + 100)
    sent += 100
    let process = try machines.run(machines.second, nil)
    let total = sent * (sent + 1) / 2
    machines.awaits("the sum goes on") { machines.sums().last == total }
    // A second promotion reports at once that the process runs, and leaves it alone.
    let repeated = try Rxd.run("promote-standby", machines.second)
    #expect(
      repeated.status == 0 && repeated.output.contains("already, and process \(process.pid) runs"), "\(repeated)")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    let all = Set((1...sent).map { $0 * ($0 + 1) / 2 })
    #expect(Set(machines.sums()) == all)
    // Whoever still believes in the first machine is told.
    let late = try Rxd.run(
      arguments: [
        "run", "--state-dir", machines.first, "--replicate", url, "--replicate-token-file", machines.token,
        machines.file,
      ], input: "")
    #expect(late.status == 78 && late.errors.contains("has been promoted"), "\(late.errors)")
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    let again = try Rxd.run(
      arguments: ["standby", "--state-dir", machines.second, "--token-file", machines.token], input: "")
    #expect(again.status == 74 && again.errors.contains("was promoted"), "\(again.errors)")
  }

  /// A first machine that still runs ends at once when it meets the promoted second.
  @Test(arguments: [false, true]) func theFirstEndsWhenItIsTold(waits: Bool) throws {
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    let process =
      waits ? try machines.run(machines.first, url, "--replicate-wait") : try machines.run(machines.first, url)
    try machines.append(1...10)
    machines.awaits("the first works") { machines.sums().last == 55 }
    machines.awaits("the copy has it") { FileManager.default.fileExists(atPath: machines.second + "/pipelines/sum.db") }
    let promotion = try Rxd.run("promote-standby", machines.second)
    #expect(promotion.status == 0, "\(promotion.errors)")
    try machines.append(11...20)
    #expect(try process.wait() != 0)
    // With --replicate-wait nothing was delivered that the second does not know.
    if waits { #expect(machines.sums().last == 55) }
    keeper.send(SIGTERM)
    _ = try keeper.wait()
  }

  /// Without the standby nothing is delivered if it is waited for, and otherwise everything is.
  @Test(arguments: [false, true]) func withoutAStandby(waits: Bool) throws {
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    let process =
      waits ? try machines.run(machines.first, url, "--replicate-wait") : try machines.run(machines.first, url)
    try machines.append(1...10)
    try machines.line(of: process, with: "refuses the writes")
    if waits {
      #expect(machines.sums() == [])
      process.send(SIGKILL)
      _ = try process.wait()
    } else {
      machines.awaits("it goes on") { machines.sums().last == 55 }
      process.send(SIGTERM)
      #expect(try process.wait() == 0)
    }
  }

  @Test func mistakesAreRefused() throws {
    func refused(_ status: Int32, _ part: String, _ arguments: String...) throws {
      let outcome = try Rxd.run(arguments: arguments, input: "")
      #expect(
        outcome.status == status && outcome.errors.contains(part), "\(arguments): \(outcome.status) \(outcome.errors)")
    }
    let here = "http://127.0.0.1:1"
    try refused(64, "without --state-dir nothing is", "run", "--replicate", here, machines.file)
    try refused(64, "needs the token", "run", "--state-dir", machines.first, "--replicate", here, machines.file)
    try refused(64, "needs --replicate URL", "run", "--state-dir", machines.first, "--replicate-wait", machines.file)
    for url in [
      "http://10.0.0.1:7935", "https://", "10.0.0.1:7935", "https://a.example/path", "http://127.0.0.1.example:1",
    ] {
      try refused(
        64, "--replicate", "run", "--state-dir", machines.first, "--replicate", url, "--replicate-token-file",
        machines.token, machines.file)
    }
    try refused(
      66, "token", "run", "--state-dir", machines.first, "--replicate", here, "--replicate-token-file",
      "/nowhere/token", machines.file)
    try refused(
      64, "--tls-certificate", "standby", "--state-dir", machines.second, "--token-file", machines.token, "--listen",
      "0.0.0.0:0")
    try FileManager.default.createSymbolicLink(
      atPath: machines.lease, withDestinationPath: machines.folder.path + "/elsewhere")
    try refused(
      74, "cannot open \(machines.lease): it is a symbolic link", "run", "--state-dir", machines.first, "--lease",
      machines.lease, machines.file)
    try refused(66, "is not the directory of a standby", "promote-standby", machines.folder.path)
    // A directory is one or the other.
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    try machines.folder.write("other", "another secret\n")
    let stranger = try RunningRxd([
      "run", "--state-dir", machines.first, "--replicate", url, "--replicate-token-file",
      machines.folder.path + "/other", machines.file,
    ])
    try machines.append(1...2)
    try machines.line(of: stranger, with: "the token differs")
    stranger.send(SIGTERM)
    #expect(try stranger.wait() == 0)
    #expect(try FileManager.default.contentsOfDirectory(atPath: machines.second + "/pipelines").isEmpty)
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    try refused(74, "directory of a standby", "run", "--state-dir", machines.second, machines.file)
    try refused(
      74, "a standby needs its own directory", "standby", "--state-dir", machines.first, "--token-file",
      machines.token)
  }
}
