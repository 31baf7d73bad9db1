/// The form of a saved state, from the first byte to the last.
///
/// ```
/// "rxds" format:1            what it is
/// wall time, last timer, last subscription
/// table                      the steps that records belong to: name, state version, fingerprint
/// origins                    where kept events came from
/// root section               records
/// checksum:8                 FNV-1a of everything before
/// ```
///
/// A record is an index into the table, a length of four bytes and so many bytes. Numbers are LEB128, signed
/// ones folded. Whoever does not know a record skips it.
enum StateTable {
  static let magic = Array("rxds".utf8)
  static let format: UInt8 = 1

  /// What a record belongs to.
  enum Key: Hashable {
    case step(StepID, version: Int)
    /// A place that refers to a named signal.
    case reference(String)
  }

  struct Entry {
    var isStep: Bool
    var name: String
    var version: Int
    var fingerprint: UInt64
  }

  /// Numbers the keys of the records that are written.
  final class Builder {
    private let plan: Plan
    private var index: [Key: Int] = [:]
    private(set) var entries: [Entry] = []
    /// How many bytes the steps wrote of their own.
    var sizes: [StepID: Int] = [:]
    /// Steps whose state could not be written.
    var faults: [(key: Key, fault: StateFault)] = []

    init(_ plan: Plan) { self.plan = plan }

    func index(of key: Key) -> Int {
      if let known = index[key] { return known }
      index[key] = entries.count
      switch key {
      case .step(let id, let version):
        let step = plan.steps[id.number]
        entries.append(Entry(isStep: true, name: step.key, version: version, fingerprint: step.fingerprint))
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
  }
  init(from state: inout StateReader) throws(StateFault) {
    isStep = try state.read()
    name = try state.read()
    version = try state.read()
    fingerprint = try state.fixed64()
  }
}

/// FNV-1a, 64 bits: finds damage, withstands nobody.
struct Fingerprint {
  private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

  mutating func add(_ byte: UInt8) { value = (value ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
  mutating func add(_ bytes: some Sequence<UInt8>) { for byte in bytes { add(byte) } }
  mutating func add(_ number: UInt64) {
    for shift in stride(from: UInt64(0), to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number &>> shift)) }
  }

  static func of(_ bytes: some Sequence<UInt8>) -> UInt64 {
    var print = Fingerprint()
    print.add(bytes)
    return print.value
  }

  /// What the YAML says, not how: neither the order of keys nor quotes nor comments change it. Secrets do not
  /// count, because what is stored must tell nothing of them.
  static func of(_ node: YAMLNode?) -> UInt64 {
    guard let node else { return 1 }
    var print = Fingerprint()
    switch node.content {
    case .scalar(let scalar):
      print.add(UInt8(1))
      if !scalar.containsSecret { print.add(scalar.text.text) }
    case .sequence(let items):
      print.add(UInt8(2))
      for item in items { print.add(of(item)) }
    case .mapping(let entries):
      var sum: UInt64 = 0
      for entry in entries {
        var member = Fingerprint()
        member.add(entry.key.text.text)
        member.add(of(entry.value))
        sum &+= member.value
      }
      print.add(UInt8(3))
      print.add(sum)
    }
    return print.value
  }
}
