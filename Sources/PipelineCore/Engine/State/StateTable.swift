import CDigest

/// The format of a saved state.
///
/// ```
/// "rxds" format              magic and format
/// length:8, clock            with pages: the length of all before the pages; the executor's clock at the commit,
///                            because times in pages count from its start
/// wall time, last timer, last subscription
/// table                      the steps of the records: name, state version, fingerprint, fits other parameters
/// definitions                a hash for each named signal
/// owners                     with pages: of each owner the entry of its outermost record in the table, and the bytes
///                            of its pages
/// origins                    the origins of kept events
/// root section               records
/// checksum:8                 of everything before
/// pages                      see ``StatePage``: origins, then what their owner writes
/// ```
///
/// A record is an index into the table, a length of four bytes and that many bytes. Numbers are LEB128; signed ones are
/// zigzag-coded. A reader skips unknown records.
enum StateTable {
  static let magic = Array("rxds".utf8)
  /// The header of a saved state.
  struct Format: Equatable {
    /// Whether origins have identities.
    var hasIdentities: Bool
    /// Whether the checksum is XXH3. Older formats, which are only read, have FNV-1a.
    var isXXH3 = true
    /// Whether pages follow, with the state of steps for many keys.
    var hasPages = false

    private static let bytes: [(byte: UInt8, format: Format)] = [
      (2, Format(hasIdentities: false, isXXH3: false)), (3, Format(hasIdentities: true, isXXH3: false)),
      (4, Format(hasIdentities: false)), (5, Format(hasIdentities: true)),
      (6, Format(hasIdentities: true, hasPages: true)),
    ]

    /// The formats that can be read.
    static let known = 2...6

    init(hasIdentities: Bool, isXXH3: Bool = true, hasPages: Bool = false) {
      self.hasIdentities = hasIdentities
      self.isXXH3 = isXXH3
      self.hasPages = hasPages
    }

    init?(_ byte: UInt8) {
      guard let known = Self.bytes.first(where: { $0.byte == byte }) else { return nil }
      self = known.format
    }

    var byte: UInt8 { Self.bytes.first { $0.format == self }?.byte ?? 0 }

    func checksum(_ bytes: ArraySlice<UInt8>) -> UInt64 {
      isXXH3 ? bytes.withUnsafeBytes { rx_xxh3($0.baseAddress, $0.count) } : Fingerprint.of(bytes)
    }
  }

  /// The owner of a record.
  enum Key: Hashable {
    case step(StepID, version: Int, fitsOtherParameters: Bool = false)
    /// A reference to a named signal.
    case reference(String)
  }

  struct Entry {
    var isStep: Bool
    var name: String
    var version: Int
    var fingerprint: UInt64
    /// Whether the record can be used even if the step's parameters have changed.
    var fitsOtherParameters = false
    /// The entry that no record has.
    static let none = Entry(isStep: false, name: "", version: 0, fingerprint: 0)
  }

  /// Numbers the keys of the records that are written.
  final class Builder {
    private let steps: [StepPlan]
    private var index: [Key: Int] = [:]
    private var known: [Entry] = []
    /// Whether a record of this state has the entry, and whether a record of a page has it, which later states may
    /// keep.
    private var isUsed: [(now: Bool, inPage: Bool)] = []
    /// The index of the first record of each step, by the step's number; -1: the step has none. Spares a dictionary
    /// lookup for each of a million groups.
    private var firsts: [Int]
    /// The number of bytes that each step wrote itself, by the step's number.
    var sizes: [Int]
    /// Whether a step has a record outside of pages, by the step's number.
    private var isWritten: [Bool]
    /// The records that could not be written, of this state and of pages.
    private var faultsNow: [(key: Key, fault: StateFault)] = []
    private var faultsInPages: [(key: Key, fault: StateFault)] = []
    var faults: [(key: Key, fault: StateFault)] { faultsNow + faultsInPages }

    convenience init(_ plan: Plan) { self.init(plan.steps) }

    /// Makes a table without steps, for values that belong to no step.
    init(_ steps: [StepPlan] = []) {
      self.steps = steps
      firsts = [Int](repeating: -1, count: steps.count)
      sizes = [Int](repeating: 0, count: steps.count)
      isWritten = [Bool](repeating: false, count: steps.count)
    }

    /// Continues the table of a restored state whose pages may be kept: their entries keep their indexes.
    ///
    /// - Parameter restored: The entries by their indexes, and whether pages have records with them; nil: the entry is
    ///   no longer used.
    init(_ plan: Plan, _ restored: [(key: Key, isInPage: Bool)?]) {
      steps = plan.steps
      firsts = [Int](repeating: -1, count: steps.count)
      sizes = [Int](repeating: 0, count: steps.count)
      isWritten = [Bool](repeating: false, count: steps.count)
      for entry in restored {
        if let entry { add(entry.key) } else { known.append(.none) }
        isUsed.append((false, entry?.isInPage ?? false))
      }
    }

    /// Begins another state. It may contain pages of earlier states, so the entries keep their indexes.
    func beginAgain() {
      for index in sizes.indices { sizes[index] = 0 }
      for index in isWritten.indices { isWritten[index] = false }
      for index in isUsed.indices { isUsed[index].now = false }
      faultsNow = []
    }

    /// The table of this state; an entry that the state does not use belongs to no step.
    var entries: [Entry] {
      zip(known, isUsed).map { $1.now || $1.inPage ? $0 : .none }
    }

    func hasRecord(of step: StepID) -> Bool { isWritten[step.number] }

    func add(_ fault: StateFault, of key: Key, isInPage: Bool) {
      if !isInPage { return faultsNow.append((key, fault)) }
      if !faultsInPages.contains(where: { $0.key == key && $0.fault == fault }) { faultsInPages.append((key, fault)) }
    }

    func index(of key: Key, isInPage: Bool = false) -> Int {
      let index = index(of: key)
      if isInPage {
        isUsed[index].inPage = true
      } else {
        isUsed[index].now = true
        if case .step(let id, _, _) = key { isWritten[id.number] = true }
      }
      return index
    }

    private func index(of key: Key) -> Int {
      if case .step(let id, let version, let fitsOtherParameters) = key, firsts[id.number] >= 0 {
        let first = firsts[id.number]
        if known[first].version == version, known[first].fitsOtherParameters == fitsOtherParameters { return first }
      }
      if let at = index[key] { return at }
      isUsed.append((false, false))
      add(key)
      return known.count - 1
    }

    private func add(_ key: Key) {
      index[key] = known.count
      if case .step(let id, _, _) = key, firsts[id.number] < 0 { firsts[id.number] = known.count }
      switch key {
      case .step(let id, let version, let fitsOtherParameters):
        let step = steps[id.number]
        known.append(
          Entry(
            isStep: true, name: step.key, version: version, fingerprint: step.fingerprint,
            fitsOtherParameters: fitsOtherParameters))
      case .reference(let name):
        known.append(Entry(isStep: false, name: name, version: 0, fingerprint: 0))
      }
    }
  }
}

extension StateTable.Entry: StateValue {
  func save(to state: inout StateWriter) {
    state.write(isStep)
    state.write(name)
    state.write(version)
    state.append(fixed: fingerprint)
    state.write(fitsOtherParameters)
  }
  init(from state: inout StateReader) throws(StateFault) {
    isStep = try state.read()
    name = try state.read()
    version = try state.read()
    fingerprint = try state.fixed64()
    fitsOtherParameters = try state.read()
  }
}
