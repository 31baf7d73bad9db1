/// Resolves `from: NAME` and `from: NAME.errors`.
extension Compilation {
  /// A dependency: `reader` depends on the events of `name`, or of its output.
  struct Reading {
    var reader: String
    var name: String
    /// `errors`, `values`; nil for the events of the signal.
    var output: String?
    /// `reader` is a command that `name` executes.
    var isExecution = false
    var location: SourceLocation

    var text: String {
      "'\(reader)' \(isExecution ? "is executed by" : "reads") '\(name)\(output.map { ".\($0)" } ?? "")' here"
    }
  }

  func reference(_ name: ReferenceNode, _ context: SignalContext) -> SignalPlan? {
    let isErrors = name.output?.value == "errors"
    readings.append(
      Reading(reader: context.owner, name: name.name.value, output: name.output?.value, location: name.location))
    guard let at = index[name.name.value] else { return sinkErrors(name, context) }
    if entries[at].kind == .command, !isErrors { return commandOutput(name, context) }
    if entries[at].kind == .table, !isErrors {
      diagnostics.report(
        Diagnostic(
          .unknownOutput, "'\(name.name.value)' is a table, which sends no events", at: name.name.location,
          help: "Read its rows in expressions: \(name.name.value)[KEY]"))
      return nil
    }
    if entries[at].kind != .command { entries[at].references += 1 }
    guard let output = name.output else {
      guard let plan = named(at, from: name.name.location) else { return nil }
      // Each reader of a cold signal runs its own copy of it, and so executes whatever the signal executes.
      if entries[at].isCold, executing.contains(name.name.value) { noteExecution(by: context.owner) }
      return SignalPlan(
        .named(at), step: plan.step, type: plan.type,
        reference: key("\(context.path)/@\(name.name.value)"), settling: plan.settling)
    }
    guard isErrors else {
      diagnostics.report(
        Diagnostic(
          .unknownOutput, "'\(name.name.value)' has no output '\(output.value)'", at: output.location,
          help: "Every source and signal has the output 'errors': '\(name.name.value).errors'"))
      return nil
    }
    return errors(.named(at), name, context)
  }

  private func errors(_ owner: ErrorsOwner, _ name: ReferenceNode, _ context: SignalContext) -> SignalPlan {
    SignalPlan(
      .errors(owner), step: StepID(0), type: .dyn, reference: key("\(context.path)/@\(name.name.value).errors"))
  }

  /// Resolves a name that is not a source, signal or command.
  private func sinkErrors(_ name: ReferenceNode, _ context: SignalContext) -> SignalPlan? {
    if let sink = file.sinks.firstIndex(where: { $0.name.value == name.name.value }) {
      guard let output = name.output else {
        diagnostics.report(
          Diagnostic(
            .unknownOutput, "'\(name.name.value)' is a sink, where events end", at: name.name.location,
            help: "Events that it cannot deliver can be read: '\(name.name.value).errors'"))
        return nil
      }
      guard output.value == "errors" else {
        diagnostics.report(
          Diagnostic(
            .unknownOutput, "the sink '\(name.name.value)' has no output '\(output.value)'", at: output.location,
            help: "Every sink has the output 'errors': '\(name.name.value).errors'"))
        return nil
      }
      return errors(.sink(sink), name, context)
    }
    // The error has been reported at the definition.
    if file.broken.contains(name.name.value) { return nil }
    var known = entries.filter { $0.kind == .source || $0.kind == .signal }.map(\.name.value)
    let isErrors = name.output?.value == "errors"
    if isErrors { known += file.sinks.map(\.name.value) }
    let near = Suggestion.nearest(to: name.name.value, among: known)
    diagnostics.report(
      Diagnostic(
        .unknownName, "there is no source\(isErrors ? ", signal or sink" : " or signal") '\(name.name.value)'",
        at: name.name.location,
        help: near.map { "Did you mean '\($0)'?" }
          ?? (known.isEmpty ? "Define it under 'sources:'" : "There are: " + known.joined(separator: ", ")),
        fixIts: near.map { [.init(name.name.location, $0)] } ?? []))
    return nil
  }

  // MARK: Circles

  /// Reports sinks that receive their own rejected events: events would circulate forever, and neither the sink nor the
  /// reader of its errors would ever end.
  func refuseSinkCycles() {
    let byReader = Dictionary(grouping: readings, by: \.reader)
    var reported: Set<String> = []
    for sink in file.sinks.map(\.name) where !reported.contains(sink.value) {
      guard let way = way(from: sink.value, byReader) else { continue }
      reported.formUnion(way.map(\.reader))
      let between = way.dropFirst().map { "'\($0.reader)'" }
      diagnostics.report(
        Diagnostic(
          .cycle,
          "the sink '\(sink.value)' reads its own errors"
            + (between.isEmpty ? "" : ", by way of " + between.joined(separator: " and ")),
          at: way[0].location,
          notes: way.dropFirst().map { .init($0.text, at: $0.location) },
          help: "Events that it cannot deliver would return to it forever: let another sink read these errors"))
    }
  }

  /// The shortest path from a sink to its own errors: each signal on the path reads the next, and the last one reads
  /// the sink's errors.
  private func way(from sink: String, _ byReader: [String: [Reading]]) -> [Reading]? {
    var ways: [[Reading]] = [[]]
    var seen: Set<String> = [sink]
    var next = 0
    while next < ways.count {
      let way = ways[next]
      next += 1
      for reading in byReader[way.last?.name ?? sink] ?? [] {
        if reading.name == sink, reading.output == "errors" { return way + [reading] }
        if seen.insert(reading.name).inserted { ways.append(way + [reading]) }
      }
    }
    return nil
  }
}
