import PipelineCore
import PipelineTesting

// Frames of sources.
extension TestedProgram {
  static func elements(_ list: Value) -> [TestValue] {
    guard case .list(let elements) = TestValue(list) else { return [] }
    return elements
  }

  func take(from frame: Value, _ shown: String) throws(ContractBreach) {
    let number = frame["from"].is(.int) ? Int(frame["from"].asInt) : -1
    guard let instance = instances[number], instance.spec.kind == .source, instance.isOpen else {
      // Frames that were under way when it was closed.
      if number > 0, number < nextInstance, instances[number] == nil { return }
      throw Self.wrong(shown, "'from' with the number of an open source")
    }
    guard instance.end == nil else { throw Self.wrong(shown, "nothing after the end of a source") }
    if !frame["error"].isAbsent {
      instance.end = .failed(frame["error"].text)
      return
    }
    if !frame["complete"].isAbsent {
      guard instance.unacknowledged.isEmpty else {
        throw ContractBreach(
          expected: "'complete' when every token is acknowledged or failed",
          came:
            "\(shown), while \(Printable.count(instance.unacknowledged.count, "token")) of it \(instance.unacknowledged.count == 1 ? "is" : "are") not",
          help: "Wait for 'acknowledged' and 'failed' of everything that was sent, and complete then")
      }
      instance.end = .complete
      return
    }
    if !frame["loaded"].isAbsent, !instance.spec.loads {
      throw ContractBreach(
        expected: "no 'loaded': the spec of '\(instance.spec.name)' has no \"loads\": true", came: shown,
        help: "Write \"loads\": true into the spec of the component")
    }
    var events: [TestValue] = []
    if frame["events"].is(.jsonList) {
      events = Self.elements(frame["events"])
    } else if !frame["events"].isAbsent {
      throw Self.wrong(shown, "'events' as a list")
    } else if !frame["event"].isAbsent {
      events = [TestValue(frame["event"])]
    } else if frame["rejected"].isAbsent, frame["position"].isAbsent, frame["token"].isAbsent,
      frame["loaded"].isAbsent
    {
      throw Self.wrong(shown, "event, events, rejected, position, complete or error in a frame of a source")
    }
    try take(names: frame, events.count, instance, shown)
    instance.credit -= events.count
    guard instance.credit >= 0 else {
      throw ContractBreach(
        expected: "at most as many events as rxd has given credit for",
        came: "\(-instance.credit) more, with \(shown)",
        help: "Count: each {\"to\":\(number),\"credit\":N} allows N further events; wait for more when they are used up"
      )
    }
    var token: Int64?
    if !frame["token"].isAbsent {
      guard frame["token"].is(.int), frame["token"].asInt > 0,
        instance.unacknowledged.insert(frame["token"].asInt).inserted
      else { throw Self.wrong(shown, "a token above 0 that is not in use") }
      token = frame["token"].asInt
      instance.tokens.append(frame["token"].asInt)
    }
    var position: String?
    if !frame["position"].isAbsent {
      let text = OutputBuffer(capacity: 64)
      _ = JSONWriter.append(frame["position"], to: text)
      position = String(decoding: text.bytes, as: UTF8.self)
      guard instance.spec.recovery == .position else {
        throw ContractBreach(
          expected: "no position: the spec of '\(instance.spec.name)' has no \"recovery\": \"position\"", came: shown,
          help: "Write \"recovery\": \"position\" into the spec of the component")
      }
    }
    for (index, event) in events.enumerated() {
      instance.events.append((event, token, index == events.count - 1 ? position : nil))
    }
  }

  /// With "names" in the source's spec, no two events may have the same name.
  private func take(
    names frame: Value, _ count: Int, _ instance: TestedInstance, _ shown: String
  ) throws(ContractBreach) {
    var names: [Value] = []
    if !frame["name"].isAbsent { names = [frame["name"]] }
    if frame["names"].is(.jsonList) { names = (0..<count).map { JSONParser.element(frame["names"], at: $0) } }
    guard instance.spec.names else {
      guard names.isEmpty else {
        throw ContractBreach(
          expected: "no name: the spec of '\(instance.spec.name)' has no \"names\": true", came: shown,
          help: "Write \"names\": true into the spec of the component")
      }
      return
    }
    guard names.isEmpty || names.count == count, names.allSatisfy({ $0.isNull || $0.is(.string) && $0.text != "" })
    else { throw Self.wrong(shown, "a name, or null, for each event") }
    for name in names where !name.isNull && !instance.names.insert(name.text).inserted {
      throw ContractBreach(
        expected: "a name that no other event of this source has", came: shown,
        help: "Take what the sender never gives twice, such as the partition and the offset")
    }
  }
}
