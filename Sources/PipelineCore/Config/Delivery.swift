/// How a pipeline stores its events on disk: `delivery:` of a pipeline file, from the weakest to the strongest
/// guarantee.
package enum Delivery: String, Sendable, CaseIterable, Comparable {
  /// Stores nothing: events that were read but not yet written are lost when the process is killed.
  case bestEffort
  /// Stores periodic checkpoints: the state of the steps and the positions of the sources, committed once everything
  /// that resulted from earlier events is acknowledged. After a crash the sources resume reading at the checkpoint.
  case light
  /// Each turn's outputs, state and positions are one transaction. The source is acknowledged, and the sinks receive
  /// the outputs, after it is on the disk.
  case durable

  /// The mode as a clause, for the reference.
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
  /// No event that was acknowledged to its source is lost, even if the power fails.
  case durable

  /// The requirement as a clause, for the reference.
  package var help: String {
    switch self {
    case .atLeastOnce: "a killed process loses no event; some may be delivered again"
    case .durable: "neither a killed process nor a power cut loses an event that was acknowledged to its sender"
    }
  }
}

/// The limit of a sink's outbox, and what happens when the outbox is full: `buffer:` and `whenFull:` of a sink.
package struct OutboxLimit: Sendable {
  /// The behavior when the outbox is full: `whenFull`.
  package enum Policy: String, Sendable, CaseIterable {
    case block, dropOldest, dropNewest

    /// The policy as a clause, for the reference.
    package var help: String {
      switch self {
      case .block: "the input of the pipeline waits until the sink has delivered some"
      case .dropOldest: "the oldest waiting events are dropped"
      case .dropNewest: "new events for this sink are dropped"
      }
    }
  }

  /// The allowed values, in bytes.
  package static let range = 1 << 20...1 << 40
  package static let standard = 1 << 30

  package var policy = Policy.block
  package var bytes = standard
  /// The location of whichever of the two keys comes first; nil if neither is set.
  package var location: SourceLocation?

  package init() {}
}
