/// `delivery` of a source or a sink.
extension Compilation {
  /// The value, which must be `bestEffort`: a pipeline keeps all its events in the same way.
  func delivery(_ option: YAMLNode, of node: ComponentNode, _ context: SignalContext) -> Located<Delivery>? {
    if option.isPlaceholder { return nil }
    let choices = Delivery.allCases.map(\.rawValue)
    switch option.decodeChoice("'delivery'", choices) {
    case .failure(let diagnostic): diagnostics.report(diagnostic)
    case .success(let text) where text != Delivery.bestEffort.rawValue:
      diagnostics.report(
        Diagnostic(
          .raisedDelivery,
          "'\(node.keyword.value)' cannot choose '\(text)' for itself: the delivery mode applies to the whole pipeline",
          at: option.location,
          help: "Write 'delivery: \(text)' at the top of the file; here it can only be bestEffort"))
    case .success where context.depth > 0:
      diagnostics.report(
        Diagnostic(
          .raisedDelivery,
          "'\(node.keyword.value)' starts an inner signal, whose events belong to the event that started it",
          at: option.location, help: "Remove 'delivery', or write it at the source of that event"))
    case .success: return Located(.bestEffort, at: option.location)
    }
    return nil
  }

  /// `buffer` and `whenFull` of a sink.
  func outboxLimit(of node: ComponentNode, _ component: any SinkComponent) -> OutboxLimit {
    var limit = OutboxLimit()
    let given = node.options.filter { ["buffer", "whenFull"].contains($0.key.value) && !$0.value.isPlaceholder }
    limit.location = given.first?.key.location
    for option in given {
      let what = "'\(option.key.value)'"
      do throws(Diagnostic) {
        if option.key.value == "whenFull" {
          let choice = try option.value.decodeChoice(what, OutboxLimit.Policy.allCases.map(\.rawValue)).get()
          limit.policy = OutboxLimit.Policy(rawValue: choice) ?? .block
        } else {
          limit.bytes = try option.value.decodeSize(what).get()
          if !OutboxLimit.range.contains(limit.bytes) {
            throw Diagnostic(
              .outOfRange, "\(what) must be from 1 MiB to 1 TiB", at: option.value.location,
              help: "Write 'buffer: 256MiB'")
          }
        }
      } catch {
        diagnostics.report(error)
      }
      if let reason = withoutOutbox(node, component) {
        diagnostics.report(
          Diagnostic(
            .noOutbox, "\(what) concerns events that wait on disk, and \(reason.why)",
            at: option.key.location,
            help: reason.remedy))
      }
    }
    return limit
  }

  /// Why the sink has no outbox, and what to do about it; nil if it has one.
  private func withoutOutbox(_ node: ComponentNode, _ component: any SinkComponent) -> (why: String, remedy: String)? {
    if component.answersEvents {
      return ("'\(node.keyword.value)' answers a client that waits", "Remove it")
    }
    if node.options["delivery"] != nil {
      return ("with 'delivery: bestEffort' none do", "Remove one of the two")
    }
    if let asked = file.delivery, asked.value != .durable {
      return (
        "with 'delivery: \(asked.value.rawValue)' none do: the input waits for the sink",
        "Write 'delivery: durable' at the top of the file, or remove \(node.options["whenFull"] == nil ? "'buffer'" : "'whenFull'")"
      )
    }
    return nil
  }

  /// Reports `state` where nothing is kept on the disk, or no step can keep keys there.
  func reportStateWithoutEffect(_ plan: Plan) {
    guard let memory = file.stateMemory else { return }
    if let asked = file.delivery, asked.value == .bestEffort {
      diagnostics.report(
        Diagnostic(
          .stateWithoutEffect, "'state' has no effect: with 'delivery: bestEffort' nothing is kept on the disk",
          at: memory.location, notes: [.init("asked for here", at: asked.location)],
          help: "Write 'delivery: light', or remove 'state'"))
    } else if KeyWalk(plan).moving.isEmpty {
      diagnostics.report(
        Diagnostic(
          .stateWithoutEffect, "'state' has no effect: the pipeline has no step that can keep keys on the disk",
          at: memory.location,
          help:
            "These are 'distinct', 'latest', 'topN', 'join' by event time with 'within' and 'key', and 'groupBy' whose steps have no timers. Remove 'state'"
        ))
    }
  }
}
