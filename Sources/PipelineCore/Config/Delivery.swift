/// How a pipeline stores its events on disk: `delivery:` of a pipeline file. From the weakest to the strongest.
package enum Delivery: String, Sendable, CaseIterable, Comparable {
  /// Nothing: events that were read and not yet written are lost when the process is killed.
  case bestEffort
  /// From time to time a checkpoint: the state of the steps and the positions of the sources, committed once everything
  /// that came of earlier events is acknowledged. After a crash the sources read again from the checkpoint.
  case light
  /// Every turn: its outputs, the state and the positions are one transaction; the source is acknowledged after it, and
  /// the sinks receive the outputs after it.
  case durable

  /// For the reference, a clause.
  package var help: String {
    switch self {
    case .bestEffort: "nothing is kept on disk, and a killed process loses the events that are not yet written"
    case .light: "checkpoints are kept, and after a crash sources read again from the last one"
    case .durable: "events are on disk before their source is answered, and stay there until they are delivered"
    }
  }

  package static func < (a: Delivery, b: Delivery) -> Bool { a.rank < b.rank }

  private var rank: Int {
    switch self {
    case .bestEffort: 0
    case .light: 1
    case .durable: 2
    }
  }
}

/// The least guarantee that every path of a pipeline must have: `require:` of a pipeline file.
package enum DeliveryRequirement: String, Sendable, CaseIterable {
  /// No event is lost when the process is killed; some may be delivered again.
  case atLeastOnce
  /// Nothing that a source was answered for is lost, also when the power fails.
  case durable

  /// For the reference, a clause.
  package var help: String {
    switch self {
    case .atLeastOnce: "a killed process loses no event; some may be delivered again"
    case .durable: "neither a killed process nor a power cut loses an event that was acknowledged to its sender"
    }
  }
}

/// How much may wait for a sink in its outbox, and what happens beyond: `buffer:` and `whenFull:` beside a sink.
package struct OutboxLimit: Sendable {
  /// What happens when the outbox is full: `whenFull`.
  package enum Policy: String, Sendable, CaseIterable {
    case block, dropOldest, dropNewest

    /// For the reference, a clause.
    package var help: String {
      switch self {
      case .block: "the input of the pipeline waits until the sink has delivered some"
      case .dropOldest: "the events that wait longest are dropped"
      case .dropNewest: "new events for this sink are dropped"
      }
    }
  }

  /// In bytes.
  package static let range = 1 << 20...1 << 40
  package static let standard = 1 << 30

  package var policy = Policy.block
  package var bytes = standard
  /// The first of the two in the file; nil: neither is in it.
  package var location: SourceLocation?

  package init() {}
}
