import Foundation
import Testing

/// The verbs' reports on delivery, and the files that a run refuses.
@Suite(.timeLimit(.minutes(10)))
struct DeliveryRunTests {
  private static let pipeline = """
    name: lines
    sources: { lines: { values: [a, b] } }
    sinks: { out: { from: lines, stdout: text } }

    """

  private static func words(_ file: String) -> [String] {
    [
      "delivery: light, because every source can repeat its events",
      "  lines -> out: at least once: after a crash, events since the last checkpoint are delivered again; a power cut can lose data that is not yet on a disk (\(file):3: 'stdout' leaves its data to the system)",
      "  without a state directory: best effort: a crash loses events under way",
    ]
  }

  @Test(arguments: ["-v", "--verbose"]) func checkPrintsEachPath(_ option: String) throws {
    let folder = try Scratch()
    let file = try folder.write("lines.yaml", Self.pipeline)
    let outcome = try Rxd.run("check", option, file)
    #expect(outcome.status == 0 && outcome.errors == "")
    #expect(outcome.lines == ["\(file): ok (1 source, 1 sink)"] + Self.words(file).map { "  " + $0 })
    #expect(try Rxd.run("check", file).lines.count == 1)
    #expect(try Rxd.run("check", "-q", option, file).output == "")
  }

  @Test func explainPrintsEachPath() throws {
    let folder = try Scratch()
    let file = try folder.write("lines.yaml", Self.pipeline)
    #expect(try Rxd.run("explain", file).output.hasSuffix("\n\n" + Self.words(file).map { $0 + "\n" }.joined()))
  }

  /// A file that requires more than the run can guarantee does not start; the exit status is that of an invalid file.
  @Test func runRefusesWhatItCannotPromise() throws {
    let folder = try Scratch()
    let file = try folder.write("lines.yaml", "require: atLeastOnce\n" + Self.pipeline)
    let refused = try Rxd.run("run", file)
    #expect(refused.status == 78 && refused.output == "")
    #expect(refused.errors.contains("error[RX305]"), "\(refused.errors)")
    #expect(refused.errors.contains("because there is no state directory"), "\(refused.errors)")
    #expect(refused.errors.contains("--state-dir DIR"), "\(refused.errors)")
    #expect(try Rxd.run("check", file).status == 0)
    for environment in [[:], ["RXD_STATE_DIR": "\(folder.path)/variable"], ["STATE_DIRECTORY": "\(folder.path)/unit"]] {
      let arguments = ["run"] + (environment.isEmpty ? ["--state-dir", folder.path + "/state"] : []) + [file]
      let outcome = try Rxd.run(arguments: arguments, environment: environment)
      #expect(outcome.status == 0, "\(outcome.errors)")
      #expect(outcome.lines == ["a", "b"])
    }
  }

  /// A reload that would require too much changes nothing.
  @Test func reloadRefusesWhatItCannotPromise() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    #expect(try process.line() == "one")
    try folder.write("a.yaml", "require: atLeastOnce\n" + DaemonTests.saying("two"))
    process.send(SIGHUP)
    try process.errorLine(with: "RX305")
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  @Test func verboseRunsSayWhatTheyPromise() throws {
    let folder = try Scratch()
    let file = try folder.write("lines.yaml", Self.pipeline)
    let without = try Rxd.run("run", "-v", file).errors
    #expect(
      without.contains(
        "delivery is best effort, because there is no state directory: a crash loses events under way; with --state-dir DIR it is light: at least once on the weakest path"
      ), "\(without)")
    let with = try Rxd.run("run", "-v", "--state-dir", folder.path + "/state", file).errors
    #expect(with.contains("delivery is light: at least once on the weakest path"), "\(with)")
    #expect(!(try Rxd.run("run", file).errors.contains("delivery")))
  }
}
