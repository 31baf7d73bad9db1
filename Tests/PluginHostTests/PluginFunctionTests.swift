import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import PluginHost
import Synchronization
import Testing

/// Functions of expressions, decoders and encoders of plugins.
@Suite(.timeLimit(.minutes(5))) struct PluginFunctionTests {
  /// The functions and formats of `formats.c`, which misbehave as named.
  static func formats() throws -> String {
    let path = PluginFixtures.scratch("formats.so")
    try PluginFixtures.build("formats.c", to: path)
    return path
  }

  private static func events(_ plugin: String, _ values: String, _ chain: String) throws -> (
    events: [String], errors: [String]
  ) {
    let pipeline = try PluginFixtures.pipeline(
      plugin, values: values, chain: chain, more: "  bad: { from: in.errors, probe: {} }\n")
    pipeline.run()
    return (pipeline.probe().events, pipeline.probe("bad").events)
  }

  private static func diagnostics(_ text: String) -> [Diagnostic] {
    var frontEnd = FrontEnd(.builtIn)
    frontEnd.plugins = PluginFixtures.plugins
    return frontEnd.compile(text).diagnostics
  }

  // MARK: Functions

  @Test(arguments: [
    ("example.initials(event)", #"["A.L.","","Ä.𝄞."]"#), ("example.initials(event, '')", #"["AL","","Ä𝄞"]"#),
    ("example.initials(event, event).size()", "[26,0,24]"),
    ("event.split(' ').map(word, example.initials(word, '')).join('')", #"["AL","","Ä𝄞"]"#),
  ]) func anExpressionCallsAFunction(_ expression: String, _ expected: String) throws {
    let found = try Self.events(
      try PluginFixtures.example.get(), #"["Ada Lovelace", "", "  Ändern 𝄞 "]"#, #"[ { map: "\#(expression)" } ]"#)
    #expect("[" + found.events.joined(separator: ",") + "]" == expected)
  }

  /// Functions of the file, conditions and templates also call functions of plugins.
  @Test func functionsOfTheFileCallFunctionsOfPlugins() throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.example.get())']
      functions:
        short: { parameters: { name: string }, value: "example.initials(name, '')", examples: [] }
      sources: { in: { values: ["Ada Lovelace", "Bob"] } }
      sinks:
        out: { from: in, chain: [ { filter: "short(event).size() == 2" }, { map: "short(event) + '!'" } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe().events == [#""AL!""#])
  }

  /// Pure functions log, too: a GeoIP database that cannot be read anew would otherwise stay in use without a word.
  @Test func pureFunctionsLog() throws {
    let said = Mutex<[String]>([])
    let plugins = LocalPlugins(asks: true, directories: []) { level, message in
      said.withLock { $0.append("\(level.rawValue): \(message)") }
    }
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try Self.formats())']
      sources: { in: { values: [one] } }
      sinks: { out: { from: in, chain: [ { map: "formats.speak(event + '!')" }, { spoken: {} } ], probe: {} } }
      """, plugins: plugins)
    pipeline.run()
    #expect(pipeline.probe().events == [#""one!""#])
    #expect(
      said.withLock(\.self) == [
        "warning: the function 'speak' of the plugin 'formats': one!",
        "info: the operator 'spoken' of the plugin 'formats': one!",
      ])
  }

  @Test func aFunctionThatFailsSendsTheEventToErrors() throws {
    let pipeline = try PluginFixtures.pipeline(
      try Self.formats(), values: #"["a", "b"]"#, chain: "[ { map: \"formats.refuse(event)\" } ]",
      more: "  bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }\n")
    pipeline.run()
    #expect(pipeline.probe().events == [])
    #expect(
      pipeline.probe("bad").events == [
        #""it refuses 'a' (formats.refuse(event))""#, #""it refuses 'b' (formats.refuse(event))""#,
      ])
  }

  private static let odd = #"["1","true","z","18446744073709551615"]"#

  /// A plugin can traverse objects and lists by index, whether they are JSON text or made by expressions, and gets
  /// keys and numbers as whole values.
  @Test(arguments: [
    ("formats.names(event)", #"["a","b\u0000c"]"#),
    ("formats.names({1: 'x', true: 'y', 'z': 2, 18446744073709551615u: 3})", Self.odd),
    ("formats.sum(event.a)", "6"), ("formats.sum([18446744073709551615u])", "18446744073709551615"),
    ("formats.sum([-5, 2, 'x'])", "2"), ("formats.sum([])", "0"),
  ]) func valuesAreReadByIndex(_ expression: String, _ expected: String) throws {
    let scratch = Scratch()
    try Data(#"{ "a": [1, 2, 3], "b\u0000c": null }"#.utf8).write(to: URL(fileURLWithPath: scratch("in")))
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try Self.formats())']
      sources: { in: { file: { path: '\(scratch("in"))', decode: json } } }
      sinks: { out: { from: in, chain: [ { map: "\(expression)" } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.runToEnd()
    #expect(pipeline.probe().events == [expected])
  }

  /// A whole number is also a double, because JSON writes 2.0 as 2; the plugin and the expression receive a double.
  @Test(arguments: [
    ("formats.half(3)", "1.5"), ("formats.half(event)", "3.5"), ("formats.half(event + 1)", "4.0"),
    ("formats.half(9u)", "4.5"),
    ("formats.whole() / 2.0", "1.5"),
  ]) func wholeNumbersAreDoubles(_ expression: String, _ expected: String) throws {
    let found = try Self.events(try Self.formats(), "[7]", #"[ { map: "\#(expression)" } ]"#)
    #expect(found.events == [expected])
  }

  /// The machine checks the kinds of four arguments of a call.
  @Test func allArgumentsHaveTheirTypes() throws {
    let pipeline = try PluginFixtures.pipeline(
      try Self.formats(), values: "[x, 5]", chain: "[ { map: \"formats.fifth(1, 2, 3, 4, event)\" } ]",
      more: "  bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }\n")
    pipeline.run()
    #expect(pipeline.probe().events == [#""x""#])
    #expect(
      pipeline.probe("bad").events.first?.contains("the argument 5 of 'formats.fifth' is a number, not a string")
        == true)
  }

  @Test func aResultOfAnotherTypeIsAFailure() throws {
    let pipeline = try PluginFixtures.pipeline(
      try Self.formats(), values: "[1]", chain: "[ { map: formats.lie(event) } ]",
      more: "  bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }\n")
    pipeline.run()
    #expect(
      pipeline.probe("bad").events == [
        #""'formats.lie' returned a text, and its spec says an int (formats.lie(event))""#
      ])
  }

  @Test(
    arguments: [
      (
        "example.initials(1)", "example.initials(int) does not exist",
        "It is called as example.initials(string) -> string or example.initials(string, string) -> string."
      ),
      ("example.initials()", "example.initials() does not exist", nil),
      ("example.initals('a')", "there is no function 'example.initals'", "Did you mean 'example.initials'?"),
      ("example.initials('a') + 1", "'+' is not defined for string and int", nil),
    ] as [(String, String, String?)]) func callsAreChecked(_ expression: String, _ message: String, _ help: String?)
    throws
  {
    let found = Self.diagnostics(
      """
      plugins: ['\(try PluginFixtures.example.get())']
      sources: { in: { values: [1] } }
      sinks: { out: { from: in, chain: [ { map: "\(expression)" } ], discard: {} } }
      """)
    let error = try #require(found.first { $0.severity == .error })
    #expect(error.message == message)
    if let help { #expect(error.help == help) }
  }

  /// Checking and compiling a file runs no code of the plugin, although the arguments are constant.
  @Test func compilingCallsNothing() throws {
    let file = PluginFixtures.scratch("called")
    let text = """
      plugins: ['\(try Self.formats())']
      sources: { in: { values: [1] } }
      sinks: { out: { from: in, chain: [ { map: "formats.touch('\(file)')" } ], probe: {} } }
      """
    #expect(Self.diagnostics(text.replacing("probe", with: "discard")).isEmpty)
    #expect(!FileManager.default.fileExists(atPath: file))
    let pipeline = try VirtualPipeline(text, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe().events == ["true"])
    #expect(FileManager.default.fileExists(atPath: file))
  }

  /// A plugin that cannot be opened ends the pipeline before its first event, with the location that names it.
  @Test func whatCannotBeOpenedEndsThePipelineAtItsStart() throws {
    for chain in ["[ { map: formats.closed(event) } ]", "[]"] {
      let source = chain == "[]" ? "file: { path: /dev/null, decode: { closed: { key: x } } }" : "values: [1]"
      let pipeline = try VirtualPipeline(
        """
        plugins: ['\(try Self.formats())']
        sources: { in: { \(source) } }
        sinks: { out: { from: in, chain: \(chain), probe: {} } }
        """, plugins: PluginFixtures.plugins)
      pipeline.run()
      guard case .failed(let failure) = pipeline.outcome else {
        Issue.record("\(String(describing: pipeline.outcome))")
        continue
      }
      #expect(failure.message.hasSuffix("of the plugin 'formats' cannot be used: the key is wrong"))
      #expect(failure.location?.line == (chain == "[]" ? 2 : 1))
    }
  }

  // MARK: Formats

  private static func decoded(_ plugin: String, _ decode: String, _ input: [UInt8]) throws -> (
    events: [String], errors: [String]
  ) {
    let scratch = Scratch()
    try Data(input).write(to: URL(fileURLWithPath: scratch("in")))
    let pipeline = try RealPipeline(
      """
      plugins: ['\(plugin)']
      sources: { in: { file: { path: '\(scratch("in"))', decode: \(decode) } } }
      sinks:
        out: { from: in, probe: {} }
        bad: { from: in.errors, chain: [ { map: event.error } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.runToEnd()
    return (pipeline.probe().events, pipeline.probe("bad").events)
  }

  @Test func aDecoderMakesAListOfEvents() throws {
    let plugin = try PluginFixtures.example.get()
    let found = try Self.decoded(plugin, "exampleLengths", [2, 0x61, 0x62, 0, 1, 0x63])
    #expect(found.events == [#""ab""#, #""""#, #""c""#])
    let cut = try Self.decoded(plugin, "exampleLengths", [2, 0x61, 0x62, 9, 0x63])
    #expect(cut.events == [])
    #expect(cut.errors == [#""the text at byte 4 has 9 bytes, and 1 are left""#])
  }

  @Test func aDecoderReadsLinesWithParameters() throws {
    let plugin = try Self.formats()
    let found = try Self.decoded(plugin, "{ between: { separator: ';' } }", Array("a;b\nskip\r\n!bad\nc\n".utf8))
    #expect(found.events == [#"["a","b"]"#, #"["c"]"#])
    #expect(found.errors == [#""it begins with '!'""#])
  }

  @Test func anEncoderWritesLines() throws {
    let scratch = Scratch()
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try Self.formats())']
      sources: { in: { values: [a, "x\\ny", 1, b] } }
      sinks:
        out: { from: in, file: { path: '\(scratch("out"))', encode: bracketed } }
        bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.runToEnd()
    #expect(FileManager.default.contents(atPath: scratch("out")) == Data("[a]\n[b]\n".utf8))
    #expect(
      pipeline.probe("bad").events.map { $0.contains("line break") || $0.contains("only texts") } == [true, true])
  }

  @Test func whatIsEncodedIsDecodedAgain() throws {
    let scratch = Scratch()
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try PluginFixtures.example.get())']
      sources: { in: { values: ["", "ä", "\(String(repeating: "x", count: 255))"] } }
      sinks: { out: { from: in, file: { path: '\(scratch("out"))', encode: exampleLengths } } }
      """, plugins: PluginFixtures.plugins)
    pipeline.runToEnd()
    let bytes = try #require(FileManager.default.contents(atPath: scratch("out")))
    let found = try Self.decoded(try PluginFixtures.example.get(), "exampleLengths", Array(bytes))
    #expect(found.events == [#""""#, #""ä""#, "\"" + String(repeating: "x", count: 255) + "\""])
  }

  @Test(arguments: [
    ("decode: exampleLenghts", "there is no decoder 'exampleLenghts'"),
    ("decode: { exampleLengths: { a: 1 } }", "'exampleLengths' has no parameter 'a'"),
    ("decode: exampleLengths, charset: latin1", "'decode: exampleLengths' takes no 'charset'"),
    (
      "decode: exampleLengths, join: { start: x }",
      "'join' joins lines, and 'decode: exampleLengths' does not read joined ones"
    ),
  ]) func optionsOfFormatsAreChecked(_ options: String, _ message: String) throws {
    let found = Self.diagnostics(
      """
      plugins: ['\(try PluginFixtures.example.get())']
      sources: { in: { file: { path: /dev/null, \(options) } } }
      sinks: { out: { from: in, discard: {} } }
      """)
    #expect(found.filter { $0.severity == .error }.map(\.message).first == message)
  }

  /// Expressions know the type of a decoder's events.
  @Test func theEventsOfADecoderHaveItsType() throws {
    let found = Self.diagnostics(
      """
      plugins: ['\(try PluginFixtures.example.get())']
      sources: { in: { file: { path: /dev/null, decode: exampleLengths } } }
      sinks: { out: { from: in, chain: [ { map: event + 1 } ], discard: {} } }
      """)
    #expect(found.map(\.message).contains("'+' is not defined for string and int"))
  }

  // MARK: Tables

  /// A table waits until its source has sent all existing rows, in any number of batches, and then follows the changes.
  @Test func aTableWaitsForTheRowsOfItsSource() throws {
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try Self.formats())']
      tables: { people: { feed: { count: 20000 }, chain: [ { map: event } ], key: event.id } }
      sources: { in: { values: [1, 20000, 20001] }, ticks: { interval: 1ms } }
      sinks:
        out: { from: in, chain: [ { map: "people[event].name.orValue('none')" } ], probe: {} }
        later: { from: ticks, chain: [ { map: "people[1].name.orValue('none')" } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run { pipeline.probe("later").events.contains(#""changed1""#) }
    #expect(pipeline.probe().events.dropFirst() == [#""n20000""#, #""none""#])
    #expect([#""n1""#, #""changed1""#].contains(pipeline.probe().events.first))
    #expect(!pipeline.probe("later").events.contains(#""none""#))
  }

  @Test func aTableThatFollowsItsSourceIsNotReadAgain() throws {
    let found = Self.diagnostics(
      """
      plugins: ['\(try Self.formats())']
      tables: { people: { feed: { count: 2 }, key: event.id, every: 1s } }
      sources: { in: { values: [1] } }
      sinks: { out: { from: in, chain: [ { map: "people[event].name.orValue('none')" } ], discard: {} } }
      """)
    #expect(
      found.map(\.message) == ["'every' reads the source of a table again, but this table changes as events arrive"])
  }

  // MARK: The spec and the contract

  @Test(arguments: [
    (
      #"{"kind": "function", "name": "f", "summary": "S.", "parameters": [{"name": "a", "type": "text", "help": "H."}]}"#,
      "the parameter 'a' of the function 'f' must have the type 'expression'"
    ),
    (
      #"{"kind": "function", "name": "f", "summary": "S.", "state": {"version": 1}}"#,
      "the function 'f' cannot have 'state'"
    ),
    (
      #"{"kind": "function", "name": "f", "summary": "S.", "parameters": [{"name": "a", "type": "expression", "help": "H."}, {"name": "b", "type": "expression", "required": true, "help": "H."}]}"#,
      "the function 'f' requires 'b', but not the parameter before it"
    ),
    (
      #"{"kind": "decoder", "name": "d", "summary": "S.", "parameters": [{"name": "a", "type": "template", "help": "H."}]}"#,
      "the decoder 'd' cannot evaluate 'a' for each event"
    ),
    (
      #"{"kind": "decoder", "name": "d", "summary": "S.", "framing": "bytes"}"#,
      "'framing' of the decoder 'd' cannot be 'bytes'"
    ),
  ]) func specsAreChecked(_ component: String, _ message: String) {
    var diagnostics = Diagnostics()
    let text = #"{"plugin": "p", "version": "1", "summary": "S.", "components": [\#(component)]}"#
    #expect(PluginSpecReader.read(SourceText(name: "spec", text: text), into: &diagnostics) == nil)
    #expect(diagnostics.all.map(\.message) == [message])
  }

  @Test func aProgramCannotOfferThem() throws {
    let path = try PluginFixtures.program(
      "functional", components: #"[{"kind": "function", "name": "f", "summary": "S."}]"#, "")
    let expected = "the function 'f' is a pure function, which only shared libraries can offer"
    #expect(PluginFixtures.plugins.refusal(path) == expected)
  }

  @Test func aPluginWithFunctionsNeedsANameForExpressions() {
    var diagnostics = Diagnostics()
    let text =
      #"{"plugin": "my-plugin", "version": "1", "summary": "S.", "components": [{"kind": "function", "name": "f", "summary": "S."}]}"#
    #expect(PluginSpecReader.read(SourceText(name: "spec", text: text), into: &diagnostics) == nil)
    #expect(
      diagnostics.all.map(\.message) == [
        "expressions call 'f' by the name of its plugin, and 'my-plugin' cannot be a name in them"
      ])
  }
}
