/// Folds the truth of an event's parts.
final class TruthStep: RowStep {
  private let name: String
  private let start: Bool
  private let fold: (Bool, Bool) -> Bool

  init(_ name: String, from start: Bool, _ fold: @escaping (Bool, Bool) -> Bool) {
    self.name = name
    self.start = start
    self.fold = fold
  }

  override func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict {
    let list = event.value.is(.jsonList) ? run.execution.json.expand(event.value, into: run.arena) : event.value
    guard list.is(.list), list.length > 0 else {
      return refused(
        event, .unexpectedValue, "\(name) needs a list of booleans with at least one part, not \(event.value.kindName)",
        run)
    }
    var result = start
    for part in list.elements {
      guard let truth = part.truth else {
        return refused(
          event, .unexpectedValue, "\(name) needs booleans or numbers, but a part is \(part.kindName)", run)
      }
      result = fold(result, truth)
    }
    event.value = .bool(result)
    return .pass
  }
}
