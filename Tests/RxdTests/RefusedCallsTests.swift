import Foundation
import Testing

/// A call that the kernel refuses is reported as an error with a name, and does not end the process. `Tests/Faults/preload/refuse.c`
/// refuses the calls.
///
/// The network library ends the process if a call is refused at the start of one of its threads: `refuse.c` grants those calls.
@Suite(.timeLimit(.minutes(15))) struct RefusedCallsTests {
  private func write(_ text: String, to path: String) throws {
    try text.write(toFile: path, atomically: false, encoding: .utf8)
  }

  /// A folder with pipelines that together use every kind of descriptor.
  private func pipelines(in folder: Scratch) throws -> String {
    let path = folder.path + "/pipelines"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    try write("{\"n\":1}\n", to: folder.path + "/in.log")
    let sources = [
      "follow": "file: { path: '\(folder.path)/in.log', follow: true }", "directory": "directory: '\(folder.path)'",
      "tcp": "tcp: { address: 127.0.0.1:0 }", "udp": "udp: { address: 127.0.0.1:0 }",
      "unix": "unix: { path: '\(folder.path)/u.sock' }", "server": "httpServer: { address: 127.0.0.1:0 }",
      "exec": "exec: { command: [sh, -c, 'echo 1; exec sleep 60'] }",
      "socket": "webSocket: { url: 'ws://127.0.0.1:9/' }",
    ]
    for (name, source) in sources {
      try write(
        "sources: { s: { \(source) } }\nsinks: { o: { from: s, discard: {} } }\n", to: "\(path)/\(name).yaml")
    }
    try write(
      """
      sources: { s: { interval: { every: 100ms } } }
      sinks: { o: { from: s, file: { path: '\(folder.path)/out-{{ event }}' } } }
      """, to: "\(path)/files.yaml")
    return path
  }

  /// From the first call on, and from later ones.
  @Test(
    arguments: [
      "inotify_init1:24", "inotify_add_watch:28", "inotify_add_watch:12", "eventfd:24", "timerfd_create:24",
      "epoll_create1:24", "pipe2:24", "socket:24", "socket:23", "listen:98",
    ], [1, 2, 4, 7])
  func aRefusalIsAnError(_ call: String, _ first: Int) throws {
    let library = try Preload.refuse.get()
    let folder = try Scratch()
    let process = try RunningRxd(
      [
        "run", "--daemon", "--log-format", "text", "--graceful-shutdown-limit-secs", "1", "-w", "-C",
        try pipelines(in: folder),
      ],
      environment: ["LD_PRELOAD": library, "REFUSE": "\(call):\(first)", "SWIFT_BACKTRACE": "enable=no"])
    // The process has ended with an error, or keeps running with the resources that it got.
    _ = Deadline(after: 5).waits(for: process.errors)
    process.send(SIGTERM)
    let status = try process.wait()
    #expect([0, 1].contains(status) || (64...78).contains(status), "\(status)")
  }

  /// A process that is refused epoll before it listens reports it.
  @Test(arguments: 1...2) func aServerWithoutEpollSaysSo(_ first: Int) throws {
    let library = try Preload.refuse.get()
    let folder = try Scratch()
    let file = folder.path + "/server.yaml"
    try write(
      "sources: { s: { httpServer: { address: 127.0.0.1:0 } } }\nsinks: { o: { from: s, discard: {} } }\n", to: file)
    let process = try RunningRxd(
      ["run", "--log-format", "text", file],
      environment: ["LD_PRELOAD": library, "REFUSE": "epoll_ctl:12:\(first)", "SWIFT_BACKTRACE": "enable=no"])
    try process.errorLine(with: "Cannot allocate memory")
    #expect(try process.wait() == 1)
  }

  /// Without an inotify instance files are polled, and one log line names the limit, however many pipelines need an
  /// instance.
  @Test func withoutInstancesFilesArePolled() throws {
    let library = try Preload.refuse.get()
    let folder = try Scratch()
    let path = folder.path + "/pipelines"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    for name in ["a", "b", "c"] {
      try write("", to: "\(folder.path)/\(name).log")
      try write(
        """
        sources: { s: { file: { path: '\(folder.path)/\(name).log', follow: true, start: beginning } } }
        sinks: { o: { from: s, stdout: lines } }
        """, to: "\(path)/\(name).yaml")
    }
    let process = try RunningRxd(
      ["run", "--daemon", "--log-format", "text", "-w", "-C", path],
      environment: ["LD_PRELOAD": library, "REFUSE": "inotify_init1:24"])
    for name in ["a", "b", "c"] {
      try write("line of \(name)\n", to: "\(folder.path)/\(name).log")
      #expect(try process.line() == "line of \(name)")
    }
    process.send(SIGTERM)
    while try process.line(from: process.errors) != nil {}
    #expect(try process.wait() == 0)
    let said = process.transcript.filter { $0.contains("fs.inotify.max_user_instances") && $0.contains("cannot watch") }
    // One from the watch on the directory, one from the pipelines.
    #expect((1...2).contains(said.count), "\(said)")
  }

  /// 200 pipelines that each follow a file: more than a user has inotify instances for.
  @Test func manyFollowersShareAnInstance() throws {
    let library = try Preload.refuse.get()
    let folder = try Scratch()
    let path = folder.path + "/pipelines"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    for number in 0..<200 {
      try write("", to: "\(folder.path)/\(number).log")
      try write(
        """
        sources: { s: { file: { path: '\(folder.path)/\(number).log', follow: true, start: beginning } } }
        sinks: { o: { from: s, stdout: lines } }
        """, to: "\(path)/p\(number).yaml")
    }
    // A second instance would be refused, and the refusal logged.
    let process = try RunningRxd(
      ["run", "--daemon", "--log-format", "text", "-C", path],
      environment: ["LD_PRELOAD": library, "REFUSE": "inotify_init1:24:2"])
    for number in 0..<200 {
      try write("line \(number)\n", to: "\(folder.path)/\(number).log")
      #expect(try process.line() == "line \(number)")
    }
    process.send(SIGTERM)
    while let line = try process.line(from: process.errors) {
      #expect(!line.contains("max_user_instances") && !line.contains("cannot watch"), "\(line)")
    }
    #expect(try process.wait() == 0)
  }
}
