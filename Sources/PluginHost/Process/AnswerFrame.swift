import PipelineCore

/// Reads the frame with which a program answers an input.
enum AnswerFrame {
  /// Returns why the frame breaks the contract, or nil.
  ///
  /// - Parameter block: The memory of the frame, which events that it sends point into.
  static func read(
    _ frame: Value, _ block: LineBlock, _ spec: PluginComponentSpec, into answer: inout PluginAnswer
  ) -> String? {
    if frame["error"].is(.string) {
      answer.verdict = .rejected(Printable.cut(frame["error"].text, limit: 500))
    } else if frame["retry"].is(.string), spec.kind == .sink {
      answer.verdict = .again(Printable.cut(frame["retry"].text, limit: 500))
    } else {
      let events = frame["events"]
      if events.is(.jsonList) {
        var index = 0
        while true {
          let event = JSONParser.element(events, at: index)
          if event.isAbsent || event.isError { break }
          answer.events.append(event)
          index += 1
        }
        if !answer.events.isEmpty { answer.owner = block }
      } else if !events.isAbsent {
        return "'events' is not a list"
      }
    }
    answer.finishes = spec.kind == .operator && frame["finish"].isTrue
    let timers = frame["timers"]
    guard timers.is(.jsonMap) else { return nil }
    let arena = Arena()
    let tree = JSONParser().expand(timers, into: arena)
    for entry in tree.is(.map) ? Array(tree.entries) : [] {
      let name = String(decoding: JSONParser.unescape(entry.key, into: arena).rawBytes, as: UTF8.self)
      guard entry.value.is(.int) || entry.value.isNull else {
        return "the timer '\(Printable.cut(name))' is not a whole number"
      }
      answer.timers.append((name, entry.value.isNull ? nil : entry.value.asInt))
    }
    return nil
  }
}

extension Value {
  /// The frame's value as a number; nil: the value is not a number.
  var number: Double? {
    switch what {
    case .int: Double(asInt)
    case .uint: Double(asUInt)
    case .double: asDouble
    default: nil
    }
  }
}
