import PipelineCore
import Testing

/// The document in which a plugin says what it offers.
@Suite struct PluginSpecTests {
  private func read(_ text: String) -> (spec: PluginSpec?, problems: [String]) {
    var diagnostics = Diagnostics()
    let spec = PluginSpecReader.read(SourceText(name: "spec", text: text), into: &diagnostics)
    return (
      spec, diagnostics.all.map { "\($0.location.map { "\($0.line):\($0.column) " } ?? "")\($0.message)" }
    )
  }

  private func component(_ members: String) -> String {
    #"{"plugin": "p", "version": "1", "summary": "S.", "components": [{"kind": "operator", "name": "op", "summary": "S.", "#
      + members + "}]}"
  }

  @Test func everythingIsRead() throws {
    let (found, problems) = read(
      """
      {"plugin": "text-tools", "version": "1.2", "contract": 1, "summary": "Tools.", "components": [
       {"kind": "source", "name": "in", "summary": "Reads.", "recovery": "sender", "output": {"type": "object"}, "future": 1},
       {"kind": "sink", "name": "in", "summary": "Writes.", "confirmation": "receiver", "credit": 5,
        "parameters": [
         {"name": "a", "type": "duration", "default": "300ms", "minimum": "1ms", "maximum": "1h", "help": "A."},
         {"name": "b", "type": "choice", "choices": [{"name": "x", "help": "X."}], "default": "x", "help": "B."},
         {"name": "c", "type": "list", "of": "size", "default": ["1KiB"], "help": "C."},
         {"name": "d", "type": "table", "of": "text", "help": "D."},
         {"name": "e", "type": "expression", "result": "list(string)", "help": "E."},
         {"name": "f", "type": "template", "primary": true, "required": true, "help": "F."}]}]}
      """)
    let spec = try #require(found, "\(problems)")
    #expect(spec.name == "text-tools" && spec.components.count == 2)
    #expect(spec.components[0].recovery == .sender)
    #expect(spec.components[1].credit == 5)
    #expect(spec.components[1].parameters.count == 6)
    #expect(spec.components[1].perEvent.map(\.name) == ["e", "f"])
  }

  @Test(
    arguments: [
      ("[]", "1:1 a spec is an object, not a list"),
      (#"{"plugin": "p"}"#, "1:1 a spec needs 'version'"),
      (
        #"{"plugin": "p", "version": "1", "summary": "no stop", "components": [1]}"#,
        "1:44 'summary' of a spec must be one sentence with a full stop"
      ),
      (#"{"plugin": "p", "contract": 9}"#, "1:29 the plugin was written for contract 9, and this rxd knows 1"),
    ])
  func documentsAreChecked(_ text: String, _ problem: String) {
    let (spec, problems) = read(text)
    #expect(spec == nil)
    #expect(problems.contains(problem), "\(problems)")
  }

  @Test(
    arguments: [
      (#""form": "rows""#, "'form' of a component cannot be 'rows'"),
      (#""credit": 0"#, "'credit' of a component must be between 1 and 65536"),
      (#""form": "row", "timers": true"#, "a component with 'form: row' has neither state nor timers"),
      (#""parameters": {}"#, "'parameters' is a list"),
      (#""parameters": [{"name": "A", "type": "text", "help": "H."}]"#, "'A' is no name of a parameter"),
      (
        #""parameters": [{"name": "a", "type": "txt", "help": "H."}]"#,
        "the parameter 'a' of 'op' has the type 'txt', which does not exist"
      ),
      (#""parameters": [{"name": "a", "type": "text"}]"#, "a parameter of 'op' needs 'help'"),
      (
        #""parameters": [{"name": "a", "type": "integer", "minimum": 5, "maximum": 1, "help": "H."}]"#,
        "'minimum' of the parameter 'a' of 'op' is above its 'maximum'"
      ),
      (
        #""parameters": [{"name": "a", "type": "integer", "default": "x", "help": "H."}]"#,
        "'a' of 'op' must be a whole number, not a text"
      ),
      (#""parameters": [{"name": "a", "type": "duration", "default": "5", "help": "H."}]"#, "unit"),
      (
        #""parameters": [{"name": "a", "type": "text", "required": true, "default": "x", "help": "H."}]"#,
        "the parameter 'a' of 'op' is required and has a default"
      ),
      (
        #""parameters": [{"name": "a", "type": "text", "help": "H."}, {"name": "a", "type": "text", "help": "H."}]"#,
        "the parameter 'a' of 'op' is there twice"
      ),
      (#""parameters": [{"name": "a", "type": "choice", "help": "H."}]"#, "the parameter 'a' of 'op' needs 'choices'"),
      (
        #""parameters": [{"name": "a", "type": "list", "of": "list", "help": "H."}]"#,
        "'of' of the parameter 'a' of 'op' cannot be 'list'"
      ),
    ])
  func componentsAreChecked(_ members: String, _ problem: String) {
    let (spec, problems) = read(component(members))
    #expect(spec == nil)
    #expect(problems.contains { $0.contains(problem) }, "\(problems)")
  }
}
