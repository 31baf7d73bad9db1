/// Combines the truth values of an event's parts.
final class TruthStep: PureStep {
  private let name: String
  private let start: Bool
  private let fold: (Bool, Bool) -> Bool

  init(_ name: String, from start: Bool, _ fold: @escaping (Bool, Bool) -> Bool) {
    self.name = name
    self.start = start
    self.fold = fold
  }

  override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
    let list = value.is(.jsonList) ? frame.frame.json.expand(value, into: frame.frame.arena) : value
    guard list.is(.list), list.length > 0 else {
      return refuse(
        .unexpectedValue, "\(name) needs a list of booleans with at least one part, not \(value.kindName)", frame)
    }
    var result = start
    for part in list.elements {
      guard let truth = part.truth else {
        return refuse(
          .unexpectedValue, "\(name) needs booleans or numbers, but a part is \(part.kindName)", frame)
      }
      result = fold(result, truth)
    }
    value = .bool(result)
    return .pass
  }
}
