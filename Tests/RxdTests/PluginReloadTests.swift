import Foundation
import Testing

/// A plugin whose file has changed is loaded by a reload and by `--watch-config`, and its state is kept.
@Suite(.timeLimit(.minutes(10)))
struct PluginReloadTests {
  private let folder: Scratch

  init() throws { folder = try Scratch() }

  /// A program that adds up its inputs times `factor`.
  private func plugin(_ factor: Int, version: String = "1") throws {
    let path = try folder.write(
      "next.py",
      """
      #!/usr/bin/python3 -S
      import json, sys
      states = {}
      def say(frame): print(json.dumps(frame), flush=True)
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "sums", "version": "\(version)", "summary": "Sums up.", "components": [{"kind": "operator", "name": "sum", "summary": "Sums up.", "state": {"version": 1}}]}})
          elif 'open' in f:
              states[f['open']] = f.get('state') or 0
              say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'event' in f:
              states[f['to']] += \(factor) * int(f['event'])
              say({"id": f['id'], "events": [str(states[f['to']])]})
          elif 'save' in f: say({"id": f['id'], "state": states[f['to']]})
          elif 'id' in f: say({"id": f['id']})

      """)
    chmod(path, 0o755)
    #expect(rename(path, folder.path + "/sum.py") == 0)
  }

  private func pipeline() throws -> String {
    try folder.write(
      "a.yaml",
      """
      plugins: [sum.py]
      sources: { in: { file: { path: '\(folder.path)/in', follow: true } } }
      sinks: { out: { from: in, chain: [ sum ], stdout: text } }

      """)
  }

  private func append(_ text: String) throws {
    let file = open(folder.path + "/in", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(file) }
    #expect(write(file, text, text.utf8.count) == text.utf8.count)
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  @Test func aReloadLoadsTheNewVersionAndKeepsTheState() throws {
    try plugin(1)
    // The plugin saves its state after 256 inputs; later inputs are repeated for the new version.
    try append(String(repeating: "1\n", count: 257))
    let process = try RunningRxd(
      ["--daemon", "--log-format", "text", "-v", try pipeline()],
      environment: ["XDG_CACHE_HOME": folder.path + "/cache"])
    for sum in 1...257 { #expect(try process.line() == "\(sum)") }
    // Nothing has changed, so the plugin keeps running.
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    try plugin(100)
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    try append("4\n")
    #expect(try process.line() == "\(256 + 100 * 5)")
    // A plugin whose spec has changed is asked for the new spec.
    try plugin(1000, version: "2")
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    try append("1\n")
    #expect(try process.line() == "\(256 + 1000 * 6)")
    try end(process)
  }

  @Test(arguments: ["inotify", "poll"]) func aChangedFileIsNoticed(_ method: String) throws {
    try plugin(1)
    try append("1\n")
    let process = try RunningRxd(
      ["--daemon", "--log-format", "text", "-w", "--watch-config-method", method, try pipeline()],
      environment: ["XDG_CACHE_HOME": folder.path + "/cache"])
    #expect(try process.line() == "1")
    try plugin(100)
    try process.errorLine(with: "reloaded")
    try append("2\n")
    #expect(try process.line() == "300")
    // A plugin that cannot be used changes nothing.
    try folder.write("sum.py", "#!/bin/false\n")
    try process.errorLine(with: "not reloaded")
    try append("3\n")
    #expect(try process.line() == "600")
    try end(process)
  }

  /// A file that the spec names counts as the plugin's own.
  @Test func aChangedFileOfASpecIsNoticed() throws {
    func set(_ factor: Int) throws {
      let path = try folder.write("factor.new", "\(factor)")
      #expect(rename(path, folder.path + "/factor.txt") == 0)
    }
    try set(1)
    let path = try folder.write(
      "sum.py",
      """
      #!/usr/bin/python3 -S
      import json, sys
      def say(frame): print(json.dumps(frame), flush=True)
      factor = int(open(sys.argv[0].rsplit('/', 1)[0] + '/factor.txt').read())
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "sums", "version": "1", "summary": "S.", "uses": ["factor.txt"], "components": [{"kind": "operator", "name": "sum", "summary": "S."}]}})
          elif 'open' in f: say({"opened": f['open']})
          elif 'ping' in f: say({"pong": f['ping']})
          elif 'event' in f: say({"id": f['id'], "events": [str(factor * int(f['event']))]})
          elif 'id' in f: say({"id": f['id']})

      """)
    chmod(path, 0o755)
    try append("1\n")
    let process = try RunningRxd(
      ["--daemon", "--log-format", "text", "-w", try pipeline()],
      environment: ["XDG_CACHE_HOME": folder.path + "/cache"])
    #expect(try process.line() == "1")
    try set(100)
    try process.errorLine(with: "reloaded")
    try append("2\n")
    #expect(try process.line() == "200")
    try end(process)
  }

  /// An unusable plugin of the directory is reported only for files with an unknown component.
  @Test func onlyFilesThatMissAComponentHearOfUnusablePlugins() throws {
    let plugins = folder.path + "/plugins"
    mkdir(plugins, 0o755)
    try Data("#!/bin/sh\n".utf8).write(to: URL(fileURLWithPath: plugins + "/strange"))
    chmod(plugins + "/strange", 0o755)
    let environment = ["RXD_PLUGIN_DIR": plugins, "XDG_CACHE_HOME": folder.path + "/cache"]
    let fine = try folder.write(
      "fine.yaml", "sources: { in: { values: [1] } }\nsinks: { out: { from: in, stdout: {} } }\n")
    let check = try Rxd.run("check", "-d", fine, environment: environment)
    #expect(check.status == 0 && !check.output.contains("RX714"), "\(check.output)")
    let missing = try folder.write(
      "missing.yaml",
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, chain: [ strangely ], stdout: {} } }\n")
    let found = try Rxd.run("check", missing, environment: environment)
    #expect(found.status == 78 && found.output.contains("RX714") && found.output.contains("strange"), "\(found.output)")
  }
}
