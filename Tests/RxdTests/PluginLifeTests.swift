import Foundation
import PipelineHost
import Testing

/// Processes of plugins end when their work has ended.
@Suite(.timeLimit(.minutes(10)))
struct PluginLifeTests {
  private let folder: Scratch

  init() throws { folder = try Scratch() }

  /// A source that sends one number and ends by `end`. It records the received frames and the end of its input.
  private func source(_ end: String, token: String = "") throws -> String {
    let path = try folder.write(
      "finite.py",
      """
      #!/usr/bin/python3 -S
      import json, sys
      def say(frame): print(json.dumps(frame), flush=True)
      def note(text): open('\(folder.path)/notes', 'a').write(text + '\\n')
      opened = False
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "finite", "version": "1", "summary": "Ends.", "components": [{"kind": "source", "name": "finite", "summary": "Ends.", "recovery": "sender"}]}})
          elif 'open' in f:
              opened = True
              say({"opened": f['open']})
              say({"from": 1, "event": 7\(token)})
              say({"from": 1, \(end)})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'acknowledged' in f or 'failed' in f or 'close' in f: note(line.strip())
      if opened: note('closed')

      """)
    chmod(path, 0o755)
    return path
  }

  private var notes: [String] {
    ((try? String(contentsOfFile: folder.path + "/notes", encoding: .utf8)) ?? "").split(separator: "\n").map(
      String.init)
  }

  private func run(_ path: String, _ rest: String) throws -> Rxd.Outcome {
    let file = try folder.write("p.yaml", "plugins: { p: '\(path)' }\n" + rest)
    #expect(try Rxd.run("plugin", "check", path).status == 0)
    return try Rxd.run(file)
  }

  /// A process that is never closed would be killed with rxd, and record nothing.
  @Test func aSourceThatHasCompletedIsClosed() throws {
    let outcome = try run(
      try source(#""complete": True"#), "sources: { in: { finite: {} } }\nsinks: { out: { from: in, stdout: text } }\n")
    #expect(outcome.status == 0 && outcome.output == "7\n", "\(outcome.errors)")
    #expect(notes == [#"{"close":1}"#, "closed"], "\(notes)")
  }

  /// A program that does not notice the end of its input, or does not read what is left for it, is asked to end long before it is killed.
  @Test(arguments: [3, 20_000]) func aProgramThatDoesNotEndIsAskedTo(_ length: Int) throws {
    let path = try folder.write(
      "deaf.py",
      """
      #!/usr/bin/python3 -S
      import json, os, select, signal, sys, time
      def say(frame): print(json.dumps(frame), flush=True)
      def note(text): open('\(folder.path)/notes', 'a').write(text + '\\n')
      line = ''
      def take():
          return json.loads(sys.stdin.readline() or 'null')
      take()
      say({"spec": {"plugin": "deaf", "version": "1", "summary": "Hears nothing.", "components": [{"kind": "operator", "name": "deaf", "summary": "Hears nothing."}]}})
      opening = take()
      if opening:
          signal.signal(signal.SIGTERM, lambda *_: (note(f'asked {time.monotonic() - began:.3f}'), os._exit(0)))
          say({"opened": opening["open"]})
          first = take()
          began = time.monotonic()
          say({"id": first["id"], "finish": True})
          while True: time.sleep(60)

      """)
    chmod(path, 0o755)
    let values = Array(repeating: String(repeating: "x", count: length), count: 10).joined(separator: ", ")
    let outcome = try run(
      path,
      """
      sources: { in: { values: [\(values)] } }
      sinks: { out: { from: in, chain: [ { deaf: {} } ], stdout: {} } }

      """)
    #expect(outcome.status == 0, "\(outcome.errors)")
    let asked = try #require(notes.first { $0.hasPrefix("asked ") }?.split(separator: " ").last.flatMap { Double($0) })
    #expect(asked > 4.5 && asked < 9, "\(notes)")
  }

  @Test func sourcesOfInnerSignalsAreClosedOneByOne() throws {
    let outcome = try run(
      try source(#""complete": True"#),
      """
      sources: { in: { values: [1, 2, 3, 4, 5, 6] } }
      sinks: { out: { from: in, chain: [ { flattenMap: { signal: { from: { finite: {} } } } } ], stdout: text } }

      """)
    #expect(outcome.status == 0 && outcome.lines.count == 6, "\(outcome.errors)")
    #expect(notes.count { $0 == "closed" } == 6, "\(notes)")
  }

  @Test func sourcesThatFailAreClosed() throws {
    let outcome = try run(
      try source(#""error": "no server""#),
      """
      sources: { in: { values: [1] } }
      sinks:
        out: { from: in, chain: [ { flattenMap: { signal: { from: { finite: {} }, chain: [ { retry: { count: 4, delay: 10ms } }, { catch: { with: { values: [0] } } } ] } } } ], stdout: text }

      """)
    #expect(
      outcome.status == 0 && outcome.lines == ["7", "7", "7", "7", "7", "0"], "\(outcome.output)\(outcome.errors)")
    #expect(notes.count { $0 == "closed" } == 5, "\(notes)")
  }

  /// A completed source receives its acknowledgements before it is closed.
  @Test func acknowledgementsComeBeforeTheClose() throws {
    let outcome = try run(
      try source(#""complete": True"#, token: #", "token": 5"#),
      "sources: { in: { finite: {} } }\nsinks: { out: { from: in, file: { path: '\(folder.path)/out' } } }\n")
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(notes == [#"{"to":1,"acknowledged":[5]}"#, #"{"close":1}"#, "closed"], "\(notes)")
  }

  /// Of a batch with one offending event, only that event goes to the errors output, and the process continues.
  @Test func oneEventAtFaultIsRefusedAlone() throws {
    try FileManager.default.copyItem(
      atPath: Rxd.root + "/Plugins/python/rxd_plugin.py", toPath: folder.path + "/rxd_plugin.py")
    try folder.write(
      "one.py",
      """
      from rxd_plugin import Plugin, Sink
      plugin = Plugin("one", "0.1.0", "A sink.")
      @plugin.sink(confirmation="system")
      class One(Sink):
          \"\"\"Writes the member n of each event.\"\"\"
          def write_batch(self, records):
              text = "".join(str(record.event["n"]) + "\\n" for record in records)
              with open("got.txt", "a") as f:
                  f.write(text)
      plugin.run()

      """)
    try folder.write("in.ndjson", (0..<900).map { $0 == 450 ? "{\"m\":1}\n" : "{\"n\":\($0)}\n" }.joined())
    let file = try folder.write(
      "p.yaml",
      """
      plugins: { one: { run: [python3, one.py] } }
      sources: { in: { file: { path: '\(folder.path)/in.ndjson', decode: ndjson } } }
      sinks:
        out: { from: in, one: {} }
        bad: { from: out.errors, chain: [ { map: event.event } ], stdout: {} }

      """)
    #expect(try Rxd.run("plugin", "check", file).status == 0)
    let outcome = try Rxd.run(file)
    #expect(outcome.status == 0 && outcome.output == "{\"m\":1}\n", "\(outcome.output)\(outcome.errors)")
    let written = try String(contentsOfFile: folder.path + "/got.txt", encoding: .utf8).split(separator: "\n")
    #expect(written.map { Int($0) ?? -1 } == (0..<900).filter { $0 != 450 })
  }
}

/// The spec file that a package installs next to its plugin.
@Suite(.timeLimit(.minutes(10)))
struct PluginTrustTests {
  @Test(.enabled(if: geteuid() == 0, "needs root")) func aSpecOfAnotherUserIsNotBelieved() throws {
    let folder = try Scratch()
    let plugin = try folder.write(
      "upper.py",
      """
      #!/usr/bin/python3 -S
      import json, sys
      for line in sys.stdin:
          if 'hello' in json.loads(line): print(json.dumps({"spec": {"plugin": "upper", "version": "1", "summary": "U.", "components": [{"kind": "operator", "name": "upper", "summary": "U."}]}}), flush=True)

      """)
    chmod(plugin, 0o755)
    let file = try folder.write(
      "p.yaml",
      "plugins: ['\(plugin)']\nsources: { in: { values: [1] } }\nsinks: { out: { from: in, chain: [ upper ], discard: {} } }\n"
    )
    func check(_ home: String) throws -> Rxd.Outcome {
      try Rxd.run(
        "check", file, environment: ["HOME": folder.path + home, "XDG_CACHE_HOME": "", "CACHE_DIRECTORY": ""])
    }
    #expect(try check("/1").status == 78)
    let wrote = try Rxd.run(
      "plugin", "check", "--write", plugin, environment: ["HOME": folder.path + "/2", "XDG_CACHE_HOME": ""])
    #expect(wrote.status == 0, "\(wrote.errors)")
    #expect(try check("/3").status == 0)
    chown(plugin + ".spec", 65534, 65534)
    let outcome = try check("/4")
    #expect(outcome.status == 78 && outcome.output.contains("not known yet"), "\(outcome.output)")
  }
}
