import PipelineCore
import PipelineRuntime

/// The conditions of `run` for files that compile.
extension PipelineLoader.Loaded {
  /// Refused if the file requires more than a run without a state directory can promise.
  var withoutStateDirectory: Self {
    var result = self
    result.diagnostics += self.plan?.deliveryShortfalls(hasStateDirectory: false) ?? []
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// Refused if the text itself has come from standard input, which a source is to read.
  var withOwnInput: Self {
    guard self.source?.name == SourceText.standardInputName else { return self }
    var result = self
    for index in result.diagnostics.indices where result.diagnostics[index].code == .sharedStandardInput {
      result.diagnostics[index].severity = .error
    }
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// Refused if a source has no end.
  var withEnds: Self {
    var result = self
    result.diagnostics += self.plan?.sourcesWithoutEnd ?? []
    if result.hasErrors { result.plan = nil }
    return result
  }

  /// The diagnostics with warnings as errors.
  var withoutWarnings: Self {
    var result = self
    for index in result.diagnostics.indices where result.diagnostics[index].severity == .warning {
      result.diagnostics[index].severity = .error
    }
    if result.hasErrors { result.plan = nil }
    return result
  }
}
