/// A table of `tables:`, which expressions read by key. The compiler makes the step; files cannot name it in a chain.
struct TableStep: OperatorComponent {
  var key = ExpressionParameter()
  var row = MappingParameter()
  var every: TimeSpan?
  var delete = ExpressionParameter()
  var maxRows = 1_000_000
  /// The index of the table in the file.
  var index = 0
  /// Whether the table loads its own source as a whole; otherwise the rows change as events arrive.
  var isLoaded = false
  /// The table's own source, if it reports that it has sent its initial data; later events then change the rows.
  var source: StepID?

  static let spec = ComponentSpec<TableStep>(
    "table",
    summary: "Keeps rows that expressions read by key.",
    parameters: [
      .init(
        "key", \.key, primary: true, required: true,
        "By what a row is found: a text, number, boolean, or a list of these."),
      .init("row", \.row, "The stored part of an event; by default the whole event."),
      .init("every", \.every, range: 1_000_000...(1 << 60), "How often its source is read again."),
      .init("delete", \.delete, expecting: .bool, "Whether an event removes the row with its key."),
      .init("maxRows", \.maxRows, range: 1...100_000_000, "The largest number of rows."),
    ],
    persistence: .state(version: 1))

  static let subscribesAgain = true

  /// A table that is loaded at each start has no state to save.
  var persistence: Persistence { isLoaded ? .nothing : Self.spec.persistence }

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let parameters: TableStep
    private let table: RunningTable
    private let program: Program
    private let builder: ValueBuilder?
    private let deletes: Program?
    private lazy var frame = makeFrame()
    private let buffer = OutputBuffer()
    /// The rows read so far from the source, which is not at its end; nil: the source is not being read.
    private var coming: TableRows?
    private var hasLoaded = false
    private var timer = Wake.none
    private let pages = StatePages()

    init(_ parameters: TableStep, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      table = nodeContext.execution.tables[parameters.index]
      program = parameters.key.required
      builder = parameters.row.makeBuilder()
      deletes = parameters.delete.program
      super.init(nodeContext, downstream: downstream)
      table.counts = counters.pointer(to: \.lookups)
      table.warns = { [unowned(unsafe) execution] kind, known in
        let step = execution.plan.steps[nodeContext.step.number]
        let all = Set(known).sorted().joined(separator: " or ")
        execution.services.log(
          .warning, step.label,
          "\(step.location): a row was looked up by a key of type \(kind), and all keys of the table have the type \(all), so there is none: convert one of them"
        )
      }
    }

    override func start() {
      // A saved state that could not be used may have left rows.
      table.replace(by: TableRows(), retiring: arena)
      if parameters.isLoaded { load() } else { super.start() }
    }

    // MARK: Rows

    override func receive(_ event: Event) { take(event, table.rows) }

    /// Does nothing: the rows outlast the signal, and a restart after its end.
    override func complete() {}

    override func receive(_ event: Event, from inlet: Inlet) {
      if let rows = coming ?? (parameters.source == nil ? nil : table.rows) { take(event, rows) }
    }

    private func take(_ event: Event, _ rows: TableRows) {
      guard isReadable(event, frame) else { return }
      if let failure = KeyText.failureToWrite(program, frame, to: buffer) {
        _ = failed(event, failure, program, frame)
        return
      }
      if let deletes {
        guard let isDeleted = decide(event, deletes, frame) else { return }
        if isDeleted { return remove(rows) }
      }
      guard rows.count < parameters.maxRows || rows.number(of: buffer.bytes) != nil else {
        return refuse(
          event, .limitReached, "the table has \(Printable.count(rows.count, "row")), its limit `maxRows`")
      }
      var row = event.value
      if let builder {
        guard let built = build(builder, event, frame) else { return }
        row = built
      }
      // The fields of a row are read often, so the row is parsed now.
      let opened = Context(state: frame.evaluation).expanded(row)
      changed(rows.put(opened.isError ? row : opened, buffer.bytes, retiring: arena))
    }

    private func remove(_ rows: TableRows) {
      guard let number = rows.number(of: buffer.bytes) else { return }
      rows.remove(number, retiring: arena)
      changed(number)
    }

    private func changed(_ number: Int) {
      if coming != nil { return }
      // Rows that are loaded at each start are not saved.
      if !parameters.isLoaded { pages.mark(number) }
      countKept()
    }

    private func countKept() { keptSize.set(keys: table.rows.count, bytes: table.rows.bytes) }

    // MARK: Loading

    private func load() {
      coming = TableRows()
      if parameters.source != nil { table.sourceHasLoaded = { [unowned(unsafe) self] in hasAll() } }
      open(nodeContext.inputs[0])
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      hasAll()
    }

    /// Replaces all rows by those that have arrived.
    private func hasAll() {
      // A source that has ended because the pipeline stops may lack rows.
      guard let rows = coming.take(), !execution.isStopping else { return }
      table.replace(by: rows, retiring: arena)
      countKept()
      loadLater()
      guard !hasLoaded else { return }
      hasLoaded = true
      execution.tableIsLoaded()
    }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      drop(inlet)
      coming = nil
      guard hasLoaded, parameters.every != nil else { return finish(failing: failure) }
      let step = execution.plan.steps[nodeContext.step.number]
      execution.services.log(
        .warning, step.label,
        "\(step.location): the table keeps its rows, because its source cannot be read: \(failure.message)")
      loadLater()
    }

    private func loadLater() {
      if let every = parameters.every, execution.settings.reloadsTables { timer = wake(after: every) }
    }

    override func woke(_ token: Int) {
      timer = .none
      load()
    }

    override var mayGoOn: Bool { false }

    override func stop() {
      cancelWake(&timer)
      table.sourceHasLoaded = nil
      super.stop()
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: table.rows.numbers) { state, numbers in
        for number in numbers {
          guard let entry = table.rows.entry(number) else { continue }
          state.append(counted: entry.key)
          state.write(entry.row)
        }
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let rows = TableRows()
      try state.readPages(pages) { state, number throws(StateFault) in
        let key = try state.counted()
        guard rows.restore(try state.read(), key, at: number) else { throw StateFault("a key is repeated") }
      }
      table.replace(by: rows, retiring: arena)
      countKept()
    }
  }
}
