import CJSON

/// Encoded events of one block. Nodes downstream of a source accept a batch as a whole, or receive its rows one by one.
///
/// Lines of the input that pass through unchanged are the same for all sinks; a ``ParallelStage`` encodes for each
/// sink.
public struct Batch: Sendable {
  private struct Portion {
    /// The sink that writes it; nil: every sink that encodes its lines unchanged.
    var sink: StepID?
    var events: EncodedEvents
  }

  /// The counts of one step for the events of the block, on the path to one of the sinks.
  struct Count {
    var step: StepID
    var dropped: UInt64
    var time: SampledTotal
    /// The sizes of some of the events that the step sent.
    var sizes: Sizes
  }

  /// The size of some events as JSON text.
  struct Sizes {
    var bytes: UInt64 = 0
    var events: UInt64 = 0

    mutating func add(_ size: Int) {
      bytes &+= UInt64(max(0, size))
      events &+= 1
    }
  }

  /// The first event that a step has dropped, for ``StoppedEvents``.
  struct Stopped {
    var step: StepID
    var event: OwnedEvent
  }

  /// The events as the source has read them, for observers that want only some of them.
  struct Rows: @unchecked Sendable {
    let rows: RowBatch
    let origin: Origin
    /// The buffer for the tokens of the row that is being examined.
    let tokens: UnsafeMutablePointer<rx_lines_row>

    /// Whether no observer wants any of these events.
    func haveNone(_ isWanted: (Event) -> Bool) -> Bool {
      var event = Event(.null, origin: origin)
      var found = false
      _ = rows.forEachRow(tokens: tokens) { value, offset in
        event.value = value
        event.position = offset
        found = isWanted(event)
        return !found
      }
      return !found
    }
  }

  /// The rows; nil: a step has changed the events since, or no observer may read them.
  var rows: Rows?
  private let portions: [Portion]
  /// The counts of the steps that the stage has already run.
  private let counts: [Count]
  let stopped: [Stopped]
  /// The origin of the stopped events.
  private(set) var origin = Origin.none
  /// How many events the source made.
  let received: Int
  /// The number of events on this edge of the graph.
  private(set) var events: Int
  /// The sizes of some of the events; nil for lines, which no thread has decoded.
  private(set) var sizes: Sizes?

  /// Lines that a source passes on as it has read them.
  init(lines: EncodedEvents) {
    portions = [Portion(sink: nil, events: lines)]
    counts = []
    stopped = []
    received = lines.count
    events = lines.count
  }

  /// The output of a stage.
  init(
    encoded: [(sink: StepID, events: EncodedEvents)], received: Int, sizes: Sizes, counts: [Count], stopped: [Stopped]
  ) {
    self.sizes = sizes
    portions = encoded.map { Portion(sink: $0.sink, events: $0.events) }
    self.counts = counts
    self.stopped = stopped
    self.received = received
    events = received
  }

  /// Whether the stage has already run this step.
  func hasPassed(_ step: StepID) -> Bool { counts.contains { $0.step == step } }

  /// Skips a step that the stage has already run, and adds its counts to `counters`.
  mutating func pass(_ step: StepID, _ counters: UnsafeMutablePointer<StepCounters>) {
    var dropped: UInt64?
    // The step may be on the path to several sinks; it drops the same events on each.
    for done in counts where done.step == step {
      dropped = dropped ?? done.dropped
      counters.pointee.time.add(done.time.sum, of: done.time.count)
      sizes = done.sizes
    }
    counters.pointee.dropped &+= dropped ?? 0
    events -= Int(dropped ?? 0)
  }

  /// The sizes of the first lines.
  func sizesOfLines(_ size: JSONSize) -> Sizes? {
    guard let first = portions.first?.events, let lines = first.lines else { return nil }
    var rest = first.bytes[...]
    var sizes = Sizes()
    while sizes.events < Self.measured, let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
      let line = UnsafeRawBufferPointer(rebasing: rest[..<end])
      sizes.add(lines == .documents ? line.count : size.size(of: .string(line)))
      rest = rest[(end + 1)...]
    }
    return sizes
  }

  /// The maximum number of lines of a batch whose sizes are measured.
  private static let measured = 8

  /// The same events, from this origin.
  func from(_ origin: Origin) -> Batch {
    var batch = self
    batch.origin = origin
    return batch
  }

  /// How many events the sink with this step ID receives.
  func events(for sink: StepID) -> Int {
    portions.first { $0.sink == nil || $0.sink == sink }?.events.count ?? 0
  }

  /// The encoded events for the sink with this step ID; nil: the sink must receive the events one by one.
  package func portion(of sink: StepID, encodedBy encoder: any EventEncoder) -> EncodedEvents? {
    for portion in portions {
      if let owner = portion.sink {
        if owner == sink { return portion.events }
      } else if let lines = portion.events.lines, encoder.passes(lines) {
        return portion.events
      }
    }
    return nil
  }
}
