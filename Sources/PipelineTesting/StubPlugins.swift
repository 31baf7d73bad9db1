import PipelineCore

// Stubs of the operators of plugins: `plugin: [ { operator: enrich, reply: { event: { city: Paris } } } ]`.

extension PluginCall: StubbedCall {
  typealias Reply = PluginReply

  static var form: StubForm {
    StubForm(
      key: "plugin", pattern: "event", keys: ["operator", "event"], name: "a stub of a plugin",
      needs: (["operator"], "the stub names no operator", "Add 'operator:', the name of an operator of a plugin"),
      example: "{ operator: enrich, reply: { event: { city: Paris } } }", reply: "event: { city: Paris }",
      failure: "no such customer", first: nil)
  }

  /// The operator that the stub replaces.
  static func read(_ stub: inout Stub<PluginCall>, _ node: YAMLNode, _ reader: inout PipelineTestReader) -> Bool {
    guard let given = node["operator"], let name = reader.text(given, "'operator'") else { return false }
    let offered = reader.plan.components.values.compactMap { ($0 as? any PluginComponent)?.offered }
    let known = Set(offered.filter { $0.kind == .operator }.map(\.name))
    guard known.contains(name) else {
      reader.report(
        .unknownSubject, "the pipeline has no operator '\(Printable.cut(name))' of a plugin", given.location,
        help: reader.known(name, known.sorted(), "Operators of plugins are"))
      return false
    }
    stub.receiver = name
    return true
  }

  /// `{ event: X }`, or `{ events: [X, Y] }`, with `finish: true` where the output completes after them.
  static func reply(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> PluginReply? {
    guard let entries = node.entries, reader.check(keys: entries, ["event", "events", "finish"], "'reply'"),
      node["event"] == nil || node["events"] == nil,
      let items = node["events"].map(\.items) ?? node["event"].map({ [$0] })
    else {
      reader.report(
        .testStep, "'reply' of a plugin takes 'event', or 'events', a list, and 'finish'", node.location,
        help: "Write 'reply: { event: { city: Paris } }' or 'reply: { events: [], finish: true }'")
      return nil
    }
    var finishes = false
    if let given = node["finish"] {
      guard let flag = given.bool else {
        reader.report(
          .testStep, "'finish' is true or false, not \(given.kindName)", given.location, help: "Write 'finish: true'")
        return nil
      }
      finishes = flag
    }
    let arena = Arena()
    return PluginReply(items.map { OwnedValue(LiteralParameter.value(of: $0, in: arena)) }, finishes: finishes)
  }

  static func failure(_ reason: String) -> PluginRefusal { PluginRefusal(reason) }
  static func serve(_ calls: StubCalls<PluginCall>, _ services: inout Services) { services.plugins = calls }

  /// The time that rxd waits for a plugin, if the file sets none.
  var timeout: TimeSpan { .seconds(10) }
  var noAnswer: PluginRefusal { PluginRefusal("the plugin had not answered after \(timeout)") }
  var noStub: PluginRefusal { PluginRefusal("the event has no stub in this test") }
  /// The event as JSON.
  var line: String { String(decoding: event, as: UTF8.self) }
  var receiver: String? { component }
  func unanswered(_ at: TimeSpan) -> String {
    "no stub answers the event \(Printable.cut(line, limit: 200)) of '\(component)', given at \(at)"
  }
}

extension StubCalls: PluginStandIn where Call == PluginCall {
  func stands(for component: String) -> Bool { stubs.contains { $0.receiver == component } }

  func run(_ call: PluginCall, _ completion: @escaping @Sendable (Result<PluginReply, PluginRefusal>) -> Void)
    -> any Cancellable
  { make(call, completion) }

  /// Answers at once, whatever delay the stub gives.
  func reply(to call: PluginCall) -> Result<PluginReply, PluginRefusal> { serve(call).outcome }
}
