import Foundation
import Testing

/// Stubs of plugins in tests, and examples of plugins that run as tests.
@Suite(.timeLimit(.minutes(3))) struct PluginExampleTests {
  /// A program with an operator whose examples are marbles; it doubles, and creates a file if it receives an event.
  private static func doubling(_ folder: Scratch, out: String = "2-4-|") throws -> String {
    let path = try folder.write(
      "doubling.py",
      """
      #!/usr/bin/python3 -S
      import json, sys
      def say(frame): print(json.dumps(frame), flush=True)
      spec = {"plugin": "doubling", "version": "1", "summary": "Doubles.", "components": [
          {"kind": "operator", "name": "double", "summary": "Doubles a number.",
           "examples": [{"title": "two numbers", "yaml": "double", "in": "1-2-|", "out": "\(out)"}],
           "edges": {"completion": "Says good-bye."},
           "useCases": [{"topic": "shaping", "text": "double a number", "yaml": "double"}]}]}
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": spec})
          elif 'open' in f: say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'event' in f:
              open('\(folder.path)/was-asked', 'w').close()
              try: say({"id": f['id'], "events": [f['event'] * 2]})
              except TypeError: say({"id": f['id'], "error": "no number"})
          elif 'id' in f: say({"id": f['id']})

      """)
    chmod(path, 0o755)
    return path
  }

  @Test func aStubStandsForAnOperator() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "p.yaml",
      """
      plugins: ['\(try Self.doubling(folder))']
      sources: { in: { stdin: { decode: json } } }
      sinks:
        out: { from: in, chain: [ double ], stdout: {} }
        bad: { from: out.errors, chain: [ { map: event.error } ], stdout: {} }
      tests:
        - name: answers in order, in turn and late
          inputs: { in: "1-2-3-4|" }
          stubs:
            plugin:
              - { operator: double, event: "1", reply: { event: one }, after: 5ms }
              - { operator: double, event: "3", fail: no three }
              - operator: double
                sequence: [ { reply: { events: [a, b] } }, { reply: { events: [] } } ]
          expect:
            out: { marbles: "-----(oab)-|", values: { o: one } }
            bad: [ { next: no three }, { complete: true } ]
        - name: completes its output
          inputs: { in: "1-2-3-4|" }
          stubs:
            plugin:
              - { operator: double, event: "2", reply: { event: last, finish: true } }
              - { operator: double, reply: { event: first, finish: false } }
          expect: { out: { marbles: "f-(l|)", values: { f: first, l: last } } }

      """)
    let done = try Rxd.run("test", file)
    #expect(done.status == 0, "\(done.output)\(done.errors)")
    // The plugin was only asked for its spec.
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/was-asked"))
  }

  @Test func anEventWithoutAStubFailsTheTest() throws {
    let folder = try Scratch()
    let plugin = try Self.doubling(folder)
    func test(_ stub: String) throws -> String {
      let file = try folder.write(
        "p.yaml",
        """
        plugins: ['\(plugin)']
        sources: { in: { stdin: { decode: json } } }
        sinks: { out: { from: in, chain: [ double ], stdout: {} } }
        tests:
          - name: a test
            inputs: { in: "7|" }
            stubs: { plugin: [ \(stub) ] }
            expect: { out: "|" }

        """)
      let done = try Rxd.run("test", file)
      #expect(done.status != 0)
      return done.output + done.errors
    }
    let unanswered = try test("{ operator: double, event: '8', reply: { event: 16 } }")
    #expect(unanswered.contains("no stub answers the event 7 of 'double'"), "\(unanswered)")
    #expect(unanswered.contains("The nearest stub is for '8'"), "\(unanswered)")
    let unknown = try test("{ operator: dubble, reply: { event: 16 } }")
    #expect(unknown.contains("the pipeline has no operator 'dubble' of a plugin"), "\(unknown)")
    #expect(try test("{ operator: double, reply: { event: 1, events: [] } }").contains("takes 'event', or 'events'"))
    #expect(try test("{ operator: double, reply: { event: 1, finish: 1 } }").contains("'finish' is true or false"))
    #expect(try test("{ reply: { event: 1 } }").contains("names no operator"))
  }

  @Test func aStubStandsForAPureFunction() throws {
    let folder = try Scratch()
    let library = folder.path + "/build"
    let make = Process()
    make.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    make.arguments = [
      "make", "-s", "-C", "\(Rxd.root)/Plugins/examples/native-c", "CC=clang", "BUILD=\(library)",
      "\(library)/example.so",
    ]
    try make.run()
    make.waitUntilExit()
    let file = try folder.write(
      "p.yaml",
      """
      plugins: ['\(library)/example.so']
      sources: { in: { stdin: { decode: json } } }
      sinks:
        out: { from: in, chain: [ { exampleShorten: { field: t, to: 2 } } ], stdout: {} }
        bad: { from: out.errors, chain: [ { map: event.error } ], stdout: {} }
      tests:
        - name: a pure function
          inputs: { in: { marbles: "a-b-c|", values: { a: { t: abc }, b: { t: bcd }, c: { t: cde } } } }
          stubs:
            plugin:
              - { operator: exampleShorten, event: '*abc*', reply: { event: one } }
              - { operator: exampleShorten, event: '*bcd*', reply: { events: [] } }
              - { operator: exampleShorten, fail: no c }
          expect:
            out: { marbles: "o----|", values: { o: one } }
            bad: [ { next: no c }, { complete: true } ]
        - name: without a stub it runs
          inputs: { in: { marbles: "a|", values: { a: { t: abc } } } }
          expect: { out: { marbles: "b|", values: { b: { t: ab } } } }

      """)
    let done = try Rxd.run("test", file)
    #expect(done.status == 0, "\(done.output)\(done.errors)")
  }

  @Test func marblesOfExamplesAreDrawnAndRun() throws {
    let folder = try Scratch()
    let cache = ["XDG_CACHE_HOME": folder.path + "/cache"]
    let plugin = try Self.doubling(folder)
    #expect(try Rxd.run("plugin", "check", plugin, environment: cache).status == 0)
    mkdir(folder.path + "/plugins", 0o755)
    try FileManager.default.copyItem(atPath: plugin, toPath: folder.path + "/plugins/doubling.py")
    #expect(try Rxd.run("plugin", "check", folder.path + "/plugins/doubling.py", environment: cache).status == 0)
    let page = try Rxd.run("describe", "double", "--plugin-dir", folder.path + "/plugins", environment: cache).output
    for line in ["    a    1-2-|", "    out  2-4-|", "Says good-bye."] { #expect(page.contains(line), "\(page)") }
    let good = try Rxd.run("plugin", "test", plugin, "--only", "examples", environment: cache)
    #expect(good.status == 0, "\(good.output)\(good.errors)")
    #expect(good.output.contains("1 example, 1 of them with marbles"), "\(good.output)")
    let wrong = try Rxd.run(
      "plugin", "test", try Self.doubling(folder, out: "2-5-|"), "--only", "examples", environment: cache)
    #expect(wrong.status == 1)
    #expect(wrong.output.contains("example 'two numbers' as its marbles say: 2-5-|"), "\(wrong.output)")
    let mistaken = try Rxd.run("plugin", "check", try Self.doubling(folder, out: "2-(4"), environment: cache)
    #expect(mistaken.status == 1)
    #expect((mistaken.output + mistaken.errors).contains("'out' is not valid marble text"), "\(mistaken.errors)")
  }

  /// A source that exceeds its credit is ended before it can fill the memory, and restarted.
  @Test func aSourceThatIgnoresCreditIsStartedAgain() throws {
    let folder = try Scratch()
    let path = try folder.write(
      "flood.py",
      """
      #!/usr/bin/python3 -S
      import json, os, sys
      def say(frame): print(json.dumps(frame), flush=True)
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "flood", "version": "1", "summary": "Floods.", "components": [{"kind": "source", "name": "flood", "summary": "Floods.", "credit": 10}]}})
          elif 'open' in f: say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'credit' in f:
              if os.path.exists('\(folder.path)/flooded'):
                  say({"from": f['to'], "events": ["good"] * 3})
                  say({"from": f['to'], "complete": True})
                  continue
              open('\(folder.path)/flooded', 'w').close()
              while True: say({"from": f['to'], "event": "x" * 1000})
      """)
    chmod(path, 0o755)
    let file = try folder.write(
      "p.yaml", "plugins: ['\(path)']\nsources: { in: { flood: {} } }\nsinks: { out: { from: in, stdout: text } }\n")
    let run = try Rxd.run(file)
    #expect(run.status == 0, "\(run.errors)")
    #expect(run.errors.contains("it has sent more events than it has credit for"), "\(run.errors)")
    let lines = run.output.split(separator: "\n")
    #expect(lines.suffix(3) == ["good", "good", "good"], "\(lines.suffix(5))")
    #expect(lines.count < 1000)
  }
}
