import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// A second machine that has the stores of the first, with the real program: two directories of one machine.
@Suite(.timeLimit(.minutes(10)))
struct StandbyRunTests {
  private let folder: Scratch
  private var first: String { folder.path + "/first" }
  private var second: String { folder.path + "/second" }
  private var token: String { folder.path + "/token" }
  private var out: String { folder.path + "/out.txt" }

  init() throws {
    folder = try Scratch()
    try folder.write("token", "a secret\n")
    try folder.write("in.txt", "")
    try folder.write(
      "sum.yaml",
      """
      name: sum
      delivery: durable
      sources: { in: { file: { path: \(folder.path)/in.txt, follow: true } } }
      sinks:
        out:
          from: in
          chain: [ { scan: { start: 0, next: "running + int(event)" } } ]
          file: \(out)

      """)
  }

  private var file: String { folder.path + "/sum.yaml" }

  private func append(_ numbers: ClosedRange<Int>) throws {
    let handle = try #require(FileHandle(forWritingAtPath: folder.path + "/in.txt"))
    handle.seekToEndOfFile()
    handle.write(Data(numbers.map { "\($0)\n" }.joined().utf8))
    try handle.close()
  }

  private func sums() -> [Int] {
    ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n").compactMap { Int($0) }
  }

  private func standby() throws -> (process: RunningRxd, url: String) {
    let process = try RunningRxd([
      "standby", "--state-dir", second, "--token-file", token, "--listen", "127.0.0.1:0",
    ])
    let line = try #require(try process.line(from: process.errors))
    let port = try #require(line.firstMatch(of: #/port (\d+)/#)).output.1
    return (process, "http://127.0.0.1:\(port)")
  }

  private func run(_ state: String, _ url: String?, _ more: String...) throws -> RunningRxd {
    let copying = url.map { ["--replicate", $0, "--replicate-token-file", token] } ?? []
    return try RunningRxd(["run", "-v", "--state-dir", state] + copying + more + [file])
  }

  private func awaits(_ what: String, within seconds: TimeInterval = 120, _ condition: () -> Bool) {
    let end = Date(timeIntervalSinceNow: seconds)
    while !condition(), Date() < end { poll(nil, 0, 20) }
    #expect(condition(), "\(what)")
  }

  /// The first machine is lost at any moment: on the second one the sum goes on as if nothing had happened. Repeats are those of a crash.
  @Test func theSecondGoesOn() throws {
    let (keeper, url) = try standby()
    var generator = SplitMix(UInt64(Date().timeIntervalSince1970))
    var sent = 0
    for _ in 0..<4 {
      let process = try run(first, url, "--replicate-wait")
      for _ in 0..<5 {
        let more = Int(generator.next() % 400) + 1
        try append(sent + 1...sent + more)
        sent += more
        poll(nil, 0, Int32(generator.next() % 60))
      }
      // At least one commit is on its way.
      poll(nil, 0, Int32(200 + generator.next() % 900))
      process.send(SIGKILL)
      _ = try process.wait()
    }
    let promotion = try Rxd.run("promote-standby", second)
    #expect(promotion.status == 0 && promotion.output.contains("is a state directory now"), "\(promotion.errors)")
    try append(sent + 1...sent + 100)
    sent += 100
    let process = try run(second, nil)
    let total = sent * (sent + 1) / 2
    awaits("the sum goes on") { sums().last == total }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    let all = Set((1...sent).map { $0 * ($0 + 1) / 2 })
    #expect(Set(sums()) == all)
    // Whoever still believes in the first machine is told.
    let late = try Rxd.run(
      arguments: ["run", "--state-dir", first, "--replicate", url, "--replicate-token-file", token, file], input: "")
    #expect(late.status == 78 && late.errors.contains("has been promoted"), "\(late.errors)")
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    let again = try Rxd.run(arguments: ["standby", "--state-dir", second, "--token-file", token], input: "")
    #expect(again.status == 74 && again.errors.contains("was promoted"), "\(again.errors)")
  }

  /// A first machine that still runs ends at once when it meets the promoted second.
  @Test(arguments: [false, true]) func theFirstEndsWhenItIsTold(waits: Bool) throws {
    let (keeper, url) = try standby()
    let process = waits ? try run(first, url, "--replicate-wait") : try run(first, url)
    try append(1...10)
    awaits("the first works") { sums().last == 55 }
    awaits("the copy has it") { FileManager.default.fileExists(atPath: second + "/pipelines/sum.db") }
    let promotion = try Rxd.run("promote-standby", second)
    #expect(promotion.status == 0, "\(promotion.errors)")
    try append(11...20)
    #expect(try process.wait() != 0)
    // With --replicate-wait nothing was delivered that the second does not know.
    if waits { #expect(sums().last == 55) }
    keeper.send(SIGTERM)
    _ = try keeper.wait()
  }

  /// Without the standby nothing is delivered if it is waited for, and otherwise everything is.
  @Test(arguments: [false, true]) func withoutAStandby(waits: Bool) throws {
    let (keeper, url) = try standby()
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    let process = waits ? try run(first, url, "--replicate-wait") : try run(first, url)
    try append(1...10)
    while let line = try process.line(from: process.errors), !line.contains("does not take what is written") {}
    if waits {
      #expect(sums() == [])
      process.send(SIGKILL)
      _ = try process.wait()
    } else {
      awaits("it goes on") { sums().last == 55 }
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
    try refused(64, "without --state-dir nothing is", "run", "--replicate", here, file)
    try refused(64, "needs the token", "run", "--state-dir", first, "--replicate", here, file)
    try refused(64, "needs --replicate URL", "run", "--state-dir", first, "--replicate-wait", file)
    for url in [
      "http://10.0.0.1:7935", "https://", "10.0.0.1:7935", "https://a.example/path", "http://127.0.0.1.example:1",
    ] {
      try refused(
        64, "--replicate", "run", "--state-dir", first, "--replicate", url, "--replicate-token-file", token, file)
    }
    try refused(
      66, "token", "run", "--state-dir", first, "--replicate", here, "--replicate-token-file", "/nowhere/token", file)
    try refused(
      64, "--tls-certificate", "standby", "--state-dir", second, "--token-file", token, "--listen", "0.0.0.0:0")
    try refused(66, "is not the directory of a standby", "promote-standby", folder.path)
    // A directory is one or the other.
    let (keeper, url) = try standby()
    try folder.write("other", "another secret\n")
    let stranger = try RunningRxd([
      "run", "--state-dir", first, "--replicate", url, "--replicate-token-file", folder.path + "/other", file,
    ])
    try append(1...2)
    while let line = try stranger.line(from: stranger.errors), !line.contains("the token differs") {}
    stranger.send(SIGTERM)
    #expect(try stranger.wait() == 0)
    #expect(try FileManager.default.contentsOfDirectory(atPath: second + "/pipelines").isEmpty)
    keeper.send(SIGTERM)
    #expect(try keeper.wait() == 0)
    try refused(74, "directory of a standby", "run", "--state-dir", second, file)
    try refused(74, "a standby needs a directory of its own", "standby", "--state-dir", first, "--token-file", token)
  }
}
