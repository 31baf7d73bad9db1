import Foundation
import Testing

/// `rxd test`, as users run it.
@Suite(.timeLimit(.minutes(10)))
struct TestVerbTests {
  private let pipeline = """
    # Doubles.
    sources: { a: { stdin: { decode: json } } }
    signals:
      doubled:
        from: a
        chain: [ { map: 'event * ${FACTOR:-2}' }, { filter: event > 2 } ]
    sinks: { out: { from: doubled, stdout: {} } }
    tests:
      - name: it doubles
        inputs: { a: "-1-2|" }
        expect: { out: "---4|" }   # one is too few
      - name: it triples
        env: { FACTOR: 3 }
        inputs: { a: "-1-2|" }
        expect: { out: "-3-6|" }

    """

  private func file(_ text: String) throws -> (folder: Scratch, path: String) {
    let folder = try Scratch()
    return (folder, try folder.write("t.yaml", text))
  }

  @Test func filterTakesTextsAndPatterns() throws {
    let (folder, path) = try file(pipeline)
    defer { withExtendedLifetime(folder) {} }
    let all = try Rxd.run("test", path)
    #expect(all.status == 0, "\(all.output)\(all.errors)")
    #expect(all.output.contains("2 tests passed"))
    let some = try Rxd.run("test", path, "--filter", "triples")
    #expect(some.output.contains("1 test passed (1 left out by --filter)"))
    #expect(try Rxd.run("test", path, "--filter", "it*es").output.contains("2 tests passed"))
    #expect(try Rxd.run("test", path, "--filter", "doub*tri").output.contains("no tests (2 left out by --filter)"))
  }

  /// A file that needs a variable can be tested without it, if each of its tests gives it.
  /// Tests of a file that uses a secret run where there is none, and the error says how.
  @Test func testsNeedNoSecrets() throws {
    let secret = pipeline.components(separatedBy: "  - name: it triples")[0]
      .replacing("stdout: {}", with: "http: { url: 'http://127.0.0.1:1/${secret:TOKEN}' }")
    let (folder, path) = try file(secret)
    let without = try Rxd.run("test", path)
    #expect(without.status == 78 && without.output.contains("RX703"), "\(without.output)")
    #expect(without.errors.contains("'rxd test --no-environment' runs the tests"), "\(without.errors)")
    let free = try Rxd.run("test", "--no-environment", path)
    #expect(free.status == 0 && free.output.contains("1 test passed"), "\(free.output)\(free.errors)")
    try folder.write("TOKEN", "word\n")
    chmod(folder.path + "/TOKEN", 0o600)
    let given = try Rxd.run("test", "--secrets-dir", folder.path, path)
    #expect(given.status == 0 && given.output.contains("1 test passed"), "\(given.output)\(given.errors)")
  }

  @Test func testsGiveWhatTheFileRequires() throws {
    let needing = pipeline.replacingOccurrences(of: "${FACTOR:-2}", with: "${FACTOR:?a number}")
    let (folder, path) = try file(needing)
    defer { withExtendedLifetime(folder) {} }
    let one = try Rxd.run("test", path)
    #expect(one.status == 78, "\(one.output)\(one.errors)")
    #expect(one.output.contains("the variable FACTOR is required: a number"), "\(one.output)")
    #expect(one.output.contains("1 error in"), "\(one.output)")
    #expect(one.output.contains("with the values of this test") && one.output.contains("t.yaml:9:11"), "\(one.output)")
    let given = needing.replacingOccurrences(
      of: "name: it doubles\n", with: "name: it doubles\n    env: { FACTOR: 2 }\n")
    try given.write(toFile: path, atomically: true, encoding: .utf8)
    let both = try Rxd.run("test", path)
    #expect(both.status == 0 && both.output.contains("2 tests passed"), "\(both.output)\(both.errors)")
    #expect(try Rxd.run("check", path).status == 78)
  }

  @Test func updateRewritesWhatFailed() throws {
    let wrong = pipeline.replacingOccurrences(of: "\"-3-6|\"", with: "\"-3-7|\"")
    let (folder, path) = try file(wrong)
    defer { withExtendedLifetime(folder) {} }
    try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: path)
    #expect(try Rxd.run("test", path).status == 1)
    let update = try Rxd.run("test", path, "--update")
    #expect(update.status == 0, "\(update.output)\(update.errors)")
    #expect(
      update.output.contains(
        "\(path):15\n-     expect: { out: \"-3-7|\" }\n+     expect: { out: \"-3-6|\" }\n"), "\(update.output)")
    #expect(try String(contentsOfFile: path, encoding: .utf8) == pipeline)
    let rights = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
    #expect(rights == 0o640)
    // Nothing is left to update.
    let again = try Rxd.run("test", path, "--update")
    #expect(again.status == 0 && !again.output.contains("+ "))
  }

  @Test func updateRefusesAndWritesNothing() throws {
    let wrong = pipeline.replacingOccurrences(
      of: "expect: { out: \"-3-6|\" }", with: "expect: { out: { events: [ { next: 7 } ], more: true } }")
    let (folder, path) = try file(wrong)
    defer { withExtendedLifetime(folder) {} }
    let update = try Rxd.run("test", path, "--update")
    #expect(update.status == 1)
    #expect(update.output.contains("RX607"))
    #expect(try String(contentsOfFile: path, encoding: .utf8) == wrong)
  }

  @Test func updateFollowsLinks() throws {
    let (folder, path) = try file(pipeline.replacingOccurrences(of: "\"-3-6|\"", with: "\"-3|\""))
    let link = folder.path + "/link.yaml"
    try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: path)
    #expect(try Rxd.run("test", link, "--update").status == 0)
    #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == path)
    #expect(try String(contentsOfFile: path, encoding: .utf8) == pipeline)
  }

  @Test func coverageTellsWhatIsNotReached() throws {
    let (folder, path) = try file(pipeline)
    defer { withExtendedLifetime(folder) {} }
    let full = try Rxd.run("test", path, "--coverage")
    #expect(full.status == 0)
    #expect(full.output.contains("coverage"))
    #expect(full.output.contains("  3/3       2/2     0/0    1/1  100 %\n"), "\(full.output)")
    let part = try Rxd.run("test", path, "--coverage", "--filter", "triples")
    #expect(part.status == 0)
    #expect(part.output.contains("  3/3       1/2     0/0    1/1  83 %\n"), "\(part.output)")
    #expect(part.output.hasSuffix("\(path):6:49: 'filter' drops nothing\n"), "\(part.output)")
    #expect(try Rxd.run("test", path, "--coverage-min", "83", "--filter", "triples").status == 0)
    let least = try Rxd.run("test", path, "--coverage-min", "84", "--filter", "triples")
    #expect(least.status == 1)
    #expect(least.errors.contains("is below 84.0 %"))
    #expect(try Rxd.run("test", path, "--coverage-min", "101").status == 64)
  }

  /// The attributes and elements that build servers expect, in order.
  @Test func reportsHaveTheUsualForm() throws {
    let wrong = pipeline.replacingOccurrences(of: "\"-3-6|\"", with: "\"-3-7|\"")
    let (folder, path) = try file(
      wrong.replacingOccurrences(of: "name: it triples", with: "name: \"it <triples> & \\\"more\\\"\""))
    let report = folder.path + "/report.xml"
    #expect(try Rxd.run("test", path, "--junit-report", report).status == 1)
    let script = try folder.write(
      "check.py",
      """
      import sys, xml.etree.ElementTree as tree
      known = {
          "testsuites": {"name", "time", "tests", "failures", "disabled", "errors"},
          "testsuite": {"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url", "version"},
          "testcase": {"name", "assertions", "time", "classname", "status", "class", "file", "line", "log", "group", "url"},
          "failure": {"type", "message"},
      }
      inside = {"testsuites": {"testsuite"}, "testsuite": {"testcase"}, "testcase": {"failure"}, "failure": set()}
      root = tree.parse(sys.argv[1]).getroot()
      assert root.tag == "testsuites"
      def look(node):
          assert set(node.attrib) <= known[node.tag], (node.tag, node.attrib)
          for name in ("tests", "failures", "errors", "line"):
              if name in node.attrib: int(node.attrib[name])
          if "time" in node.attrib: float(node.attrib["time"])
          for child in node:
              assert child.tag in inside[node.tag]
              look(child)
      look(root)
      suite = root[0]
      assert int(suite.attrib["tests"]) == len(suite) == 2
      assert int(suite.attrib["failures"]) == sum(1 for case in suite if len(case)) == 1
      assert suite[1].attrib["name"] == 'it <triples> & "more"'
      assert "expected" in suite[1][0].text and "actual" in suite[1][0].text
      """)
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["python3", script, report]
    try process.run()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0)
  }

  /// Thirty virtual days, including the start of the process.
  @Test func daysTakeMilliseconds() throws {
    let (folder, path) = try file(
      """
      sources: { clock: { interval: 1h } }
      signals: { s: { from: clock, chain: [ { map: event.tick }, { filter: event % 24 == 0 } ] } }
      sinks: { out: { from: s, stdout: {} } }
      tests:
        - name: thirty days
          until: 720h
          expect: { out: { events: [ { at: 24h, next: 24 }, { at: 720h, next: 720 } ], more: true } }
      """)
    let report = folder.path + "/report.xml"
    #expect(try Rxd.run("test", path, "--junit-report", report).status == 0)
    let text = try String(contentsOfFile: report, encoding: .utf8)
    let time = try #require(text.components(separatedBy: " time=\"").dropFirst().first?.split(separator: "\"").first)
    // The limit is for a debug build on a busy machine; docs/testing.md has the time of a release build.
    #expect(try #require(Double(time)) < 2)
  }
}
