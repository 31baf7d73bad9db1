import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization

@testable import Transport

/// A destination scripted by a test that records what arrives. Used on the test's thread.
final class ScriptedDestination: @unchecked Sendable {
  struct Call {
    var number: Int
    var target: Int?
    var values: [Int64]
    var key: String
    var at: Instant
    /// How often the batch had failed before.
    var attempts: Int
    fileprivate(set) var answer: DeliveryAnswer
    fileprivate(set) var batch: Int
    /// The number of events that have been answered one by one.
    fileprivate(set) var answered = 0
    var isOpen = true
    var isWithdrawn = false
  }

  enum Reaction {
    case now(DeliveryOutcome)
    case after(TimeSpan, DeliveryOutcome)
    /// No answer.
    case nothing
  }

  var traits: DeliveryTraits
  /// The target of a value.
  var target: (Int64) -> Int? = { _ in nil }
  var size: (Int64) -> Int = { _ in 8 }
  /// Why a value cannot be encoded.
  var refusal: (Int64) -> String? = { _ in nil }
  var script: (Call) -> Reaction = { _ in .now(.answered()) }
  /// The outcomes of opening, one after another; without any, it opens immediately.
  var openings: [DeliveryOutcome] = []
  private(set) var calls: [Call] = []
  /// The delivered values, in order of arrival.
  private(set) var delivered: [Int64] = []
  /// Is notified of the end of the connection.
  fileprivate(set) var connection: DeliveryAnswer?
  /// The values that were encoded, in order.
  fileprivate(set) var encoded: [Int64] = []
  private(set) var opened = 0
  private(set) var closed = 0
  /// Whether a value went to the errors output.
  var isRejected: (Int64) -> Bool = { _ in false }
  /// Violations of the rules.
  private(set) var faults: [String] = []

  init(_ change: (inout DeliveryTraits) -> Void = { _ in }) {
    traits = DeliveryTraits(
      DeliveryWords(
        "the destination", recovered: "the destination works again", failure: "failure",
        left: "the destination had not taken"))
    change(&traits)
  }

  var underWay: [Call] { calls.filter(\.isOpen) }
  /// Releases the calls; returns how many of their answers are still referenced elsewhere.
  func keptAnswers() -> Int {
    struct Known { weak var answer: DeliveryAnswer? }
    let known = calls.map { Known(answer: $0.answer) }
    calls = []
    return known.count { $0.answer != nil }
  }

  func times(_ value: Int64) -> Int { delivered.count { $0 == value } }

  /// The number of the first value of the next batch must follow from these.
  fileprivate func begin(
    _ values: [Int64], _ target: Int?, _ key: String, _ batch: Int, _ attempts: Int, _ answer: DeliveryAnswer,
    at now: Instant
  ) -> Call {
    let call = Call(
      number: calls.count, target: target, values: values, key: key, at: now, attempts: attempts, answer: answer,
      batch: batch)
    check(call)
    calls.append(call)
    return call
  }

  /// The rules for every delivery.
  private func check(_ call: Call) {
    func expect(_ condition: Bool, _ fault: String) {
      if !condition { faults.append("call \(call.number) of \(call.values): \(fault)") }
    }
    expect(closed < opened || opened == 0, "the connector is closed")
    expect(call.values.count <= traits.count, "more than \(traits.count) events")
    let bytes = call.values.reduce(0) { $0 + size($1) }
    expect(call.values.count == 1 || bytes <= traits.bytes, "more than \(traits.bytes) bytes")
    expect(underWay.count < traits.concurrency, "more than \(traits.concurrency) are under way")
    expect(call.values.allSatisfy { self.target($0) == call.target }, "another target")
    guard traits.order == .lane else { return }
    expect(!underWay.contains { $0.target == call.target }, "two of one lane are under way")
    expect(call.values == call.values.sorted(), "not in order")
    let decided = Set(delivered)
    let open = calls.filter { $0.target == call.target }.flatMap(\.values).filter {
      !decided.contains($0) && !isRejected($0) && !call.values.contains($0)
    }
    if let first = open.min(), let last = call.values.last { expect(last < first, "\(first) was overtaken") }
  }

  func answer(_ number: Int, _ outcome: DeliveryOutcome) {
    guard calls.indices.contains(number) else { return }
    if calls[number].isOpen {
      if case .partly(let done, let refused) = outcome {
        delivered += done.map { calls[number].values[$0] }
        calls[number].answered += done.count + refused.count
      }
      let isPart = if case .partly = outcome { true } else { false }
      calls[number].isOpen = isPart && calls[number].answered < calls[number].values.count
      note(outcome, calls[number].values)
    }
    calls[number].answer.put(outcome)
  }

  private func note(_ outcome: DeliveryOutcome, _ values: [Int64]) {
    guard case .answered(let again, let refused, _, _) = outcome else { return }
    let not = Set(again + refused.map(\.index))
    // An invalid outcome has no effect.
    guard not.count == again.count + refused.count, not.allSatisfy(values.indices.contains) else { return }
    delivered += values.indices.filter { !not.contains($0) }.map { values[$0] }
  }

  /// A connector that belongs to a sink, and then to the next version's.
  final class Connector: DeliveryConnector, TimerTarget {
    private final class Target: DeliveryTarget {
      let number: Int
      init(_ number: Int) { self.number = number }
      override func isSame(as other: DeliveryTarget) -> Bool { number == (other as? Target)?.number }
      override func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }
    private final class Number {
      let value: Int64
      init(_ value: Int64) { self.value = value }
    }

    let destination: ScriptedDestination
    private let executor: Executor
    private var later: [(number: Int, outcome: DeliveryOutcome)] = []

    init(_ destination: ScriptedDestination, _ nodeContext: NodeContext) {
      self.destination = destination
      executor = nodeContext.execution.executor
    }

    var mayGoOn: Bool { false }
    var timerKind: TimerKind { .output }
    var traits: DeliveryTraits { destination.traits }

    func open(_ answer: DeliveryAnswer) -> Bool {
      destination.connection = answer
      if destination.opened == destination.closed { destination.opened += 1 }
      guard !destination.openings.isEmpty else { return true }
      answer.put(destination.openings.removeFirst())
      return false
    }

    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      let value = event.value.asInt
      destination.encoded.append(value)
      if let refusal = destination.refusal(value) { throw DeliveryRefusal(refusal) }
      return DeliveryPiece(
        .object(Number(value)), bytes: destination.size(value), target: destination.target(value).map(Target.init),
        naming: [UInt8(truncatingIfNeeded: value)])
    }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      let call = destination.begin(
        batch.items.compactMap { item in
          if case .object(let number as Number) = item.piece { number.value } else { nil }
        },
        (batch.target as? Target)?.number, batch.key, batch.id, batch.attempts, answer, at: executor.now)
      switch destination.script(call) {
      case .now(let outcome): destination.answer(call.number, outcome)
      case .after(let span, let outcome):
        later.append((call.number, outcome))
        _ = executor.schedule(at: executor.now + span, self, later.count - 1)
      case .nothing: break
      }
    }

    func woke(_ token: Int) { destination.answer(later[token].number, later[token].outcome) }

    func withdraw(_ batch: DeliveryBatch) {
      for index in destination.calls.indices where destination.calls[index].batch == batch.id {
        guard destination.calls[index].isOpen else { continue }
        destination.calls[index].isOpen = false
        destination.calls[index].isWithdrawn = true
      }
    }

    func close(handsOver: Bool) { destination.closed += 1 }
  }
}

/// A sink with a scripted destination.
struct ScriptedSink: SinkComponent {
  static let spec = ComponentSpec<ScriptedSink>(
    "scripted", summary: "Does what a test says.", persistence: .position(version: 1))
  var destination = ScriptedDestination()

  init() {}
  init(_ destination: ScriptedDestination) { self.destination = destination }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    DeliverySink(ScriptedDestination.Connector(destination, nodeContext), nodeContext)
  }
}

/// A sink of another kind: it encodes numbers as text, and delivers them immediately.
final class TextSink: SinkComponent, @unchecked Sendable {
  static let spec = ComponentSpec<TextSink>("texts", summary: "Keeps texts.", persistence: .position(version: 1))
  /// The delivered values; nil: an encoding of another kind.
  fileprivate(set) var delivered: [Int64?] = []

  init() {}

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Connector(self).sink(nodeContext) }

  private final class Connector: DeliveryConnector {
    let sink: TextSink
    let traits = DeliveryTraits(DeliveryWords("the list"))
    init(_ sink: TextSink) { self.sink = sink }

    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      let bytes = Array(String(event.value.asInt).utf8)
      return DeliveryPiece(.bytes(bytes), bytes: bytes.count)
    }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      sink.delivered += batch.items.map { Int64(String(decoding: $0.piece.bytes, as: UTF8.self)) }
      answer.put(.answered())
    }

    func close(handsOver: Bool) {}
  }
}

/// A pipeline from a source that the test feeds to a scripted destination, on virtual time.
final class DeliveryTrial {
  let destination: ScriptedDestination
  let source = TrackedSource()
  let pipeline: VirtualPipeline
  let memory: MemoryBudget
  /// The name of the pipeline, which is unique unless a test sets it.
  let name: String
  private static let count = Atomic(0)

  /// - Parameters:
  ///   - readsErrors: the errors output has a reader, `lost`.
  ///   - input: an interval in YAML that replaces the source that the test feeds; `map`: the value of its events.
  ///   - sink: another sink that replaces that of the destination.
  ///   - host: another one makes other parameters.
  ///   - values: names the values that are inserted into the text.
  ///   - settings: further settings of the sink in the file, such as `buffer: 1MiB`.
  ///   - beside: the destination of a second sink, `beside`, with the same events.
  ///   - isSecond: the second sink comes first in the file.
  ///   - keepsDeadLetters: rejected events that nothing reads are stored.
  init(
    _ destination: ScriptedDestination, name: String? = nil, readsErrors: Bool = true, input: String? = nil,
    map: String = "event.tick", sink: (any SinkComponent)? = nil, host: String = "h.example", settings: String? = nil,
    beside: ScriptedDestination? = nil, isSecond: Bool = false, restoring state: [UInt8]? = nil,
    estates: [String: any SinkEstate] = [:], values: Int = 0, delivery: DeliveryOptions? = nil,
    keepsDeadLetters: Bool = false, memory: MemoryBudget = MemoryBudget(), random: UInt64 = .max
  ) throws {
    self.destination = destination
    self.memory = memory
    let name = name ?? "trial-\(Self.count.add(1, ordering: .relaxed).newValue)"
    self.name = name
    let lost =
      readsErrors ? "\n  lost: { from: out.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }" : ""
    let chain = input == nil ? "" : "chain: [ { map: \(map) } ], "
    // In the plan these sinks save their events.
    func text(_ name: String, _ settings: String?) -> String {
      "\(name): { from: in, \(chain)http: { url: 'http://\(host)/' }\(settings.map { ", " + $0 } ?? "") }"
    }
    var sinks = [text("out", settings)]
    if beside != nil { sinks.insert(text("beside", nil), at: isSecond ? 0 : 1) }
    pipeline = try VirtualPipeline(
      """
      name: \(name)
      sources: { in: { \(input ?? "never: {}") } }
      sinks:
        \(sinks.joined(separator: "\n  "))\(lost)
      """, random: random, restoring: state, estates: estates, values: values, delivery: delivery,
      keepsDeadLetters: keepsDeadLetters, memory: memory)
    let (execution, source) = (pipeline.execution, source)
    let others = execution.replacements.sinks
    execution.replacements.sinks = { name in
      switch name {
      case "out": sink ?? ScriptedSink(destination)
      case "beside": beside.map { ScriptedSink($0) }
      default: others?(name)
      }
    }
    if input == nil { execution.replacements.sources = { $0 == "in" ? source : nil } }
    destination.isRejected = { [unowned pipeline] value in
      pipeline.probe("lost").events.contains { $0.hasPrefix("[\(value),") }
    }
    pipeline.settle()
  }

  func send(_ values: [Int64], as number: Int = 0) {
    source.feed.send(number, values)
    pipeline.settle()
  }

  var rejected: [String] { pipeline.probe("lost").events }
  var waiting: Int {
    pipeline.execution.statistics.steps.compactMap(\.queue?.events).reduce(0, +)
  }
  func logged(_ text: String) -> Bool { pipeline.log.contains { $0.contains(text) } }
}
