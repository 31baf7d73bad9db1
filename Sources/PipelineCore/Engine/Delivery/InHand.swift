/// Records the event that a pipeline is processing in a record that outlives the process. An event that repeatedly ends
/// the process is thereby found and rejected.
///
/// After an orderly end the next run records nothing, so it costs nothing. After another end the first ``trial`` of the
/// next run is *careful*: sources that can be read again record each event before they send it, and clear the record at
/// the end of the turn. If ``hits`` careful runs in a row end with the same event in hand, that event is *refused* from
/// then on. So it takes four ends: one that makes the next run careful, and three with the event in hand. A run begins
/// where the previous run began, so kills from outside sometimes hit the same one of thousands of events twice in a
/// row, but hardly three times.
///
/// After two ends in a row steps run in turns only, so that an event that traps on a decoding thread is found too,
/// after one more end.
///
/// Used in turns of one pipeline at a time.
package final class InHand: @unchecked Sendable {
  /// How long a run is careful. A later end of the process is not attributed to an event that is read at the start.
  package static let trial = TimeSpan.seconds(60)
  /// How many careful runs in a row must end with an event in hand before it is refused.
  package static let hits: UInt64 = 3
  /// The size of the record, in bytes.
  package static let byteCount = 4096
  private static let magic: UInt64 = 0x0131_444E_4148_5852
  private static let most = 64

  /// The position of an event in an input that can be read again.
  package struct Position: Equatable, Sendable {
    /// Hashes of the step's name and of the input's path.
    var source: UInt64
    var input: UInt64
    /// The offset of the event in the input, from 0.
    var offset: Int64
  }

  private enum Word {
    static let magic = 0
    static let isRunning = 1
    static let ends = 2
    static let isHeld = 3
    /// `held` and `suspect` take three words each.
    static let held = 4
    static let suspect = 7
    static let refusedCount = 10
    /// The number of consecutive runs that ended while the suspect was being processed.
    static let hits = 11
    static let refused = 16
  }

  private let words: UnsafeMutablePointer<UInt64>
  /// Keeps the memory alive.
  private let owner: AnyObject
  /// Saves bytes of the memory, from an offset on, where the next process finds them.
  private let record: @Sendable (_ from: Int, _ count: Int) -> Void
  private var began: Instant?
  /// The number of consecutive unclean ends of the process shortly after its start.
  package private(set) var ends: Int
  /// Whether this start refuses an event that no earlier one refused.
  package private(set) var isNewlyRefused = false

  /// - Parameters:
  ///   - memory: ``byteCount`` bytes, as an earlier process recorded them; zero at first.
  ///   - owner: Keeps the memory alive.
  ///   - record: Saves bytes of the memory, from an offset on. Called in turns. The default does nothing: the memory
  ///     itself outlives the process.
  package init(
    _ memory: UnsafeMutableRawPointer, heldBy owner: AnyObject,
    record: @escaping @Sendable (_ from: Int, _ count: Int) -> Void = { _, _ in }
  ) {
    self.record = record
    words = memory.bindMemory(to: UInt64.self, capacity: Self.byteCount / 8)
    self.owner = owner
    ends = 0
    if words[Word.magic] != Self.magic {
      for index in 0..<Self.byteCount / 8 { words[index] = 0 }
      words[Word.magic] = Self.magic
    }
    if words[Word.isRunning] == 1 {
      words[Word.ends] &+= 1
      let held = words[Word.isHeld] == 1 ? position(at: Word.held) : nil
      let suspect = words[Word.suspect] == 0 ? nil : position(at: Word.suspect)
      words[Word.hits] = held == nil ? 0 : held == suspect ? words[Word.hits] &+ 1 : 1
      if let held, words[Word.hits] >= Self.hits, !isRefused(held) {
        refuse(held)
        isNewlyRefused = true
      }
      if let held { put(held, at: Word.suspect) } else { words[Word.suspect] = 0 }
    } else {
      words[Word.ends] = 0
      words[Word.suspect] = 0
      words[Word.hits] = 0
    }
    ends = Int(truncatingIfNeeded: words[Word.ends])
    words[Word.isHeld] = 0
    words[Word.isRunning] = 1
    record(0, Self.byteCount)
  }

  /// Records an orderly end of the process.
  package func close() {
    words[Word.isHeld] = 0
    words[Word.isRunning] = 0
    record(0, 8 * Word.held)
  }

  /// Whether events must be recorded. Called in turns.
  func isCareful(_ now: Instant) -> Bool {
    if ends > 0 {
      let start = began ?? now
      began = start
      if now - start < Self.trial { return true }
      ends = 0
      words[Word.ends] = 0
      words[Word.isHeld] = 0
      record(0, 8 * Word.held)
    }
    // A refused event stays refused whenever it is read again.
    return hasRefused
  }

  private var hasRefused: Bool { words[Word.refusedCount] > 0 }

  /// Whether steps run in turns only.
  var keepsToTurns: Bool { ends > 1 }

  /// Records that the event is in hand; false: the event is refused.
  func take(_ position: Position) -> Bool {
    if isRefused(position) { return false }
    put(position, at: Word.held)
    words[Word.isHeld] = 1
    record(8 * Word.isHeld, 8 * 4)
    return true
  }

  /// Clears the record: the turn is over.
  func turnEnded() {
    guard words[Word.isHeld] != 0 else { return }
    words[Word.isHeld] = 0
    record(8 * Word.isHeld, 8)
  }

  private func isRefused(_ position: Position) -> Bool {
    let count = min(Int(truncatingIfNeeded: words[Word.refusedCount]), Self.most)
    return (0..<count).contains { self.position(at: Word.refused + 3 * $0) == position }
  }

  private func refuse(_ position: Position) {
    let count = Int(truncatingIfNeeded: words[Word.refusedCount])
    put(position, at: Word.refused + 3 * (count % Self.most))
    words[Word.refusedCount] &+= 1
  }

  private func position(at word: Int) -> Position {
    Position(source: words[word], input: words[word + 1], offset: Int64(bitPattern: words[word + 2]))
  }

  private func put(_ position: Position, at word: Int) {
    // Zero means no event.
    words[word] = position.source | 1
    words[word + 1] = position.input
    words[word + 2] = UInt64(bitPattern: position.offset)
  }

  static func hash(_ text: String) -> UInt64 { Fingerprint.of(text.utf8) | 1 }
}
