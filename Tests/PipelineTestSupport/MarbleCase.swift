import PipelineCore
import PipelineTesting

/// Marbles in, marbles out: one marble diagram of what a pipeline does.
package struct MarbleCase {
  /// One step, or a whole signal when `isSignal`.
  package var text: String
  package var isSignal: Bool
  package var inputs: [(name: String, history: SignalHistory)]
  package var expected: SignalHistory
  package var letters: [(name: String, value: TestValue)]
  package var tick: TimeSpan
  /// The duration of the longest diagram.
  package var length: TimeSpan
  /// Whether the diagram of the output has no end, that is neither completion nor failure.
  package var isEndless: Bool

  package struct Mistake: Error, CustomStringConvertible {
    package var description: String
  }

  /// `values` are YAML.
  package init(
    _ text: String, isSignal: Bool, inputs: [(name: String, marbles: String)], output: String,
    values: [(String, String)] = [], tick: TimeSpan = .milliseconds(1)
  ) throws {
    self.text = text
    self.isSignal = isSignal
    self.tick = tick
    letters = try values.map { ($0.0, try Self.value($0.1)) }
    let table = Dictionary(letters.map { ($0.name, $0.value) }) { a, _ in a }
    var length = TimeSpan.zero
    func history(_ text: String) throws -> SignalHistory {
      do {
        let marbles = try Marbles(text, tick: tick)
        length = max(length, marbles.length)
        return SignalHistory(marbles, values: table)
      } catch {
        throw Mistake(description: "'\(text)': \(error.message) (at \(error.offset))")
      }
    }
    self.inputs = try inputs.map { ($0.name, try history($0.marbles)) }
    expected = try history(output)
    self.length = length
    switch expected.entries.last?.moment {
    case .complete, .error: isEndless = false
    default: isEndless = true
    }
  }

  package init(_ example: Example) throws {
    guard case .marble(let step, let inputs, let output, let values) = example.body else {
      throw Mistake(description: "no marbles")
    }
    try self.init(
      step, isSignal: Self.isWholeSignal(step), inputs: inputs, output: output, values: values)
  }

  /// Whether `text` is a whole signal: a mapping with an origin or a combining key.
  package static func isWholeSignal(_ text: String) -> Bool {
    var diagnostics = Diagnostics()
    let source = SourceText(name: "example", text: text)
    guard let entries = YAMLReader.read(source, into: &diagnostics)?.entries else { return false }
    return entries.contains { $0.name == "from" || ReservedKeys.combining.contains($0.name) }
  }

  package static func value(_ yaml: String) throws -> TestValue {
    var diagnostics = Diagnostics()
    guard
      let node = YAMLReader.read(SourceText(name: "value", text: "v: " + yaml), into: &diagnostics),
      let value = node["v"], !diagnostics.hasErrors
    else { throw Mistake(description: "'\(yaml)' is no YAML value") }
    return TestValue(value)
  }

  /// The pipeline file of the case.
  package var yaml: String {
    var text = "name: example\nsources:\n"
    for input in inputs { text += "  \(input.name): { scripted: {} }\n" }
    if isSignal {
      text += "signals:\n  result: \(Self.flow(self.text))\n"
    } else {
      text += "signals:\n  result:\n    from: a\n    chain:\n      - \(self.text)\n"
    }
    text += "sinks:\n  out: { from: result, probe: {} }\n"
    return text
  }

  /// Block notation stays possible: `merge: [a, b]` becomes `{ merge: [a, b] }`.
  private static func flow(_ text: String) -> String {
    text.hasPrefix("{") ? text : "{ \(text) }"
  }

  package func run(
    joined: (SignalHistory) -> Set<Int> = { _ in [] }, hot: Bool = true,
    options: PipelineRun.Options = .init()
  ) throws -> PipelineRun {
    var sources: [String: any SourceComponent] = [:]
    for input in inputs {
      sources[input.name] = ScriptedSource(input.history.script, joined: joined(input.history))
    }
    var options = options
    if hot, isSignal { options.hot = inputs.map(\.name) }
    if isEndless, options.until == nil, options.cancelAt == nil {
      options.until = TimeSpan(nanoseconds: length.nanoseconds - 1)
    }
    return try PipelineRun(yaml, sources: sources, options: options)
  }

  /// The difference from the expected diagram: both diagrams with the first difference marked; nil if there is none.
  package func verdict(hot: Bool = true) throws -> String? {
    let run = try run(hot: hot)
    guard
      let difference = SignalHistory.difference(
        expected: expected, actual: run.out, tick: tick, letters: letters)
    else { return nil }
    var text = "\(self.text)\n"
    for input in inputs {
      text += "  \(input.name): \(input.history.entries.map { "\($0.at) \($0.moment)" }.joined(separator: ", "))\n"
    }
    text += difference
    if !run.deadLetters.isEmpty { text += "\n  given up: \(run.deadLetters.joined(separator: "\n  "))" }
    if !run.log.isEmpty { text += "\n  log: \(run.log.joined(separator: "\n  "))" }
    return text
  }
}
