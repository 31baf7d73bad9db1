import PipelineCore
import PipelineTesting

/// A component of a plugin with parameters and inputs, as rxd would hand them over.
struct ContractCase: Sendable {
  /// "example 'a headline'".
  var label: String
  var spec: PluginComponentSpec
  /// JSON, as in the frame `open`.
  var parameters: String
  /// Events with the results of expressions and templates.
  var inputs: [TestedStep]

  /// Compiles the component as an example of a spec writes it, and lets the engine evaluate its parameters for the events.
  ///
  /// - Parameters:
  ///   - yaml: the component and its parameters.
  ///   - catalogue: the other components that the example may name.
  /// - Returns: The case, or the error in the example.
  static func make(
    _ spec: PluginComponentSpec, _ label: String, _ yaml: String, events: [OwnedValue], catalogue: Catalogue,
    beside others: [PluginComponentSpec]
  ) -> Result<ContractCase, Fault> {
    let maker = CaptureMaker()
    let siblings = others.filter { ($0.kind, $0.name) != (spec.kind, spec.name) }.map { entry($0, CaptureMaker()) }
    let frame = Catalogue(
      [CatalogueEntry(source: ScriptedSource.self), CatalogueEntry(sink: ProbeSink.self), entry(spec, maker)] + siblings
    )
    let result = FrontEnd(catalogue.adding(frame)).compile(text(spec.kind, yaml), name: label)
    let problems = result.diagnostics.filter { $0.severity == .error }
    guard let plan = result.plan, problems.isEmpty else { return .failure(Fault(diagnostics: problems)) }
    run(plan, events, isSource: spec.kind == .source)
    guard let opening = maker.opening else { return .failure(Fault(diagnostics: [])) }
    return .success(
      ContractCase(
        label: label, spec: spec.resolved(opening.parameters),
        parameters: JSON.text { opening.parameters.value(spec, plain: true, in: $0) },
        inputs: maker.inputs.compactMap { step($0, spec) }))
  }

  struct Fault: Error { var diagnostics: [Diagnostic] }

  private static func entry(_ spec: PluginComponentSpec, _ maker: CaptureMaker) -> CatalogueEntry {
    var plain = spec
    // Pure functions are called through the same protocol.
    plain.form = .stream
    let component = plain
    return switch spec.kind {
    case .source: CatalogueEntry(plugin: { PluginSource(BoundPlugin(component, maker)) })
    case .sink: CatalogueEntry(plugin: { PluginSink(BoundPlugin(component, maker)) })
    default: CatalogueEntry(plugin: { PluginOperator(BoundPlugin(component, maker)) })
    }
  }

  /// The reason why it does not apply.
  private static func text(_ kind: ComponentKind, _ yaml: String) -> String {
    let body = yaml.split(separator: "\n", omittingEmptySubsequences: false)
    func indented(_ spaces: Int) -> String {
      body.map { String(repeating: " ", count: spaces) + $0 }.joined(separator: "\n")
    }
    return switch kind {
    case .source: "sources:\n  in:\n\(indented(4))\nsinks:\n  out:\n    from: in\n    probe: {}\n"
    case .sink: "sources:\n  in:\n    scripted: {}\nsinks:\n  out:\n    from: in\n\(indented(4))\n"
    default:
      "sources:\n  in:\n    scripted: {}\nsinks:\n  out:\n    from: in\n    chain:\n      -\n\(indented(8))\n    probe: {}\n"
    }
  }

  private static func run(_ plan: Plan, _ events: [OwnedValue], isSource: Bool) {
    let time = VirtualTime()
    let executor = Executor(clock: time)
    let execution = Execution(
      plan: plan, executor: executor,
      services: Services(http: NoHTTP(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 }))
    if !isSource {
      let script = ScriptedSource(events.map { (TimeSpan.zero, .next($0)) } + [(TimeSpan.zero, .complete)])
      execution.replacements.sources = { _ in script }
    }
    execution.settings.reportSink = { _ in }
    nonisolated(unsafe) let launched = execution
    executor.post { launched.launch(restoring: nil) { _ in } }
    time.run(executor, until: executor.now, turnLimit: 100_000)
    executor.post { launched.cancel() }
    time.run(executor, until: executor.now, turnLimit: 1000)
  }

  private static func step(_ input: PluginInput, _ spec: PluginComponentSpec) -> TestedStep? {
    guard case .event = input.kind else { return nil }
    let buffer = OutputBuffer(capacity: 256)
    buffer.append(",\"event\":" as StaticString)
    guard JSONWriter.append(input.event.event.value, to: buffer) == nil else { return nil }
    var opener = ",\"with\":{"
    for (parameter, argument) in zip(spec.perEvent, input.arguments) where !argument.value.isAbsent {
      buffer.append("\(opener)\"\(parameter.name)\":")
      opener = ","
      guard JSONWriter.append(argument.value, to: buffer) == nil else { return nil }
    }
    if opener == "," { buffer.append("}" as StaticString) }
    return .event(String(decoding: buffer.bytes, as: UTF8.self))
  }

  /// No request is made while a case is built.
  private final class NoHTTP: HTTPClient {
    private final class Nothing: Cancellable { func cancel() {} }
    func send(
      _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
    ) -> any Cancellable { Nothing() }
  }
}

extension LoadedPlugin {
  /// The errors in the examples of its spec, a sentence each.
  ///
  /// - Parameter catalogue: the components that examples may name in addition to the plugin's.
  package func exampleProblems(_ catalogue: Catalogue) -> [String] {
    spec.components.flatMap { component in
      component.examples.flatMap { example -> [String] in
        let made =
          component.kind.isCalled
          ? ContractCase.called(component, "example '\(example.title)'", example)
          : ContractCase.make(
            component, "example '\(example.title)'", example.yaml, events: [], catalogue: catalogue,
            beside: spec.components)
        var problems = example.marbles.map(mistakes) ?? []
        if case .failure(let fault) = made { problems += fault.diagnostics.map(\.message) }
        return problems.map { "the example '\(example.title)' of '\(component.name)': \($0)" }
      }
    }
  }
}

/// The errors in the marbles of an example.
private func mistakes(_ marbles: PluginExample.Marbles) -> [String] {
  [("in", marbles.input), ("out", marbles.output)].compactMap { name, text -> String? in
    do throws(Marbles.Mistake) {
      _ = try Marbles(text)
      return nil
    } catch { return "'\(name)' is not valid marble text: \(error.message)" }
  }
}

/// JSON texts of values.
enum JSON {
  static func text(_ make: (Arena) -> Value) -> String {
    let arena = Arena()
    let buffer = OutputBuffer(capacity: 256)
    _ = JSONWriter.append(make(arena), to: buffer)
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// Nil: it is not JSON.
  static func owned(_ text: some Sequence<UInt8>) -> OwnedValue? {
    let arena = Arena()
    let bytes = Array(text)
    let value = bytes.withUnsafeBytes { JSONParser().parse(arena.copy($0), into: arena) }
    return value.isError ? nil : OwnedValue(value)
  }
}

/// A plugin that records its openings and inputs and answers none.
private final class CaptureMaker: PluginMaker, @unchecked Sendable {
  let file = PluginFile(path: "", directory: "")
  var opening: PluginOpening?
  var inputs: [PluginInput] = []

  func check(_ component: PluginComponentSpec) throws(PluginFault) {}

  func makeInstance(
    of component: PluginComponentSpec, _ services: PluginServices, _ receiver: any PluginReceiver
  ) -> any PluginInstance { Instance(self, services, receiver) }

  func makeSource(
    of component: PluginComponentSpec, _ services: PluginServices, _ queue: InputQueue
  ) -> any PluginSourceInstance { Source(self) }

  func openRow(
    of component: PluginComponentSpec, _ opening: PluginOpening, _ meter: PluginMeter
  ) throws(PluginFault) -> any PluginRowFunction {
    throw PluginFault("it is not asked for rows")
  }

  private final class Instance: PluginInstance, @unchecked Sendable {
    private let maker: CaptureMaker
    private let services: PluginServices
    private weak var receiver: (any PluginReceiver)?

    init(_ maker: CaptureMaker, _ services: PluginServices, _ receiver: any PluginReceiver) {
      self.maker = maker
      self.services = services
      self.receiver = receiver
    }

    func open(_ opening: PluginOpening) { maker.opening = opening }
    func submit(_ inputs: [PluginInput]) {
      maker.inputs += inputs
      let answers = inputs.map { PluginAnswer(number: $0.number) }
      services.route.post { [self] in receiver?.take(answers) }
    }
    func flush() {}
    func close() {}
  }

  private final class Source: PluginSourceInstance {
    private let maker: CaptureMaker
    init(_ maker: CaptureMaker) { self.maker = maker }
    func start(_ opening: PluginOpening, _ receiver: any PluginSourceReceiver) { maker.opening = opening }
    func acknowledge(_ tokens: [UInt64], problem: String?) {}
    func stop() {}
    func release() {}
    func close() {}
  }
}
