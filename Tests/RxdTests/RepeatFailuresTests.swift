import Testing

/// `scripts/repeat-failures`, which runs the tests.
@Suite(.timeLimit(.minutes(5))) struct RepeatFailuresTests {
  private func run(_ command: String) throws -> (status: Int32, lines: [String]) {
    let process = try RunningRxd(
      ["bash", "-c", command], environment: ["TESTS_SILENT": "2"], running: Rxd.root + "/scripts/repeat-failures")
    var lines: [String] = []
    while let line = try process.line() { lines.append(line) }
    return (try process.wait(), lines)
  }

  /// A hanging test ends the run, and its name is printed.
  @Test func aSilentRunIsEnded() throws {
    let run = try run(
      "echo '◇ Test one() started.'; echo '◇ Test two(_:) started.'; echo '✔ Test one() passed after 1 second.'; exec sleep 1000"
    )
    #expect(run.status == 124)
    #expect(run.lines.contains("  two(_:)") && !run.lines.contains("  one()"), "\(run.lines)")
  }

  @Test func failuresAreRepeated() throws {
    let run = try run("echo '✘ Test one() recorded an issue: it is wrong'; echo 'more'; exit 3")
    #expect(run.status == 3)
    #expect(run.lines.last == "✘ Test one() recorded an issue: it is wrong" && run.lines.count == 5, "\(run.lines)")
  }

  @Test func aRunWithoutFailuresPrintsNothingMore() throws {
    let run = try run("echo 'fine'")
    #expect(run.status == 0 && run.lines == ["fine"], "\(run.lines)")
  }
}
