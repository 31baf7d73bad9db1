import PipelineCore

/// Assigns letters to values.
struct MarbleNames {
  private static let spareLetters = (Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")).map(String.init)

  private(set) var known: [(name: String, value: TestValue)]
  private var taken: Set<String>
  private var used: Set<TestValue> = []

  init(_ letters: [(name: String, value: TestValue)]) {
    known = letters
    taken = Set(letters.map(\.name))
  }

  mutating func name(of moment: SignalHistory.Moment) -> String {
    switch moment {
    case .complete: "|"
    case .error: "#"
    case .subscribe: "^"
    case .cancel: "!"
    case .next(let value): name(of: value)
    }
  }

  private mutating func name(of value: TestValue) -> String {
    used.insert(value)
    if let entry = known.first(where: { $0.value == value }) { return entry.name }
    let own = Self.letter(value)
    let name: String
    if let own, !taken.contains(own) {
      name = own
    } else {
      name = Self.spareLetters.first { !taken.contains($0) } ?? "?"
    }
    known.append((name, value))
    taken.insert(name)
    return name
  }

  /// The letter or digit that stands for the value without a legend; nil if there is none.
  static func letter(_ value: TestValue) -> String? {
    switch value {
    case .int(let number) where (0...9).contains(number): return "\(number)"
    case .text(let bytes) where bytes.count == 1:
      let byte = bytes[0]
      let isLetter = (0x61...0x7A).contains(byte | 0x20)
      return isLetter ? String(decoding: bytes, as: UTF8.self) : nil
    default: return nil
    }
  }

  var legend: [String] {
    known.filter { used.contains($0.value) && Self.letter($0.value) != $0.name }
      .map { "\($0.name) = \(Printable.cut($0.value.description, limit: 400))" }
  }
}
