/// Joins the lines of each key into events: lines that several senders write to one stream, and the pieces of
/// containers' lines.
///
/// Events are emitted in the order of their first lines, so a complete event waits for those that began before it.
/// Everything that begins before ``pendingOffset`` has therefore been emitted, and decoding can continue there. A line
/// after that offset may belong to an event that was already emitted: ``memory`` records these events, so that no part
/// of one is emitted again as a separate event.
///
/// An event ends as its rule says, at its limits, when its key has been silent for the time that it may wait, when more
/// than ``LineJoining/maxKeys`` events are incomplete, and when the lines since its beginning have more than
/// ``distance`` bytes.
final class KeyedJoiningDecoder: EventDecoder {
  private let inner: any EventDecoder
  private let joining: LineJoining
  private let rule: LineRule?
  private let key: Pattern?
  private let container: ContainerLines?
  /// Identifies the options in ``memory``: memory that another rule wrote must be ignored.
  private let identity: UInt64

  /// An event that has not been emitted.
  private final class Group {
    let key: [UInt8]
    /// The input offsets of its first and last lines.
    let first: Int64
    var latest: Int64
    /// The position of its first line in the text, which includes a byte order mark.
    let start: Int64
    /// The positions of its lines in the text, each including its line feed.
    var lines: [Range<Int64>] = []
    var bytes = 0
    /// Whether the last line is a piece that the next one continues.
    var isMidLine = false
    var isComplete = false
    /// Whether another event began between its lines.
    var isInterleaved = false
    var fault: RejectReason?
    /// When its last line arrived.
    var last: Int64 = 0
    /// The neighbours in the list of incomplete events, ordered by `last`.
    unowned(unsafe) var older: Group?
    unowned(unsafe) var newer: Group?

    init(_ key: [UInt8], first: Int64, start: Int64) {
      (self.key, self.first, self.start) = (key, first, start)
      latest = first
    }
    /// An input offset after the start of its last line and before the next line.
    var end: Int64 { latest &+ 1 }
  }

  /// The events that have not been emitted, in the order of their first lines, from `head` on.
  private var waiting: [Group] = []
  private var head = 0
  private var open: [[UInt8]: Group] = [:]
  /// The incomplete event that has been silent for longest, and the one whose line arrived last.
  private var silent: Group?
  private var newest: Group?
  /// The length of the decoded text. Positions in the text are not input offsets, because converted text has another
  /// length.
  private var textEnd: Int64 = 0
  /// The text from the first waiting event up to the current block.
  private var held: [UInt8] = []
  private var heldStart: Int64 = 0
  /// Keys of events with a line that was too long, and the input offset where each event began; their further pieces
  /// are dropped.
  private var discarding: [[UInt8]: Int64] = [:]
  /// Emitted events between whose lines another event began.
  private var sent: [(first: Int64, end: Int64, key: [UInt8])] = []
  /// For each key, the input offset up to which its lines belong to emitted events; used only after decoding resumed in
  /// the middle.
  private var skipped: [[UInt8]: Int64] = [:]
  private var resumed: [(first: Int64, end: Int64, key: [UInt8])]?
  private var time: Int64 = 0
  private var dueTime: Int64?
  private var groups: [Int]
  private let parser = JSONParser()
  private let invalidUTF8: InvalidUTF8

  init(_ options: DecoderOptions, _ inner: any EventDecoder, _ joining: LineJoining) throws(CodecFailure) {
    self.inner = inner
    self.joining = joining
    rule = try joining.rule.map { rule throws(CodecFailure) in try LineRule(rule) }
    key = try joining.key.map { key throws(CodecFailure) in try LineRule.compile(key, "by") }
    container = options.format == .container ? ContainerLines() : nil
    invalidUTF8 = options.invalidUTF8
    groups = Array(repeating: -1, count: 2 * ((key?.groupCount ?? 0) + 1))
    // Includes nothing else of the options: the order of a dictionary's elements differs in each process.
    identity = Fingerprint.of("\(joining) \(options.format)".utf8)
  }

  /// The maximum number of bytes of input from the first line of an event to the newest line.
  private var distance: Int64 { Int64(joining.maxBytes) * 4 }

  var framing: Framing { .lines }
  var joinsLines: Bool { true }
  private var oldest: Group? { head < waiting.count ? waiting[head] : nil }
  var pendingOffset: Int64? { oldest?.first }
  var undecoded: [UInt8]? {
    guard let pendingOffset else { return [] }
    return sent.contains { $0.end > pendingOffset } || !discarding.isEmpty ? nil : held
  }

  // MARK: Time

  func setTime(_ now: Int64) { time = now }

  var dueAt: Int64? { silent.map { $0.last &+ joining.wait.nanoseconds } }

  func endOnlyDue(at now: Int64) { dueTime = pendingOffset == nil ? nil : now }

  // MARK: Memory

  var memory: [UInt8] {
    guard !sent.isEmpty || !discarding.isEmpty else { return [] }
    var bytes: [UInt8] = []
    func add(_ number: UInt64) { withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) } }
    func add(_ first: Int64, _ end: Int64, _ key: [UInt8]) {
      add(UInt64(bitPattern: first))
      add(UInt64(bitPattern: end))
      add(UInt64(key.count))
      bytes += key
    }
    add(identity)
    for one in sent { add(one.first, one.end, one.key) }
    for (key, first) in discarding { add(first, -1, key) }
    return bytes
  }

  func reset(memory: [UInt8]) {
    waiting = []
    head = 0
    open = [:]
    silent = nil
    newest = nil
    textEnd = 0
    held = []
    discarding = [:]
    sent = []
    skipped = [:]
    resumed = nil
    inner.reset(memory: [])
    var at = 0
    func number() -> UInt64? {
      guard at + 8 <= memory.count else { return nil }
      defer { at += 8 }
      return memory[at..<at + 8].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    guard number() == identity else { return }
    var known: [(first: Int64, end: Int64, key: [UInt8])] = []
    while let first = number(), let end = number(), let count = number() {
      guard let count = Int(exactly: count), count <= memory.count - at else { break }
      let key = Array(memory[at..<at + count])
      at += count
      known.append((Int64(bitPattern: first), Int64(bitPattern: end), key))
    }
    resumed = known
  }

  /// Restores which events were emitted: those that began before the offset at which decoding resumes.
  private func resume(at offset: Int64) {
    guard let known = resumed else { return }
    resumed = nil
    for one in known where one.first < offset {
      if one.end < 0 { discarding[one.key] = one.first }
      guard one.end > offset else { continue }
      skipped[one.key] = max(skipped[one.key] ?? 0, one.end)
      sent.append(one)
    }
  }

  // MARK: Decoding

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    resume(at: offset)
    // Rows of earlier batches have been emitted, or are read again from the first waiting event on. Text of another
    // charset arrives line by line.
    let reached = pendingOffset ?? offset
    if !sent.isEmpty, rows.count == 0, rows.rejected.isEmpty { sent.removeAll { $0.end <= reached } }
    if !skipped.isEmpty { skipped = skipped.filter { $0.value > reached } }
    let source = Source(slab: slab, start: range.lowerBound, textStart: textEnd)
    textEnd &+= Int64(range.count)
    let text = slab.bytes
    var at = range.lowerBound
    while at < range.upperBound {
      let next = text.offset(of: 0x0A, from: at).map { min($0 + 1, range.upperBound) } ?? range.upperBound
      let from = offset == 0 && at == range.lowerBound ? at + text.part(at, next).byteOrderMarkLength : at
      add(
        text.part(from, next).withoutLineEnd, at: offset &+ Int64(at - range.lowerBound),
        start: source.position(at), source.position(from)..<source.position(next), arena, rows)
      bound(offset &+ Int64(next - range.lowerBound))
      leave(source, arena, rows)
      at = next
    }
    if isLast { endAll(source, arena, rows) }
    keep(source)
  }

  /// Adds a line to the event of its key.
  ///
  /// - Parameters:
  ///   - offset: The input offset of the line.
  ///   - start: The position of the line in the text, including a byte order mark.
  ///   - place: The range of the line in the text, without that mark and with the line feed.
  private func add(
    _ line: UnsafeRawBufferPointer, at offset: Int64, start: Int64, _ lineRange: Range<Int64>, _ arena: Arena,
    _ rows: RowBatch
  ) {
    var name = line.part(0, 0)
    var text = line
    var isPiece = false
    if let container {
      if line.isBlank { return }
      do throws(RejectReason) {
        let found = try container.read(line, parser, arena)
        if head == waiting.count, !found.isPiece, rule == nil, skipped.isEmpty, discarding.isEmpty {
          // A complete line while no event waits, as most lines of containers are.
          return container.append(CollectionOfOne(found), offset: offset, invalidUTF8, arena, rows)
        }
        (name, text, isPiece) = (found.stream, found.message, found.isPiece)
      } catch {
        let group = Group([], first: offset, start: start)
        group.lines = [lineRange]
        group.fault = error
        group.isComplete = true
        waiting.append(group)
        return
      }
    } else if let key, key.find(line, from: 0, into: &groups) {
      let group = groups.count > 2 ? 2 : 0
      if groups[group] >= 0 { name = line.part(groups[group], groups[group + 1]) }
    }
    let key = Array(name)
    if let end = skipped[key], offset < end { return }
    if let began = discarding[key] {
      if !isPiece {
        discarding[key] = nil
        sent.append((began, offset &+ 1, key))
      }
      return
    }
    let isMatch = rule?.matches(text) ?? false
    if let group = open[key], !group.isMidLine, let rule {
      let isFull = group.lines.count >= joining.maxLines || group.bytes + line.count > joining.maxBytes
      if isFull || rule.looksAhead && isMatch != rule.matchJoins { complete(group) }
    }
    let group: Group
    if let known = open[key] {
      group = known
      if waiting.last !== known { known.isInterleaved = true }
    } else {
      group = Group(key, first: offset, start: start)
      open[key] = group
      waiting.append(group)
    }
    group.lines.append(lineRange)
    group.latest = offset
    group.bytes += line.count
    group.isMidLine = isPiece
    touch(group)
    if group.bytes > joining.maxBytes, group.lines.count > 1 {
      group.fault = .tooLong(limit: joining.maxBytes)
      complete(group)
      if isPiece { discarding[key] = group.first }
    } else if !isPiece {
      guard let rule else { return complete(group) }
      if !rule.looksAhead, isMatch != rule.matchJoins { complete(group) }
    }
  }

  private func complete(_ group: Group) {
    group.isComplete = true
    unlink(group)
    open[group.key] = nil
  }

  /// Moves the event of a line that has just arrived to the end of the list: time never goes backwards.
  private func touch(_ group: Group) {
    group.last = time
    if newest === group { return }
    unlink(group)
    group.older = newest
    newest?.newer = group
    newest = group
    if silent == nil { silent = group }
  }

  private func unlink(_ group: Group) {
    if silent === group { silent = group.newer }
    if newest === group { newest = group.older }
    group.older?.newer = group.newer
    group.newer?.older = group.older
    group.older = nil
    group.newer = nil
  }

  /// Ends the oldest events while there are too many, or they began too many bytes ago.
  private func bound(_ end: Int64) {
    guard let oldest, open.count > joining.maxKeys || end &- oldest.first > distance else { return }
    for group in waiting[head...] where !group.isComplete {
      guard open.count > joining.maxKeys || end &- group.first > distance else { return }
      complete(group)
    }
  }

  /// Ends all events, because the input has ended, or those whose wait is over.
  private func endAll(_ source: Source, _ arena: Arena, _ rows: RowBatch) {
    for group in waiting[head...] where !group.isComplete {
      if let dueTime, group.last &+ joining.wait.nanoseconds > dueTime { continue }
      complete(group)
    }
    if dueTime == nil { discarding = [:] }
    dueTime = nil
    leave(source, arena, rows)
  }

  // MARK: Leaving

  /// The current block.
  private struct Source {
    let slab: Slab
    let start: Int
    /// The position of `start` in the text.
    let textStart: Int64

    func position(_ index: Int) -> Int64 { textStart &+ Int64(index - start) }
    func index(_ position: Int64) -> Int { start + Int(position &- textStart) }
  }

  private func leave(_ source: Source, _ arena: Arena, _ rows: RowBatch) {
    while let group = oldest, group.isComplete {
      head += 1
      emit(group, source, arena, rows)
      if group.isInterleaved { sent.append((group.first, group.end, group.key)) }
    }
    if head == waiting.count {
      waiting.removeAll(keepingCapacity: true)
      head = 0
    } else if head > 64, head * 2 > waiting.count {
      waiting.removeFirst(head)
      head = 0
    }
  }

  private func bytes(_ lineRange: Range<Int64>, _ source: Source, _ body: (UnsafeRawBufferPointer) -> Void) {
    if lineRange.lowerBound >= source.textStart {
      body(source.slab.bytes.part(source.index(lineRange.lowerBound), source.index(lineRange.upperBound)))
    } else {
      held.withUnsafeBytes {
        body($0.part(Int(lineRange.lowerBound &- heldStart), Int(lineRange.upperBound &- heldStart)))
      }
    }
  }

  private func emit(_ group: Group, _ source: Source, _ arena: Arena, _ rows: RowBatch) {
    if let fault = group.fault {
      var head: UnsafeRawBufferPointer?
      bytes(group.lines[0], source) { head = arena.copy($0.withoutLineEnd) }
      if let head { rows.reject(head, offset: group.first, fault) }
      return
    }
    if let container {
      var lines: [ContainerLines.Line] = []
      for lineRange in group.lines {
        bytes(lineRange, source) { text in
          // These lines were valid when they arrived.
          if let line = try? container.read(arena.copy(text.withoutLineEnd), parser, arena) { lines.append(line) }
        }
      }
      container.append(lines, offset: group.first, invalidUTF8, arena, rows)
      return
    }
    let line = group.lines[0]
    if group.lines.count == 1, line.lowerBound >= source.textStart {
      return decodeRow(
        source.slab, source.index(line.lowerBound)..<source.index(line.upperBound), group.first, arena, rows)
    }
    var whole: [UInt8] = []
    whole.reserveCapacity(group.lines.reduce(0) { $0 + Int($1.upperBound &- $1.lowerBound) })
    for line in group.lines { bytes(line, source) { whole.append(contentsOf: $0) } }
    let joined = whole.withUnsafeBytes { Slab($0) }
    arena.keep(joined)
    decodeRow(joined, 0..<joined.count, group.first, arena, rows)
  }

  private func decodeRow(_ slab: Slab, _ range: Range<Int>, _ offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound).withoutLineEnd
    inner.decode(
      slab, range.lowerBound..<range.lowerBound + text.count, offset: offset, isLast: true, arena: arena, into: rows)
  }

  /// Keeps the text from the first waiting event on.
  private func keep(_ source: Source) {
    guard let start = oldest?.start else {
      held.removeAll(keepingCapacity: held.capacity <= 64 << 10)
      return
    }
    if start >= source.textStart {
      held.removeAll(keepingCapacity: true)
    } else {
      held.removeFirst(min(held.count, Int(start &- heldStart)))
    }
    heldStart = start
    held.append(
      contentsOf: source.slab.bytes.part(source.index(max(start, source.textStart)), source.index(textEnd)))
  }
}

extension KeyedJoiningDecoder {
  /// The fields of a container's line, for the checker of expressions.
  static var containerFields: [ExpressionType.Field] {
    typealias Field = ExpressionType.Field
    return [
      Field("stream", .string), Field("message", .string), Field("time", .timestamp, mayBeAbsent: true),
      Field("attrs", .map(.string, .dyn), mayBeAbsent: true),
    ]
  }
}
