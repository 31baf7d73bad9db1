import Foundation
import Testing

/// The service manager's side of the notify protocol.
final class NotifySocket {
  let descriptor: Int32
  let path: String

  /// A `path` that begins with `@` is an abstract name.
  init(_ path: String) throws {
    self.path = path
    descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    var bytes = Array(path.utf8)
    if bytes.first == UInt8(ascii: "@") { bytes[0] = 0 }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
    let code = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
    }
    guard descriptor >= 0, code == 0 else { throw TimedOut(description: "cannot bind \(path)") }
  }

  deinit { close(descriptor) }

  /// The lines of the next message.
  func next() throws -> [String: String] {
    guard Deadline(after: RunningRxd.limit).waits(for: descriptor) else {
      throw TimedOut(description: "no message")
    }
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = recv(descriptor, &bytes, bytes.count, 0)
    var message: [String: String] = [:]
    for line in String(decoding: bytes[..<max(0, count)], as: UTF8.self).split(separator: "\n") {
      let parts = line.split(separator: "=", maxSplits: 1)
      message[String(parts[0])] = parts.count > 1 ? String(parts[1]) : ""
    }
    return message
  }

  /// The next message that contains `key`.
  func next(with key: String) throws -> [String: String] {
    while true {
      let message = try next()
      if message[key] != nil { return message }
    }
  }
}

@Suite(.timeLimit(.minutes(10)))
struct DaemonTests {
  /// Prints `text`, then waits forever.
  static func saying(_ text: String) -> String {
    """
    sources: { soon: { values: "\(text)" }, later: { values: { list: [2, 3], every: 1h } } }
    signals: { rest: { from: later, chain: [ { skip: 9 } ] }, all: { merge: [soon, rest] } }
    sinks: { out: { from: all, stdout: text } }

    """
  }

  @Test func theServiceManagerIsNotified() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.saying("one"))
    for path in [folder.path + "/notify", "@rxd-test-\(UUID().uuidString)"] {
      let manager = try NotifySocket(path)
      let process = try RunningRxd([file], environment: ["NOTIFY_SOCKET": path])
      let ready = try manager.next()
      #expect(ready["READY"] == "1")
      #expect(ready["STATUS"] == "1 pipeline running")
      process.send(SIGHUP)
      let reloading = try manager.next()
      #expect(reloading["RELOADING"] == "1")
      #expect((reloading["MONOTONIC_USEC"].flatMap { Int($0) } ?? 0) > 0)
      #expect(try manager.next(with: "READY")["READY"] == "1")
      process.send(SIGTERM)
      let stopping = try manager.next()
      #expect(stopping["STOPPING"] == "1")
      #expect((stopping["EXTEND_TIMEOUT_USEC"].flatMap { Int($0) } ?? 0) >= 60_000_000)
      #expect(try process.wait() == 0)
    }
  }

  @Test func theWatchdogIsFedWhileLoopsTurn() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.saying("one"))
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try RunningRxd(
      [file], environment: ["NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "40000"])
    #expect(try manager.next(with: "READY")["READY"] == "1")
    for _ in 0..<3 { #expect(try manager.next()["WATCHDOG"] == "1") }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)

    // The variable is meant for another process.
    let other = try RunningRxd(
      [file],
      environment: ["NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "40000", "WATCHDOG_PID": "1"])
    _ = try manager.next(with: "READY")
    other.send(SIGTERM)
    #expect(try manager.next()["STOPPING"] == "1")
    #expect(try other.wait() == 0)
  }

  @Test func reloadTakesWhatTheFilesSayNow() throws {
    let folder = try Scratch()
    try folder.write("a.yaml", Self.saying("one"))
    try folder.write("b.yaml", Self.saying("still"))
    let process = try RunningRxd(["--daemon", folder.path, "--log-format", "text"])
    #expect(Set([try process.line(), try process.line()]) == ["one", "still"])

    try folder.write("a.yaml", Self.saying("two"))
    try folder.write("c.yaml", Self.saying("three"))
    process.send(SIGHUP)
    #expect(Set([try process.line(), try process.line()]) == ["two", "three"])
    #expect(try process.errorLine(with: "reloaded").contains("3 pipelines running"))

    try FileManager.default.removeItem(atPath: folder.path + "/c.yaml")
    process.send(SIGHUP)
    #expect(try process.errorLine(with: "reloaded").contains("2 pipelines running"))
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    // No unchanged pipeline was started again.
    #expect(try process.line() == nil)
  }

  @Test func reloadOfAWrongFileChangesNothing() throws {
    let folder = try Scratch()
    try folder.write("a.yaml", Self.saying("one"))
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try RunningRxd(
      [folder.path, "--log-format", "text"], environment: ["NOTIFY_SOCKET": manager.path])
    #expect(try process.line() == "one")
    _ = try manager.next(with: "READY")

    try folder.write("a.yaml", Self.saying("two") + "nonsense: true\n")
    process.send(SIGHUP)
    #expect(try process.errorLine(with: "RX201").contains("a.yaml:4:1"))
    try process.errorLine(with: "not reloaded")
    #expect(try manager.next()["RELOADING"] == "1")
    #expect(try manager.next()["READY"] == "1")

    try folder.write("a.yaml", Self.saying("three"))
    process.send(SIGHUP)
    #expect(try process.line() == "three")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  @Test func aHailOfReloadsEndsWithTheNewestFile() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.saying("0"))
    let process = try RunningRxd(["--daemon", file])
    #expect(try process.line() == "0")
    for number in 1...20 {
      try folder.write("a.yaml", Self.saying("\(number)"))
      process.send(SIGHUP)
    }
    var last: Int? = 0
    while last != 20 {
      let next = try process.line().flatMap { Int($0) }
      #expect((next ?? 0) > (last ?? 0))
      last = next
      if next == nil { break }
    }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  @Test func failedPipelinesStartAgain() throws {
    let folder = try Scratch()
    let target = folder.path + "/missing/out"
    let file = try folder.write(
      "a.yaml",
      "sources: { n: { values: 7 } }\nsinks: { out: { from: n, file: { path: \(target) } } }\n")
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    try process.errorLine(with: "starting again in")
    try process.errorLine(with: "starting again in")
    try FileManager.default.createDirectory(
      atPath: folder.path + "/missing", withIntermediateDirectories: false)
    // Now the pipelines can be started, and one that has completed is not started again.
    #expect(try process.wait() == 0)
    #expect(try String(contentsOfFile: target, encoding: .utf8) == "7\n")
  }

  @Test func aReloadTriesAFailedPipelineAtOnce() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      "sources: { n: { values: 7 } }\nsinks: { out: { from: n, file: { path: /nonexistent/x } } }\n")
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try RunningRxd(
      [file, "--log-level", "error"], environment: ["NOTIFY_SOCKET": manager.path])
    while true {
      let message = try manager.next()
      if message["STATUS"]?.contains("1 restarting (a)") == true { break }
    }
    try folder.write("a.yaml", CheckTests.sound)
    process.send(SIGHUP)
    #expect(try process.line() == "1")
    #expect(try process.wait() == 0)
  }

  @Test func aDaemonRunsTheFilesThatAreSound() throws {
    let folder = try Scratch()
    try folder.write("good.yaml", CheckTests.sound)
    try folder.write("bad.yaml", "nonsense: true\n")
    let outcome = try Rxd.run("--daemon", folder.path)
    #expect(outcome.output == "1\n2\n")
    #expect(outcome.errors.contains("RX201"))
    #expect(try Rxd.run("--daemon", folder.path + "/bad.yaml").status == 78)
  }
}
