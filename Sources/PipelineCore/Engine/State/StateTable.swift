import CDigest

/// The format of a saved state.
///
/// ```
/// "rxds" format              magic and format
/// wall time, last timer, last subscription
/// table                      the steps of the records: name, state version, fingerprint, fits other parameters
/// definitions                a hash for each named signal
/// origins                    the origins of kept events
/// root section               records
/// checksum:8                 of everything before
/// ```
///
/// A record is an index into the table, a length of four bytes and that many bytes. Numbers are LEB128; signed ones are
/// zigzag-coded. A reader skips unknown records.
enum StateTable {
  static let magic = Array("rxds".utf8)
  /// The header of a saved state.
  struct Format: Equatable {
    /// Origins have identities.
    var hasIdentities: Bool
    /// The checksum is XXH3; older formats, which are only read, have FNV-1a.
    var isXXH3 = true

    private static let bytes: [(byte: UInt8, format: Format)] = [
      (2, Format(hasIdentities: false, isXXH3: false)), (3, Format(hasIdentities: true, isXXH3: false)),
      (4, Format(hasIdentities: false)), (5, Format(hasIdentities: true)),
    ]

    /// The formats that are read.
    static let known = 2...5

    init(hasIdentities: Bool, isXXH3: Bool = true) {
      self.hasIdentities = hasIdentities
      self.isXXH3 = isXXH3
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
    /// The record can be used even if the step's parameters have changed.
    var fitsOtherParameters = false
  }

  /// Numbers the keys of the records that are written.
  final class Builder {
    private let steps: [StepPlan]
    private var index: [Key: Int] = [:]
    private(set) var entries: [Entry] = []
    /// The index of the first record of each step, by the step's number; -1: it has none. A million groups ask a million times.
    private var firsts: [Int]
    /// How many bytes each step wrote itself, by the step's number.
    var sizes: [Int]
    /// Steps whose state could not be written.
    var faults: [(key: Key, fault: StateFault)] = []

    convenience init(_ plan: Plan) { self.init(plan.steps) }

    /// Makes a table without steps, for values that belong to none.
    init(_ steps: [StepPlan] = []) {
      self.steps = steps
      firsts = [Int](repeating: -1, count: steps.count)
      sizes = [Int](repeating: 0, count: steps.count)
    }

    func hasRecord(of step: StepID) -> Bool { firsts[step.number] >= 0 }

    func index(of key: Key) -> Int {
      if case .step(let id, let version, let fitsOtherParameters) = key, firsts[id.number] >= 0 {
        let first = firsts[id.number]
        if entries[first].version == version, entries[first].fitsOtherParameters == fitsOtherParameters { return first }
      }
      if let known = index[key] { return known }
      index[key] = entries.count
      if case .step(let id, _, _) = key, firsts[id.number] < 0 { firsts[id.number] = entries.count }
      switch key {
      case .step(let id, let version, let fitsOtherParameters):
        let step = steps[id.number]
        entries.append(
          Entry(
            isStep: true, name: step.key, version: version, fingerprint: step.fingerprint,
            fitsOtherParameters: fitsOtherParameters))
      case .reference(let name):
        entries.append(Entry(isStep: false, name: name, version: 0, fingerprint: 0))
      }
      return entries.count - 1
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
