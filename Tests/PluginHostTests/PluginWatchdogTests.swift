import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing
import Transport

/// Plugins that hang, many at once: each is noticed as if it were alone, and the others continue.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginWatchdogTests {
  private static let count = 16

  /// A named pipe on which hanging plugins wait.
  private func pipe(_ name: String) throws -> String {
    let path = PluginFixtures.scratch(name + ".fifo")
    unlink(path)
    try #require(mkfifo(path, 0o600) == 0)
    return path
  }

  /// Releases all waiters of the pipe, including later ones.
  private func release(_ path: String) { _ = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) }

  /// Each library hangs on its own thread, so each is reported every minute, and a working one delivers everything meanwhile.
  @Test(arguments: ["chain: [ { probe: 'MODE' } ], discard: {}", "probeSink: 'MODE'"]) func everyHungLibraryIsNamed(
    _ use: String
  ) throws {
    let pipe = try pipe("hang-library")
    let hung = use.replacing("MODE", with: "hang:\(pipe)")
    let sinks = (0..<Self.count).map { "  hung\($0): { from: in, \(hung) }" }.joined(separator: "\n")
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: { list: [1, 2, 3, 4, 5], every: 100s } } }
      sinks:
      \(sinks)
        free: { from: in, chain: [ { probe: pass } ], probe: {} }
      """, workers: { WorkThread($0) }, plugins: PluginFixtures.plugins)
    pipeline.run(until: .seconds(301))
    for index in 0..<Self.count {
      let own = pipeline.log.filter { line in
        line.split(separator: " ")[1].hasPrefix("hung\(index)/")
      }
      #expect(own.count == 4, "\(index): \(pipeline.log)")
      #expect(own.last?.hasSuffix("the plugin has not answered for more than 4 minutes") == true, "\(own)")
    }
    // A working plugin answers on its own thread, at its own pace.
    let deadline = Date(timeIntervalSinceNow: 60)
    while pipeline.probe("free").events.count < 4, Date() < deadline { pipeline.settle() }
    #expect(pipeline.probe("free").events == ["1", "2", "3", "4"])
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    release(pipe)
  }

  /// Each program is watched by its own thread: all are killed in time even while no turn runs because the thread of the turns is
  /// blocked.
  @Test func hungProgramsAreKilledWhileNoTurnRuns() throws {
    let pipe = try pipe("hang-program")
    let marks = PluginFixtures.scratch("marks")
    try? FileManager.default.removeItem(atPath: marks)
    try FileManager.default.createDirectory(atPath: marks, withIntermediateDirectories: true)
    let path = try PluginFixtures.program(
      "hang-many", components: #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#,
      """
      elif 'event' in f:
          mark = '\(marks)/' + opening['step'].split('/')[0]
          if not os.path.exists(mark):
              open(mark, 'w').close()
              alive = os.open('\(pipe)', os.O_WRONLY)
              os.write(alive, b'x')
              time.sleep(600)
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let sinks = (0..<Self.count).map { "  out\($0): { from: in, chain: [ work ], probe: {} }" }.joined(separator: "\n")
    let pipeline = try RealPipeline(
      """
      plugins: { p: { path: '\(path)', timeout: 1s } }
      sources: { in: { values: [1, 2] } }
      sinks:
      \(sinks)
      """, plugins: PluginFixtures.plugins)
    while pipeline.executor.run(limit: 1) {}
    // All hang, and hold the pipe, which ends when the last of them ends. This thread, which runs the turns, waits.
    let reader = open(pipe, O_RDONLY | O_CLOEXEC)
    try #require(reader >= 0)
    defer { close(reader) }
    var hanging = 0
    var buffer = [UInt8](repeating: 0, count: 64)
    while true {
      var one = pollfd(fd: reader, events: Int16(POLLIN), revents: 0)
      try #require(poll(&one, 1, 120_000) == 1, "\(hanging) hang, and are not killed")
      let count = read(reader, &buffer, buffer.count)
      if count <= 0 {
        // Some have not begun to hang yet.
        if hanging == Self.count { break }
        continue
      }
      hanging += count
    }
    // They are restarted, and continue.
    #expect(pipeline.runToEnd() == .completed)
    for index in 0..<Self.count { #expect(pipeline.probe("out\(index)").events == ["1", "2"], "\(index)") }
    let said = pipeline.log.filter { $0.contains("it has not answered for 1s") }
    #expect(said.count == Self.count, "\(pipeline.log)")
  }

  /// A pipeline with hung libraries and hung programs is suspended, as for a reload, with their unanswered events in its state.
  @Test func aPipelineWithHungPluginsIsSuspended() throws {
    let pipe = try pipe("hang-both")
    let path = try PluginFixtures.program(
      "hang-both", components: #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#,
      """
      elif 'event' in f:
          if not os.path.exists('\(pipe).gone'): time.sleep(600)
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let sinks = (0..<Self.count).map {
      """
        library\($0): { from: in, chain: [ { probe: 'hang:\(pipe)' } ], probe: {} }
        program\($0): { from: in, chain: [ work ], probe: {} }
      """
    }.joined(separator: "\n")
    func pipeline(_ state: [UInt8]?) throws -> RealPipeline {
      try RealPipeline(
        """
        plugins: ['\(path)', '\(try PluginFixtures.probe())']
        sources: { in: { values: [1] } }
        sinks:
        \(sinks)
        """, restoring: state, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline(nil)
    while first.executor.run(limit: 1) {}
    #expect(first.outcome == nil)
    let state = try #require(first.suspend())
    release(pipe)
    try Data().write(to: URL(fileURLWithPath: pipe + ".gone"))
    let second = try pipeline(state)
    #expect(second.runToEnd() == .completed)
    for index in 0..<Self.count {
      #expect(second.probe("library\(index)").events == ["1"], "\(index)")
      #expect(second.probe("program\(index)").events == ["1"], "\(index)")
    }
  }
}
