import Foundation
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import PipelineCore

/// A `file` sink with `rotate`: full files are named after their times, and each row is in one file.
@Suite struct RotatingFileTests {
  let scratch = Scratch()

  private func names() -> [String] {
    ((try? FileManager.default.contentsOfDirectory(atPath: scratch("out"))) ?? []).sorted {
      let (a, b) = (order($0), order($1))
      return a.lexicographicallyPrecedes(b)
    }
  }

  /// The time and number of a full file; the current file is the last.
  private func order(_ name: String) -> [Int] {
    var rest = name
    for ending in [".gz", ".zst"] where rest.hasSuffix(ending) { rest.removeLast(ending.count) }
    guard let dash = rest.firstIndex(of: "-") else { return [.max] }
    let parts = rest[rest.index(after: dash)...].split(separator: ".")
    return [Int(parts[0].filter { $0 != "-" }) ?? -1, parts.count > 1 ? Int(parts[1]) ?? -1 : 0]
  }

  private func content(_ name: String) throws -> String {
    guard name.hasSuffix(".gz") || name.hasSuffix(".zst") else { return scratch.read("out/" + name) }
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [name.hasSuffix(".gz") ? "gzip" : "zstd", "-dcq", scratch("out/" + name)]
    let pipe = Pipe()
    process.standardOutput = pipe
    try process.run()
    let data = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(name)")
    return String(decoding: data, as: UTF8.self)
  }

  private func rows() throws -> [Int] {
    try names().flatMap { try content($0).split(separator: "\n").map { Int($0) ?? -1 } }
  }

  private func run(_ rotate: String, count: Int, path: String = "log") throws -> RealPipeline {
    mkdir(scratch("out"), 0o700)
    for number in 0..<count { scratch.append("\(number)\n", to: "in.log") }
    let writing = try RealPipeline(
      """
      sources: { in: { file: '\(scratch("in.log"))' } }
      sinks: { out: { from: in, file: { path: "\(scratch("out"))/\(path)", encode: text, rotate: \(rotate) } } }
      """
    ) {
      $0.reading.blockBytes = 500
      $0.executor.limits.events = 20
    }
    writing.runToEnd()
    return writing
  }

  @Test func aFullFileIsRenamed() throws {
    let writing = try run("{ size: 1KiB }", count: 2000)
    #expect(writing.outcome == .completed)
    #expect(writing.counters.sent == 2000)
    #expect(try rows() == Array(0..<2000))
    #expect(names().count >= 8)
    #expect(names().last == "log")
    for name in names() {
      #expect(name.range(of: "^log(-[0-9]{8}-[0-9]{6}(\\.[0-9]+)?)?$", options: .regularExpression) != nil, "\(name)")
      #expect(scratch.read("out/" + name).utf8.count <= 1024)
    }
    // The rows of one turn are not divided.
    #expect(scratch.read("out/" + names()[0]).utf8.count > 700)
  }

  @Test func onlyTheNewestAreKept() throws {
    let writing = try run("{ size: 1KiB, keep: 3 }", count: 2000)
    #expect(writing.outcome == .completed)
    let left = try rows()
    #expect(names().count == 4)
    #expect(left == Array((2000 - left.count)..<2000))
  }

  @Test(arguments: ["gzip", "zstd"]) func fullFilesAreCompressed(_ form: String) throws {
    guard form == "gzip" || access("/usr/bin/zstd", X_OK) == 0 else { return }
    let writing = try run("{ size: 1KiB, compress: \(form) }", count: 2000)
    #expect(writing.outcome == .completed)
    #expect(try rows() == Array(0..<2000))
    #expect(names().filter { $0.hasSuffix(form == "gzip" ? ".gz" : ".zst") }.count == names().count - 1)
    // The source reads them too.
    let reading = try RealPipeline(
      """
      sources: { in: { file: '\(scratch("out"))/log-*' } }
      sinks: { out: { from: in, probe: {} } }
      """)
    #expect(reading.runToEnd() == .completed)
    let present = scratch.read("out/log").split(separator: "\n").count
    #expect(reading.events.count == 2000 - present)
  }

  /// Each file named by events rotates separately.
  @Test func manyFilesRotate() throws {
    let writing = try run("{ size: 1KiB }", count: 2000, path: "{{ int(event) % 2 }}")
    #expect(writing.outcome == .completed)
    for parity in 0...1 {
      let own = names().filter { $0.hasPrefix("\(parity)") }
      #expect(own.count >= 4)
      let found = own.flatMap { scratch.read("out/" + $0).split(separator: "\n").compactMap { Int($0) } }
      #expect(found == (0..<2000).filter { $0 % 2 == parity })
    }
  }

  /// By the pipeline's clock: at each full hour.
  @Test func everyHour() throws {
    mkdir(scratch("out"), 0o700)
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { values: { list: [0, 1, 2, 3, 4, 5], every: 25m } } }
      sinks: { out: { from: in, file: { path: '\(scratch("out"))/log', encode: text, rotate: { every: 1h } } } }
      """)
    let end = Date(timeIntervalSinceNow: 60)
    while pipeline.outcome == nil, Date() < end { pipeline.run() }
    #expect(pipeline.outcome == .completed)
    // The first at 0:00 or 0:25, depending on how the source starts.
    let files = names().map { scratch.read("out/" + $0).split(separator: "\n").compactMap { Int($0) } }
    #expect(files.flatMap { $0 } == Array(0..<6))
    #expect(files.count == 3, "\(names())")
    #expect(names().dropLast().allSatisfy { $0.hasPrefix("log-20260101-0") }, "\(names())")
  }

  /// A file without a further row is also renamed at the end of its period, to that time; even one that was closed meanwhile.
  @Test(arguments: ["log", "{{ event }}"], ["10s", "3h"]) func silentFilesRotate(_ path: String, _ idle: String) throws
  {
    mkdir(scratch("out"), 0o700)
    let timeout = path == "log" ? "" : ", idleTimeout: \(idle)"
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { values: { list: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], every: 25m } } }
      signals: { first: { from: in, chain: [ { filter: event == 0 } ] } }
      sinks:
        out:
          from: first
          file: { path: "\(scratch("out"))/\(path)", encode: text, rotate: { every: 1h, compress: gzip }\(timeout) }
      """)
    // Separate threads write, rename and compress. Time advances when the row is written.
    let name = path == "log" ? "log" : "0"
    pipeline.run(until: .seconds(1600))
    Polling.until {
      pipeline.settle()
      return scratch.read("out/" + name) == "0\n"
    }
    pipeline.run(until: .seconds(3 * 3600))
    Polling.until {
      pipeline.settle()
      return names() == ["\(name)-20260101-010000.gz"]
    }
    #expect(names() == ["\(name)-20260101-010000.gz"])
    #expect(try content(names().first ?? "none") == "0\n")
  }

  /// A file that cannot be renamed continues to grow.
  @Test func anotherProgramRotates() throws {
    mkdir(scratch("out"), 0o700)
    scratch.append("", to: "in.log")
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in.log"))', follow: true } } }
      sinks: { out: { from: in, file: { path: "\(scratch("out"))/log", encode: text, rotate: { size: 10B } } } }
      """)
    func send(_ number: Int) {
      scratch.append("\(number)\n", to: "in.log")
      #expect(pipeline.run { scratch.read("out/log").hasSuffix("\(number)\n") })
    }
    send(1111)
    #expect(rename(scratch("out/log"), scratch("out/log-20200101-000000")) == 0)
    send(2222)
    send(3333)
    send(4444)
    #expect(try rows() == [1111, 2222, 3333, 4444])
    #expect(names().count == 3)
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  // MARK: After a crash

  private func checkpoint(_ pipeline: RealPipeline) -> [UInt8]? {
    let found = Mutex<Execution.Checkpoint?>(nil)
    let ring = pipeline.ring
    pipeline.inTurn { pipeline in
      let isTaken = pipeline.execution.checkpoint { outcome in
        found.withLock { $0 = outcome }
        ring()
      }
      if !isTaken { found.withLock { $0 = .failed("it has ended") } }
    }
    pipeline.run { found.withLock { $0 } != nil }
    if case .acknowledged(let state) = found.withLock({ $0 }) { return state }
    return nil
  }

  /// The process is lost repeatedly, usually after rotations that are in no state.
  @Test(arguments: ["none", "gzip"], 0..<8 as Range<UInt64>)
  func everyRowStandsOnce(_ form: String, _ seed: UInt64) throws {
    mkdir(scratch("out"), 0o700)
    var random = SplitMix(seed)
    let total = 4000
    scratch.append((0..<total).map { "\($0)\n" }.joined(), to: "in.log")
    let text = """
      sources: { in: { file: '\(scratch("in.log"))' } }
      sinks: { out: { from: in, file: { path: "\(scratch("out"))/log", encode: text, rotate: { size: 600B, compress: \(form) } } } }
      """
    var state: [UInt8]?
    for _ in 0..<8 {
      let pipeline = try RealPipeline(text, onLoop: random.below(2) == 0, restoring: state) {
        $0.reading.blockBytes = 400
        $0.executor.limits.events = 10
        $0.settings.acknowledgesOnDisk = true
      }
      #expect(pipeline.execution.refusals.isEmpty)
      if state == nil { state = checkpoint(pipeline) }
      for round in 0..<3 {
        let goal = pipeline.counters.received + 1 + UInt64(random.below(300))
        pipeline.run(within: .milliseconds(20)) { pipeline.counters.received >= goal || pipeline.outcome != nil }
        guard round < 2, random.below(3) > 0, let saved = checkpoint(pipeline) else { continue }
        state = saved
      }
      let isOver = pipeline.outcome != nil
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.run { pipeline.execution.hasClosed }
      if isOver { break }
    }
    let last = try RealPipeline(text, restoring: state) { $0.settings.acknowledgesOnDisk = true }
    #expect(last.runToEnd() == .completed)
    let found = try rows()
    let isOnce = found == Array(0..<total)
    #expect(isOnce, "seed \(seed): \(found.count) rows, \(Set(found).count) different, \(found.count { $0 < 0 }) torn")
    #expect(names().allSatisfy { !$0.hasSuffix(".tmp") })
  }

  @Test(arguments: [
    ("{ path: /tmp/x, rotate: { keep: 3 } }", "'rotate' of 'file' has no limit of size or time"),
    ("{ path: /tmp/x, rotate: 1MB, mode: replace }", "'rotate' of 'file' has no effect with 'mode: replace'"),
    ("{ path: /tmp/x, rotate: 1MB, encode: csv }", "only the first file would have the header"),
    ("{ path: /tmp/x, rotate: { every: 10ms } }", "every"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let complaints = PipelineText.complaints(
      """
      sources:
        events: { values: [1] }
      sinks:
        store:
          from: events
          file: \(parameters)
      """)
    #expect(complaints.count == 1, "\(complaints)")
    #expect(complaints.first?.contains(reason) == true, "\(complaints)")
    #expect(complaints.first?.hasPrefix("6:") == true, "\(complaints)")
  }
}
