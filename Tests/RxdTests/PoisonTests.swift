import Foundation
import PipelineHost
import Testing

/// An event that traps the process each time becomes a rejected event, and all others pass.
@Suite(.timeLimit(.minutes(5)))
struct PoisonTests {
  private static let trap: String? = [
    Bundle.main.bundleURL.deletingLastPathComponent().path, Bundle.main.bundleURL.path, Rxd.root + "/.build/debug",
  ].map { $0 + "/libCTrap.so" }.first { FileManager.default.fileExists(atPath: $0) }

  private static let isSanitized = ProcessInfo.processInfo.environment["ASAN_OPTIONS"] != nil

  /// How often the process ends before it continues; once more where steps run on decoder threads.
  @Test(.enabled(if: !isSanitized), arguments: [("follow: true, start: beginning", 4...4), ("follow: false", 4...5)])
  func isLeftOut(_ follow: String, _ expected: ClosedRange<Int>) throws {
    let trap = try #require(Self.trap, "libCTrap.so is built with the tests")
    let folder = try Scratch()
    let state = folder.path + "/state"
    let lines = (0..<5000).map { $0 == 3210 ? "poison \($0)" : "line \($0)" }
    let log = try folder.write("in.log", lines.joined(separator: "\n") + "\n")
    let file = try folder.write(
      "p.yaml",
      """
      sources: { n: { file: { path: '\(log)', \(follow) } }, later: { values: { every: 1h, list: [a, b] } } }
      signals:
        fine: { from: n, chain: [ { filter: "event.matches('[0-9]+$')" } ] }
        held: { from: later, chain: [ { skip: 9 } ] }
        all: { merge: [fine, held] }
      sinks: { out: { from: all, file: { path: '\(folder.path)/out', encode: text } } }

      """)
    var ends = 0
    while true {
      let process = try RunningRxd(
        ["--daemon", file, "--state-dir", state, "--log-format", "text"],
        environment: ["LD_PRELOAD": trap, "TRAP_ON": "poison"])
      let goesOn = try waits(for: "line 4999\n", in: folder.path + "/out", orEndOf: process)
      if goesOn {
        process.send(SIGTERM)
        #expect(try process.wait() == 0)
        break
      }
      #expect(try process.wait() != 0)
      ends += 1
      guard ends < 8 else { break }
    }
    #expect(expected.contains(ends))
    let written = try String(contentsOfFile: folder.path + "/out", encoding: .utf8)
    #expect(written.split(separator: "\n").map(String.init) == lines.filter { !$0.hasPrefix("poison") })
    let letters = try Rxd.run(
      arguments: ["deadletters", "show", "p", "--state-dir", state], environment: ["RXD_STATE_DIR": ""])
    #expect(letters.lines.count == 1)
    #expect(letters.output.contains("RX550") && letters.output.contains("poison 3210"), "\(letters.output)")
  }

  /// Whether the text appears in the file before the process ends.
  private func waits(for text: String, in path: String, orEndOf process: RunningRxd) throws -> Bool {
    let over = Pipe()
    nonisolated(unsafe) let running = process
    let thread = Thread {
      while (try? running.line(from: running.errors)) != nil {}
      over.fileHandleForWriting.closeFile()
    }
    thread.start()
    let folder = try FolderWatch(URL(fileURLWithPath: path).deletingLastPathComponent().path)
    return folder.first(before: over.fileHandleForReading.fileDescriptor) {
      (try? String(contentsOfFile: path, encoding: .utf8)).flatMap { $0.hasSuffix(text) ? true : nil }
    } ?? false
  }
}
