import PipelineCore

extension FrontEnd.Result {
  /// The tests of the file. Reports their errors. `recompile`: compiles the same file with other values of some
  /// variables; nil if that fails.
  package func tests(
    into diagnostics: inout Diagnostics, recompile: @escaping (_ variables: [String: String]) -> FrontEnd.Result?
  ) -> [PipelineTest] {
    guard let plan, let file else { return [] }
    return PipelineTestReader.read(file.tests, of: plan, into: &diagnostics) { variables, found in
      let own = recompile(variables)
      found.report(contentsOf: own?.diagnostics ?? [])
      return own?.plan
    }
  }
}
