import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import PluginHost
import Testing

/// Plugins whose files change, and errors that are known before a pipeline starts.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginChangeTests {
  private func copy(_ path: String, as name: String) throws -> String {
    let place = PluginFixtures.scratch(name)
    try FileManager.default.copyItem(atPath: path, toPath: place)
    return place
  }

  /// A library that replaces a loaded one is loaded next to it.
  @Test func aReplacedLibraryIsLoadedBesideTheOldOne() throws {
    let path = try copy(PluginFixtures.probe(), as: "replaced.so")
    func events() throws -> [String] {
      let pipeline = try PluginFixtures.pipeline(path, values: "[1, 2]", chain: "[ { probe: count } ]")
      pipeline.run()
      return pipeline.probe().events
    }
    #expect(try events() == ["1", "2"])
    let old = try PluginFixtures.pipeline(
      path, values: "{ list: [1, 2], every: 1s }", chain: "[ { probe: count } ]")
    old.run(until: .milliseconds(10))
    let next = try copy(PluginFixtures.probe("step", "STEP=100"), as: "next.so")
    #expect(rename(next, path) == 0)
    #expect(try events() == ["100", "200"])
    // A pipeline compiled with the old library keeps using it.
    old.run()
    #expect(old.probe().events == ["1", "2"])
  }

  /// The running code would be that of another file: the library is not loaded again.
  @Test func aLibraryThatIsWrittenOverIsRefused() throws {
    let path = try copy(PluginFixtures.probe(), as: "over.so")
    #expect(PluginFixtures.plugins.refusal(path) == "")
    let file = try #require(FileHandle(forWritingAtPath: path))
    try file.seekToEnd()
    try file.write(contentsOf: Data([0]))
    try file.close()
    #expect(PluginFixtures.plugins.refusal(path).contains("overwritten while it is loaded"))
  }

  /// A row operator whose `open` is refused fails before there is an event, with the location in the file.
  @Test func aRefusedRowFailsAtTheStart() throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.probe("row", "ROW"), values: "[]",
      chain: "[ { probe: refuse } ]")
    pipeline.run(until: .seconds(1))
    #expect(pipeline.failure?.message == "the plugin refuses: it does not like the mode")
    #expect(pipeline.failure?.location?.line == 6 && pipeline.failure?.location?.column == 23)
  }

  /// The same in an inner signal that has not started, and may never start.
  @Test func aRefusedRowOfAnInnerSignalFailsAtTheStart() throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.probe("row", "ROW"), values: "{ list: [1], every: 1h }",
      chain:
        "[ { filter: event > 5 }, { flattenMap: { signal: { from: { values: [1] }, chain: [ { probe: refuse } ] } } } ]"
    )
    pipeline.run(until: .milliseconds(1))
    #expect(pipeline.failure?.message == "the plugin refuses: it does not like the mode")
    #expect(pipeline.failure?.location?.line == 6, "\(String(describing: pipeline.failure))")
  }

  /// A reload tests sources, operators and sinks without starting any: errors that the files reveal are found there.
  @Test(arguments: [
    ("source", "sources: { in: { work: {} } }\nsinks: { out: { from: in, discard: {} } }"),
    ("operator", "sources: { in: { values: [1] } }\nsinks: { out: { from: in, chain: [ work ], discard: {} } }"),
    ("sink", "sources: { in: { values: [1] } }\nsinks: { out: { from: in, work: {} } }"),
  ])
  func aDryRunLooksAtThePlugin(_ kind: String, _ text: String) throws {
    let path = try PluginFixtures.program(
      "dry-\(kind)", components: #"[{"kind": "\#(kind)", "name": "work", "summary": "Works."}]"#, "elif False: pass")
    let plan = try PipelineText.compile("plugins: ['\(path)']\n\(text)\n", plugins: PluginFixtures.plugins)
    let services = Services(http: ScriptedHTTP(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 })
    func failure() -> SignalFailure? {
      Execution.dryRun(plan, services: services, clock: VirtualTime(), restoring: nil).failure
    }
    #expect(failure() == nil)
    chmod(path, 0o777)
    let found = try #require(failure())
    #expect(found.message.hasPrefix("the plugin cannot be used: others may write '"), "\(found.message)")
    #expect(found.location != nil)
  }

  /// Further files that a plugin loads are part of it.
  @Test func filesThatItUsesCount() throws {
    let path = try PluginFixtures.program(
      "uses", components: #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#, "elif False: pass")
    let module = PluginFixtures.scratch("module.wasm")
    try Data("one".utf8).write(to: URL(fileURLWithPath: module))
    var file = PluginFile(path: path, directory: "")
    let alone = file.digest()
    file.uses = [module]
    let first = file.digest()
    try Data("two".utf8).write(to: URL(fileURLWithPath: module))
    let second = file.digest()
    #expect(first != nil && alone != first && first != second)
    #expect(file.ownFile == path && file.refusal() == nil)
    chmod(module, 0o666)
    #expect(file.refusal()?.hasPrefix("others may write '") == true)
    #expect(throws: (any Error).self) {
      try PipelineText.compile(
        """
        plugins: { p: { path: '\(path)', uses: ['\(module)'] } }
        sources: { in: { values: [1] } }
        sinks: { out: { from: in, chain: [ work ], discard: {} } }
        """, plugins: PluginFixtures.plugins)
    }
  }

  // MARK: Files that a spec names

  /// A program with a part of its spec in another file, which it names.
  private func divided(_ name: String, _ summary: String) throws -> (path: String, other: String) {
    let path = PluginFixtures.scratch(name)
    let other = PluginFixtures.scratch(name + ".txt")
    try Data(summary.utf8).write(to: URL(fileURLWithPath: other))
    try Data(
      """
      #!/usr/bin/python3 -S
      import json, sys
      for line in sys.stdin:
          print(json.dumps({"spec": {"plugin": "divided", "version": "1", "summary": "Divided.", "uses": ["\(name).txt"],
              "components": [{"kind": "operator", "name": "work", "summary": open('\(other)').read()}]}}), flush=True)

      """.utf8
    ).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    return (path, other)
  }

  @Test func aChangedFileOfASpecIsAChangeOfThePlugin() throws {
    let (path, other) = try divided("divided", "Works once.")
    let file = PluginFile(path: path, directory: "")
    let checking = LocalPlugins(asks: false, directories: [])
    let first = try PluginFixtures.plugins.load(file).get()
    #expect(try first.spec.components.item(0).summary == "Works once.")
    #expect(first.file.uses == [other])
    // The plugin is not queried while nothing has changed.
    #expect(try checking.load(file).get().digest == first.digest)
    try Data("Works twice.".utf8).write(to: URL(fileURLWithPath: other))
    guard case .failure(let fault) = checking.load(file) else {
      Issue.record("the old spec is believed")
      return
    }
    #expect(fault.message.contains("a file that it uses has changed"), "\(fault.message)")
    let second = try PluginFixtures.plugins.load(file).get()
    #expect(try second.spec.components.item(0).summary == "Works twice." && second.digest != first.digest)
    #expect(try checking.load(file).get().digest == second.digest)
    // The permissions of the file are checked like those of the plugin.
    chmod(other, 0o666)
    #expect(PluginFixtures.plugins.refusal(path).hasPrefix("others may write '\(other)'"))
    unlink(other)
    #expect(PluginFixtures.plugins.refusal(path).hasPrefix("'\(other)' cannot be opened"))
  }

  /// The file is watched for changes, and the installed spec has both digests.
  @Test func aFileOfASpecIsWatched() throws {
    let (path, other) = try divided("watched", "Watches.")
    let file = PluginFile(path: path, directory: "")
    let loaded = try PluginFixtures.plugins.load(file).get()
    let result = FrontEnd(.builtIn).parse(SourceText(name: "a.yaml", text: "plugins: ['\(path)']\n"))
    let named = try #require(result.file)
    #expect(PluginFixtures.plugins.files(of: named) == [path, other])
    try loaded.writeSpec()
    let text = try String(contentsOfFile: path + ".spec", encoding: .utf8)
    let own = try #require(file.digest())
    #expect(text.contains(loaded.digest) && text.contains(own) && loaded.digest != own, "\(text)")
  }

  /// A library read its files when it was loaded: it continues with them, and a copy of it reads the new ones.
  @Test func aLibraryWhoseFileHasChangedIsLoadedFromACopy() throws {
    let other = PluginFixtures.scratch("library.txt")
    try Data("one".utf8).write(to: URL(fileURLWithPath: other))
    let spec =
      #"SPEC="{\"plugin\":\"probe\",\"version\":\"1\",\"summary\":\"Probes.\",\"uses\":[\"library.txt\"],\"components\":[{\"kind\":\"operator\",\"name\":\"probe\",\"summary\":\"Does.\",\"parameters\":[{\"name\":\"mode\",\"type\":\"text\",\"primary\":true,\"help\":\"What.\"}]}]}""#
    let path = try copy(PluginFixtures.probe("with-file", spec), as: "library.so")
    func events() throws -> [String] {
      let pipeline = try PluginFixtures.pipeline(path, values: "[1, 2]", chain: "[ { probe: count } ]")
      pipeline.run()
      return pipeline.probe().events
    }
    #expect(try events() == ["1", "2"])
    let old = try PluginFixtures.pipeline(
      path, values: "{ list: [1, 2], every: 1s }", chain: "[ { probe: count } ]")
    old.run(until: .milliseconds(10))
    try Data("two".utf8).write(to: URL(fileURLWithPath: other))
    #expect(PluginFixtures.plugins.refusal(path).contains("a file that it uses has changed since it was loaded"))
    let again = try copy(path, as: "library-again.so")
    #expect(rename(again, path) == 0)
    #expect(try events() == ["1", "2"])
    old.run()
    #expect(old.probe().events == ["1", "2"])
  }
}
