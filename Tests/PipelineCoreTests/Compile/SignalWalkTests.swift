import Foundation
import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import PipelineTesting
import Testing

/// Every walk over a plan visits every step, in every kind of signal and at any depth.
@Suite struct SignalWalkTests {
  /// The compiled steps are those that the plan's edges connect, and every view has the steps of the file.
  private func check(_ plan: Plan, _ fail: (String) -> Void) {
    let sinks = Set(plan.sinks.map(\.step))
    for number in plan.steps.indices where plan.components[number] == nil && !sinks.contains(StepID(number)) {
      fail("no walk comes to \(plan.id(of: StepID(number)))")
    }
    let ends = Set(plan.edges.flatMap { [$0.from, $0.to] })
    let drawn = Set(PlanDrawing(plan).boxes.map(\.location.offset))
    let boxes = Set(GraphPicture(plan, folding: false).boxes.map(\.id))
    let words = PlanExplanation.text(plan)
    let reachable = Set(TestCoverage(plan).points.filter { $0.category == .operators }.map(\.location.offset))
    for step in plan.steps.indices.map(StepID.init) where plan.isInFile(step) {
      let (name, planned) = (plan.id(of: step), plan.steps[step.number])
      if !ends.contains(.step(step)) { fail("no edge has \(name)") }
      if !drawn.contains(planned.location.offset) { fail("the drawing lacks \(name)") }
      if !boxes.contains(name) { fail("the picture lacks \(name)") }
      if !words.contains("\(planned.keyword) (line \(planned.location.line)") { fail("the explanation lacks \(name)") }
      if !sinks.contains(step), !reachable.contains(planned.location.offset) { fail("the coverage lacks \(name)") }
    }
  }

  @Test(arguments: [false, true]) func everyViewHasEveryStep(commands: Bool) {
    var steps = 0
    for seed in 0..<min(RandomGraphTests.count, 300) {
      var generator = GraphGenerator(seed: seed)
      generator.hasCommands = commands
      let yaml = generator.graph().yaml
      guard let plan = try? PipelineRun.compile(yaml) else { continue }
      check(plan) { Issue.record("seed \(seed): \($0)\n\(yaml)") }
      steps += plan.steps.count
    }
    #expect(steps > 1000)
  }

  @Test func everyViewHasEveryStepOfThePipelines() throws {
    let folder = packageRoot.appending(path: "pipelines")
    var count = 0
    for name in try FileManager.default.contentsOfDirectory(atPath: folder.path) where name.hasSuffix(".yaml") {
      let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
      guard let plan = try? PipelineRun.compile(text, catalogue: .builtIn) else { continue }
      check(plan) { Issue.record("\(name): \($0)") }
      count += 1
    }
    #expect(count > 3)
  }

  /// A new kind of signal is one type that defines how its steps run: no walk over plans knows any kind.
  @Test func walksKnowNoKind() throws {
    let sources = packageRoot.appending(path: "Sources")
    /// The files that declare kinds, that compile them, and that make the nodes of a signal.
    let mayKnow = [
      "PipelineCore/Engine/Edges/SignalWork.swift", "PipelineCore/Engine/Fused/FusedRunPlan.swift",
      "PipelineCore/Compile/Compilation+Commands.swift", "PipelineCore/Compile/Compilation+Tables.swift",
      "PipelineCore/Compile/PipelineCompiler.swift",
    ]
    var seen: Set<String> = []
    for path in try FileManager.default.subpathsOfDirectory(atPath: sources.path) where path.hasSuffix(".swift") {
      let text = try String(contentsOf: sources.appending(path: path), encoding: .utf8)
      guard ["SourceWork", "OperatorWork", "FusedWork"].contains(where: text.contains) else { continue }
      let names = SwiftNames(text)
      let known = names.usedTypes.union(names.types).intersection(["SourceWork", "OperatorWork", "FusedWork"])
      if !known.isEmpty, !mayKnow.contains(path) { Issue.record("\(path) knows \(known.sorted())") }
      if !known.isEmpty { seen.insert(path) }
    }
    #expect(seen == Set(mayKnow))
  }
}
