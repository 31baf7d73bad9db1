/// The parsed parts of a saved state, which need no plan; ``StateTable`` describes the format.
struct StateContents {
  /// The wall-clock time of saving, in nanoseconds since 1970.
  let savedAt: Int64
  let lastSubscription: UInt64
  let entries: [StateTable.Entry]
  /// The hashes of the named signals.
  let definitions: [String: UInt64]
  let root: Restoration.Section
  private let format: StateTable.Format
  /// The owners of pages: the entry of the outermost record of each, and the bytes of its pages.
  private(set) var owners: [(entry: Int, bytes: Int)] = []
  /// The offset at which the pages begin.
  private let end: Int
  /// The ranges of the table of entries and of the root section.
  private let table: Range<Int>
  private let rootSection: Range<Int>

  /// - Throws: The bytes are not a saved state, have a newer format, or are damaged.
  init(_ bytes: [UInt8], _ context: StateReader.Context) throws(StateFault) {
    guard bytes.count > StateTable.magic.count + 9, bytes.starts(with: StateTable.magic) else {
      throw StateFault("it is none")
    }
    let number = bytes[StateTable.magic.count]
    guard let format = StateTable.Format(number) else {
      let known = StateTable.Format.known
      throw StateFault(
        "its format is \(number), and this version of rxd reads \(known.lowerBound) to \(known.upperBound)")
    }
    self.format = format
    var reader = StateReader(bytes, StateTable.magic.count + 1..<bytes.count, context)
    if format.hasPages {
      guard let length = Int(exactly: try reader.fixed64()), (reader.offset + 8...bytes.count).contains(length) else {
        throw StateFault("it is damaged")
      }
      end = length
    } else {
      end = bytes.count
    }
    var checksum = StateReader(bytes, end - 8..<end, context)
    guard try checksum.fixed64() == format.checksum(bytes[..<(end - 8)]) else { throw StateFault("it is damaged") }
    reader = StateReader(bytes, reader.offset..<end - 8, context)
    if format.hasPages {
      context.clockOfPages = try reader.read()
      var pages = StateReader(bytes, end..<bytes.count, context)
      context.pages = try pages.pageRanges()
    }
    savedAt = try Int64(from: &reader)
    context.lastTimer = try reader.read()
    lastSubscription = try reader.read()
    // Numbering continues from the saved numbers, which must leave room.
    guard context.lastTimer < 1 << 62, lastSubscription < 1 << 62 else { throw StateFault("it is damaged") }
    context.savedAt = savedAt
    // If the clock was set back, no time has passed.
    let (elapsed, overflow) = context.executor.wallTime.subtractingReportingOverflow(savedAt)
    context.elapsed = TimeSpan(nanoseconds: overflow ? 0 : max(0, elapsed))
    let tableStart = reader.offset
    entries = try reader.read()
    table = tableStart..<reader.offset
    var definitions: [String: UInt64] = [:]
    for _ in 0..<(try reader.count()) { definitions[try reader.read()] = try reader.fixed64() }
    self.definitions = definitions
    if format.hasPages {
      for _ in 0..<(try reader.count()) { owners.append((entry: try reader.read(), bytes: try reader.read())) }
    }
    try reader.readOrigins(haveIdentities: format.hasIdentities)
    let rootStart = reader.offset
    root = try Restoration.Section(try reader.part())
    rootSection = rootStart..<reader.offset
    guard reader.isAtEnd else { throw StateFault("it is longer than its length says") }
  }

  /// The same state without the records of the entry, so that its step starts empty.
  ///
  /// Its records in the root section are removed. Its records in inner signals stay until the state is next saved,
  /// without an owner: the table no longer has a name for them.
  func removing(_ entry: Int, from bytes: [UInt8], _ context: StateReader.Context) -> [UInt8] {
    let writing = StateWriter.Context(context.executor, StateTable.Builder(), .taken)
    var entries = entries
    entries[entry] = .none
    var table = StateWriter(writing)
    table.write(entries)
    var records = StateWriter(writing)
    records.part { state in
      for record in root.records where record.entry != entry {
        state.write(UInt64(record.entry))
        state.part { part in
          let start = record.reader.offset
          for byte in bytes[start..<start + record.reader.remaining] { part.append(byte) }
        }
      }
    }
    var result = Array(bytes[..<self.table.lowerBound])
    result += table.bytes
    result += bytes[self.table.upperBound..<rootSection.lowerBound]
    result += records.bytes
    if format.hasPages {
      var length = StateWriter(writing)
      length.append(fixed: UInt64(result.count + 8))
      result.replaceSubrange(StateTable.magic.count + 1..<StateTable.magic.count + 9, with: length.bytes)
    }
    var checksum = StateWriter(writing)
    checksum.append(fixed: format.checksum(result[...]))
    // The pages of the step stay until the state is next saved, without an owner.
    return result + checksum.bytes + bytes[end...]
  }
}
