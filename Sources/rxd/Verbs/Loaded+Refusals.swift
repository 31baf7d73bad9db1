import PipelineCore
import PipelineRuntime

/// Further conditions that `run` sets for files that compile.
extension PipelineLoader.Loaded {
  /// The result, with an error if the file requires more than a run without a state directory can guarantee.
  var withoutStateDirectory: Self {
    var result = self
    result.diagnostics += self.plan?.deliveryShortfalls(hasStateDirectory: false) ?? []
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// The result, with an error if the text itself came from standard input and a source reads that, too.
  var withOwnInput: Self {
    guard self.source?.name == SourceText.standardInputName else { return self }
    var result = self
    for index in result.diagnostics.indices where result.diagnostics[index].code == .sharedStandardInput {
      result.diagnostics[index].severity = .error
    }
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// The result, with an error if a source has no end.
  var withEnds: Self {
    var result = self
    result.diagnostics += self.plan?.sourcesWithoutEnd ?? []
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// The result, with warnings as errors.
  var withoutWarnings: Self {
    var result = self
    for index in result.diagnostics.indices where result.diagnostics[index].severity == .warning {
      result.diagnostics[index].severity = .error
    }
    if result.hasErrors { result.plan = nil }
    return result
  }
}
