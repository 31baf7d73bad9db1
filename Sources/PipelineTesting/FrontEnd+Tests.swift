import PipelineCore

extension FrontEnd.Result {
  /// The first value that the file's tests give each variable.
  package var variablesOfTests: [String: String] {
    var values: [String: String] = [:]
    for entry in file?.tests.flatMap({ $0.options["env"]?.entries ?? [] }) ?? [] where values[entry.name] == nil {
      values[entry.name] = entry.value.string
    }
    return values
  }

  /// The tests of the file. Reports their errors.
  ///
  /// - Parameters:
  ///   - valuesAreAssumed: The file was compiled with ``variablesOfTests``, so tests without `env` must be compiled, too.
  ///   - recompile: Compiles the same file with other values of some variables; nil if that fails.
  package func tests(
    into diagnostics: inout Diagnostics, valuesAreAssumed: Bool = false,
    recompile: @escaping (_ variables: [String: String]) -> FrontEnd.Result?
  ) -> [PipelineTest] {
    guard let plan, let file else { return [] }
    return PipelineTestReader.read(file.tests, of: plan, into: &diagnostics, compilesAll: valuesAreAssumed) {
      variables, found in
      let own = recompile(variables)
      found.report(contentsOf: own?.diagnostics ?? [])
      return own?.plan
    }
  }
}
