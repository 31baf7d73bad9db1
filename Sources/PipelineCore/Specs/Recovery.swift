/// How a source receives events again if the process was killed before they were delivered. From the weakest to the
/// strongest.
public enum SourceRecovery: Sendable, Equatable {
  /// Events are lost once they are read: reading removes them, as with a pipe.
  case never
  /// The sender waits for an answer, and sends unanswered events again.
  case sender
  /// The source requests events again, and may receive different ones, as with polling.
  case request
  /// The source reads events again from a saved position.
  case position
  /// rxd generates the events from the time or from constants; the position in them is state.
  case made

  /// Whether no event is lost if the source continues from a checkpoint older than its last sent event.
  package var canRepeat: Bool {
    switch self {
    case .never, .sender: false
    case .request, .position, .made: true
    }
  }

  /// The source's events after a crash, for the reference.
  var meaning: String {
    switch self {
    case .never:
      """
      Events cannot be read again: in a durable pipeline they are safe once committed, in others a crash loses \
      events since the last checkpoint.
      """
    case .sender: "Senders without an answer send their events again."
    case .request: "With a state directory it asks again; the server may answer differently."
    case .position: "With a state directory it is read again from its saved position."
    case .made: "With a state directory it continues from its saved position and schedule."
    }
  }
}

/// The guarantee for an event that a sink has acknowledged, in a pipeline with a state directory. From the weakest to
/// the strongest.
public enum SinkConfirmation: Sendable, Equatable {
  /// None: the sink does not learn the outcome.
  case nothing
  /// The sink drops its events on purpose.
  case dropped
  /// The event is an answer on the connection of a client, which repeats its request if no answer arrives.
  case client
  /// The system has accepted the bytes of the event: they survive the end of this process, but not a power cut.
  case system
  /// The event is on the disk.
  case disk
  /// The receiver has acknowledged the event.
  case receiver

  /// The sink's events after a crash, for the reference.
  var meaning: String {
    switch self {
    case .nothing: "Events may be lost: the sink does not know what arrives."
    case .dropped: "Events are dropped on purpose, so none is lost."
    case .client: "A client without an answer sends its request again."
    case .system: "Written data survives a crash; a power cut can lose data that is not yet on a disk."
    case .disk:
      """
      With a state directory acknowledged data is on the disk; without one a power cut can lose data that the system \
      has not yet written to it.
      """
    case .receiver: "Events that the receiver has not acknowledged are sent again."
    }
  }
}
