import Foundation
import PipelineCore
import PipelineHost
import Testing

/// Standard input and output belong to a process, so the program itself runs here.
@Suite(.enabled(if: RunningProgram.path != nil, "needs the program, which 'swift build' makes"))
struct StandardStreamsTests {
  let scratch = Scratch()

  private func start(_ source: String, _ sink: String = "stdout: { encode: json }", chain: String = "[]") throws
    -> RunningProgram
  {
    try RunningProgram(
      """
      sources:
        input: { \(source) }
      signals:
        seen: { from: input, chain: \(chain) }
      sinks:
        screen: { from: seen, \(sink) }
        bad: { from: input.errors, file: '\(scratch("bad.ndjson"))' }
      """, in: scratch)
  }

  @Test func linesComeThroughAsTheyAreTyped() throws {
    let program = try start("stdin: { decode: text }")
    program.send("one\n")
    #expect(program.read(until: "\n") == "\"one\"\n")
    program.send("two\r\nthr")
    #expect(program.read(until: "\n") == "\"two\"\n")
    program.send("ee")
    try program.input.close()
    #expect(program.readAll() == "\"three\"\n")
    #expect(program.wait() == 0)
  }

  @Test func nothingAtAllIsFine() throws {
    for decode in ["text", "json", "csv", "bytes"] {
      let program = try start("stdin: { decode: \(decode) }")
      try program.input.close()
      #expect(program.readAll() == "", "\(decode)")
      #expect(program.wait() == 0)
    }
  }

  @Test func wholeInput() throws {
    let program = try start("stdin: { decode: whole }")
    program.send("a\n")
    program.send("b")
    try program.input.close()
    #expect(program.readAll() == "\"a\\nb\"\n")
    #expect(program.wait() == 0)
  }

  @Test func malformedLinesAreSetAside() throws {
    let program = try start("stdin: { decode: json, maxLine: 64B }", chain: "[ { map: event.n } ]")
    program.send("{\"n\":1}\n{oops\n{\"n\":2}\n\"\(String(repeating: "x", count: 100))\"\n{\"n\":3}")
    try program.input.close()
    #expect(program.readAll() == "1\n2\n3\n")
    #expect(program.wait() == 0)
    let bad = scratch.read("bad.ndjson").split(separator: "\n")
    #expect(bad.count == 2)
    #expect(bad.first?.contains(#""offset":8,"#) == true, "\(bad)")
    #expect(bad.last?.contains(#""offset":22,"#) == true, "\(bad)")
    #expect(bad.last?.contains("the line has 102 bytes") == true, "\(bad)")
  }

  @Test func onlyOneSourceCanReadStandardInput() throws {
    let program = try RunningProgram(
      """
      sources:
        a: { stdin: text }
        b: { stdin: text }
      sinks:
        screen: { from: a, stdout: text }
        other: { from: b, stdout: text }
      """, in: scratch)
    #expect(program.wait() == 1)
    let errors = String(decoding: program.errors.readDataToEndOfFile(), as: UTF8.self)
    #expect(errors.contains("another source already reads standard input"))
  }

  @Test func aReaderThatLeavesEndsTheProgramQuietly() throws {
    let program = try RunningProgram(
      """
      sources:
        clock: { interval: { every: 1ms } }
      signals:
        ticks: { from: clock, chain: [ { map: event.tick } ] }
      sinks:
        screen: { from: ticks, stdout: text }
      """, in: scratch)
    #expect(program.read(until: "3\n").hasPrefix("1\n2\n3\n"))
    try program.output.close()
    #expect(program.wait() == 0)
    #expect(String(decoding: program.errors.readDataToEndOfFile(), as: UTF8.self) == "")
  }

  @Test func whatCannotBeWrittenAtTheEndIsAFailure() throws {
    scratch.append("sources: { a: { values: [1] } }\nsinks: { screen: { from: a, stdout: text } }\n", to: "p.yaml")
    let process = Process()
    let errors = Pipe()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    // A standard output that can only be read.
    process.arguments = [
      "-c", "exec \"$0\" run \"$1\" 1</dev/null", try #require(RunningProgram.path), scratch("p.yaml"),
    ]
    process.standardError = errors
    try process.run()
    process.waitUntilExit()
    #expect(process.terminationStatus == 1)
    let text = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    #expect(text.contains("standard output"), "\(text)")
  }

  @Test func aSlowReaderHoldsTheInputBack() throws {
    let program = try start("stdin: { decode: text }", "stdout: text")
    // Far more than all buffers on the way hold; written by its own thread, because it will block.
    let line = String(repeating: "x", count: 1023) + "\n"
    let count = 200_000
    let input = program.input
    let written = DispatchSemaphore(value: 0)
    let progress = Progress()
    Thread.detachNewThread {
      let block = Data(String(repeating: line, count: 1000).utf8)
      for _ in 0..<(count / 1000) {
        try? input.write(contentsOf: block)
        progress.add()
      }
      try? input.close()
      written.signal()
    }
    // The writer has stopped: its progress does not change between two checks.
    var last = -1
    while progress.count != last || last == 0 {
      last = progress.count
      _ = written.wait(timeout: .now() + .milliseconds(300))
    }
    #expect(last < count / 1000)
    let peak =
      try String(contentsOfFile: "/proc/\(program.id)/status", encoding: .utf8)
      .split(separator: "\n").first { $0.hasPrefix("VmHWM") }
      .flatMap { Int($0.split(separator: " ").dropLast().last ?? "") } ?? 0
    #expect(peak > 0)
    #expect(peak < 96 << 10, "\(peak) KiB")
    var bytes = 0
    while case let data = program.output.availableData, !data.isEmpty { bytes += data.count }
    #expect(bytes == count * 1024)
    #expect(written.wait(timeout: .now() + .seconds(60)) == .success)
    #expect(program.wait() == 0)
  }

  @Test func aSignalDrains() throws {
    let program = try RunningProgram(
      """
      sources:
        input: { stdin: text }
      signals:
        held: { from: input, chain: [ { throttle: 1h } ] }
      sinks:
        now: { from: input, stdout: text }
        end: { from: held, file: '\(scratch("held.txt"))' }
      """, in: scratch)
    program.send("one\n")
    #expect(program.read(until: "\n") == "one\n")
    program.interrupt()
    #expect(program.wait() == 0)
    #expect(scratch.read("held.txt") == "\"one\"\n")
  }

  private final class Progress: @unchecked Sendable {
    private let lock = NSLock()
    private var value = 0
    var count: Int { lock.withLock { value } }
    func add() { lock.withLock { value += 1 } }
  }
}
