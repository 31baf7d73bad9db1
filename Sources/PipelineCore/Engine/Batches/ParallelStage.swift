/// What the decoding threads of a source do beyond decoding: run the pure steps behind the source and encode for the
/// sinks behind those steps. The turn then only hands over bytes.
///
/// A source has a stage if all its events go through pure steps, and nowhere else, to sinks that write a stream
/// (``Plan/stage(of:)``). ``StagePlacement`` decides at run time on which threads the stage runs.
///
/// A block that needs a turn (a line is no event, an expression fails, an event cannot be encoded) is left to its turn
/// unchanged; the turn processes the whole block itself.
public struct ParallelStage: Sendable {
  /// The way from the source to one sink.
  public struct Branch: Sendable {
    /// The steps in order; each is a ``PureStep``.
    var parts: [FusedRunPlan.Part]
    /// The step ID of the sink.
    var sink: StepID
    var component: any SinkComponent
  }

  public let branches: [Branch]

  /// Whether every sink writes blocks of such lines unchanged.
  func passesThrough(_ kind: PassThroughLines.Kind) -> Bool {
    branches.allSatisfy { branch in
      branch.parts.isEmpty && branch.component.streamEncoding?.makeEncoder().passes(kind) == true
    }
  }
}

extension Plan {
  /// The stage of the source with this step ID; nil: its events need turns.
  public func stage(of source: StepID) -> ParallelStage? { stages[source] }

  /// The stages of all sources that have one.
  static func stages(_ named: [NamedPlan], _ sinks: [SinkPlan]) -> [StepID: ParallelStage] {
    var ways: [StepID: [(branch: ParallelStage.Branch, through: [Int])]] = [:]
    for sink in sinks {
      guard let encoder = sink.component.streamEncoding?.makeEncoder(), !encoder.keepsState,
        let way = way(to: sink.input, named)
      else { continue }
      let branch = ParallelStage.Branch(parts: way.parts, sink: sink.step, component: sink.component)
      ways[way.source, default: []].append((branch, way.through))
    }
    if ways.isEmpty { return [:] }
    let references = SignalReach.references(named, sinks)
    return ways.compactMapValues { ways in
      let through = Set(ways.flatMap(\.through))
      let places = Set(ways.map(\.branch.sink))
      let isAll = through.allSatisfy { signal in
        references[signal].allSatisfy { reference in
          switch reference {
          case .sink(let index): places.contains(sinks[index].step)
          case .named(let index): through.contains(index)
          }
        }
      }
      return isAll ? ParallelStage(branches: ways.map(\.branch)) : nil
    }
  }

  /// The path from a source to the reader of `signal`, if it leads through pure steps only: the steps, and the named
  /// signals on it.
  private static func way(
    to signal: SignalPlan, _ named: [NamedPlan]
  ) -> (source: StepID, parts: [FusedRunPlan.Part], through: [Int])? {
    var parts: [[FusedRunPlan.Part]] = []
    var through: [Int] = []
    var next = signal
    while true {
      if case .node(_, _, let inputs) = next.kind, let run = next.run, let input = inputs.first {
        guard run.isPure else { return nil }
        parts.append(run.parts)
        next = input
        continue
      }
      switch next.kind {
      case .source(let component, _):
        return component.decodesBlocks ? (next.step, parts.reversed().flatMap { $0 }, through) : nil
      case .run(let run, let input):
        guard run.isPure else { return nil }
        parts.append(run.parts)
        next = input
      case .named(let index):
        guard !named[index].isCold, named[index].sharing.isPlain, !through.contains(index) else { return nil }
        through.append(index)
        next = named[index].body
      case .errors, .input, .node: return nil
      }
    }
  }
}

extension FusedRunPlan {
  /// Whether the result of each step depends only on the event's value.
  var isPure: Bool {
    parts.allSatisfy { part in
      !part.segment.usesMeta && !part.segment.usesNow && part.steps.allSatisfy { type(of: $0.component).isPure }
    }
  }
}

/// Many events at once, as they are written: input lines that pass through, or the output of a ``ParallelStage``.
public struct Batch {
  enum Content {
    case lines(PassThroughLines)
    case encoded(EncodedBlock)
  }
  let content: Content
  /// How many events there are at this place of the graph.
  private(set) var events: Int

  /// The part of the batch that one sink writes.
  public struct Portion {
    public let bytes: UnsafeRawBufferPointer
    /// The number of events in `bytes`.
    public let events: Int
    /// Owns the memory of `bytes`.
    public let memory: AnyObject
  }

  init(_ lines: PassThroughLines) {
    content = .lines(lines)
    events = lines.count
  }

  init(_ block: EncodedBlock) {
    content = .encoded(block)
    events = block.received
  }

  /// It has come through a step on another thread: adds what that has counted.
  mutating func pass(_ step: StepID, _ counters: UnsafeMutablePointer<StepCounters>) {
    guard case .encoded(let block) = content else { return }
    var dropped: UInt64?
    // Several sinks may have the step on their ways; what it drops is the same on each.
    for done in block.counts where done.step == step {
      dropped = dropped ?? done.dropped
      counters.pointee.timed &+= done.timed
      counters.pointee.nanoseconds &+= done.nanoseconds
    }
    counters.pointee.dropped &+= dropped ?? 0
    events -= Int(dropped ?? 0)
  }

  /// How many events the source made.
  var received: Int {
    switch content {
    case .lines(let lines): lines.count
    case .encoded(let block): block.received
    }
  }

  /// How many events the sink with this step ID receives.
  func events(for sink: StepID) -> Int {
    switch content {
    case .lines(let lines): lines.count
    case .encoded(let block): block.portion(of: sink)?.events ?? 0
    }
  }

  /// The part that the sink with this step ID writes; nil: the sink must receive the events one by one.
  public func portion(of sink: StepID, encodedBy encoder: any EventEncoder) -> Portion? {
    switch content {
    case .lines(let lines):
      return encoder.passes(lines.kind) ? Portion(bytes: lines.bytes, events: lines.count, memory: lines.memory) : nil
    case .encoded(let block): return block.portion(of: sink)
    }
  }
}

extension Batch {
  /// The part that the sink with this step ID writes, as lines from which its events can be read again; nil: there are none.
  func lines(of sink: StepID, encodedBy encoder: any EventEncoder) -> PassThroughLines? {
    switch content {
    case .lines(let lines): return encoder.passes(lines.kind) ? lines : nil
    case .encoded(let block):
      guard let kind = encoder.lines, let portion = block.portion(of: sink) else { return nil }
      return PassThroughLines(memory: portion.memory, bytes: portion.bytes, count: portion.events, kind: kind)
    }
  }
}

/// A block as the sinks of a stage write it. The bytes are valid as long as the block lives.
public final class EncodedBlock: @unchecked Sendable {
  private let spare: SpareOutput
  private let sinks: [StepID]
  private let buffers: [OutputBuffer]
  private let sent: [Int]
  /// How many events the source made.
  let received: Int
  /// What a step has done with the block, on the way to one of the sinks.
  struct Count: Sendable {
    var step: StepID
    var dropped: UInt64
    var timed: UInt64
    var nanoseconds: Int64
  }
  let counts: [Count]

  init(
    _ spare: SpareOutput, _ sinks: [StepID], _ buffers: [OutputBuffer], sent: [Int], received: Int, counts: [Count]
  ) {
    self.counts = counts
    self.spare = spare
    self.sinks = sinks
    self.buffers = buffers
    self.sent = sent
    self.received = received
  }

  deinit { spare.put(buffers) }

  func portion(of sink: StepID) -> Batch.Portion? {
    guard let index = sinks.firstIndex(of: sink) else { return nil }
    return Batch.Portion(bytes: buffers[index].bytes, events: sent[index], memory: self)
  }
}
