/// How components affect each other through files, addresses and standard input.
extension Compilation {
  /// Records the inputs of a source.
  func note(_ source: any SourceComponent, _ context: SignalContext, _ location: SourceLocation) {
    func note(_ kind: OutsideInlet.Kind, _ location: SourceLocation?) {
      inlets[context.owner, default: []].append(OutsideInlet(owner: context.owner, kind: kind, location: location))
    }
    for path in source.readsFiles where !path.isPlaceholder {
      note(.files(path, pattern: resolvedPattern(path.text)), path.location)
    }
    if let address = source.listens { note(.address(address, source.serving), address.location ?? location) }
    if let target = source.follows { note(.feed(target), target.address.location ?? location) }
    if let target = source.asks {
      let location = target.address.location ?? location
      // A signal may be compiled more than once.
      if requests[context.owner]?.contains(where: { $0.1 == location }) != true {
        requests[context.owner, default: []].append((target, location))
      }
    }
    if let path = source.readsDatabase, !path.isPlaceholder { databases.append(path) }
    if source.readsStandardInput { standardInputs.append(location) }
  }

  /// The outputs of sinks that a source may read back, each with the sources that its events come from.
  func outsideWays(_ sinks: [SinkPlan]) -> [OutsideWay] {
    if inlets.isEmpty { return [] }
    let byReader = Dictionary(grouping: readings, by: \.reader)
    return sinks.flatMap { sink -> [OutsideWay] in
      var outlets: [(OutsideWay.Outlet, SourceLocation?)] = sink.component.sendsTo.map {
        (.address($0), $0.address.location)
      }
      if let path = sink.component.writesFile, !path.isPlaceholder {
        let resolved = path.fixedDirectory == nil ? files.resolve(path.text) : resolvedPattern(path.text)
        outlets.append((.file(path, resolved: resolved), path.location))
      }
      if let address = sink.component.listens, sink.component.servesEvents {
        outlets.append((.feed(address), address.location))
      }
      if outlets.isEmpty { return [] }
      let inlets = inlets(of: sink.name, byReader)
      return outlets.map { OutsideWay(sink: sink.name, outlet: $0, location: $1 ?? sink.location, inlets: inlets) }
    }
      + requests.sorted { $0.key < $1.key }.flatMap { owner, targets in
        let inlets = inlets(of: owner, byReader)
        return targets.map { OutsideWay(sink: owner, outlet: .request($0), location: $1, inlets: inlets) }
      }
  }

  /// The inputs of the sources that the events of `name` come from.
  private func inlets(of name: String, _ byReader: [String: [Reading]]) -> [OutsideInlet] {
    var names = [name]
    var seen: Set<String> = [name]
    var next = 0
    while next < names.count {
      for reading in byReader[names[next]] ?? [] where seen.insert(reading.name).inserted {
        names.append(reading.name)
      }
      next += 1
    }
    return names.flatMap { self.inlets[$0] ?? [] }
  }

  func checkFiles(_ sinks: [SinkPlan], _ ways: [OutsideWay]) {
    for sink in sinks {
      guard let path = sink.component.writesFile, !path.isPlaceholder, let location = path.location,
        files.isMissingDirectory(path.fixedDirectory ?? Self.directory(of: path.text))
      else { continue }
      diagnostics.report(
        Diagnostic(
          .missingDirectory, "\(path.shown) lies in a directory that does not exist", at: location,
          help: path.fixedDirectory == nil
            ? "Create the directory before the pipeline starts: rxd creates missing files, but not directories"
            : "Create the directory before the pipeline starts: rxd creates only directories after the first {{ }}")
      )
    }
    // A sink of the pipeline may create the database.
    let made = Set(sinks.compactMap { $0.component.writesDatabase.map { files.resolve($0.text) } })
    for path in databases where files.isMissingFile(path.text) && !made.contains(files.resolve(path.text)) {
      diagnostics.report(
        Diagnostic(
          .missingDatabase, "there is no file \(path.shown), and the source does not create it", at: path.location,
          help: "Create the database before the pipeline starts, or correct the path"))
    }
    let circles = OutsideCircles(ways)
    var reported: Set<Int> = []
    for way in ways.indices where !reported.contains(way) {
      guard let circle = circles.circle(through: way) else { continue }
      reported.formUnion(circle.map(\.way))
      diagnostics.report(circles.diagnostic(of: circle, through: way))
    }
    if standardInputs.count > 1, let first = standardInputs.first {
      for other in standardInputs.dropFirst() {
        diagnostics.report(
          Diagnostic(
            .sharedStandardInput, "another source already reads standard input", at: other,
            notes: [.init("this one", at: first)],
            help: "Name one source that reads it, and refer to it with 'from' wherever its events are needed"))
      }
    }
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// The absolute form of a pattern, with its wildcards unchanged.
  private func resolvedPattern(_ pattern: String) -> String {
    let wildcards = Array("*?[".utf8)
    guard let first = pattern.utf8.firstIndex(where: { wildcards.contains($0) }) else { return files.resolve(pattern) }
    let slash = pattern.utf8[..<first].lastIndex(of: UInt8(ascii: "/"))
    let directory = slash.map { $0 == pattern.startIndex ? "/" : String(pattern[..<$0]) } ?? "."
    let rest = slash.map { String(pattern[pattern.utf8.index(after: $0)...]) } ?? pattern
    let resolved = files.resolve(directory)
    if resolved.isEmpty { return rest }
    return resolved == "/" ? "/" + rest : resolved + "/" + rest
  }
}
