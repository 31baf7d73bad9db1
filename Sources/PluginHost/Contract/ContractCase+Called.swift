import PipelineCore
import PipelineTesting

/// Cases for the functions of expressions, the decoders and the encoders of a plugin.
extension ContractCase {
  /// - Parameter yaml: of a function, a call; of a format, the value of `decode` or `encode`.
  static func called(_ spec: PluginComponentSpec, _ label: String, _ example: PluginExample?) -> Result<Self, Fault> {
    switch spec.kind {
    case .function: function(spec, label)
    default: format(spec, label, example)
    }
  }

  // MARK: Functions

  private static func function(_ spec: PluginComponentSpec, _ label: String) -> Result<Self, Fault> {
    var inputs: [TestedStep] = []
    for example in spec.examples {
      switch arguments(of: example, spec) {
      case .success(let step): inputs.append(step)
      case .failure(let fault): return .failure(fault)
      }
    }
    // Each argument takes each of its values while the others keep their first one.
    let values = spec.parameters.map { parameter -> [String] in
      if case .expression(let type?) = parameter.type { return TestEvents.values(type) }
      return TestEvents.odd
    }
    for (index, own) in values.enumerated() {
      for value in own {
        let all = values.enumerated().map { $0.offset == index ? value : $0.element.first ?? "null" }
        inputs.append(call(spec, all))
      }
    }
    if values.isEmpty { inputs.append(call(spec, [])) }
    return .success(ContractCase(label: label, spec: spec, parameters: "{}", inputs: inputs))
  }

  private static func call(_ spec: PluginComponentSpec, _ values: [String]) -> TestedStep {
    let members = zip(spec.parameters, values).map { "\(JSONText.string($0.name).text):\($1)" }
    return .event(",\"event\":null" + (members.isEmpty ? "" : ",\"with\":{\(members.joined(separator: ","))}"))
  }

  /// The input that an example's call gives the function.
  static func arguments(of example: PluginExample, _ spec: PluginComponentSpec) -> Result<TestedStep, Fault> {
    func fault(_ message: String) -> Result<TestedStep, Fault> {
      .failure(Fault(diagnostics: [Diagnostic(.pluginSpec, "the example '\(example.title)' \(message)", at: nil)]))
    }
    guard let first = example.yaml.firstIndex(of: "("), example.yaml.last == ")",
      example.yaml[..<first].hasSuffix(".\(spec.name)")
    else { return fault("is not a call such as plugin.\(spec.name)(...)") }
    let list = example.yaml[example.yaml.index(after: first)...].dropLast()
    switch value(of: "[\(list)]") {
    case .failure(let found): return fault("has arguments that cannot be evaluated: \(found.message)")
    case .success(let value):
      let values = value.value.elements.map { element in JSON.text { _ in element } }
      return .success(call(spec, values))
    }
  }

  /// The value of an expression without variables.
  static func value(of expression: String) -> Result<OwnedValue, PluginFault> {
    var diagnostics = Diagnostics()
    let checked = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
      .check(in: ExpressionScope([]), into: &diagnostics)
    guard let checked, !diagnostics.hasErrors else {
      return .failure(PluginFault(diagnostics.all.first?.message ?? "it is not an expression"))
    }
    let standalone = StandaloneExpression(checked)
    let value = standalone.evaluate(.null)
    return value.isError
      ? .failure(PluginFault(standalone.program.failureMessage(value, standalone.frame))) : .success(OwnedValue(value))
  }

  // MARK: Formats

  private static func format(
    _ spec: PluginComponentSpec, _ label: String, _ example: PluginExample?
  ) -> Result<Self, Fault> {
    let format = PluginFunction(spec, of: spec.plugin, at: nil, digest: "") { _, _ in .failure(.init("not opened")) }
    var diagnostics = Diagnostics()
    var given = format
    if let yaml = example?.yaml {
      guard let node = YAMLReader.read(SourceText(name: label, text: yaml), into: &diagnostics) else {
        return .failure(Fault(diagnostics: diagnostics.all))
      }
      let entry = node.entries.flatMap { $0.count == 1 ? $0[0] : nil }
      guard (entry?.name ?? node.string) == spec.name else {
        let wanted = Diagnostic(
          .pluginSpec,
          "the example '\(example?.title ?? "")' is not the value of '\(spec.kind == .decoder ? "decode" : "encode")'",
          at: node.location, help: "Write '\(spec.name)', or '{ \(spec.name): { PARAMETER: ... } }'")
        return .failure(Fault(diagnostics: [wanted]))
      }
      if let entry {
        var context = DecodingContext(at: node.location)
        given = format.with(entry.value, &context) as? PluginFunction ?? format
        guard !context.diagnostics.hasErrors else { return .failure(Fault(diagnostics: context.diagnostics.all)) }
      }
    }
    let inputs =
      spec.kind == .decoder
      ? units(spec.examples.map(\.input)).map { TestedStep.event(",\"event\":null,\"bytes\":\"\(Base64.encode($0))\"") }
      : (spec.examples.map { String(decoding: $0.input, as: UTF8.self) } + TestEvents.fitting(spec, "")
        + TestEvents.odd).map { TestedStep.event(",\"event\":\($0)") }
    return .success(
      ContractCase(
        label: label, spec: spec, parameters: JSON.text { given.arguments.value(spec, plain: true, in: $0) },
        inputs: inputs))
  }

  /// The inputs of examples, parts of them, damaged copies, and bytes at random; the same each time.
  private static func units(_ samples: [[UInt8]]) -> [[UInt8]] {
    var random = SeededGenerator(seed: 0x5EED)
    var units: [[UInt8]] = samples + [[], [0], Array("text".utf8), Array(repeating: 0xFF, count: 300)]
    for sample in samples where !sample.isEmpty {
      let cuts = sample.count <= 40 ? Array(0..<sample.count) : (0..<40).map { $0 * sample.count / 40 }
      units += cuts.map { Array(sample[..<$0]) }
      for _ in 0..<60 {
        var damaged = sample
        for _ in 0..<Int.random(in: 1...3, using: &random) {
          damaged[Int.random(in: 0..<damaged.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
        }
        units.append(damaged)
      }
      units.append(sample + sample)
    }
    for count in [1, 2, 3, 5, 9, 17, 100, 5000] {
      for _ in 0..<4 { units.append((0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }) }
    }
    return units
  }
}

/// SplitMix64: the same numbers on each machine.
private struct SeededGenerator: RandomNumberGenerator {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
