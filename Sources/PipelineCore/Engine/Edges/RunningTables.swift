/// The tables of an execution, by their indexes.
final class RunningTables {
  private let all: [RunningTable]
  /// For expressions, which read them without reference counting; nil: there are none.
  let pointer: UnsafePointer<Unmanaged<RunningTable>>?
  /// The subscriptions of the tables that are loaded from sources of their own, with their subscribers.
  var loaders: [(subscription: any Subscription, subscriber: AnyObject)] = []
  /// How many of these have not been loaded yet.
  var left = 0
  /// Begins what waits until they have been; nil: nothing waits.
  var begin: (() -> Void)?
  /// The state that the execution was launched with, while it waits.
  var state: [UInt8]?

  init(_ count: Int) {
    all = (0..<count).map { _ in RunningTable() }
    guard count > 0 else {
      pointer = nil
      return
    }
    let memory = UnsafeMutablePointer<Unmanaged<RunningTable>>.allocate(capacity: count)
    for (index, table) in all.enumerated() { (memory + index).initialize(to: .passUnretained(table)) }
    pointer = UnsafePointer(memory)
  }

  deinit { pointer?.deallocate() }

  subscript(index: Int) -> RunningTable { all[index] }

  /// Whether tables are being loaded, and everything else waits.
  var areLoading: Bool { begin != nil }

  func cancel() { for loader in loaders { loader.subscription.cancel() } }
}

extension Execution {
  /// Loads the tables that have sources of their own, and then calls `begin`: in this turn if that takes no other, as with rows in the file.
  ///
  /// Until then nothing else begins, no timer of a step fires, nothing leaves an outbox and nothing is committed. Another execution then goes on from `state`.
  func loadTables(_ state: [UInt8]?, begin: @escaping () -> Void) {
    let loaded = plan.tables.filter(\.isLoaded)
    if loaded.isEmpty { return begin() }
    tables.left = loaded.count
    tables.begin = begin
    tables.state = state
    executor.wakesWhileLoading = { [unowned plan] target in
      target.timerKind == .output || target.step.map { plan.stepsOfTables.contains($0) } ?? false
    }
    // The expressions of a sink may read tables.
    for sink in sinks { (sink.node as? OutboxSink)?.hold() }
    let wiring = enterWiring(topScope)
    for table in loaded {
      let loader = RootSubscriber(self, hasEnded: false, isAwaited: false)
      tables.loaders.append((subscribe(plan.named[table.named].body, topScope, to: loader), loader))
    }
    self.begin(wiring)
    if tables.left == 0 || isDryRun { goOnLaunching() }
  }

  /// A table has all rows of its source.
  func tableIsLoaded() {
    tables.left -= 1
    guard tables.left == 0, tables.areLoading else { return }
    let execution = Weak(self)
    // The launch goes on with nothing on the stack.
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
