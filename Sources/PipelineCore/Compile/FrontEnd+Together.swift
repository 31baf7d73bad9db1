extension FrontEnd {
  /// Reports what only one of the pipelines of a process can have. An address that an earlier one listens on is an error
  /// of the later one, which then has no plan; a shared name or standard input is a warning.
  public static func checkTogether(_ results: inout [Result]) {
    var plans: [Plan] = []
    for index in results.indices {
      guard let plan = results[index].plan else { continue }
      var diagnostics = Diagnostics()
      plan.reportSharedAddresses(beside: plans, into: &diagnostics)
      results[index].diagnostics += diagnostics.all
      if diagnostics.hasErrors { results[index].plan = nil } else { plans.append(plan) }
    }
    reportNames(&results)
    reportStandardInput(&results)
  }

  private static func reportNames(_ results: inout [Result]) {
    var named: [String: Located<String>] = [:]
    for index in results.indices {
      guard results[index].plan != nil, let name = results[index].file?.name else { continue }
      guard let other = named[name.value] else {
        named[name.value] = name
        continue
      }
      results[index].diagnostics.append(
        Diagnostic(
          .sharedName, "another of these pipelines is also called \(Printable.quote(name.value))", at: name.location,
          notes: [.init("this one", at: other.location)],
          help: "Give one of them another 'name': the log and the dead letters identify pipelines by name"))
    }
  }

  private static func reportStandardInput(_ results: inout [Result]) {
    var reader: (name: String, location: SourceLocation)?
    for index in results.indices {
      guard let plan = results[index].plan, let location = plan.standardInput else { continue }
      if results[index].source?.name == SourceText.standardInputName {
        results[index].diagnostics.append(
          Diagnostic(
            .sharedStandardInput,
            "the pipeline file itself is read from standard input, so this source cannot read it",
            at: location, help: "Give the pipeline file by its path"))
      } else if let reader {
        results[index].diagnostics.append(
          Diagnostic(
            .sharedStandardInput,
            "the pipeline \(Printable.quote(reader.name)) also reads standard input, and only one can",
            at: location,
            notes: [.init("it does so here", at: reader.location)], help: "Run them as separate processes"))
      } else {
        reader = (plan.name, location)
      }
    }
  }
}
