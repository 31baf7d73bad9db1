import Foundation
import Testing

/// `rxd plugin`, as users run it.
@Suite(.timeLimit(.minutes(5))) struct PluginVerbTests {
  @Test(arguments: ["c", "python", "shell"]) func aNewPluginWorks(_ language: String) throws {
    guard language != "shell" || FileManager.default.isExecutableFile(atPath: "/usr/bin/jq") else { return }
    let folder = try Scratch()
    let cache = [
      "XDG_CACHE_HOME": folder.path + "/cache",
      "PATH": "/usr/bin:/bin:" + (ProcessInfo.processInfo.environment["PATH"] ?? ""),
    ]
    let made = try Rxd.run("plugin", "new", "--language", language, "add-text", environment: cache, in: folder.path)
    #expect(made.status == 0, "\(made.errors)")
    let home = folder.path + "/add-text"
    if language == "c" {
      let make = Process()
      make.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      make.arguments = ["make", "-s", "-C", home, "CC=clang", "INCLUDE=\(Rxd.root)/Sources/CPlugin/include"]
      try make.run()
      make.waitUntilExit()
      #expect(make.terminationStatus == 0)
    }
    // Nothing is known of it, and checking starts nothing.
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
    let schema = try Rxd.run("schema", environment: ["RXD_PLUGIN_DIR": plugins])
    #expect(schema.output.contains("\"greet\""))
    let file = try folder.write(
      "p.yaml",
      "sources: { in: { stdin: { decode: json } } }\nsinks: { out: { from: in, chain: [ greet ], stdout: {} } }\n")
    let run = try Rxd.run(file, "--plugin-dir", plugins, input: "{}\n")
    #expect(run.output == "{\"text\":\"hello\"}\n", "\(run.errors)")
  }
}
