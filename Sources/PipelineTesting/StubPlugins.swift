import PipelineCore

/// Replaces operators of plugins: answers from a list, on the executor's time.
final class StubPlugins: PluginStandIn {
  let calls: StubCalls<PluginCall>
  private let components: Set<String>

  init(_ calls: StubCalls<PluginCall>, _ stubs: [PluginStub]) {
    self.calls = calls
    components = Set(stubs.map(\.component))
  }

  func stands(for component: String) -> Bool { components.contains(component) }

  func run(
    _ call: PluginCall, _ completion: @escaping @Sendable (Result<PluginReply, PluginRefusal>) -> Void
  ) -> any Cancellable { calls.make(call, completion) }

  func reply(to call: PluginCall) -> Result<PluginReply, PluginRefusal> { calls.answer(call) }
}

extension PluginCall: StubbedCall {
  typealias Reply = PluginReply
  /// The time limit of real plugins, unless the file sets another.
  var timeout: TimeSpan { .seconds(10) }
  var noAnswer: PluginRefusal { PluginRefusal("the plugin had not answered after \(timeout)") }
  var noStub: PluginRefusal { PluginRefusal("the event has no stub in this test") }

  /// The event as text, for messages.
  var line: String { String(decoding: event, as: UTF8.self) }
}

/// The stubbed answers of an operator of a plugin.
struct PluginStub: Sendable {
  /// The name of the operator.
  var component: String
  /// The event as JSON; `*` matches any bytes.
  var event: String
  /// The answers in order, at least one; the last one is repeated.
  var answers: [Stub<PluginReply, PluginRefusal>.Answer]
  var location: SourceLocation?

  func matches(_ call: PluginCall) -> Bool { call.component == component && Glob.matches(event, call.line) }
}
