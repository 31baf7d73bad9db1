/// What the threads that decode the blocks of a source do beyond that: run the pure steps behind the source, and encode for
/// the sinks behind those. The turn then only hands over bytes.
///
/// A source has one where all its events go through pure steps, and nowhere else, to sinks that write a stream
/// (``Plan/stage(of:)``). When it is worth it is decided while it runs: ``StagePlacement``.
///
/// A block in which anything happens that only a turn can deal with (a line that is no event, an expression that fails,
/// an event that cannot be encoded) is left to its turn, which then sees it as if nobody had tried.
public struct ParallelStage: Sendable {
  /// The way from the source to one sink.
  public struct Branch: Sendable {
    /// The steps, in their order; all are a ``PureStep``.
    var parts: [FusedRunPlan.Part]
    /// The step of the sink.
    var sink: StepID
    var component: any SinkComponent
  }

  public let branches: [Branch]

  /// Whether blocks of such lines reach every sink as they stand.
  func passesThrough(_ kind: PassThroughLines.Kind) -> Bool {
    branches.allSatisfy { branch in
      branch.parts.isEmpty && branch.component.streamEncoding?.makeEncoder().passes(kind) == true
    }
  }
}

extension Plan {
  /// The stage of a source, by its step; nil: its events need turns.
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

  /// The way from a source to what reads `signal`, if it is one through pure steps: its steps, and the named signals that it
  /// goes through.
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
  /// Whether its steps depend on nothing but the value of each event.
  var isPure: Bool {
    parts.allSatisfy { part in
      !part.segment.usesMeta && !part.segment.usesNow && part.steps.allSatisfy { type(of: $0.component).isPure }
    }
  }
}

/// Many events at once, as they are written: lines of the input as they stand, or what a ``ParallelStage`` has encoded.
public struct Batch {
  enum Content {
    case lines(PassThroughLines)
    case encoded(EncodedBlock)
  }
  let content: Content

  /// What one sink writes of it.
  public struct Portion {
    public let bytes: UnsafeRawBufferPointer
    /// How many events these are.
    public let events: Int
    /// Keeps the bytes.
    public let memory: AnyObject
  }

  init(_ lines: PassThroughLines) { content = .lines(lines) }
  init(_ block: EncodedBlock) { content = .encoded(block) }

  /// Events that came from the source.
  var received: Int {
    switch content {
    case .lines(let lines): lines.count
    case .encoded(let block): block.received
    }
  }

  /// What the sink of that step writes of it; nil: it must see the events one by one.
  public func portion(of sink: StepID, encodedBy encoder: any EventEncoder) -> Portion? {
    switch content {
    case .lines(let lines):
      return encoder.passes(lines.kind) ? Portion(bytes: lines.bytes, events: lines.count, memory: lines.slab) : nil
    case .encoded(let block): return block.portion(of: sink)
    }
  }
}

/// A block as the sinks of a stage write it. Its bytes are valid as long as it lives.
public final class EncodedBlock: @unchecked Sendable {
  private let spare: SpareOutput
  private let sinks: [StepID]
  private let buffers: [OutputBuffer]
  private let sent: [Int]
  /// Events that came from the source.
  let received: Int

  init(_ spare: SpareOutput, _ sinks: [StepID], _ buffers: [OutputBuffer], sent: [Int], received: Int) {
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
