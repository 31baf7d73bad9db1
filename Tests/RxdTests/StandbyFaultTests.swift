import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// Two machines with a network between them that fails, a lease, TLS, and a third machine that is in the way.
@Suite(.timeLimit(.minutes(10)))
struct StandbyFaultTests {
  private let machines: TwoMachines

  init() throws { machines = try TwoMachines() }

  private func get(_ path: String, _ socket: String) throws -> String {
    try Program.run("/usr/bin/curl", ["-sS", "-m", "60", "--unix-socket", socket, "http://rxd\(path)"]).output
  }

  private func statistics(_ process: RunningRxd, _ socket: String) throws -> [String: Any] {
    let text = try get("/stats", socket)
    let document = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    let pipelines = try #require(document["pipelines"] as? [[String: Any]])
    return try #require(pipelines.first?["replication"] as? [String: Any])
  }

  /// The way is cut, goes silent and is slow, in any order, while the first works; then the first is lost. With waiting the second has
  /// everything that was delivered; without, everything up to the time when the figures say so.
  @Test(arguments: [false, true]) func theNetworkFails(waits: Bool) throws {
    let (keeper, port) = try machines.standby()
    let relay = try Relay(to: port)
    defer { relay.end() }
    let socket = machines.folder.path + "/control.sock"
    let more = ["--control-socket", socket] + (waits ? ["--replicate-wait"] : [])
    let process = try RunningRxd(
      [
        "run", "-v", "--state-dir", machines.first, "--replicate", "http://127.0.0.1:\(relay.port)",
        "--replicate-token-file", machines.token,
      ] + more + [machines.file])
    let seed = UInt64(Date().timeIntervalSince1970)
    var generator = SplitMix(seed)
    var sent = 0
    for _ in 0..<12 {
      relay.mode = [.open, .cut, .silent, .slow(400)][Int(generator.next() % 4)]
      for _ in 0..<4 {
        let count = Int(generator.next() % 300) + 1
        try machines.append(sent + 1...sent + count)
        sent += count
        poll(nil, 0, Int32(generator.next() % 150))
      }
      if !waits, generator.next() % 3 == 0 {
        machines.awaits("it goes on without the standby, seed \(seed)") {
          machines.sums().last == sent * (sent + 1) / 2
        }
      }
    }
    relay.mode = .open
    let total = sent * (sent + 1) / 2
    machines.awaits("everything is delivered, seed \(seed)") { machines.sums().last == total }
    if !waits {
      machines.awaits("the copy has everything, seed \(seed)") {
        let figures = try? statistics(process, socket)
        return figures?["behind_bytes"] as? Int == 0 && figures?["lag_nanoseconds"] as? Int == 0
          && figures?["reached"] as? Bool == true
      }
    }
    // Without waiting, the last commit may be of what was delivered since.
    process.send(SIGKILL)
    _ = try process.wait()
    #expect(try Rxd.run("promote-standby", machines.second).status == 0)
    try machines.append(sent + 1...sent + 10)
    sent += 10
    let second = try machines.run(machines.second, nil)
    machines.awaits("the sum goes on, seed \(seed)") { machines.sums().last == sent * (sent + 1) / 2 }
    second.send(SIGTERM)
    #expect(try second.wait() == 0)
    #expect(Set(machines.sums()) == TwoMachines.sums(sent), "seed \(seed)")
    keeper.send(SIGTERM)
    _ = try keeper.wait()
  }

  /// The figures say that the standby is away, and how far the copy is behind.
  @Test func aStandbyThatIsAwayShows() throws {
    let (keeper, port) = try machines.standby()
    let relay = try Relay(to: port)
    defer { relay.end() }
    let socket = machines.folder.path + "/control.sock"
    let process = try machines.run(
      machines.first, "http://127.0.0.1:\(relay.port)", "--control-socket", socket)
    try machines.append(1...10)
    machines.awaits("the copy has it") {
      let figures = try? statistics(process, socket)
      return figures?["reached"] as? Bool == true && figures?["behind_bytes"] as? Int == 0
    }
    relay.mode = .cut
    try machines.append(11...20)
    machines.awaits("the figures show it") {
      let figures = try? statistics(process, socket)
      return figures?["reached"] as? Bool == false && figures?["lag_nanoseconds"] as? Int ?? 0 > 0
    }
    let metrics = try get("/metrics", socket)
    #expect(metrics.contains("rxd_replication_reached{pipeline=\"sum\"} 0"), "\(metrics)")
    relay.mode = .open
    machines.awaits("it catches up") {
      let figures = try? statistics(process, socket)
      return figures?["reached"] as? Bool == true && figures?["lag_nanoseconds"] as? Int == 0
    }
    for running in [process, keeper] {
      running.send(SIGTERM)
      #expect(try running.wait() == 0)
    }
  }

  /// Whoever waits for a standby that is away, and must end, is told why that takes time.
  @Test func aStopSaysWhatItWaitsFor() throws {
    let (keeper, port) = try machines.standby()
    let process = try machines.run(
      machines.first, "http://127.0.0.1:\(port)", "--replicate-wait", "--graceful-shutdown-limit-secs", "3")
    try machines.append(1...10)
    machines.awaits("it works") { machines.sums().last == 55 }
    keeper.send(SIGKILL)
    _ = try keeper.wait()
    try machines.append(11...20)
    try machines.line(of: process, with: "refuses the writes")
    process.send(SIGTERM)
    let line = try machines.line(of: process, with: "stopping: waits")
    #expect(line.contains("its last commit, which the standby does not accept ("), "\(line)")
    _ = try process.wait()
    #expect(machines.sums().last == 55)
  }

  /// Two first machines with pipelines of one name do not take turns with whole stores.
  @Test func aStrangerDoesNotReplaceTheCopy() throws {
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    let process = try machines.run(machines.first, url)
    try machines.append(1...10)
    machines.awaits("the copy has it") {
      FileManager.default.fileExists(atPath: machines.second + "/pipelines/sum.db")
    }
    let stranger = try machines.run(machines.folder.path + "/third", url)
    try machines.line(of: stranger, with: "two machines that run pipelines of equal names need a standby each")
    for running in [stranger, process, keeper] {
      running.send(SIGTERM)
      #expect(try running.wait() == 0)
    }
  }

  /// A promotion waits for the lease of the first, which ends when it cannot renew it, and never runs again.
  @Test func aLeaseIsHeldByOne() throws {
    let (keeper, port) = try machines.standby()
    let url = "http://127.0.0.1:\(port)"
    func promote() throws -> Rxd.Outcome {
      try Rxd.run("promote-standby", machines.second, "--lease", machines.lease)
    }
    var process = try machines.run(machines.first, url, "--lease", machines.lease, "--lease-secs", "3")
    try machines.append(1...10)
    machines.awaits("it works") { machines.sums().last == 55 }
    // The copy has it.
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    process = try machines.run(machines.first, url, "--lease", machines.lease, "--lease-secs", "3")
    try machines.line(of: process, with: "following")
    // A path that leads nowhere says nothing about the first.
    var outcome = try Rxd.run("promote-standby", machines.second, "--lease", machines.lease + ".other")
    #expect(outcome.status == 74 && outcome.errors.contains("there is no lease"), "\(outcome.errors)")
    outcome = try promote()
    #expect(
      outcome.status == 75 && outcome.errors.contains("is held by process \(process.pid) of"), "\(outcome.errors)")
    // It stops as if its machine slept, and loses the lock of the file, as on storage that it cannot reach.
    process.send(SIGSTOP)
    let text = try String(contentsOfFile: machines.lease, encoding: .utf8)
    let words = text.split(separator: " ")
    try FileManager.default.removeItem(atPath: machines.lease)
    let elsewhere = ([words[0], "another-boot"] + words[2...]).joined(separator: " ")
    try elsewhere.write(toFile: machines.lease, atomically: true, encoding: .utf8)
    outcome = try promote()
    #expect(outcome.status == 0 && outcome.errors.contains("waiting 3 s"), "\(outcome.errors)")
    try machines.append(11...20)
    process.send(SIGCONT)
    try machines.line(of: process, with: "this process ends at once")
    #expect(try process.wait() != 0)
    #expect(machines.sums().last == 55)
    let late = try Rxd.run(
      arguments: ["run", "--state-dir", machines.first, "--lease", machines.lease, machines.file], input: "")
    #expect(late.status == 78 && late.errors.contains("belongs to another state directory"), "\(late.errors)")
    // Once more does no harm.
    #expect(try promote().status == 0)
    let second = try machines.run(machines.second, nil, "--lease", machines.lease)
    machines.awaits("the second goes on") { machines.sums().last == 210 }
    second.send(SIGTERM)
    #expect(try second.wait() == 0)
    #expect(machines.sums() == machines.sums().sorted() && Set(machines.sums()) == TwoMachines.sums(20))
    keeper.send(SIGTERM)
    _ = try keeper.wait()
  }

  /// Whoever takes the lease file away, or gives it to another, ends the process that held it.
  @Test(arguments: [false, true]) func aLeaseThatIsGoneEndsTheProcess(isRemoved: Bool) throws {
    let process = try machines.run(machines.first, nil, "--lease", machines.lease, "--lease-secs", "3")
    try machines.append(1...10)
    machines.awaits("it works") { machines.sums().last == 55 }
    if isRemoved {
      try FileManager.default.removeItem(atPath: machines.lease)
    } else {
      let handle = try #require(FileHandle(forWritingAtPath: machines.lease))
      handle.write(Data("another".utf8))
      try handle.close()
    }
    try machines.line(of: process, with: "was given away or removed")
    #expect(try process.wait() != 0)
  }

  /// Storage that is not mounted gives no machine a lease of its own.
  @Test func aLeaseIsMadeOnce() throws {
    let process = try machines.run(machines.first, nil, "--lease", machines.lease)
    try machines.append(1...10)
    machines.awaits("it works") { machines.sums().last == 55 }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    for isEmpty in [false, true] {
      try FileManager.default.removeItem(atPath: machines.lease)
      if isEmpty { try Data().write(to: URL(fileURLWithPath: machines.lease)) }
      let outcome = try Rxd.run(
        arguments: ["run", "--state-dir", machines.first, "--lease", machines.lease, machines.file], input: "")
      #expect(outcome.status == 74 && outcome.errors.contains("is its storage mounted"), "\(outcome.errors)")
      if !isEmpty { try Data().write(to: URL(fileURLWithPath: machines.lease)) }
    }
  }

  @Test func mistakesWithALease() throws {
    func refused(_ status: Int32, _ part: String, _ arguments: String...) throws {
      let outcome = try Rxd.run(arguments: arguments, input: "")
      #expect(outcome.status == status && outcome.errors.contains(part), "\(arguments): \(outcome.errors)")
    }
    try refused(64, "without --state-dir there is none", "run", "--lease", machines.lease, machines.file)
    try refused(64, "needs --lease FILE", "run", "--state-dir", machines.first, "--lease-secs", "5", machines.file)
    for seconds in ["2", "3601"] {
      try refused(
        64, "between 3 and 3600", "run", "--state-dir", machines.first, "--lease", machines.lease, "--lease-secs",
        seconds, machines.file)
    }
    try refused(
      74, "is not a lease of rxd", "run", "--state-dir", machines.first, "--lease", machines.token, machines.file)
    try refused(
      74, "cannot open", "run", "--state-dir", machines.first, "--lease", "/nowhere/lease", machines.file)
  }

  /// Between machines everything is encrypted, and the certificate is checked.
  @Test func overTLS() throws {
    let path = machines.folder.path
    let made = try Program.run(
      "/usr/bin/openssl",
      [
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "\(path)/key.pem",
        "-out", "\(path)/certificate.pem",
      ])
    #expect(made.status == 0, "\(made.output)")
    let (keeper, port) = try machines.standby(
      "--tls-certificate", "\(path)/certificate.pem", "--tls-key", "\(path)/key.pem")
    let url = "https://127.0.0.1:\(port)"
    let distrusting = try machines.run(machines.first, url)
    let refusal = try machines.line(of: distrusting, with: "refuses the writes")
    #expect(refusal.contains("certificate"), "\(refusal)")
    distrusting.send(SIGKILL)
    _ = try distrusting.wait()
    let process = try machines.run(machines.first, url, "--replicate-wait", "--replicate-ca", "\(path)/certificate.pem")
    try machines.append(1...10)
    machines.awaits("it works") { machines.sums().last == 55 }
    for running in [process, keeper] {
      running.send(SIGTERM)
      #expect(try running.wait() == 0)
    }
  }
}
