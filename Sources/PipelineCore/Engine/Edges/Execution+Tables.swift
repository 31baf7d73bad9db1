extension Execution {
  /// Loads the tables that have their own sources, and then calls `begin`: in this turn if loading needs no other turn,
  /// as with rows in the file.
  ///
  /// Until then nothing else begins, no timer of a step fires, no outbox delivers and nothing is committed. An
  /// execution that replaces this one meanwhile continues from `state`.
  func loadTables(_ state: [UInt8]?, begin: @escaping () -> Void) {
    let loaded = plan.tables.filter(\.isLoaded)
    if loaded.isEmpty { return begin() }
    tables.left = loaded.count
    tables.begin = begin
    tables.state = state
    executor.wakesWhileLoading = { [unowned plan] target in
      target.timerKind == .output || target.step.map { plan.stepsOfTables.contains($0) } ?? false
    }
    // Sinks wait too, because their expressions may read tables.
    for sink in sinks { (sink.node as? OutboxSink)?.hold() }
    let wiring = enterWiring(topScope)
    for table in loaded {
      let loader = RootSubscriber(self, hasEnded: false, isAwaited: false)
      let subscription = subscribe(plan.named[table.named].body, topScope, to: loader)
      tables.loaders.append((subscription.cancel, loader))
    }
    self.begin(wiring)
    if tables.left == 0 || isDryRun { goOnLaunching() }
  }

  /// Called when a source has sent its initial data, and its table has stored it.
  func sourceHasLoaded(_ step: StepID) {
    for (index, table) in plan.tables.enumerated() where table.source == step { tables[index].sourceHasLoaded?() }
  }

  /// A table has all rows of its source.
  func tableIsLoaded() {
    tables.left -= 1
    guard tables.left == 0, tables.areLoading else { return }
    let execution = Weak(self)
    // Continue the launch in another turn, with an empty call stack.
    executor.post { execution.object?.goOnLaunching() }
  }

  private func goOnLaunching() {
    guard let begin = tables.begin.take() else { return }
    tables.state = nil
    executor.wakesWhileLoading = nil
    for sink in sinks { (sink.node as? OutboxSink)?.resume() }
    if !isOver, !isStopping { begin() }
  }
}
