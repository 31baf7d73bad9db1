import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Laws of the sources of plugins beside those of all sources, which run for them too (``SourceCatalogueLawTests``, ``SourceMemoryTests``):
/// what becomes of tokens, of a process that is killed, of a stop while the input is paused, and of a failure. Numbers are those of
/// docs/connector-laws.md.
@Suite(.serialized, .timeLimit(.minutes(10))) struct PluginSourceLawTests {
  private let world = SourceWorld()

  // MARK: The table

  /// A new source of a plugin runs in the laws, or names the tests that hold them.
  @Test func everySourceOfAPluginHasAPlaceInTheLaws() throws {
    #expect(
      SourceWorld.declaredByPlugins.isSuperset(of: ["exampleCounter", "lines", "spool", "exampleLetters", "kafka"]))
    for name in SourceWorld.pluginNames { _ = try world.required(name) }
    for (name, path) in SourceWorld.besideTheirPlugin {
      #expect(SourceWorld.declaredByPlugins.contains(name), "no plugin has '\(name)'")
      let tests = try String(contentsOfFile: "\(PluginFixtures.root)/\(path)", encoding: .utf8)
      #expect(tests.contains(name), "\(path) does not test '\(name)'")
    }
  }

  // MARK: Senders

  /// A source with tokens, whose sender keeps each record until it is acknowledged, and sends failed ones again at the next start.
  private final class Sender {
    enum Kind: CaseIterable { case library, program }
    let input: SourceInput
    /// The file or the directory of its records.
    private let path: String
    private let kind: Kind

    init(_ kind: Kind, _ world: SourceWorld) throws {
      let path = world.scratch(SourceWorld.fresh("sender"))
      self.path = path
      self.kind = kind
      switch kind {
      case .library:
        try Data().write(to: URL(fileURLWithPath: path))
        input = SourceInput("feed: { path: '\(path)', mode: sender }", plugin: try SourceWorld.feed()) { numbers, _ in
          let file = try #require(FileHandle(forWritingAtPath: path))
          try file.seekToEnd()
          try file.write(contentsOf: Data(SourceWorld.lines(numbers).utf8))
        }
      case .program:
        mkdir(path, 0o700)
        input = SourceInput("spool: { directory: '\(path)', every: 10ms }", plugin: try SourceWorld.python("spool.py"))
        {
          numbers, _ in
          for number in numbers {
            let name = "\(path)/\(1000 + number)"
            try Data("\(number)".utf8).write(to: URL(fileURLWithPath: name))
            try #require(rename(name, name + ".json") == 0)
          }
        }
      }
    }

    private func noted(_ what: String) -> [Int] {
      (try? String(contentsOfFile: "\(path).\(what)", encoding: .utf8))?.split(separator: "\n").compactMap { Int($0) }
        ?? []
    }

    private func files(_ suffix: String) -> Set<Int> {
      let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
      return Set(names.filter { $0.hasSuffix(suffix) }.compactMap { Int($0.prefix(4)) }.map { $0 - 1000 })
    }

    /// What it was told of its records.
    var acknowledged: Set<Int> {
      switch kind {
      case .library: Set(noted("acked"))
      case .program: Set(0..<input.count).subtracting(files(".json")).subtracting(files(".failed"))
      }
    }
    var failed: Set<Int> {
      switch kind {
      case .library: Set(noted("failed"))
      case .program: files(".failed")
      }
    }

    /// The sender sends the failed ones again.
    func repeatFailed() {
      switch kind {
      case .library: unlink("\(path).failed")
      case .program:
        for number in files(".failed") {
          rename("\(path)/\(1000 + number).json.failed", "\(path)/\(1000 + number).json")
        }
      }
    }
  }

  /// Cancels the pipeline, and waits until the processes of its plugin have ended, which still handle the failure of what they had sent.
  private func end(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    #expect(pipeline.run(within: .seconds(60)) { pipeline.execution.hasClosed }, "\(pipeline.log)")
    #expect(pipeline.run(within: .seconds(60)) { Self.processes(".py").isEmpty }, "\(pipeline.log)")
  }

  private func numbers(_ texts: [String]) -> [Int] { texts.compactMap { Int($0) } }

  /// Laws 29 and 37: a sender is notified of exactly its acknowledged records, in any order, and only the others come again in the next run.
  @Test(arguments: Sender.Kind.allCases, 0..<2 as Range<UInt64>)
  private func aKillRepeatsWhatIsNotAcknowledged(_ kind: Sender.Kind, _ seed: UInt64) throws {
    let sender = try Sender(kind, world)
    var random = SplitMix(seed)
    var settled: Set<Int> = []
    for round in 0..<3 {
      let sink = GatedSink()
      let pipeline = try sender.input.pipeline(into: sink)
      // One at a time: each is a turn, and has its own outcome.
      let open = sender.input.count - settled.count
      pipeline.run(within: .seconds(60)) { sink.held.count >= open }
      for added in 1...3 {
        try sender.input.add(1, to: pipeline)
        pipeline.run(within: .seconds(60)) { sink.held.count >= open + added }
      }
      #expect(
        numbers(sink.held.all) == (0..<sender.input.count).filter { !settled.contains($0) },
        "round \(round): \(pipeline.log)")
      let chosen = (0..<random.below(4)).map { _ in random.below(sink.held.turns.count) }
      pipeline.inTurn { _ in for index in chosen { sink.held.acknowledge(index) } }
      settled.formUnion(Set(chosen).flatMap { numbers(sink.held.turns[$0].texts) })
      let now = settled
      #expect(pipeline.run(within: .seconds(60)) { sender.acknowledged == now }, "\(sender.acknowledged) \(now)")
      end(pipeline)
      #expect(sender.acknowledged == now)
      sender.repeatFailed()
    }
  }

  /// Laws 31 and 32: what a process had sent before it was killed is lost to it. Its successor sends the records again with the same tokens,
  /// and a late acknowledgement of the first ones confirms none of them.
  @Test func aLateAcknowledgementConfirmsNothingOfTheNextProcess() throws {
    let sender = try Sender(.program, world)
    let sink = GatedSink()
    let pipeline = try sender.input.pipeline(into: sink)
    try sender.input.add(3, to: pipeline)
    pipeline.run(within: .seconds(60)) { sink.held.count == 3 }
    let first = sink.held.turns.count
    try killProcess("spool.py")
    #expect(pipeline.run(within: .seconds(60)) { sink.held.count == 6 }, "\(pipeline.log)")
    #expect(numbers(sink.held.all) == [0, 1, 2, 0, 1, 2])
    // Of the first process; then a new record of the second one, whose outcome follows theirs in the same pipe.
    pipeline.inTurn { _ in for index in 0..<first { sink.held.acknowledge(index) } }
    try sender.input.add(1, to: pipeline)
    pipeline.run(within: .seconds(60)) { sink.held.count == 7 }
    pipeline.inTurn { _ in sink.held.acknowledge(sink.held.turns.count - 1) }
    #expect(pipeline.run(within: .seconds(60)) { !sender.acknowledged.isEmpty })
    #expect(sender.acknowledged == [3] && sender.failed == [])
    pipeline.inTurn { _ in sink.held.acknowledgeAll() }
    #expect(pipeline.run(within: .seconds(60)) { sender.acknowledged == [0, 1, 2, 3] })
    end(pipeline)
  }

  // MARK: Killed processes

  /// The processes of a plugin that this process has started.
  private static func processes(_ name: String) -> [pid_t] {
    let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc"))?.compactMap { pid_t($0) } ?? []
    return all.filter { pid in
      guard let status = try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8),
        status.contains("\nPPid:\t\(getpid())\n"),
        let line = FileManager.default.contents(atPath: "/proc/\(pid)/cmdline")
      else { return false }
      return String(decoding: line, as: UTF8.self).contains(name)
    }
  }

  /// Kills the one process of a plugin.
  private func killProcess(_ name: String) throws {
    let found = Self.processes(name)
    try #require(found.count == 1, "\(found) are processes of \(name)")
    kill(found[0], SIGKILL)
  }

  /// Law 37: a killed process continues after the last event that the pipeline has taken, each record arrives once; and the state that is
  /// committed has what is acknowledged.
  @Test(arguments: 0..<3 as Range<UInt64>) func aKilledProcessContinuesAfterItsLastEvent(_ seed: UInt64) throws {
    let make = try #require(try world.required("lines").inputs.first)
    let input = try make()
    var random = SplitMix(seed)
    let sink = GatedSink()
    let pipeline = try input.pipeline(into: sink)
    for _ in 0..<3 {
      try input.add(1 + random.below(4), to: pipeline)
      // In the middle of what is sent, or at its end.
      let least = max(1, input.count - random.below(2))
      pipeline.run(within: .seconds(60)) { sink.held.count >= least }
      try killProcess("lines.py")
      #expect(pipeline.run(within: .seconds(60)) { sink.held.count >= input.count }, "\(pipeline.log)")
      try input.add(1, to: pipeline)
      #expect(pipeline.run(within: .seconds(60)) { sink.held.count >= input.count }, "\(pipeline.log)")
    }
    #expect(numbers(sink.held.all) == Array(0..<input.count), "\(pipeline.log)")
    end(pipeline)
  }

  // MARK: Stops

  /// Laws 18, 22 and 39: a stop and a reload while the input is paused, because a sink is full, end in time, and neither loses nor doubles
  /// a record.
  @Test(arguments: SourceWorld.pluginNames, [false, true])
  func aStopWhileTheInputIsPausedEndsInTime(_ name: String, _ isReload: Bool) throws {
    for make in try world.required(name).inputs {
      let input = try make()
      let sink = GatedSink(room: 1)
      let pipeline = try input.pipeline(into: sink)
      try input.add(6, to: pipeline)
      pipeline.run(within: .seconds(60)) { sink.held.count >= 1 && pipeline.executor.isInputPaused }
      pipeline.inTurn { if isReload { $0.execution.suspend() } else { $0.execution.drain() } }
      // A stop sends what was taken from the source, as soon as the sink has room.
      if !isReload { pipeline.inTurn { _ in sink.held.makeRoom(1000) } }
      // Less than the grace period of a stop.
      #expect(pipeline.runToEnd(within: .seconds(20)) == .completed, "\(name): \(pipeline.log)")
      let before = numbers(sink.held.all)
      #expect(before == Array(0..<before.count), "\(name)")
      guard isReload else { continue }
      let second = GatedSink()
      let next = try input.pipeline(into: second, restoring: pipeline.execution.savedState)
      let total = input.count
      next.run(within: .seconds(60)) { before.count + second.held.count >= total }
      #expect(before + numbers(second.held.all) == Array(0..<total), "\(name)")
      end(next)
    }
  }

  /// The same for a sender: it is notified of what the sink had taken, and keeps the rest.
  @Test(arguments: Sender.Kind.allCases)
  private func aStopOfAPausedSenderEndsInTime(_ kind: Sender.Kind) throws {
    let sender = try Sender(kind, world)
    let sink = GatedSink(room: 1)
    let pipeline = try sender.input.pipeline(into: sink)
    try sender.input.add(6, to: pipeline)
    pipeline.run(within: .seconds(60)) { sink.held.count >= 1 && pipeline.executor.isInputPaused }
    pipeline.inTurn { $0.execution.suspend() }
    #expect(pipeline.runToEnd(within: .seconds(20)) == .completed, "\(pipeline.log)")
    let taken = Set(numbers(sink.held.all))
    #expect(pipeline.run(within: .seconds(20)) { sender.acknowledged == taken }, "\(sender.acknowledged) of \(taken)")
    sender.repeatFailed()
    let second = GatedSink(room: .max, acknowledges: true)
    let next = try sender.input.pipeline(into: second)
    #expect(next.run(within: .seconds(60)) { sender.acknowledged.count == 6 }, "\(next.log)")
    #expect(taken.isDisjoint(with: numbers(second.held.all)), "\(taken) \(second.held.all)")
    end(next)
  }

  /// Law 38: a source that has an end completes after the last acknowledgement, and not before.
  @Test(arguments: ["exampleCounter", "feed", "lines"])
  func theEndComesAfterTheLastAcknowledgement(_ name: String) throws {
    let path = world.scratch(SourceWorld.fresh("three"))
    try Data("1\n2\n3\n".utf8).write(to: URL(fileURLWithPath: path))
    let source =
      switch name {
      case "exampleCounter": "exampleCounter: 3"
      case "feed": "feed: { path: '\(path)', mode: once }"
      default: "lines: { path: '\(path)', follow: false }"
      }
    let sink = HoldingSink()
    let pipeline = try RealPipeline(
      SourceFlood(source, plugin: try world.required(name).plugin).yaml,
      before: { $0.replacements.sinks = { _ in sink } }, plugins: PluginFixtures.plugins)
    #expect(
      pipeline.run(within: .seconds(60)) { sink.held.events.count == 3 && !sink.held.receipts.isEmpty },
      "\(pipeline.log)")
    #expect(pipeline.outcome == nil)
    pipeline.inTurn { _ in sink.held.release() }
    #expect(pipeline.runToEnd(within: .seconds(60)) == .completed)
  }

  // MARK: Bad input and failures

  /// Law 36: of malformed input one piece is refused, and the position moves past it.
  @Test func aMalformedPieceIsRefusedAlone() throws {
    let path = world.scratch(SourceWorld.fresh("malformed"))
    try Data("1\nno number\n2\n".utf8).write(to: URL(fileURLWithPath: path))
    func pipeline(_ state: [UInt8]? = nil) throws -> RealPipeline {
      try RealPipeline(
        """
        name: t
        plugins: ['\(try SourceWorld.feed())']
        sources: { in: { feed: '\(path)' } }
        sinks:
          out: { from: in, probe: {} }
          lost: { from: in.errors, probe: {} }
        """, restoring: state, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline()
    first.run(within: .seconds(60)) { first.events.count == 2 && first.probe("lost").events.count == 1 }
    #expect(first.events == ["1", "2"] && first.probe("lost").events.count == 1, "\(first.log)")
    let state = try #require(first.suspend())
    let file = try #require(FileHandle(forWritingAtPath: path))
    try file.seekToEnd()
    try file.write(contentsOf: Data("3\n".utf8))
    let second = try pipeline(state)
    second.run(within: .seconds(60)) { second.events.count == 1 }
    #expect(second.events == ["3"] && second.counters.rejected == 0, "\(second.counters)")
  }

  /// A source that fails, or whose parameters it refuses, ends its pipeline with its reason, at the parameter that it names. Time is virtual.
  @Test(arguments: ["fails", "fails at once", "is refused by a program", "says that it fails"])
  func aFailureHasItsReasonAndItsLocation(_ way: String) throws {
    let path = world.scratch(SourceWorld.fresh("failing"))
    try Data("1\n".utf8).write(to: URL(fileURLWithPath: path))
    let (plugin, parameters, message, line) =
      switch way {
      case "fails":
        (
          try SourceWorld.feed(), "feed:\n      mode: fail\n      path: '\(path)'",
          "the plugin failed: the file has ended", 6
        )
      case "fails at once":
        (
          try SourceWorld.feed(), "feed:\n      mode: once\n      path: '\(path)/none'",
          "the plugin failed: there is no such file", 6
        )
      case "is refused by a program":
        (
          try SourceWorld.python("lines.py"), "lines:\n      follow: false\n      path: '\(path)/none'",
          "the plugin refuses: \(path)/none: Not a directory", 6
        )
      default:
        (
          try PluginFixtures.program(
            "raising", components: #"[{"kind": "source", "name": "raise", "summary": "Fails."}]"#,
            #"elif 'credit' in f: say({"from": 1, "error": "the line is dead"})"#), "raise: {}",
          "the plugin failed: the line is dead", 4
        )
      }
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(plugin)']
      sources:
        in:
          \(parameters)
      sinks: { out: { from: in, discard: {} } }
      """, plugins: PluginFixtures.plugins)
    #expect(pipeline.settle { pipeline.outcome != nil }, "\(pipeline.log)")
    #expect(pipeline.failure?.message == message)
    #expect(pipeline.failure?.location?.line == line, "\(String(describing: pipeline.failure?.location))")
  }
}
