import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// The document in which a plugin declares its components.
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
    #expect(try spec.components.item(0).recovery == .sender)
    #expect(try spec.components.item(1).credit == 5)
    #expect(try spec.components.item(1).parameters.count == 6)
    #expect(try spec.components.item(1).perEvent.map(\.name) == ["e", "f"])
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
    var diagnostics = Diagnostics()
    _ = PluginSpecReader.read(SourceText(name: "spec", text: text), into: &diagnostics)
    #expect(Set(diagnostics.all.map(\.code.name)) == ["RX713"])
  }

  @Test(
    arguments: [
      (#""form": "rows""#, "'form' of a component cannot be 'rows'"),
      (#""credit": 0"#, "'credit' of a component must be between 1 and 65536"),
      (#""form": "row", "timers": true"#, "a component with 'form: row' has neither state nor timers"),
      (#""parameters": {}"#, "'parameters' is a list"),
      (#""parameters": [{"name": "A", "type": "text", "help": "H."}]"#, "'A' cannot be the name of a parameter"),
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
        "the parameter 'a' of 'op' is defined twice"
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

  @Test(arguments: ["template", "expression"]) func aSourceHasNothingToEvaluate(_ type: String) {
    let (spec, problems) = read(
      source("\"parameters\": [{\"name\": \"key\", \"type\": \"\(type)\", \"help\": \"H.\"}]"))
    #expect(spec == nil && problems.contains { $0.contains("a source gets none") }, "\(problems)")
  }

  // MARK: What depends on a parameter

  private static let qos =
    #""parameters": [{"name": "qos", "type": "integer", "default": 1, "minimum": 0, "maximum": 2, "help": "Q."}, {"name": "topic", "type": "json", "help": "T."}]"#

  private func source(_ members: String) -> String {
    component(members).replacing(#""kind": "operator""#, with: #""kind": "source""#)
  }

  @Test func aCaseOfAParameterIsRead() throws {
    let (found, problems) = read(
      source(
        Self.qos
          + #", "recovery": "sender", "when": [{"parameter": "qos", "is": 0, "recovery": "never"}, {"parameter": "qos", "is": 0, "recovery": "position"}, {"parameter": "qos", "is": 2, "recovery": "position"}]"#
      ))
    let spec = try #require(found, "\(problems)").components.item(0)
    func recovery(_ value: PluginValue?) -> SourceRecovery {
      spec.resolved(PluginArguments(values: [value, nil])).recovery
    }
    #expect(recovery(.integer(1)) == .sender && recovery(nil) == .sender)
    // The first one wins.
    #expect(recovery(.integer(0)) == .never && recovery(.integer(2)) == .position)
  }

  @Test(
    arguments: [
      (#""when": {}"#, "'when' is a list"),
      (#""when": [1]"#, "a case of 'when' is an object, not a number"),
      (#""when": [{"is": 0, "recovery": "never"}]"#, "a case of 'when' needs 'parameter'"),
      (#""when": [{"parameter": "qos", "recovery": "never"}]"#, "a case of 'when' needs 'is'"),
      (#""when": [{"parameter": "qos", "is": 0}]"#, "a case of 'when' needs 'recovery'"),
      (#""when": [{"parameter": "qos", "is": 0, "recovery": "often"}]"#, "'recovery' of a case of 'when' cannot be"),
      (
        #""when": [{"parameter": "qso", "is": 0, "recovery": "never"}]"#,
        "a case of 'when' names the parameter 'qso', which 'op' does not have"
      ),
      (
        #""when": [{"parameter": "topic", "is": "a", "recovery": "never"}]"#,
        "a case of 'when' cannot depend on 'topic'"
      ),
      (
        #""when": [{"parameter": "qos", "is": 3, "recovery": "never"}]"#,
        "'qos' of 'op' is 3, but must be between 0 and 2"
      ),
    ])
  func casesAreChecked(_ members: String, _ problem: String) {
    let (spec, problems) = read(source(Self.qos + ", " + members))
    #expect(spec == nil)
    #expect(problems.contains { $0.contains(problem) }, "\(problems)")
  }

  @Test func anOperatorHasNoCases() {
    let (spec, problems) = read(component(#""when": []"#))
    #expect(spec == nil)
    #expect(
      problems.contains { $0.contains("'when' is for sources and sinks, and 'op' is an operator") }, "\(problems)")
  }

  // MARK: Further files

  @Test func furtherFilesAreRead() throws {
    func text(_ uses: String) -> String { component("").replacing(#""components""#, with: uses + #", "components""#) }
    let (found, problems) = read(text(#""uses": ["a.wasm", "/b"]"#).replacing(#"S.", }"#, with: #"S."}"#))
    #expect(try #require(found, "\(problems)").uses == ["a.wasm", "/b"])
    for wrong in [#""uses": "a""#, #""uses": [1, {}]"#, #""uses": [""]"#] {
      let (spec, problems) = read(text(wrong).replacing(#"S.", }"#, with: #"S."}"#))
      #expect(spec == nil && problems.contains { $0.contains("'uses'") }, "\(wrong): \(problems)")
    }
    let many = (0...256).map { "\"f\($0)\"" }.joined(separator: ",")
    #expect(read(text("\"uses\": [\(many)]").replacing(#"S.", }"#, with: #"S."}"#)).spec == nil)
  }
}
