/// Rebuilds an execution from a saved state.
final class Restoration {
  /// The records of one instance of a signal.
  struct Section {
    var records: [(entry: Int, reader: StateReader)] = []
    /// The index of `records` by entry; used only for many records.
    private var index: [Int: Int] = [:]

    init() {}

    init(_ reader: StateReader) throws(StateFault) {
      var reader = reader
      while !reader.isAtEnd {
        let entry = try UInt64(from: &reader)
        records.append((Int(truncatingIfNeeded: entry), try reader.part()))
      }
      if records.count > 8 {
        for (at, record) in records.enumerated() { index[record.entry] = at }
      }
    }

    subscript(entry: Int) -> StateReader? {
      if !index.isEmpty { return index[entry].map { records[$0].reader } }
      return records.first { $0.entry == entry }?.reader
    }
  }

  private let plan: Plan
  /// Whether the state moves to another version of the pipeline, which was not down.
  private let isMoved: Bool
  private var entries: [StateTable.Entry] = []
  /// The entry in the state's table of each step of the plan that is unchanged.
  private var steps: [Int: Int] = [:]
  /// The inverse of `steps`: the number of the step of each entry.
  private var numbers: [Int?] = []
  /// The steps of `steps` whose parameters have changed.
  private var changed: Set<Int> = []
  private var references: [String: Int] = [:]
  /// Whether pages have records with an entry, by entry.
  private var isInPage: [Bool] = []
  private let context: StateReader.Context
  /// The named signals whose definition in the file has changed.
  private var renewed: Set<Int> = []
  private(set) var root = Section()
  /// The section where records are looked up.
  var section = Section()
  /// Steps that continue in this turn or the next, with their positions in the queue.
  var deferred: [(position: Int, node: OperatorNode, token: Int)] = []
  var lastSubscription: UInt64 = 0
  private(set) var lastTimer: UInt64 = 0
  /// The parts that could not be used, at most one for each step.
  private(set) var refusals: [Diagnostic] = []
  private var refused: Set<Int> = []
  /// Why nothing of the state can be used; nil: it can be read.
  private(set) var unreadable: Diagnostic?

  /// Decodes the bytes. Never fails: unreadable bytes are reported in `refusals`, and nothing is restored.
  init(_ bytes: [UInt8], _ plan: Plan, _ executor: Executor, isMoved: Bool, spilling: Spilling? = nil) {
    self.plan = plan
    self.isMoved = isMoved
    context = StateReader.Context(executor, spilling: spilling)
    do throws(StateFault) {
      try read(bytes, context)
      section = root
    } catch {
      entries = []
      steps = [:]
      numbers = []
      references = [:]
      root = Section()
      refusals = [
        Diagnostic(
          .stateRefused, "the saved state of '\(plan.name)' cannot be used: \(error.message)", at: nil,
          help: "Everything starts empty")
      ]
      unreadable = refusals.first
    }
  }

  /// The parts of the file that continue from state under their former names.
  private(set) var renamed: [FormerName] = []

  /// The names of the steps that continue from the state, in the order of the file.
  var kept: [String] {
    steps.sorted { $0.key < $1.key }.filter { !refused.contains($0.key) }.map { entries[$0.value].name }
  }

  private func read(_ bytes: [UInt8], _ context: StateReader.Context) throws(StateFault) {
    let contents = try StateContents(bytes, context)
    lastTimer = context.lastTimer
    lastSubscription = contents.lastSubscription
    entries = contents.entries
    let isSame = plan.formerNames.isEmpty
    let renames = Renames(
      plan.formerNames, signals: isSame ? [] : Set(contents.definitions.keys),
      references: isSame ? [] : Set(contents.entries.filter { !$0.isStep }.map(\.name)))
    renamed = renames.all
    let former = renames.formerSignals
    for (index, definition) in SignalDefinitions.all(plan, formerNames: former).enumerated() {
      let name = plan.named[index].name
      if contents.definitions[former[name] ?? name] != definition { renewed.insert(index) }
    }
    root = contents.root
    refusals += renames.unknown.map(\.isUnknown)
    compare(renames)
  }

  // MARK: Pages that stay

  /// Lets the next commits keep the pages of these owners, where a step would write the same bytes again.
  ///
  /// - Parameter owners: The owners whose pages in the store are those of the state.
  /// - Returns: The reference time of the pages, on the executor's clock; nil: all pages will be written again.
  func goOn(from owners: Set<Int64>) -> Instant? {
    // A step under `whenLate: resume` reads times by another rule than the other steps.
    guard !owners.isEmpty, unreadable == nil,
      context.elapsed == .zero || !plan.steps.contains(where: { $0.whenLate == .resume }),
      // The table has one version of each step's records.
      steps.allSatisfy({ number, at in
        entries[at].version == 0
          || plan.components[number].map { $0.persistence.version == entries[at].version } ?? true
      })
    else { return nil }
    context.ownersThatGoOn = owners
    return context.executor.now + TimeSpan(nanoseconds: 0 &- context.elapsed.nanoseconds &- context.clockOfPages)
  }

  /// Notes that a page that may be kept has a record with this entry.
  func isPartOfPage(_ entry: Int) {
    if isInPage.isEmpty { isInPage = [Bool](repeating: false, count: entries.count) }
    if entry < isInPage.count { isInPage[entry] = true }
  }

  /// The next table, in which the entries of the state keep their indexes.
  var table: StateTable.Builder {
    var restored = [(key: StateTable.Key, isInPage: Bool)?](repeating: nil, count: entries.count)
    for (name, at) in references { restored[at] = (.reference(name), false) }
    for (number, at) in steps {
      let entry = entries[at]
      let key = StateTable.Key.step(
        StepID(number), version: entry.version, fitsOtherParameters: entry.fitsOtherParameters)
      restored[at] = (key, at < isInPage.count && isInPage[at])
    }
    return StateTable.Builder(plan, restored)
  }

  /// Finds the steps that are unchanged.
  private func compare(_ renames: Renames) {
    var known = Dictionary(plan.steps.enumerated().map { ($1.key, $0) }) { first, _ in first }
    if plan.steps.contains(where: { !$0.formerKeys.isEmpty }) {
      // A step with its own state has already moved.
      let saved = Set(entries.lazy.filter(\.isStep).map(\.name))
      for (number, step) in plan.steps.enumerated() where !saved.contains(step.key) {
        for former in step.formerKeys where known[former] == nil { known[former] = number }
      }
    }
    for (at, entry) in entries.enumerated() {
      guard entry.isStep else {
        references[renames.isEmpty ? entry.name : renames.now(entry.name)] = at
        continue
      }
      guard let number = known[entry.name] else {
        // A step without state loses nothing.
        if entry.version == 0 { continue }
        if let move = renames.owner(of: entry.name) {
          refusals.append(
            Diagnostic(
              .stateRefused,
              "'\(move.name)' has no step like '\(Self.label(entry.name))' of '\(move.former)', so the state of that is dropped",
              at: move.location, help: "Only a \(move.kind) of the same kind can continue from its state"))
          continue
        }
        refusals.append(
          Diagnostic(
            .stateRefused, "the pipeline has no step '\(Self.label(entry.name))' any more, so its state is dropped",
            at: nil,
            help:
              "If '\(Self.owner(entry.name))' has another name now, give it 'movedFrom: \(Self.owner(entry.name))'; if only the step was moved or renamed, '{ \(Self.keyword(entry.name)): ..., movedFrom: \(Self.label(entry.name)) }'"
          ))
        continue
      }
      if entry.fingerprint != plan.steps[number].fingerprint {
        // A source without state loses nothing.
        if entry.version == 0, plan.components[number] is any SourceComponent { continue }
        guard entry.fitsOtherParameters else {
          refuse(StepID(number), StateFault("the step has changed since"))
          continue
        }
        changed.insert(number)
      }
      steps[number] = at
    }
    numbers = [Int?](repeating: nil, count: entries.count)
    for (number, at) in steps { numbers[at] = number }
  }

  /// The name of a step as messages show it.
  private static func label(_ key: String) -> String {
    key.hasPrefix("sinks.") ? String(key.dropFirst("sinks.".count)) : key
  }

  /// The source, signal, command or sink of a step.
  private static func owner(_ key: String) -> String { String(label(key).prefix { $0 != "/" }) }

  static func keyword(_ name: String) -> String {
    String(
      decoding: name.utf8.split(separator: UInt8(ascii: "/")).last?.prefix { $0 != UInt8(ascii: "#") } ?? [],
      as: UTF8.self)
  }

  /// The record of a step in the current section; nil: the step starts empty.
  func record(_ step: StepID, version: Int) -> (version: Int, reader: StateReader)? {
    guard let at = steps[step.number], var reader = section[at],
      let saved = prepare(&reader, at, of: step, version: version)
    else { return nil }
    return (saved, reader)
  }

  /// The step that continues from the records with this entry; nil: none.
  func step(of entry: Int) -> StepID? { entry < numbers.count ? numbers[entry].map { StepID($0) } : nil }

  /// Prepares the reader of a record of the step. Returns the version in which the record was written, or nil: the step
  /// starts empty.
  func prepare(_ reader: inout StateReader, _ at: Int, of step: StepID, version: Int) -> Int? {
    // Another component may have the same name.
    if changed.contains(step.number), version == 0 { return nil }
    let saved = entries[at].version
    guard saved == version || saved > 0 && saved < version else {
      refuse(step, StateFault("its saved state has version \(saved), but this version of rxd reads \(version)"))
      return nil
    }
    reader.follow(isMoved ? .fire : plan.steps[step.number].whenLate, isInPresentForm: saved == version)
    return saved
  }

  /// Whether the definition of an ended signal has changed, so that it starts again.
  func isRenewed(_ signal: SignalPlan) -> Bool {
    if case .named(let index)? = signal.origin { renewed.contains(index) } else { false }
  }

  /// Whether the step's parameters have changed since its state was saved.
  func hasChanged(_ step: StepID) -> Bool { changed.contains(step.number) }

  func record(reference: String) -> StateReader? {
    references[reference].flatMap { section[$0] }?.following(isMoved ? .fire : plan.whenLate?.value ?? .fire)
  }

  /// The number of a subscription.
  func serial(_ record: StateReader) -> UInt64? {
    var record = record
    guard let serial = try? record.read(UInt64.self), serial <= lastSubscription else { return nil }
    return serial
  }

  func status(_ sink: SinkPlan) -> SinkStatus {
    guard var record = record(reference: sink.reference), let status = try? record.read(UInt8.self),
      let known = SinkStatus(rawValue: status), !isRenewed(sink.input)
    else { return .open }
    return known
  }

  /// Whether a subscriber other than a sink had been notified of the end.
  func hasEnded(_ reference: String) -> Bool {
    guard var record = record(reference: reference) else { return false }
    return (try? record.read(Bool.self)) ?? false
  }

  /// Reports, once for each step, why its state is not used.
  func refuse(_ step: StepID, _ fault: StateFault) {
    guard refused.insert(step.number).inserted else { return }
    let info = plan.steps[step.number]
    refusals.append(
      Diagnostic(
        .stateRefused, "the saved state of '\(info.label)' cannot be used: \(fault.message)", at: info.location,
        help: "It starts empty"))
  }

  /// Looks records up in another section while `body` runs.
  func within<T>(_ other: Section, _ body: () -> T) -> T {
    let outer = section
    section = other
    defer { section = outer }
    return body()
  }
}
