import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// Two state directories in place of two machines, and a pipeline that writes running sums of the numbers in a file.
struct TwoMachines {
  let folder: Scratch
  var first: String { folder.path + "/first" }
  var second: String { folder.path + "/second" }
  var token: String { folder.path + "/token" }
  var lease: String { folder.path + "/lease" }
  var out: String { folder.path + "/out.txt" }
  var file: String { folder.path + "/sum.yaml" }

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

  func append(_ numbers: ClosedRange<Int>) throws {
    let handle = try #require(FileHandle(forWritingAtPath: folder.path + "/in.txt"))
    handle.seekToEndOfFile()
    handle.write(Data(numbers.map { "\($0)\n" }.joined().utf8))
    try handle.close()
  }

  func sums() -> [Int] {
    ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n").compactMap { Int($0) }
  }

  /// The sums of the first `count` numbers.
  static func sums(_ count: Int) -> Set<Int> { Set((1...count).map { $0 * ($0 + 1) / 2 }) }

  func standby(_ more: String..., directory: String? = nil) throws -> (process: RunningRxd, port: Int) {
    let process = try RunningRxd(
      ["standby", "--state-dir", directory ?? second, "--token-file", token, "--listen", "127.0.0.1:0"] + more)
    let line = try #require(try process.line(from: process.errors))
    return (process, try #require(line.firstMatch(of: #/port (\d+)/#).flatMap { Int($0.output.1) }))
  }

  func run(_ state: String, _ url: String?, _ more: String...) throws -> RunningRxd {
    let copying = url.map { ["--replicate", $0, "--replicate-token-file", token] } ?? []
    return try RunningRxd(["run", "-v", "--state-dir", state] + copying + more + [file])
  }

  /// The next line of the log that contains a text.
  @discardableResult
  func line(of process: RunningRxd, with text: String) throws -> String {
    while let line = try process.line(from: process.errors) { if line.contains(text) { return line } }
    Issue.record("no line of the log has: \(text)")
    return ""
  }

  func awaits(_ what: String, within seconds: TimeInterval = 120, _ condition: () -> Bool) {
    let end = Date(timeIntervalSinceNow: seconds)
    while !condition(), Date() < end { poll(nil, 0, 20) }
    #expect(condition(), "\(what)")
  }
}
