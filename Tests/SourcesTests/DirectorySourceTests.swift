import Foundation
import PipelineHost
import Testing
import Transport

@testable import PipelineCore

/// `directory`: entries that appear, change and disappear in a real directory.
@Suite struct DirectorySourceTests {
  let scratch = Scratch()

  private func yaml(_ parameters: String = "", map: String = "[event.event, event.name, event.type, event.size]")
    -> String
  {
    """
    sources: { input: { directory: { path: '\(scratch.path)'\(parameters.isEmpty ? "" : ", " + parameters) } } }
    sinks: { out: { from: input, chain: [ { map: "\(map)" } ], probe: {} } }
    """
  }

  private func watch(_ parameters: String = "", restoring state: [UInt8]? = nil) throws -> RealPipeline {
    let pipeline = try RealPipeline(yaml(parameters), restoring: state)
    #expect(pipeline.execution.refusals.map(\.message) == [])
    pipeline.run { pipeline.log.contains { $0.contains("watching ") } || pipeline.outcome != nil }
    return pipeline
  }

  private func make(_ directory: String) { #expect(mkdir(scratch(directory), 0o700) == 0) }
  private func move(_ name: String, to other: String) { #expect(rename(scratch(name), scratch(other)) == 0) }
  /// A file that is complete when it appears.
  private func put(_ text: String, to name: String) {
    scratch.append(text, to: ".new")
    move(".new", to: name)
  }
  private func remove(_ name: String) { #expect(unlink(scratch(name)) == 0) }

  private func expect(_ pipeline: RealPipeline, _ expected: [String]) {
    pipeline.run(within: .seconds(60)) { pipeline.events.count >= expected.count }
    #expect(pipeline.events == expected)
  }

  @Test func whatAppearsChangesAndGoes() throws {
    scratch.append("old", to: "old")
    scratch.append("hidden", to: ".hidden")
    let pipeline = try watch()
    // A file that is complete when it gets its name.
    put("abc", to: "new")
    expect(pipeline, [#"["created","new","file",3]"#])
    scratch.append("d", to: "new")
    expect(pipeline, [#"["created","new","file",3]"#, #"["changed","new","file",4]"#])
    move("new", to: "newer")
    remove("old")
    #expect(symlink("/nowhere", scratch("link")) == 0)
    expect(
      pipeline,
      [
        #"["created","new","file",3]"#, #"["changed","new","file",4]"#, #"["removed","new","file",4]"#,
        #"["created","newer","file",4]"#, #"["removed","old","file",3]"#, #"["created","link","link",8]"#,
      ])
  }

  @Test func pathsAndTimes() throws {
    put("x", to: "a.csv")
    let times = [timeval(tv_sec: 1_000_000_000, tv_usec: 500_000), timeval(tv_sec: 1_000_000_000, tv_usec: 500_000)]
    #expect(utimes(scratch("a.csv"), times) == 0)
    let pipeline = try RealPipeline(
      yaml("existing: true", map: "[event.path, event.modified == timestamp('2001-09-09T01:46:40.5Z'), meta.path]"))
    expect(pipeline, [#"["\#(scratch("a.csv"))",true,"\#(scratch.path)"]"#])
  }

  @Test func aFileThatIsWrittenForAWhile() throws {
    let pipeline = try watch()
    let file = try #require(fopen(scratch("a"), "w"))
    expect(pipeline, [#"["created","a","file",0]"#])
    fputs("half", file)
    fflush(file)
    fputs("whole", file)
    fclose(file)
    expect(pipeline, [#"["created","a","file",0]"#, #"["changed","a","file",9]"#])
  }

  @Test func patterns() throws {
    make("sub")
    make("out")
    let pipeline = try watch("depth: 2, include: ['*.csv', sub/x], exclude: [out, 'b.*']")
    for name in ["a.txt", "b.csv", "out/c.csv", "sub/x", "x", "sub/e.csv", "d.csv"] { put("1", to: name) }
    expect(
      pipeline,
      [#"["created","sub/x","file",1]"#, #"["created","sub/e.csv","file",1]"#, #"["created","d.csv","file",1]"#])
  }

  @Test func directoriesBelow() throws {
    make("a")
    make("a/b")
    let pipeline = try watch("depth: 2, include: ['f*']")
    put("1", to: "a/b/f1")
    make("a/new")
    put("2", to: "a/new/f2")
    make("a/new/deeper")
    put("3", to: "a/new/deeper/f3")
    put("4", to: "f4")
    expect(pipeline, ["a/b/f1", "a/new/f2", "f4"].map { #"["created","\#($0)","file",1]"# })
    // A renamed directory takes its files with it.
    move("a/b", to: "c")
    expect(
      pipeline,
      ["a/b/f1", "a/new/f2", "f4"].map { #"["created","\#($0)","file",1]"# } + [
        #"["removed","a/b/f1","file",1]"#, #"["created","c/f1","file",1]"#,
      ])
    put("5", to: "c/f5")
    pipeline.run { pipeline.events.count >= 6 }
    #expect(pipeline.events.last == #"["created","c/f5","file",1]"#)
  }

  @Test func linksAreNotFollowed() throws {
    make("a")
    #expect(symlink("..", scratch("a/up")) == 0)
    let pipeline = try watch("depth: 30, existing: true")
    put("1", to: "end")
    expect(
      pipeline,
      [
        #"["created","a","directory",\#(try size("a"))]"#, #"["created","a/up","link",2]"#,
        #"["created","end","file",1]"#,
      ])
  }

  private func size(_ name: String) throws -> Int {
    try #require(FileManager.default.attributesOfItem(atPath: scratch(name))[.size] as? Int)
  }

  // MARK: Restarts

  @Test func whatHappensMeanwhile() throws {
    for name in ["same", "grows", "goes"] { put("1", to: name) }
    let first = try watch()
    put("1", to: "seen")
    first.run { first.events.count >= 1 }
    let state = try #require(first.suspend())
    scratch.append("2", to: "grows")
    remove("goes")
    put("1", to: "comes")
    let second = try watch(restoring: state)
    expect(
      second, [#"["removed","goes","file",1]"#, #"["created","comes","file",1]"#, #"["changed","grows","file",2]"#])
  }

  @Test func otherPatternsBeginAnew() throws {
    put("1", to: "a")
    let state = try #require(try watch().suspend())
    let second = try watch("include: ['b*']", restoring: state)
    put("1", to: "b")
    expect(second, [#"["created","b","file",1]"#])
    #expect(second.log.contains { $0.contains("starts empty") })
  }

  // MARK: Bounds

  @Test func limits() throws {
    for name in 0..<5 { put("1", to: "f\(name)") }
    let pipeline = try watch("existing: true, maxEntries: 3")
    expect(pipeline, (0..<3).map { #"["created","f\#($0)","file",1]"# })
    #expect(pipeline.log.count { $0.contains("there are more than 'maxEntries', 3, entries") } == 1)
    // When there is room again, everything is checked.
    remove("f0")
    expect(
      pipeline,
      (0..<3).map { #"["created","f\#($0)","file",1]"# } + [
        #"["removed","f0","file",1]"#, #"["created","f3","file",1]"#,
      ])
    for name in 0..<3 { make("d\(name)") }
    let other = try watch("depth: 1, maxDirectories: 2")
    #expect(other.log.contains { $0.contains("there are more than 'maxDirectories', 2, directories") })
  }

  /// The kernel queues 16,384 events by default, and drops further ones.
  @Test func anOverflow() throws {
    let limit =
      (try? String(contentsOfFile: "/proc/sys/fs/inotify/max_queued_events", encoding: .utf8))
      .flatMap { Int($0.trimmingCharacters(in: .whitespacesAndNewlines)) } ?? 16_384
    try #require(limit <= 100_000)
    let pipeline = try watch("maxEntries: 1000000")
    // No turn runs meanwhile, so the watcher waits and reads no events.
    for number in 0..<(limit + 4000) { close(open(scratch("f\(number)"), O_CREAT | O_WRONLY, 0o600)) }
    pipeline.run(within: .seconds(120)) { pipeline.events.count >= limit + 4000 }
    #expect(Set(pipeline.events).count == limit + 4000)
    #expect(pipeline.log.contains { $0.contains("the kernel dropped events") })
  }

  @Test func aDirectoryThatComesLater() throws {
    let place = scratch("later")
    let pipeline = try RealPipeline(
      """
      sources: { input: { directory: { path: '\(place)' } } }
      sinks: { out: { from: input, chain: [ { map: "[event.event, event.name]" } ], probe: {} } }
      """)
    pipeline.run { pipeline.log.contains { $0.contains("No such file") } }
    make("later")
    put("1", to: "later/a")
    expect(pipeline, [#"["created","a"]"#])
    #expect(pipeline.log.contains { $0.contains("\(place) can be read again") })
    // The directory is removed, so its files are gone too.
    try FileManager.default.removeItem(atPath: place)
    expect(pipeline, [#"["created","a"]"#, #"["removed","a"]"#])
  }

  @Test(
    arguments: [
      ("include: ['/etc/*']", "begins with '/'"), ("include: ['**/*.csv']", "has '**', which is unsupported"),
      ("include: []", "'include' of 'directory' is empty"), ("exclude: ['']", "is empty"),
    ])
  func mistakes(_ parameters: String, _ message: String) {
    #expect(PipelineText.complaints(yaml(parameters)).contains { $0.contains(message) })
  }

  // MARK: What a checkpoint writes

  /// A store writes the changed parts: few bytes for few changes, however many entries there are.
  @Test func aCheckpointWritesWhatHasChanged() throws {
    let count = 2000
    for number in 0..<count { scratch.append("x", to: "file number \(number)") }
    let pipeline = try watch("existing: true")
    pipeline.run { pipeline.events.count == count }
    func saved() throws -> SavedState {
      nonisolated(unsafe) var saved: SavedState?
      pipeline.inTurn { saved = $0.execution.saveParts() }
      pipeline.run { saved != nil }
      return try #require(saved)
    }
    /// The numbered parts, as a store cuts them.
    func parts(_ state: SavedState) -> [ArraySlice<UInt8>] {
      zip([0] + state.ends, state.ends).filter { $0 < $1 }.map { state.bytes[$0..<$1] }
    }
    func written(_ before: SavedState, _ after: SavedState) -> Int {
      let old = parts(before)
      return parts(after).enumerated().filter { $0 >= old.count || old[$0] != $1 }.map(\.element.count).reduce(0, +)
    }
    // Acknowledged entries are encoded once.
    put("x", to: "file number 0")
    pipeline.run { pipeline.events.count == count + 1 }
    let first = try saved()
    #expect(first.bytes.count > 60_000)
    // A changed size, a new entry, a removed entry: each changes one bucket, and the head.
    scratch.append("y", to: "file number 1000")
    pipeline.run { pipeline.events.count == count + 2 }
    let second = try saved()
    #expect((1..<8000).contains(written(first, second)))
    put("z", to: "another file")
    pipeline.run { pipeline.events.count == count + 3 }
    let third = try saved()
    #expect((1..<8000).contains(written(second, third)))
    remove("file number 3")
    pipeline.run { pipeline.events.count == count + 4 }
    let fourth = try saved()
    #expect((1..<8000).contains(written(third, fourth)))
    // A pipeline that continues from there finds nothing new.
    let state = try #require(pipeline.suspend())
    let next = try watch("existing: true", restoring: state)
    put("end", to: "end")
    expect(next, [#"["created","end","file",3]"#])
  }
}
