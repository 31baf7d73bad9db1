internal import CJournal
import CLinux
import Glibc
import PipelineCore
import Synchronization

/// The reason why the journal cannot be read.
package struct JournalFailure: Error, Sendable, Equatable {
  /// A sentence without a full stop.
  package var message: String
  /// Whether libsystemd is missing: trying again does not help.
  package var isMissingLibrary = false
}

/// Reads the systemd journal on a thread of its own, and decodes its entries there.
package final class JournalReader: Sendable {
  /// A part of the condition that entries must satisfy. Matches of one field are alternatives; matches of different
  /// fields must all hold.
  package enum Match: Sendable, Equatable {
    case field(String, String)
    /// The following matches are an alternative to those since the last `and`.
    case or
    /// The following matches must hold, too.
    case and
  }

  /// Where reading starts.
  package enum Start: Sendable, Equatable {
    case beginning, end
    /// Starts at the first entry of the current boot; at the end if there is none.
    case boot
    /// In microseconds since 1970.
    case time(UInt64)
    /// After the entry with this cursor; nil: at the first entry.
    case behind(cursor: String?)
  }

  package struct Options: Sendable {
    /// Nil: the journal of this machine.
    package var directory: String?
    package var matches: [Match] = []
    package var start = Start.beginning
    /// Whether to wait for further entries.
    package var follows = true
    /// The maximum size of a value in bytes.
    package var maxField = 64 << 10
    /// The maximum size of all values of an entry in bytes.
    package var maxEntry = 16 << 20
    /// The limit on the sum of the block sizes of all readers of this process, as in ``BlockReader/Options/allBlocks``.
    package var allBlocks = 4 << 20
    package init() {}
  }

  /// Entries that are delivered together.
  package struct Piece: Sendable {
    /// Nil: the piece has no entries.
    package var rows: DecodedBlock?
    /// The cursor of each entry, with the offset of its row.
    package var entries: [(number: Int64, cursor: String)] = []
    /// The memory of the piece in bytes.
    package var bytes = 0
    /// Set in the last piece.
    package var end: End?
  }

  package enum End: Sendable, Equatable {
    case finished
    case failed(String)
  }

  package enum Notice: Sendable, Equatable {
    /// The entry after which reading was to continue is gone; reading continues with the next one.
    case goneCursor
    /// The number of journal files that cannot be read.
    case unreadable(Int)
    /// There are no journal files yet.
    case nothing
    /// An entry of a damaged file could be read in part, or not at all.
    case damaged
  }

  private let options: Options
  private let wake: WakeEvent
  private let isStopped = Atomic(false)
  /// The cursor after which reading starts, or why nothing can be read. Set by the thread.
  private let begun = Guarded<Result<String?, JournalFailure>?>(nil)

  private static let mostEntries = 256
  private static let mostBytes = 256 << 10

  package init(_ options: Options) throws(JournalFailure) {
    self.options = options
    do throws(PosixError) { wake = try WakeEvent() } catch { throw JournalFailure(message: error.message) }
  }

  /// The number of an entry, the same each time that the entry is read: a hash of its cursor, at least 0.
  static func number(of cursor: UnsafeRawBufferPointer) -> Int64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in cursor { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return Int64(hash >> 1)
  }

  /// Starts the thread, and waits until it has found its starting position. Returns the cursor of the entry before
  /// that; nil: there is none.
  ///
  /// - Parameters:
  ///   - notify: Called on the thread.
  ///   - deliver: Called on the thread with pieces, in order; may block while there is no room. Returns false to end reading.
  package func start(
    notify: @escaping @Sendable (Notice) -> Void, deliver: @escaping @Sendable (Piece) -> Bool
  ) throws(JournalFailure) -> String? {
    do throws(PosixError) {
      _ = try OwnThread("rxd journal") { [self] in run(notify, deliver) }
    } catch {
      throw JournalFailure(message: error.message)
    }
    guard let result = begun.wait(until: nil, { $0 }) else { throw JournalFailure(message: "it cannot be started") }
    return try result.get()
  }

  /// Ends reading soon. Entries that were read and not delivered are read again by the reader that continues.
  package func stop() {
    isStopped.store(true, ordering: .releasing)
    wake.wake()
  }

  /// Throws if a reader could not be started; reads no entries.
  package static func check(directory: String?) throws(JournalFailure) {
    rx_journal_close(try open(directory))
    _ = try look(at: directory)
  }

  // MARK: The thread

  private func run(
    _ notify: @escaping @Sendable (Notice) -> Void, _ deliver: @escaping @Sendable (Piece) -> Bool
  ) {
    let journal: OpaquePointer
    let descriptor: Int32
    var skipped: String?
    do throws(JournalFailure) {
      let found = try Self.look(at: options.directory)
      journal = try Self.open(options.directory)
      if found.unreadable > 0 { notify(.unreadable(found.unreadable)) }
      if found.readable == 0 { notify(.nothing) }
      // Opened before anything is read, so that no change goes unnoticed.
      descriptor = options.follows ? rx_journal_descriptor(journal) : -1
      skipped = try position(journal, notify)
      try check(apply(journal), "its matches cannot be used")
      try check(seek(journal, behind: skipped), "its entries cannot be found")
    } catch {
      begun.withLock { $0 = .failure(error) }
      begun.notify()
      return
    }
    defer { rx_journal_close(journal) }
    begun.withLock { [skipped] in $0 = .success(skipped) }
    begun.notify()
    var work = Work(JournalDecoder(), deliver)
    var active: ActiveReader?
    while !isStopped.load(ordering: .acquiring) {
      let found = rx_journal_next(journal)
      guard found > 0 else {
        guard work.handOver() else { return }
        active = nil
        if found < 0 {
          _ = deliver(Piece(end: .failed("the journal cannot be read: \(PosixError.text(-found))")))
          return
        }
        guard options.follows else {
          _ = deliver(Piece(end: .finished))
          return
        }
        wait(journal, descriptor)
        continue
      }
      // Only the first entry can be the one to skip.
      if let cursor = skipped {
        skipped = nil
        if rx_journal_is_at(journal, cursor) != 0 { continue }
      }
      if active == nil { active = ActiveReader() }
      let code = work.read(journal, options)
      if code != 0 { notify(.damaged) }
      if code == -ENOMEM {
        _ = work.handOver() && deliver(Piece(end: .failed("the journal cannot be read: \(PosixError.text(ENOMEM))")))
        return
      }
      let most = min(Self.mostBytes, max(ActiveReader.leastBlock, ActiveReader.share(of: options.allBlocks)))
      if work.count >= Self.mostEntries || work.bytes >= most, !work.handOver() { return }
    }
  }

  /// Entries that have been read and not yet delivered.
  private struct Work: ~Copyable {
    private var buffer = rx_journal_bytes()
    private var ranges: [Range<Int>] = []
    private let decoding: BlockDecoding
    private let deliver: (Piece) -> Bool
    private var offset: Int64 = 0

    init(_ decoder: JournalDecoder, _ deliver: @escaping (Piece) -> Bool) {
      decoding = BlockDecoding(decoder)
      self.deliver = deliver
    }

    deinit {
      var buffer = buffer
      rx_journal_free(&buffer)
    }

    var count: Int { ranges.count }
    var bytes: Int { buffer.count }

    /// Zero, or the error of `rx_journal_read`.
    mutating func read(_ journal: OpaquePointer, _ options: Options) -> Int32 {
      let start = buffer.count
      let code = rx_journal_read(journal, options.maxField, options.maxEntry, &buffer)
      if code >= 0 { ranges.append(start..<buffer.count) }
      return code
    }

    mutating func handOver() -> Bool {
      guard !ranges.isEmpty else { return true }
      let bytes = UnsafeRawBufferPointer(start: buffer.start, count: buffer.count)
      let slab = Slab(bytes)
      var piece = Piece()
      for range in ranges {
        let head = bytes.loadUnaligned(fromByteOffset: range.lowerBound, as: rx_journal_entry_head.self)
        let start = range.lowerBound + MemoryLayout<rx_journal_entry_head>.size
        let cursor = UnsafeRawBufferPointer(rebasing: bytes[start..<(start + Int(head.cursor_length))])
        piece.entries.append((JournalReader.number(of: cursor), String(decoding: cursor, as: UTF8.self)))
      }
      piece.rows = decoding.decode(slab, messages: ranges, offset: offset)
      piece.bytes = slab.count
      offset &+= Int64(slab.count)
      ranges.removeAll(keepingCapacity: true)
      buffer.count = 0
      // The memory of an unusually large entry is freed.
      if buffer.capacity > 2 * JournalReader.mostBytes { rx_journal_free(&buffer) }
      return deliver(piece)
    }
  }

  private func wait(_ journal: OpaquePointer, _ descriptor: Int32) {
    let timeout = rx_journal_timeout(journal)
    // A journal that cannot be watched is polled four times a second.
    let limit = descriptor < 0 ? 250 : timeout
    let ready = rx_wait_two(descriptor, 0, wake.descriptor, limit)
    if ready & 2 != 0 { wake.clear() }
    _ = rx_journal_process(journal)
  }

  // MARK: The start

  private static func open(_ directory: String?) throws(JournalFailure) -> OpaquePointer {
    guard rx_journal_is_available() != 0 else {
      throw JournalFailure(
        message: "the journal needs libsystemd, which is not installed: apt-get install libsystemd0",
        isMissingLibrary: true)
    }
    var code: Int32 = 0
    guard let journal = rx_journal_open(directory, &code) else {
      throw JournalFailure(
        message: "\(directory ?? "the journal of this machine") cannot be opened: \(PosixError.text(code))")
    }
    return journal
  }

  private func check(_ code: Int32, _ message: String) throws(JournalFailure) {
    if code < 0 { throw JournalFailure(message: "\(message): \(PosixError.text(-code))") }
  }

  private func apply(_ journal: OpaquePointer) -> Int32 {
    for match in options.matches {
      let code =
        switch match {
        case .field(let name, let value): rx_journal_match(journal, "\(name)=\(value)")
        case .or: rx_journal_or(journal)
        case .and: rx_journal_and(journal)
        }
      if code < 0 { return code }
    }
    return 0
  }

  private func seek(_ journal: OpaquePointer, behind cursor: String?) -> Int32 {
    cursor.map { rx_journal_seek_cursor(journal, $0) } ?? rx_journal_seek_head(journal)
  }

  /// The cursor of the entry before the start, ignoring the matches; nil: reading starts at the first entry.
  private func position(_ journal: OpaquePointer, _ notify: (Notice) -> Void) throws(JournalFailure) -> String? {
    switch options.start {
    case .beginning, .behind(nil): return nil
    case .end: return try before(journal, rx_journal_seek_tail(journal))
    case .time(let time): return try before(journal, rx_journal_seek_time(journal, max(1, time) - 1))
    case .boot:
      guard let boot = Self.boot else { return nil }
      try check(rx_journal_match(journal, "_BOOT_ID=\(boot)"), "the entries of this boot cannot be found")
      defer { rx_journal_flush_matches(journal) }
      try check(rx_journal_seek_head(journal), "the entries of this boot cannot be found")
      let found = rx_journal_next(journal)
      guard found > 0, let first = Self.cursor(journal) else {
        rx_journal_flush_matches(journal)
        return try before(journal, rx_journal_seek_tail(journal))
      }
      rx_journal_flush_matches(journal)
      try check(rx_journal_seek_cursor(journal, first), "the entries of this boot cannot be found")
      _ = rx_journal_next(journal)
      return rx_journal_previous(journal) > 0 ? Self.cursor(journal) : nil
    case .behind(let cursor?):
      try check(rx_journal_seek_cursor(journal, cursor), "'\(Printable.cut(cursor))' is not a cursor")
      if rx_journal_next(journal) > 0, rx_journal_is_at(journal, cursor) != 0 { return cursor }
      notify(.goneCursor)
      return cursor
    }
  }

  /// The cursor of the last entry before the position to which the journal was moved.
  private func before(_ journal: OpaquePointer, _ code: Int32) throws(JournalFailure) -> String? {
    try check(code, "its entries cannot be found")
    let found = rx_journal_previous(journal)
    try check(found, "its entries cannot be found")
    return found > 0 ? Self.cursor(journal) : nil
  }

  private static func cursor(_ journal: OpaquePointer) -> String? {
    guard let text = rx_journal_cursor(journal) else { return nil }
    defer { free(text) }
    return String(cString: text)
  }

  /// The ID of the current boot, in the form that entries have.
  private static var boot: String? {
    guard let text = SystemFile.read("/proc/sys/kernel/random/boot_id", limit: 64) else { return nil }
    return String(decoding: text.filter { $0 != UInt8(ascii: "-") && $0 > 0x20 }, as: UTF8.self)
  }

  /// Counts the journal files that can be read, and those that cannot, which libsystemd silently leaves out.
  private static func look(at directory: String?) throws(JournalFailure) -> (readable: Int, unreadable: Int) {
    var found = (readable: 0, unreadable: 0)
    for folder in directory.map({ [$0] }) ?? ["/var/log/journal", "/run/log/journal"] {
      for pattern in ["", "/*"] {
        let names = Glob.expand(folder + pattern + "/*.journal").paths
        for name in names {
          if access(name, R_OK) == 0 { found.readable += 1 } else { found.unreadable += 1 }
        }
      }
      for name in [folder] + Glob.expand(folder + "/*").paths {
        var status = stat()
        if stat(name, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, access(name, R_OK | X_OK) != 0 {
          found.unreadable += 1
        }
      }
    }
    if found.readable == 0, found.unreadable > 0 {
      throw JournalFailure(
        message: "the journal cannot be read: \(PosixError.text(EACCES)); add the user to the group systemd-journal")
    }
    return found
  }
}
