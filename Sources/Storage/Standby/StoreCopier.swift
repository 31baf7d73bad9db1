import Glibc
import PipelineCore
import Synchronization
import Transport

/// The connection to the process that keeps the copy of a store.
package protocol StandbyLink: Sendable {
  /// Sends a request about the store of this identity; `done` is called once, on any thread.
  func send(_ request: StandbyRequest, of store: UInt64, _ done: @escaping @Sendable (StandbyAnswer) -> Void)
}

package enum StandbyRequest: Sendable {
  /// Asks for the position of the copy.
  case position
  /// Frames of a log; see ``StandbyStore/append(_:salt:from:after:isWhole:)``.
  case log(salt: UInt64, from: Int, after: LogPosition?, isWhole: Bool, bytes: [UInt8])
  /// A piece of the file; see ``StandbyStore/take(_:at:of:sending:isWhole:)``.
  case file(offset: Int, total: Int, sending: UInt64, isWhole: Bool, bytes: [UInt8])
}

package enum StandbyAnswer: Sendable, Equatable {
  /// The request was accepted, and its data is on the standby's disk.
  case taken
  /// The request does not continue the copy, whose position this is; nil: there is no copy.
  case position(LogPosition?)
  /// The copy has been promoted: this process must write nothing more.
  case promoted
  /// One sentence without a full stop.
  case failed(String)
}

/// Replicates a store to a copy on another machine: first the file, then the log, commit by commit.
///
/// The store's thread reports each commit (``wrote(_:)``), and asks before it moves the log into the file
/// (``holdsLog()``): data that the copy lacks must stay in the log. If the log has grown beyond ``Limits/frames``
/// because the copy cannot be reached, it is moved, and the copy gets the whole file later.
package final class StoreCopier: Sendable {
  /// Callbacks for events of the replication. Called on any thread.
  package struct Notices: Sendable {
    package var log: @Sendable (Services.Level, String) -> Void
    package var promoted: @Sendable () -> Void

    package init(log: @escaping @Sendable (Services.Level, String) -> Void, promoted: @escaping @Sendable () -> Void) {
      (self.log, self.promoted) = (log, promoted)
    }
  }

  package struct Limits: Sendable {
    /// The maximum number of frames in the log while the copy cannot be reached: 64 MiB.
    package var frames = 16_384
    /// The pause after a failure, in nanoseconds; it doubles with each further failure, up to 64 times this value.
    package var pause: Int64 = 500_000_000
    /// The maximum time for which closing the store waits for the copy, in nanoseconds.
    package var patience: Int64 = 5_000_000_000

    package init() {}
  }

  private enum Phase: Equatable {
    /// The position of the copy must be asked for.
    case unknown
    /// The store's thread must start sending the file.
    case wantsFile
    /// The file is being sent; `sending` identifies the transfer.
    case file(offset: Int, total: Int, sending: UInt64)
    /// The copy has the log up to this position.
    case following(LogPosition)
    case promoted
  }

  private struct State {
    /// The path of the log.
    let log: String
    /// The identity of the store.
    var store: UInt64 = 0
    var phase = Phase.unknown
    /// The number of frames of the log on this disk.
    var written = 0
    /// The position after which the log begins: the end of the log before, or the bare file. Nil: the copy has received
    /// the start of the log, or has not reached the log yet.
    var predecessor: LogPosition?
    /// The phase in which the outstanding request was made. Its answer counts only if the phase is unchanged: the store
    /// may have moved its log meanwhile.
    var asked: Phase?
    var isOver = false
    /// Failures in a row; the time of the next attempt; the reason of the last one.
    var failures = 0
    var nextTry: Int64 = 0
    var trouble: String?
    var pace = PiecePace()
    var hasAnswered = false
    var arrears = Arrears()

    /// The number of frames that the copy has of the log with these salts; nil: it has another log, or none.
    func copied(_ salt: UInt64) -> Int? {
      guard case .following(let position) = phase, position.salt == salt, predecessor == nil else { return nil }
      return position.frames
    }

    /// Starts over: the copy needs the whole file.
    mutating func giveUp() {
      phase = .wantsFile
      predecessor = nil
      arrears.forgetFrames()
    }

    /// Removes the commits that the copy now has from the arrears.
    mutating func settle() {
      guard case .following(let position) = phase, written == 0 || predecessor == nil else { return }
      arrears.settle(written == 0 && position == predecessor ? .max : position.frames)
    }

    /// Continues at the copy's position if the log continues it; otherwise starts over.
    mutating func follow(_ position: LogPosition?) {
      if let position, position.frames > 0, position.frames <= written, position.salt == LogFormat.salt(log),
        position.sum == LogFormat.sum(of: position.frames, log)
      {
        phase = .following(position)
        predecessor = nil
      } else if let position, position == predecessor {
        phase = .following(position)
      } else {
        giveUp()
      }
    }
  }

  private let path: String
  private let link: any StandbyLink
  private let name: String
  private let notices: Notices
  /// Whether commits are reported only after the copy has them.
  package let isAwaited: Bool
  private let state: Mutex<State>
  private let work = Mutex<SerialWork?>(nil)
  /// Wakes the thread of the store.
  private let wakeStore = Mutex<@Sendable () -> Void>({})

  let limits: Limits
  private static let threads = SharedThreads("rxd standby", usual: 2, most: 8)

  /// - Parameters:
  ///   - path: The path of the store, which must not be open for writing yet.
  ///   - name: The name of the copy in messages.
  package init(
    _ path: String, _ link: any StandbyLink, name: String, isAwaited: Bool, limits: Limits = Limits(),
    _ notices: Notices
  ) {
    self.path = path
    self.link = link
    self.name = name
    self.isAwaited = isAwaited
    self.limits = limits
    self.notices = notices
    state = Mutex(State(log: path + "-wal", predecessor: Self.marked(beside: path)))
  }

  /// Reads the length of the log, which may contain the writes before a crash, or the tables of a new store. Called
  /// before the store's thread knows this object.
  func readLog(of store: UInt64) {
    let frames = LogFormat.read(path + "-wal")?.committed ?? 0
    state.withLock { state in
      state.store = store
      state.written = frames
      if frames > 0 { state.arrears.note(frames, at: monotonicNow()) }
    }
  }

  /// Starts replication. `wakeStore`: wakes the store's thread, which then calls ``storeIsAwake()``.
  func begin(_ wakeStore: @escaping @Sendable () -> Void) throws(PosixError) {
    self.wakeStore.withLock { $0 = wakeStore }
    let made = try SerialWork(on: Self.threads) { [weak self] in self?.turn() ?? .over }
    work.withLock { $0 = made }
    made.wake()
  }

  private func wake() { work.withLock { $0 }?.wake() }

  // MARK: On the thread of the store

  /// Notes the log's number of frames on the disk.
  func wrote(_ frames: Int) {
    state.withLock { state in
      if frames > state.written { state.arrears.note(frames, at: monotonicNow()) }
      state.written = frames
    }
    wake()
  }

  /// Whether the copy has everything that is in the log.
  var hasAll: Bool {
    state.withLock { state in
      if state.written == 0, case .following(let position) = state.phase { return position == state.predecessor }
      return state.copied(LogFormat.salt(path + "-wal")) == state.written
    }
  }

  /// The number of frames of the log that the copy has; nil: it has another log, or none.
  var copiedFrames: Int? { state.withLock { $0.copied(LogFormat.salt(path + "-wal")) } }

  var isPromoted: Bool { state.withLock { $0.phase == .promoted } }

  /// Whether the log must not be moved into the file now.
  ///
  /// - Parameter isUrgent: The disk is nearly full: the copy gets the whole file later, unless it is awaited.
  func holdsLog(isUrgent: Bool = false) -> Bool {
    if hasAll { return false }
    return state.withLock { state in
      if isAwaited || state.phase == .promoted { return true }
      if case .file = state.phase, !isUrgent { return true }
      guard isUrgent || state.written > limits.frames else { return true }
      state.giveUp()
      return false
    }
  }

  /// Called when the file was reopened, salvaged or restored: the copy may no longer be an earlier version of it.
  func storeWasReopened() {
    state.withLock { if $0.phase != .promoted { $0.giveUp() } }
    wake()
  }

  /// Called when the log has been moved into the file; the next commit starts a new log.
  func logWasMoved() {
    state.withLock { state in
      state.written = 0
      if case .following(let position) = state.phase { state.predecessor = position }
    }
  }

  /// Starts sending the file if the copy needs it; from now on the log must not be moved.
  func storeIsAwake() {
    let begins = state.withLock { state in
      guard state.phase == .wantsFile, let total = FileDescriptor.Status(path: path)?.size, total > 0 else {
        return false
      }
      state.phase = .file(offset: 0, total: Int(total), sending: .random(in: 1 ... .max))
      return true
    }
    if begins { wake() }
  }

  /// Stops sending. Returns the position of the copy; nil: the copy is incomplete.
  func end() -> LogPosition? {
    let hasAll = hasAll
    defer { wake() }
    return state.withLock { state in
      state.isOver = true
      guard hasAll, case .following(let position) = state.phase else { return nil }
      return position
    }
  }

  // MARK: Its standing

  /// The replication lag and its state. On any thread.
  package struct Standing: Sendable, Equatable {
    /// Whether the last request succeeded; false: the standby cannot be reached, or refuses.
    package var isReached: Bool
    /// The bytes that the copy lacks; the file's size if it needs the whole file. Nil: unknown, because the standby has
    /// not answered yet.
    package var bytes: Int?
    /// The age of the oldest commit that the copy lacks; zero: it lacks none.
    package var lag: TimeSpan
    /// The reason why the standby accepts nothing; one sentence without a full stop.
    package var trouble: String?
    package var isAwaited: Bool

    package init(isReached: Bool, bytes: Int?, lag: TimeSpan, trouble: String? = nil, isAwaited: Bool) {
      (self.isReached, self.bytes, self.lag) = (isReached, bytes, lag)
      (self.trouble, self.isAwaited) = (trouble, isAwaited)
    }
  }

  package var standing: Standing {
    let now = monotonicNow()
    let size = Int(FileDescriptor.Status(path: path)?.size ?? 0)
    return state.withLock { state in
      func file(_ from: Int) -> Int { max(0, size - from) }
      let log = state.written * LogFormat.frameBytes
      let bytes: Int? =
        switch state.phase {
        case .unknown: nil
        case .wantsFile: file(0) + log
        case .file(let offset, _, _): file(offset) + log
        case .following(let position):
          state.predecessor == nil ? max(0, state.written - position.frames) * LogFormat.frameBytes : log
        case .promoted: nil
        }
      return Standing(
        isReached: state.failures == 0 && state.phase != .promoted && state.hasAnswered, bytes: bytes,
        lag: TimeSpan(nanoseconds: state.arrears.oldest.map { max(0, now - $0) } ?? 0), trouble: state.trouble,
        isAwaited: isAwaited)
    }
  }

  // MARK: Over a restart

  /// The file with the position of the copy, written when a store is closed cleanly, so that the next log continues the
  /// copy. It is removed before the store is opened for writing.
  static func mark(beside path: String) -> String { path + "-copied" }

  static func note(_ position: LogPosition, beside path: String) {
    let text = Array("\(position.text)\n".utf8)
    // Without this file the whole store is sent again.
    try? text.withUnsafeBytes { try replaceFile(mark(beside: path), with: $0, permissions: 0o600) }
  }

  private static func marked(beside path: String) -> LogPosition? {
    let file = open(mark(beside: path), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = Glibc.read(file, &bytes, bytes.count)
    return LogPosition(text: String(decoding: bytes.prefix(max(0, count)), as: UTF8.self))
  }

  // MARK: Sending

  /// The next request.
  private enum Piece {
    case position
    case file(offset: Int, count: Int, total: Int, sending: UInt64)
    case log(salt: UInt64, from: Int, count: Int, after: LogPosition?)
  }

  private func turn() -> SerialWork.Next {
    let now = monotonicNow()
    let (piece, isWhole, next) = state.withLock { state -> (Piece?, Bool, SerialWork.Next) in
      if state.isOver || state.phase == .promoted { return (nil, false, .over) }
      if state.asked != nil { return (nil, false, .whenWoken) }
      if now < state.nextTry { return (nil, false, .at(state.nextTry)) }
      let piece = nextPiece(&state)
      if piece != nil {
        state.asked = state.phase
        state.pace.begin(at: now)
      }
      var isWhole = state.written == 0
      if case .log(_, let from, let count, _)? = piece { isWhole = from + count == state.written }
      return (piece, isWhole, .whenWoken)
    }
    guard let piece else {
      if state.withLock({ $0.phase == .wantsFile }) { wakeStore.withLock { $0 }() }
      return next
    }
    // Reading does not block the store. If the store moves its log meanwhile, the answer does not count.
    guard let request = request(piece, isWhole) else {
      state.withLock { state in
        if state.phase == state.asked { state.giveUp() }
        state.asked = nil
      }
      wakeStore.withLock { $0 }()
      return next
    }
    link.send(request, of: state.withLock(\.store)) { [self] answer in answered(answer, request) }
    return next
  }

  /// Returns nil if there is nothing to send now.
  private func nextPiece(_ state: inout State) -> Piece? {
    switch state.phase {
    case .unknown: return .position
    case .wantsFile, .promoted: return nil
    case .file(let offset, let total, let sending):
      return .file(offset: offset, count: min(state.pace.bytes, total - offset), total: total, sending: sending)
    case .following(let position):
      guard state.written > 0 else { return nil }
      let salt = LogFormat.salt(path + "-wal")
      let isSame = salt == position.salt
      if isSame, position.frames == state.written { return nil }
      guard salt != 0, isSame ? position.frames < state.written : state.predecessor == position else {
        state.giveUp()
        return nil
      }
      let from = isSame ? position.frames : 0
      let count = min(state.written - from, state.pace.bytes / LogFormat.frameBytes)
      return .log(salt: salt, from: from, count: count, after: isSame ? nil : position)
    }
  }

  /// Returns nil if the piece cannot be read.
  private func request(_ piece: Piece, _ isWhole: Bool) -> StandbyRequest? {
    switch piece {
    case .position: return .position
    case .file(let offset, let count, let total, let sending):
      return read(path, offset, count).map {
        .file(offset: offset, total: total, sending: sending, isWhole: isWhole, bytes: $0)
      }
    case .log(let salt, let from, let count, let after):
      let start = LogFormat.offset(of: from)
      let end = LogFormat.headerBytes + (from + count) * LogFormat.frameBytes
      return read(path + "-wal", start, end - start).map {
        .log(salt: salt, from: from, after: after, isWhole: isWhole, bytes: $0)
      }
    }
  }

  private func answered(_ answer: StandbyAnswer, _ request: StandbyRequest) {
    var notice: (Services.Level, String)?
    var isPromoted = false
    state.withLock { state in
      let isOfNow = state.phase == state.asked
      state.asked = nil
      if case .failed(let reason) = answer {
        state.failures += 1
        state.pace.failed()
        state.trouble = reason
        state.nextTry = monotonicNow() + limits.pause << min(state.failures - 1, 6)
        if state.failures == 1 {
          notice = (
            .warning,
            "the standby \(name) refuses the writes: \(reason); "
              + (isAwaited ? "nothing is acknowledged until it does" : "trying again")
          )
        }
        // The request may have been accepted nevertheless. A file is sent again from its start.
        if isOfNow { state.phase = .unknown }
        return
      }
      if state.failures > 0 { notice = (.info, "the standby \(name) answers again") }
      state.pace.answered(at: monotonicNow())
      (state.failures, state.trouble, state.hasAnswered) = (0, nil, true)
      defer { state.settle() }
      if answer == .promoted {
        state.phase = .promoted
        isPromoted = true
        return
      }
      guard isOfNow else { return }
      switch (answer, request) {
      case (.position(let position), _):
        state.follow(position)
      case (.taken, .log(let salt, let from, _, _, let bytes)):
        let count = (bytes.count - (from == 0 ? LogFormat.headerBytes : 0)) / LogFormat.frameBytes
        let sum = bytes.withUnsafeBytes {
          LogFormat.sum(UnsafeRawBufferPointer(rebasing: $0.suffix(LogFormat.frameBytes)))
        }
        state.phase = .following(LogPosition(salt: salt, frames: from + count, sum: sum))
        state.predecessor = nil
      case (.taken, .file(let offset, let total, let sending, _, let bytes)):
        guard offset + bytes.count == total else {
          state.phase = .file(offset: offset + bytes.count, total: total, sending: sending)
          return
        }
        state.phase = .following(.file(sending))
        // The log that belongs to the file follows it.
        state.predecessor = .file(sending)
        notice = (.info, "the standby \(name) has the whole store: \(ByteSize(total).defaultText ?? "\(total) bytes")")
      case (.taken, .position), (.failed, _), (.promoted, _): break
      }
    }
    if let notice { notices.log(notice.0, notice.1) }
    if isPromoted { notices.promoted() }
    wakeStore.withLock { $0 }()
    wake()
  }

  private func read(_ path: String, _ offset: Int, _ count: Int) -> [UInt8]? {
    let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var isWhole = false
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { room, filled in
      isWhole = LogCheck.read(file, UnsafeMutableRawBufferPointer(room), at: offset)
      filled = count
    }
    return isWhole ? bytes : nil
  }
}
