extension ServerAnswer {
  /// The answer to a request whose sender waits until its events are written.
  package static func after(_ outcome: Ack.Outcome) -> ServerAnswer {
    switch outcome {
    case .acknowledged: ServerAnswer(200)
    case .failed:
      ServerAnswer(503, [(name: "Retry-After", value: "1")], error: "not all events could be written")
    }
  }
}
