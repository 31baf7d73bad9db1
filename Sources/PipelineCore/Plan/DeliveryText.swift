/// The delivery guarantees of a pipeline in words, for `rxd check -v`, `rxd explain` and `rxd run -v`.
extension Plan {
  /// At most this many paths get their own line.
  static let maximumPathLines = 100

  /// The mode and its reason, a line for each path, and the guarantee without a state directory. Lines after the first
  /// are indented.
  package func deliveryLines() -> [String] {
    var lines = [modeLine]
    let (paths, others, _, weakest) = deliveryPaths(hasStateDirectory: true, atMost: Self.maximumPathLines)
    lines += paths.map { "  " + $0.line }
    if others > 0 {
      lines.append("  and \(Printable.count(others, "more path")), the weakest of them \(weakest.name)")
    }
    if requestedDelivery?.value != .bestEffort {
      lines.append(
        "  without a state directory: "
          + (requirement == nil ? "best effort: a crash loses events under way" : "it does not start"))
    }
    return lines
  }

  private var modeLine: String {
    func fileAndLine(_ location: SourceLocation) -> String { "\(location.text.name):\(location.line)" }
    let mode = delivery(hasStateDirectory: true)
    let name = "delivery: \(mode.rawValue)"
    if let requestedDelivery { return "\(name), as the file says (\(fileAndLine(requestedDelivery.location)))" }
    guard mode == .durable else { return "\(name), because every source can repeat its events" }
    if let requirement, requirement.value == .durable {
      return "\(name), because the file requires it (\(fileAndLine(requirement.location)))"
    }
    if let limit = sinks.lazy.compactMap(\.outboxLimit.location).first {
      return "\(name), because a sink limits what waits for it (\(fileAndLine(limit)))"
    }
    let first = sources.first { !isBestEffort($0.step) && !$0.component.recovery.canRepeat }
    guard let step = first.map({ steps[$0.step.number] }) else { return name }
    return "\(name), because '\(step.keyword)' cannot repeat its events (\(fileAndLine(step.location)))"
  }

  /// The guarantee of a run, one sentence without a full stop; without a state directory, also the guarantee with one.
  package func deliveryNote(hasStateDirectory: Bool) -> String {
    let weakest = deliveryPaths(hasStateDirectory: true, atMost: 0).weakest
    let mode = delivery(hasStateDirectory: true)
    if requestedDelivery?.value == .bestEffort {
      return "delivery is best effort, as the file says: a crash loses events under way"
    }
    if hasStateDirectory { return "delivery is \(mode.rawValue): \(weakest.name) on the weakest path" }
    return """
      delivery is best effort, because there is no state directory: a crash loses events under way; with --state-dir DIR it \
      is \(mode.rawValue): \(weakest.name) on the weakest path
      """
  }
}
