import Foundation
import Testing

/// `rxd plugin`, as users run it.
@Suite(.timeLimit(.minutes(5))) struct PluginVerbTests {
  @Test(arguments: ["c", "python", "rust", "shell"]) func aNewPluginWorks(_ language: String) throws {
    if language == "rust" {
      let which = Process()
      which.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      which.arguments = ["sh", "-c", "command -v rustc > /dev/null"]
      try which.run()
      which.waitUntilExit()
      guard which.terminationStatus == 0 else { return }
    }
    guard language != "shell" || FileManager.default.isExecutableFile(atPath: "/usr/bin/jq") else { return }
    let folder = try Scratch()
    let cache = [
      "XDG_CACHE_HOME": folder.path + "/cache",
      "PATH": "/usr/bin:/bin:" + (ProcessInfo.processInfo.environment["PATH"] ?? ""),
    ]
    let made = try Rxd.run("plugin", "new", "--language", language, "add-text", environment: cache, in: folder.path)
    #expect(made.status == 0, "\(made.errors)")
    let home = folder.path + "/add-text"
    if language == "c" || language == "rust" {
      let make = Process()
      make.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      make.arguments = ["make", "-s", "-C", home, "CC=clang", "INCLUDE=\(Rxd.root)/Sources/CPlugin/include"]
      try make.run()
      make.waitUntilExit()
      #expect(make.terminationStatus == 0)
    }
    // Its spec is still unknown, and checking starts no plugin.
    let early = try Rxd.run("check", "pipeline.yaml", environment: cache, in: home)
    #expect(early.status == 78)
    #expect(early.output.contains("Run 'rxd plugin check pipeline.yaml' once"), "\(early.output)")
    let check = try Rxd.run("plugin", "check", "pipeline.yaml", environment: cache, in: home)
    #expect(check.status == 0, "\(check.output)\(check.errors)")
    #expect(try Rxd.run("check", "pipeline.yaml", environment: cache, in: home).status == 0)
    let test = try Rxd.run("test", "pipeline.yaml", environment: cache, in: home)
    #expect(test.status == 0, "\(test.output)\(test.errors)")
    let run = try Rxd.run("pipeline.yaml", input: "{\"name\":\"Ada\"}\n", environment: cache, in: home)
    #expect(run.output == "{\"name\":\"Ada\",\"text\":\"hello\"}\n", "\(run.errors)")
    let contract = try Rxd.run(
      "plugin", "test", "./add-text." + (["python": "py", "shell": "sh"][language] ?? "so"), environment: cache,
      in: home)
    #expect(contract.status == 0, "\(contract.output)\(contract.errors)")
    let again = try Rxd.run("plugin", "new", "--language", language, "add-text", environment: cache, in: folder.path)
    #expect(again.status == 74)
  }

  @Test func pluginsOfTheDirectoryAreListedAndDescribed() throws {
    let folder = try Scratch()
    let cache = ["XDG_CACHE_HOME": folder.path + "/cache"]
    _ = try Rxd.run("plugin", "new", "--language", "python", "greet", in: folder.path)
    let plugins = folder.path + "/plugins"
    mkdir(plugins, 0o755)
    try FileManager.default.moveItem(atPath: folder.path + "/greet/greet.py", toPath: plugins + "/greet.py")
    let unknown = try Rxd.run("plugin", "list", "--plugin-dir", plugins, environment: cache)
    #expect(unknown.status == 1)
    #expect(unknown.output.contains("not known yet"), "\(unknown.output)")
    let check = try Rxd.run("plugin", "check", "--write", plugins + "/greet.py", environment: cache)
    #expect(check.status == 0, "\(check.errors)")
    let list = try Rxd.run("plugin", "list", "--plugin-dir", plugins)
    #expect(list.output.hasPrefix("greet 0.1.0  operator greet  ("), "\(list.output)")
    let describe = try Rxd.run("describe", "greet", environment: ["RXD_PLUGIN_DIR": plugins])
    #expect(describe.output.contains("Adds a text to each event."), "\(describe.output)\(describe.errors)")
    let page = try Rxd.run("describe", "greet", "--format", "markdown", "--plugin-dir", plugins)
    #expect(
      page.output.hasPrefix("# greet\n\n*operator*\n\n**Adds a text to each event.**\n"), "\(page.output)\(page.errors)"
    )
    #expect(page.output.contains("| `text` | text | `hello` | The text. |"))
    #expect(try Rxd.run("describe", "throttle", "--format", "markdown").output.contains("## At the edges"))
    #expect(try Rxd.run("describe", "size", "--format", "markdown").status == 64)
    #expect(try Rxd.run("list", "operators", "--plugin-dir", plugins).output.contains("greet"))
    let schema = try Rxd.run("schema", environment: ["RXD_PLUGIN_DIR": plugins])
    #expect(schema.output.contains("\"greet\""))
    let file = try folder.write(
      "p.yaml",
      "sources: { in: { stdin: { decode: json } } }\nsinks: { out: { from: in, chain: [ greet ], stdout: {} } }\n")
    let run = try Rxd.run(file, "--plugin-dir", plugins, input: "{}\n")
    #expect(run.output == "{\"text\":\"hello\"}\n", "\(run.errors)")
  }

  /// A program that counts, writes more than is logged, and has been restarted once.
  private static func counting(_ folder: Scratch) throws -> String {
    let path = try folder.write(
      "counting.py",
      """
      #!/usr/bin/python3 -S
      import json, os, sys
      def say(frame): print(json.dumps(frame), flush=True)
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "counting", "version": "1", "summary": "Counts.", "components": [{"kind": "operator", "name": "work", "summary": "Works."}]}})
          elif 'open' in f: say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'event' in f:
              if f['event'] == 'end' and not os.path.exists('\(folder.path)/ended'):
                  open('\(folder.path)/ended', 'w').close()
                  sys.exit(3)
              say({"count": "hits", "by": 2})
              if f['event'] == 'flood': sys.stderr.write('line\\n' * 100); sys.stderr.flush()
              say({"id": f['id'], "events": [f['event']]})
          elif 'id' in f: say({"id": f['id']})

      """)
    chmod(path, 0o755)
    return path
  }

  @Test func whatAPluginCountsIsInTheStatistics() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "p.yaml",
      """
      plugins: ['\(try Self.counting(folder))']
      sources: { in: { stdin: {} } }
      sinks: { out: { from: in, chain: [ work ], stdout: {} } }

      """)
    let input = "a\nflood\nend\n"
    let run = try Rxd.run(
      "run", "--stats", "--stats-format", "json", file, input: input, environment: ["RXD_LOG_LEVEL": "error"])
    #expect(run.output == "\"a\"\n\"flood\"\n\"end\"\n", "\(run.errors)")
    let start = try #require(run.errors.range(of: "{"))
    let stats = try #require(
      try JSONSerialization.jsonObject(with: Data(run.errors[start.lowerBound...].utf8)) as? [String: Any])
    let steps = try #require(stats["steps"] as? [[String: Any]])
    let plugin = try #require(steps.first { $0["type"] as? String == "work" }?["plugin"] as? [String: Any])
    #expect((plugin["counts"] as? [String: Int])?["hits"] == 6)
    #expect(plugin["restarts"] as? Int == 1 && plugin["poisoned"] as? Int == 0 && plugin["in_hand"] as? Int == 0)
    #expect((plugin["missed_stderr_lines"] as? Int ?? 0) >= 60)
    let table = try Rxd.run("run", "--stats", file, input: "a\n")
    #expect(table.errors.contains("p.yaml:3 out/work: hits 2"), "\(table.errors)")
  }

  @Test func whatAPluginCountsIsInTheMetricsAndTop() throws {
    let folder = try Scratch()
    let socket = folder.path + "/c.sock"
    let input = try folder.write("in", "a\n")
    let file = try folder.write(
      "p.yaml",
      """
      name: counted
      plugins: ['\(try Self.counting(folder))']
      sources: { in: { file: { path: '\(input)', follow: true } } }
      sinks: { out: { from: in, chain: [ work ], file: { path: '\(folder.path)/out' } } }

      """)
    let process = try RunningRxd(["--daemon", "--log-format", "text", "--control-socket", socket, file])
    try process.waits(forSocket: socket)
    let labels = #"{pipeline="counted",component_id="out/work",component_kind="operator",component_type="work""#
    let expected = [
      "rxd_plugin_instances\(labels)} 1", "rxd_plugin_processes\(labels)} 1", "rxd_plugin_in_hand_events\(labels)} 0",
      "rxd_plugin_restarts_total\(labels)} 0", "rxd_plugin_counts_total\(labels),counter=\"hits\"} 2",
    ]
    let deadline = Deadline(after: RunningRxd.limit)
    var text = ""
    func missing() -> [String] { expected.filter { !text.contains($0 + "\n") } }
    // Its counts may be known before its answer.
    while !missing().isEmpty, !deadline.isOver {
      text = try Program.run(
        "/usr/bin/env", ["curl", "-sS", "-m", "60", "--unix-socket", socket, "http://rxd/metrics"]
      )
      .output
    }
    #expect(missing().isEmpty, "\(missing())\n\(text)")
    let memory = text.split(separator: "\n").first { $0.hasPrefix("rxd_plugin_memory_bytes\(labels)} ") }
    #expect(Int(memory?.split(separator: " ").last ?? "") ?? 0 > 1 << 20, "\(text)")
    let top = try Rxd.run("top", "--once", "--format", "json", "--interval", "100ms", "--socket", socket)
    #expect(top.output.contains(#""counts": {"hits": 2}"#), "\(top.output)\(top.errors)")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
