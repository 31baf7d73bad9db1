import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineRuntime
import Testing

/// Included files on this machine.
@Suite struct IncludeTests {
  private let folder = Scratch()

  init() throws {
    try FileManager.default.createDirectory(atPath: folder("lib"), withIntermediateDirectories: true)
    folder.append("templates: { few: { chain: [ { take: 1 } ] } }\n", to: "lib/few.yaml")
  }

  private func load(_ include: String) -> PipelineLoader.Loaded {
    folder.append(
      "include: \(include)\nsources: { s: { stdin: {} } }\nsinks: { out: { from: s, chain: [ { use: few } ], stdout: {} } }\n",
      to: "main.yaml")
    return PipelineLoader().load(folder("main.yaml"))
  }

  @Test func aFileBelowIsIncludedAndWatched() {
    let loaded = load("lib/few.yaml")
    #expect(loaded.diagnostics.isEmpty && loaded.plan != nil)
    #expect(loaded.uses.contains(folder("lib/few.yaml")))
  }

  @Test func aLinkWithinIsFollowed() throws {
    try FileManager.default.createSymbolicLink(atPath: folder("here.yaml"), withDestinationPath: "lib/few.yaml")
    #expect(load("here.yaml").plan != nil)
  }

  @Test func aLinkThatLeavesIsRefused() throws {
    let other = Scratch()
    other.append("templates: { few: { chain: [ { take: 1 } ] } }\n", to: "few.yaml")
    try FileManager.default.createSymbolicLink(atPath: folder("away.yaml"), withDestinationPath: other("few.yaml"))
    let loaded = load("away.yaml")
    // The missing templates are not reported as a further error.
    #expect(loaded.diagnostics.map(\.code.name) == ["RX359"])
    #expect(loaded.plan == nil)
  }

  @Test func onlyARegularFileIsRead() throws {
    mkfifo(folder("pipe.yaml"), 0o600)
    for name in ["pipe.yaml", "lib"] {
      let loaded = load(name)
      #expect(loaded.diagnostics.map(\.message) == ["the file '\(name)' is not a regular file"])
      try FileManager.default.removeItem(atPath: folder("main.yaml"))
    }
  }

  @Test func aPlaceInAnotherFileNamesTheFile() throws {
    let text = PlanExplanation.text(try #require(load("lib/few.yaml").plan))
    #expect(text.contains("take (line 1 of \(folder("lib/few.yaml")))\n"), "\(text)")
    #expect(text.contains("stdin (line 2)\n"), "\(text)")
  }

  @Test func aLineOfTheLogNamesTheUse() throws {
    try FileManager.default.removeItem(atPath: folder("lib/few.yaml"))
    folder.append("templates: { few: { chain: [ { take: -1 } ] } }\n", to: "lib/few.yaml")
    let lines = load("lib/few.yaml").diagnostics.map(\.line)
    #expect(lines.count == 1 && lines[0].hasPrefix("\(folder("lib/few.yaml")):1:"), "\(lines)")
    #expect(
      lines.first?.contains("(by this use of the template 'few', \(folder("main.yaml")):3:42)") == true, "\(lines)")
  }

  @Test func aChangeOfAnIncludedFileIsAChange() throws {
    let before = load("lib/few.yaml")
    folder.append("# only a comment\n", to: "lib/few.yaml")
    let same = PipelineLoader().load(folder("main.yaml"))
    #expect(before.meaning == same.meaning)
    try Data("templates: { few: { chain: [ { take: 2 } ] } }\n".utf8).write(to: URL(filePath: folder("lib/few.yaml")))
    let other = PipelineLoader().load(folder("main.yaml"))
    #expect(other.plan != nil && before.meaning != other.meaning)
  }
}
