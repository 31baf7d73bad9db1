import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import Storage

/// The copy of a store on a standby, over a way that loses requests and answers.
@Suite(.timeLimit(.minutes(5))) struct StandbyTests {
  private let folder = Scratch()

  /// A standby in this process.
  private final class Link: StandbyLink {
    struct State {
      var generator: SplitMix
      var isDown = false
      var isPromoted = false
      /// Of ten requests, how many go wrong.
      var faults: UInt64 = 0
      var files = 0
      var logs = 0
    }
    let path: String
    let state: Mutex<State>
    private let store = Mutex<StandbyStore?>(nil)
    private let queue = DispatchQueue(label: "standby")

    init(_ path: String, seed: UInt64 = 1, faults: UInt64 = 0) {
      self.path = path
      state = Mutex(State(generator: SplitMix(seed), faults: faults))
    }

    func send(_ request: StandbyRequest, of _: UInt64, _ done: @escaping @Sendable (StandbyAnswer) -> Void) {
      queue.async { [self] in
        let (isDown, isPromoted, fault) = state.withLock { state in
          if case .file = request { state.files += 1 }
          if case .log = request { state.logs += 1 }
          let roll = state.generator.next() % 10
          return (state.isDown, state.isPromoted, roll < state.faults ? state.generator.next() % 4 : 9)
        }
        if isDown || fault == 0 { return done(.failed("it is away")) }
        if isPromoted { return done(.promoted) }
        // It ends, and begins again with what it has on the disk.
        if fault == 1 { store.withLock { $0 = nil } }
        let answer = answer(request)
        if fault == 2 { return done(.failed("the answer was lost")) }
        // A request that is sent again changes nothing.
        if fault == 3 { _ = self.answer(request) }
        done(answer)
      }
    }

    private func answer(_ request: StandbyRequest) -> StandbyAnswer {
      store.withLock { store in
        do throws(StandbyStore.Refusal) {
          if store == nil { store = try StandbyStore(path) }
          switch request {
          case .position: return .position(store?.position)
          case .log(let salt, let from, let after, let isWhole, let bytes):
            return StandbyTests.answer(bytes) { bytes throws(StandbyStore.Refusal) in
              try store?.append(bytes, salt: salt, from: from, after: after, isWhole: isWhole)
            }
          case .file(let offset, let total, let sending, let isWhole, let bytes):
            return StandbyTests.answer(bytes) { bytes throws(StandbyStore.Refusal) in
              try store?.take(bytes, at: offset, of: total, sending: sending, isWhole: isWhole)
            }
          }
        } catch { return .failed("\(error)") }
      }
    }

    /// Copies what the standby has on the disk, between two requests.
    func lose(to other: String) throws {
      try store.withLock { _ in try StandbyTests.copy(path, to: other) }
    }
  }

  private static func answer(
    _ bytes: [UInt8], _ body: (UnsafeRawBufferPointer) throws(StandbyStore.Refusal) -> Void
  ) -> StandbyAnswer {
    switch refusal(bytes, body) {
    case nil: .taken
    case .elsewhere(let position): .position(position)
    case let other?: .failed("\(other)")
    }
  }

  private static func refusal(
    _ bytes: [UInt8], _ body: (UnsafeRawBufferPointer) throws(StandbyStore.Refusal) -> Void
  ) -> StandbyStore.Refusal? {
    bytes.withUnsafeBytes { bytes in
      do throws(StandbyStore.Refusal) {
        try body(bytes)
        return nil
      } catch { return error }
    }
  }

  /// Copies a store, as a disk has it after a crash.
  private static func copy(_ path: String, to other: String) throws {
    // The log first: if it is moved into the file meanwhile, both copies together have everything all the same.
    for end in ["-copied", ".whole", "-wal", "", ".part-wal", ".part"] {
      unlink(other + end)
      if access(path + end, F_OK) == 0 { try FileManager.default.copyItem(atPath: path + end, toPath: other + end) }
    }
  }

  private func open(
    _ path: String, _ link: Link, isAwaited: Bool, frames: Int = 65_536, patience: Int64 = 5_000_000_000,
    promoted: @escaping @Sendable () -> Void = {}
  ) throws -> DiskStore {
    var limits = StoreCopier.Limits()
    limits.pause = 1_000_000
    limits.frames = frames
    limits.patience = patience
    let copier = StoreCopier(
      path, link, name: "the copy", isAwaited: isAwaited, limits: limits, .init(log: { _, _ in }, promoted: promoted))
    let store = try DiskStore(path) { _, _ in }
    try store.copy(through: copier)
    return store
  }

  /// What a store has after a number of commits: the number is its state, and the rows follow from it.
  private struct Model {
    var rows: [Int64: [UInt8]] = [:]

    mutating func commit(_ number: Int, _ generator: inout SplitMix) -> StoreTransaction {
      var transaction = StoreTransaction()
      transaction.state = .replace(
        SavedState(Array("\(number)".utf8) + [UInt8](repeating: 32, count: Int(generator.next() % 60_000))))
      for _ in 0..<generator.next() % 3 {
        let row = Int64(number) * 10 + Int64(generator.next() % 10)
        guard rows[row] == nil else { continue }
        let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: row), count: Int(generator.next() % 30_000))
        rows[row] = bytes
        transaction.rows.append(OutboxRow(number: row, sink: "out", events: 1, bytes: bytes))
      }
      for row in rows.keys.sorted().prefix(Int(generator.next() % 3)) where row < Int64(number) * 10 {
        let size = rows.removeValue(forKey: row)?.count ?? 0
        transaction.removed.append(RemovedRow(number: row, sink: "out", events: 1, size: size))
      }
      return transaction
    }
  }

  private func number(_ state: [UInt8]?) -> Int {
    state.flatMap { Int(String(decoding: $0.prefix { $0 != 32 }, as: UTF8.self)) } ?? 0
  }

  /// The commits that a store has; all of them are whole.
  private func commits(of path: String, _ models: [Model]) throws -> Int {
    let reader = try StoreReader(path)
    let contents = try reader.contents()
    let number = number(contents.state)
    let rows = Dictionary(uniqueKeysWithValues: contents.rows.map { ($0.number, $0.bytes) })
    let (had, wanted) = (Set(rows.keys), Set(models[number].rows.keys))
    #expect(had == wanted, "commit \(number)")
    #expect(had.intersection(wanted).allSatisfy { rows[$0] == models[number].rows[$0] }, "commit \(number)")
    return number
  }

  /// Whenever the first machine is lost, the copy is a store as it was after a commit; with `isAwaited`, with each that was
  /// reported. The store is closed, crashes and goes on; the standby ends and begins; requests and answers are lost. One that is not
  /// awaited is away for so long that its log is given up.
  @Test(arguments: [false, true], 0..<24)
  func theCopyIsAStoreOfBefore(isAwaited: Bool, seed: UInt64) throws {
    let (first, second) = (folder("a-\(isAwaited)-\(seed).db"), folder("b-\(isAwaited)-\(seed).db"))
    let link = Link(second, seed: seed, faults: 2)
    var generator = SplitMix(seed &* 77 &+ 5)
    func open(patience: Int64 = 20_000_000) throws -> DiskStore {
      try self.open(first, link, isAwaited: isAwaited, frames: 150, patience: patience)
    }
    var store = try open()
    var models = [Model()]
    let done = Atomic(0)
    var lost = 0
    for number in 1...80 {
      var model = models[number - 1]
      let transaction = model.commit(number, &generator)
      models.append(model)
      let written = DispatchSemaphore(value: 0)
      store.commit(transaction) {
        done.store(number, ordering: .releasing)
        written.signal()
      }
      // Some commits follow each other at once, others are waited for.
      func awaitCommit() {
        written.wait()
        written.signal()
      }
      if generator.next() % 3 != 0 { awaitCommit() }
      switch generator.next() % 12 {
      case 0:
        let reported = done.load(ordering: .acquiring)
        let copy = folder("lost.db")
        try link.lose(to: copy)
        guard access(copy, F_OK) == 0 else {
          #expect(!isAwaited || reported == 0)
          continue
        }
        let had = try commits(of: copy, models)
        #expect(had <= number)
        if isAwaited { #expect(had >= reported, "of \(reported) reported commits") }
        lost += 1
      case 1:
        link.state.withLock { $0.isDown = $0.isDown && number % 13 == 0 }
        #expect(store.close(within: .seconds(60)))
        store = try open()
      case 2:
        awaitCommit()
        let crashed = folder("crashed.db")
        try Self.copy(first, to: crashed)
        #expect(try commits(of: crashed, models) == number)
        #expect(store.close(within: .seconds(60)))
        try Self.copy(crashed, to: first)
        store = try open()
      case 3...5 where !isAwaited: link.state.withLock { $0.isDown.toggle() }
      default: break
      }
    }
    #expect(store.close(within: .seconds(60)))
    #expect(try commits(of: first, models) == 80)
    // Once it can be reached for long enough, it has everything.
    link.state.withLock { $0.isDown = false }
    store = try open(patience: 60_000_000_000)
    #expect(store.close(within: .seconds(60)))
    #expect(try commits(of: second, models) == 80)
    #expect(lost > 0)
  }

  private func commit(_ store: DiskStore, _ number: Int, bytes: Int = 10_000) {
    var transaction = StoreTransaction()
    transaction.state = .replace(SavedState(Array("\(number)".utf8) + [UInt8](repeating: 32, count: bytes)))
    let done = DispatchSemaphore(value: 0)
    store.commit(transaction) { done.signal() }
    done.wait()
  }

  /// After an ordinary end the copy is continued; if the store was written without one, it gets the whole file.
  @Test func anEndInOrderNeedsNoFile() throws {
    let (first, second) = (folder("a.db"), folder("b.db"))
    let link = Link(second)
    for round in 1...3 {
      let store = try open(first, link, isAwaited: true)
      for number in 1...3 { commit(store, round * 10 + number) }
      #expect(store.close(within: .seconds(30)))
      #expect(link.state.withLock(\.files) == 1)
      #expect(number(try StoreReader(second).state()) == round * 10 + 3)
    }
    let alone = try DiskStore(first) { _, _ in }
    commit(alone, 99)
    #expect(alone.close(within: .seconds(30)))
    let store = try open(first, link, isAwaited: true)
    commit(store, 100)
    #expect(store.close(within: .seconds(30)))
    #expect(link.state.withLock(\.files) == 2)
    #expect(number(try StoreReader(second).state()) == 100)
  }

  /// A crash leaves frames of a transaction that was never committed, and the next one overwrites them.
  @Test(arguments: 1...8) func aTornCommitIsNotSent(frames: Int) throws {
    let first = folder("a.db")
    let alone = try DiskStore(first) { _, _ in }
    commit(alone, 1)
    let before = try #require(LogFormat.read(first + "-wal")).position.frames
    commit(alone, 2, bytes: 100_000)
    let crashed = folder("crashed.db")
    try Self.copy(first, to: crashed)
    #expect(alone.close(within: .seconds(30)))
    let size = off_t(LogFormat.offset(of: before + frames))
    try #require(truncate(crashed + "-wal", size) == 0)
    #expect(LogFormat.read(crashed + "-wal")?.committed == before)
    let link = Link(folder("b.db"))
    let store = try open(crashed, link, isAwaited: true)
    // The copier asks before the first commit.
    Polling.until(within: 30) { link.state.withLock(\.logs) > 0 }
    for number in 3...5 {
      commit(store, number, bytes: number)
      #expect(self.number(try StoreReader(folder("b.db")).state()) == number)
    }
    #expect(store.close(within: .seconds(30)))
    #expect(link.state.withLock(\.files) == 1)
  }

  /// A standby that is away holds the log up to its limit only, and later gets the whole file.
  @Test func aLongAbsenceBoundsTheLog() throws {
    let (first, second) = (folder("a.db"), folder("b.db"))
    let link = Link(second)
    let store = try open(first, link, isAwaited: false, frames: 300)
    commit(store, 1)
    Polling.until(within: 30) { link.state.withLock(\.logs) > 0 }
    link.state.withLock { $0.isDown = true }
    for number in 2...60 { commit(store, number, bytes: 100_000) }
    let size = try FileManager.default.attributesOfItem(atPath: first + "-wal")[.size] as? Int ?? 0
    #expect(size < 4_000_000, "\(size)")
    link.state.withLock { $0.isDown = false }
    #expect(store.close(within: .seconds(30)))
    #expect(link.state.withLock(\.files) >= 2)
    #expect(number(try StoreReader(second).state()) == 60)
  }

  /// A disk that is nearly full needs the log's space: the copy gets the whole file, also one that is being sent.
  @Test func aFullDiskComesFirst() throws {
    let (first, second) = (folder("a.db"), folder("b.db"))
    let link = Link(second, seed: 3, faults: 3)
    var limits = StoreCopier.Limits()
    limits.pause = 1_000_000
    let copier = StoreCopier(
      first, link, name: "the copy", isAwaited: false, limits: limits, .init(log: { _, _ in }, promoted: {}))
    let store = try DiskStore(first) { _, _ in }
    try store.copy(through: copier)
    for number in 1...200 {
      commit(store, number, bytes: number % 7 * 10_000)
      // The store would move its log then, which the copier cannot prevent.
      if number % 20 == 0 { #expect(!copier.holdsLog(isUrgent: true)) }
      if number % 50 == 0 {
        let copy = folder("lost.db")
        try link.lose(to: copy)
        if access(copy, F_OK) == 0 { #expect(number >= self.number(try StoreReader(copy).state())) }
      }
    }
    #expect(store.close(within: .seconds(60)))
    #expect(number(try StoreReader(second).state()) == 200)
  }

  /// With `isAwaited`, nothing is reported while the standby is away, and everything once it is back.
  @Test func commitsWaitForTheCopy() throws {
    let link = Link(folder("b.db"))
    let store = try open(folder("a.db"), link, isAwaited: true)
    commit(store, 1)
    link.state.withLock { $0.isDown = true }
    let reported = Atomic(0)
    for number in 2...4 {
      var transaction = StoreTransaction()
      transaction.state = .replace(SavedState(Array("\(number)".utf8)))
      store.commit(transaction) { reported.add(1, ordering: .relaxed) }
    }
    // They are on the disk.
    let read = DispatchSemaphore(value: 0)
    store.read(rowsOf: "out", after: 0, bytes: 1) { _ in read.signal() }
    read.wait()
    let early = reported.load(ordering: .relaxed)
    #expect(early == 0)
    link.state.withLock { $0.isDown = false }
    Polling.until(within: 30) { reported.load(ordering: .relaxed) == 3 }
    let late = reported.load(ordering: .relaxed)
    #expect(late == 3)
    #expect(store.close(within: .seconds(30)))
  }

  /// A promoted standby takes nothing, and whoever sends is told.
  @Test(arguments: [false, true]) func aPromotedStandbyIsLeftAlone(isAwaited: Bool) throws {
    let second = folder("b-\(isAwaited).db")
    let link = Link(second)
    let told = DispatchSemaphore(value: 0)
    let store = try open(folder("a-\(isAwaited).db"), link, isAwaited: isAwaited) { told.signal() }
    commit(store, 1)
    Polling.until(within: 30) { (try? StoreReader(second).state()).map { number($0) == 1 } ?? false }
    link.state.withLock { $0.isPromoted = true }
    var transaction = StoreTransaction()
    transaction.state = .replace(SavedState(Array("2".utf8)))
    let reported = Atomic(false)
    store.commit(transaction) { reported.store(true, ordering: .relaxed) }
    told.wait()
    let isReported = reported.load(ordering: .relaxed)
    #expect(!isAwaited || !isReported)
    #expect(number(try StoreReader(second).state()) == 1)
    #expect(store.close(within: .seconds(30)))
    #expect(number(try StoreReader(second).state()) == 1)
  }

  /// What does not follow is refused, and changes nothing.
  @Test func strangersAreRefused() throws {
    let first = folder("a.db")
    let store = try DiskStore(first) { _, _ in }
    commit(store, 1)
    commit(store, 2)
    func bytes(_ path: String) throws -> [UInt8] { Array(try Data(contentsOf: URL(fileURLWithPath: path))) }
    let log = try bytes(first + "-wal")
    let salt = LogFormat.salt(first + "-wal")
    let frames = (log.count - LogFormat.headerBytes) / LogFormat.frameBytes
    let copy = try StandbyStore(folder("b.db"))
    func append(_ bytes: [UInt8], salt: UInt64, from: Int, after: LogPosition? = nil) -> StandbyStore.Refusal? {
      Self.refusal(bytes) { bytes throws(StandbyStore.Refusal) in
        try copy.append(bytes, salt: salt, from: from, after: after, isWhole: false)
      }
    }
    #expect(copy.position == nil)
    let start = LogPosition.file(1)
    #expect(append(log, salt: salt, from: 0, after: start) == .elsewhere(nil))
    // A file comes in order and whole.
    let file = try bytes(first)
    func take(_ range: Range<Int>, sending: UInt64 = 1) -> StandbyStore.Refusal? {
      Self.refusal(Array(file[range])) { bytes throws(StandbyStore.Refusal) in
        try copy.take(bytes, at: range.lowerBound, of: file.count, sending: sending, isWhole: true)
      }
    }
    #expect(take(100..<200) == .elsewhere(nil))
    #expect(take(0..<100) == nil && take(50..<100) == .elsewhere(nil) && copy.position == nil)
    // A piece of another sending may come late.
    #expect(take(0..<4096, sending: 2) == nil && take(4096..<file.count) == .elsewhere(nil))
    #expect(take(0..<4096) == nil && take(4096..<file.count) == nil)
    #expect(copy.position == start)
    // Of a log, the next whole frames with their checksums.
    let end = LogFormat.headerBytes + (frames - 1) * LogFormat.frameBytes
    #expect(append(Array(log[..<end]), salt: salt, from: 0, after: nil) == .elsewhere(start))
    #expect(append(Array(log[..<end]), salt: salt, from: 0, after: .file(2)) == .elsewhere(start))
    for broken in [0, 40, 2_000, end - 1] {
      var bytes = Array(log[..<end])
      bytes[broken] ^= 1
      guard case .damaged = append(bytes, salt: salt, from: 0, after: start) else {
        Issue.record("a broken byte at \(broken) was taken")
        continue
      }
      #expect(copy.position == start)
    }
    #expect(append(Array(log[..<(end - 1)]), salt: salt, from: 0, after: start) != nil)
    #expect(append(Array(log[..<end]), salt: salt, from: 0, after: start) == nil)
    let here = LogPosition(
      salt: salt, frames: frames - 1, sum: try #require(LogFormat.sum(of: frames - 1, first + "-wal")))
    #expect(copy.position == here)
    #expect(append(Array(log[end...]), salt: salt, from: frames, after: nil) == .elsewhere(here))
    #expect(append(Array(log[end...]), salt: salt ^ 1, from: frames - 1, after: nil) == .elsewhere(here))
    #expect(append(Array(log[end...]), salt: salt, from: frames - 1) == nil)
    #expect(try StandbyStore(folder("b.db")).position == LogFormat.read(first + "-wal")?.position)
    #expect(number(try StoreReader(folder("b.db")).state()) == 2)
    #expect(store.close(within: .seconds(30)))
  }
}
