import PipelineCore

// The stubbed answers of operators of plugins.

extension PipelineTestReader {
  mutating func plugins(_ node: YAMLNode) -> [PluginStub] {
    guard let items = node.items else {
      report(
        .testStep, "'plugin' takes a list of stubs, not \(node.kindName)", node.location,
        help: "Write - { operator: enrich, reply: { event: { city: Paris } } }")
      return []
    }
    return items.compactMap { plugin($0) }
  }

  private mutating func plugin(_ node: YAMLNode) -> PluginStub? {
    guard let entries = node.entries else {
      report(
        .testStep, "a stub is a mapping, not \(node.kindName)", node.location,
        help: "Write { operator: enrich, reply: { event: { city: Paris } } }")
      return nil
    }
    guard check(keys: entries, ["operator", "event", "sequence"] + Self.answerKeys, "a stub of a plugin") else {
      return nil
    }
    guard let given = node["operator"] else {
      report(
        .testStep, "the stub names no operator", node.location,
        help: "Add 'operator:', the name of an operator of a plugin")
      return nil
    }
    guard let name = text(given, "'operator'") else { return nil }
    let offered = plan.components.values.compactMap { ($0 as? any PluginComponent)?.offered }
    let known = Set(offered.filter { $0.kind == .operator }.map(\.name))
    guard known.contains(name) else {
      report(
        .unknownSubject, "the pipeline has no operator '\(Printable.cut(name))' of a plugin", given.location,
        help: self.known(name, known.sorted(), "Operators of plugins are"))
      return nil
    }
    var pattern = "*"
    if let event = node["event"] {
      guard let text = text(event, "'event'") else { return nil }
      pattern = text
    }
    let answers = answers(node, "event: { city: Paris }", fails: "no such customer") { reader, reply in
      reader.pluginReply(reply)
    } failure: { reason in
      PluginRefusal(reason)
    }
    return answers.isEmpty
      ? nil : PluginStub(component: name, event: pattern, answers: answers, location: node.location)
  }

  /// Reads `{ event: X }` or `{ events: [X, Y] }`, with `finish: true` if the output completes afterwards.
  private mutating func pluginReply(_ node: YAMLNode) -> PluginReply? {
    guard let entries = node.entries, check(keys: entries, ["event", "events", "finish"], "'reply'"),
      node["event"] == nil || node["events"] == nil,
      let items = node["events"].map(\.items) ?? node["event"].map({ [$0] })
    else {
      report(
        .testStep, "'reply' of a plugin takes 'event', or 'events', a list, and 'finish'", node.location,
        help: "Write 'reply: { event: { city: Paris } }' or 'reply: { events: [], finish: true }'")
      return nil
    }
    var finishes = false
    if let given = node["finish"] {
      guard let flag = given.bool else {
        report(
          .testStep, "'finish' is true or false, not \(given.kindName)", given.location, help: "Write 'finish: true'")
        return nil
      }
      finishes = flag
    }
    let arena = Arena()
    return PluginReply(items.map { OwnedValue(LiteralParameter.value(of: $0, in: arena)) }, finishes: finishes)
  }
}
