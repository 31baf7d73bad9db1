import PipelineCore
import PipelineTesting

extension ContractTrial {
  /// Runs the examples of a function, a decoder or an encoder; throws at the first with another result.
  func runExamples() throws(ContractBreach) -> Int {
    let program = try program()
    defer { program.kill() }
    for example in spec.examples {
      guard let result = example.result else { continue }
      let instance: TestedInstance
      let step: TestedStep
      var expected: TestValue
      switch spec.kind {
      case .function:
        instance = try open(program)
        switch (ContractCase.arguments(of: example, spec), ContractCase.value(of: result)) {
        case (.success(let found), .success(let value)): (step, expected) = (found, TestValue(value.value))
        case (_, .failure(let fault)):
          throw breach(example, "'out' cannot be evaluated: \(fault.message)", result)
        case (.failure(let fault), _): throw breach(example, fault.diagnostics.first?.message ?? "", result)
        }
      default:
        guard case .success(let one) = ContractCase.called(spec, example.title, example) else { continue }
        instance = try program.open(spec, one.parameters)
        if let refusal = instance.refusal { throw breach(example, "'open' is refused: \(refusal)", result) }
        if spec.kind == .decoder {
          step = .event(",\"event\":null,\"bytes\":\"\(Base64.encode(example.input))\"")
          guard let value = JSON.owned(Array(result.utf8)) else { throw breach(example, "'out' is not JSON", result) }
          expected = TestValue(value.value)
        } else {
          step = .event(",\"event\":" + String(decoding: example.input, as: UTF8.self))
          // Bytes come as base64 in JSON.
          expected = .text(result.hasPrefix("base64:") ? String(result.dropFirst(7)) : result)
        }
      }
      let outcome = try program.ask(instance, step, now: nil).outcome
      // An encoder may return bytes, which JSON shows as base64.
      let isBase64 = spec.kind == .encoder && outcome.events == [.text(Base64.encode(Array(result.utf8)))]
      let found = spec.kind == .decoder && !spec.makesList ? [.list(outcome.events)] : outcome.events
      if !isBase64, found != [expected] { throw breach(example, outcome.shown, result) }
      program.close(instance)
    }
    try program.end()
    return spec.examples.count
  }

  private func breach(_ example: PluginExample, _ came: String, _ expected: String) -> ContractBreach {
    ContractBreach(
      expected: "\(expected), as 'out' of the example '\(example.title)' says", came: came,
      help: "Correct the example, or the \(spec.kind.rawValue)")
  }
}
