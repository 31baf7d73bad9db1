/// Tables: named plans that expressions read by key.
extension Compilation {
  var tableNames: [String] { file.tables.map(\.name.value) + file.brokenTables.sorted() }

  /// The plan of a table.
  func table(_ node: NamedNode<TableNode>, _ context: SignalContext) -> SignalPlan? {
    let name = node.name
    let component = ComponentNode(
      keyword: Located("table", at: name.location), arguments: node.node.arguments, location: node.node.location)
    let origin = tableOrigin(node.node, context)
    let chained = chain(
      node.node.signal.chain, origin?.signal ?? SignalPlan(.input, step: StepID(0), type: .dyn), context)
    let settings = node.node.arguments.entries?.map { "\($0.name): \($0.value)" }.sorted() ?? []
    let step = addStep(component, context, more: settings)
    var (decoded, isWhole) = decode(CatalogueEntry(operator: TableStep.self, "table"), component)
    guard case .operator(let any) = decoded, var table = any as? TableStep else { return nil }
    let type = origin == nil ? EventType.dyn : chained?.type ?? .dyn
    table.index = file.tables.firstIndex { $0.name.value == name.value } ?? 0
    table.isLoaded = origin?.isLoaded ?? false
    table.every = table.every ?? origin?.repeats
    table.source = origin?.source
    let segment = makeSegment()
    isWhole = bind(&table, [type], segment, context, step, node.node.location) && isWhole
    tableTypes[name.value] = (table.key.type, table.row.isGiven ? table.row.type : type.type)
    guard isWhole, let origin, let chained else { return nil }
    if origin.isLoaded { refuseOthers(in: chained, name) }
    if !origin.isLoaded || origin.source != nil { refuseEvery(node.node) }
    return SignalPlan(OperatorWork(table, segment), inputs: [chained], step: step, type: .dyn)
  }

  /// The compiled table at this index; nil after an error.
  func tablePlan(_ at: Int) -> TablePlan? {
    guard case .done(let plan?) = entries[at].state, let table = plan.steps.first?.component as? TableStep,
      let types = tableTypes[entries[at].name.value]
    else { return nil }
    return TablePlan(
      named: at, isLoaded: table.isLoaded, source: table.source, every: table.every, key: types.key, row: types.row)
  }

  /// Where the rows come from. `isLoaded`: the table has its own source, which is read once or periodically, or which
  /// reports that it has sent its initial data and then changes the rows: `source`.
  private func tableOrigin(
    _ node: TableNode, _ context: SignalContext
  ) -> (signal: SignalPlan, isLoaded: Bool, repeats: TimeSpan?, source: StepID?)? {
    var own = node.signal
    own.chain = []
    guard let signal = signal(own, context) else { return nil }
    guard case .inline = node.signal.origin, let source = signal.sourceComponent,
      source.once != nil || (source as? any LoadingSource)?.loads == true
    else { return (signal, false, nil, nil) }
    // A source that is read again at each start needs no position.
    steps[signal.step.number].delivery = Located(.bestEffort, at: node.location)
    guard let once = source.once else { return (signal, true, nil, signal.step) }
    let work = SourceWork(once, signal.work?.segment ?? .empty)
    return (
      SignalPlan(work, step: signal.step, type: signal.type), true, (source as? any RepeatingSource)?.repeats, nil
    )
  }

  /// Reports signals in the source of a table: loading a table must not wait for signals, which wait for the table.
  private func refuseOthers(in signal: SignalPlan, _ name: Located<String>) {
    var isRefused = false
    signal.forEachReference { origin, _ in
      guard !isRefused, origin != .input else { return }
      isRefused = true
      diagnostics.report(
        Diagnostic(
          .cycle, "the table '\(name.value)' is loaded before signals begin, so its chain cannot read one",
          at: name.location, help: "Define the source as one of 'sources:', and read it here with 'from: NAME'"))
    }
  }

  private func refuseEvery(_ node: TableNode) {
    guard let every = node.arguments["every"] else { return }
    diagnostics.report(
      Diagnostic(
        .conflictingParameters, "'every' reads the source of a table again, but this table changes as events arrive",
        at: every.location, help: "Remove 'every'"))
  }

  /// The table of this name, for an expression in this context.
  func table(_ name: String, _ location: SourceLocation, _ context: SignalContext) -> ExpressionScope.NamedTable? {
    guard let number = file.tables.firstIndex(where: { $0.name.value == name }), let at = index[name] else {
      // The error has been reported at the definition.
      return file.brokenTables.contains(name) ? .init(name: name, index: 0, key: .dyn, row: .dyn) : nil
    }
    let unknown = ExpressionScope.NamedTable(name: name, index: number, key: .dyn, row: .dyn)
    if let owner = index[context.owner], entries[owner].kind == .table {
      diagnostics.report(
        Diagnostic(
          .cycle, "the rows of the table '\(context.owner)' cannot depend on the table '\(name)'", at: location,
          notes: [.init("it is defined here", at: entries[at].name.location)],
          help: "Join the two where both are read"))
      return unknown
    }
    entries[at].references += 1
    readings.append(Reading(reader: context.owner, name: name, location: location))
    guard named(at, from: location) != nil, let types = tableTypes[name] else { return unknown }
    return .init(name: name, index: number, key: types.key, row: types.row)
  }
}
