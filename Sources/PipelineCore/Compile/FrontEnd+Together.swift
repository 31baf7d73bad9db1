extension FrontEnd {
  /// Reports resources that only one pipeline of a process can have, and cycles of events through several pipelines. If
  /// a pipeline listens on the address of an earlier one, or forms a cycle with earlier ones, it gets an error and has
  /// no plan; a shared name or a shared standard input is a warning.
  package static func checkTogether(_ results: inout [Result]) {
    var listeners: [Plan.Listener] = []
    for index in results.indices {
      guard let plan = results[index].plan else { continue }
      var diagnostics = Diagnostics()
      var known = listeners
      plan.reportSharedAddresses(beside: &known, into: &diagnostics)
      results[index].diagnostics += diagnostics.all
      if diagnostics.hasErrors { results[index].plan = nil } else { listeners = known }
    }
    reportCircles(&results)
    reportNames(&results)
    reportStandardInput(&results)
  }

  private static func reportCircles(_ results: inout [Result]) {
    // For each route, the index of the result that contains it.
    var owners: [Int] = []
    var ways: [OutsideWay] = []
    for (index, result) in results.enumerated() {
      for way in result.plan?.outsideWays ?? [] {
        ways.append(way)
        owners.append(index)
      }
    }
    let circles = OutsideCircles(ways)
    // Cycles within one file have been reported, so each of these passes through several.
    for way in ways.indices {
      let owner = owners[way]
      guard let circle = circles.circle(through: way, { owners[$0] <= owner && results[owners[$0]].plan != nil })
      else { continue }
      let diagnostic = circles.diagnostic(of: circle, through: way)
      results[owner].diagnostics.append(diagnostic)
      if diagnostic.severity == .error { results[owner].plan = nil }
    }
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
