import PipelineHost
import PipelineTestSupport
import PluginHost
import Testing

@testable import PipelineCore

/// The guarantee of a pipeline if a plugin's component declares it by the value of a parameter.
@Suite struct PluginGuaranteeTests {
  private static let components = """
    [{"kind": "source", "name": "listen", "summary": "Listens.", "recovery": "sender",
      "when": [{"parameter": "qos", "is": 0, "recovery": "never"}, {"parameter": "mode", "is": "replay", "recovery": "position"}],
      "parameters": [
        {"name": "qos", "type": "integer", "default": 1, "help": "Q."},
        {"name": "mode", "type": "choice", "choices": [{"name": "live", "help": "L."}, {"name": "replay", "help": "R."}], "help": "M."}]},
     {"kind": "sink", "name": "publish", "summary": "Publishes.", "confirmation": "receiver",
      "when": [{"parameter": "wait", "is": false, "confirmation": "nothing"}],
      "parameters": [{"name": "wait", "type": "boolean", "default": true, "help": "W."}]}]
    """

  private func plan(_ source: String, _ sink: String) throws -> Plan {
    let path = try PluginFixtures.program("guarantee", components: Self.components, "elif False: pass")
    return try PipelineText.compile(
      "plugins: ['\(path)']\nsources: { in: { listen: \(source) } }\nsinks: { out: { from: in, publish: \(sink) } }\n",
      plugins: PluginFixtures.plugins)
  }

  @Test(
    arguments: [
      ("{}", SourceRecovery.sender), ("{ qos: 1 }", .sender), ("{ qos: 0 }", .never), ("{ mode: live }", .sender),
      ("{ mode: replay }", .position), ("{ qos: 0, mode: replay }", .never),
    ])
  func theRecoveryFollowsTheParameters(_ source: String, _ recovery: SourceRecovery) throws {
    let plan = try plan(source, "{}")
    #expect(plan.sources.map(\.component.recovery) == [recovery])
  }

  @Test(arguments: [("{}", SinkConfirmation.receiver), ("{ wait: false }", .nothing)])
  func theConfirmationFollowsTheParameters(_ sink: String, _ confirmation: SinkConfirmation) throws {
    #expect(try plan("{}", sink).sinks.map(\.component.confirmation) == [confirmation])
  }

  @Test func theGuaranteeCoversTheWholePath() throws {
    func line(_ source: String, _ sink: String) throws -> String {
      try #require(try plan(source, sink).deliveryPaths(hasStateDirectory: true).first).line
    }
    #expect(try !line("{}", "{}").contains("'publish' does not know what arrives"))
    #expect(try line("{}", "{ wait: false }").contains("'publish' does not know what arrives"))
    #expect(try line("{ qos: 0 }", "{}") != line("{ qos: 1 }", "{}"))
  }

  @Test func theReferenceSaysBoth() throws {
    let path = try PluginFixtures.program("guarantee", components: Self.components, "elif False: pass")
    let plugin = try PluginFixtures.plugins.load(PluginFile(path: path, directory: "")).get()
    let texts = plugin.offers(at: nil).components.map { $0.entry.afterCrash ?? "" }
    #expect(
      try texts.item(0).hasPrefix(
        "Senders without an answer send their events again. With `qos: 0`: Events cannot be read again"))
    #expect(try texts.item(0).contains(" With `mode: replay`: With a state directory it is read again"), "\(texts[0])")
    #expect(try texts.item(1).contains(" With `wait: false`: Events may be lost"), "\(texts[1])")
  }
}
