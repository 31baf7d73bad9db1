import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import Storage

/// Stores on small or full file systems, and files that were replaced.
@Suite struct FullDiskTests {
  private let folder = Scratch()
  private let lines = Lines()

  private func open(_ path: String, _ room: StoreRoom? = nil) throws -> DiskStore {
    let lines = lines
    return try DiskStore(path, room: room) { level, message in lines.add("\(level): \(message)") }
  }

  private func row(_ number: Int64, _ count: Int) -> OutboxRow {
    OutboxRow(number: number, sink: "out", events: 1, bytes: [UInt8](repeating: 7, count: count))
  }

  private func removed(_ number: Int64, _ count: Int) -> RemovedRow {
    RemovedRow(number: number, sink: "out", events: 1, size: count)
  }

  /// Commits; false: the commit is not on disk after `limit` seconds.
  @discardableResult
  private func commit(_ store: DiskStore, within limit: Double = 30, _ change: (inout StoreTransaction) -> Void) -> Bool
  {
    var transaction = StoreTransaction()
    change(&transaction)
    let done = DispatchSemaphore(value: 0)
    store.commit(transaction) { done.signal() }
    return done.wait(timeout: .now() + limit) == .success
  }

  private func size(_ path: String) -> Int64 { FileDescriptor.Status(path: path)?.size ?? 0 }

  /// A store with little data has a small log, however many commits there were.
  @Test func theLogIsBoundedByWhatTheStoreHolds() throws {
    let path = folder("a.db")
    let store = try open(path)
    for number in Int64(1)...1500 {
      commit(store) {
        $0.rows = [row(number, 60)]
        if number > 1 { $0.removed = [removed(number - 1, 60)] }
        $0.state = .replace(SavedState([UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 300)))
      }
    }
    #expect(size(path) + size(path + "-wal") < 3 << 20, "\(size(path)) and \(size(path + "-wal"))")
    // While the store is open, another process reads the committed data, whether it is still in the log or not.
    #expect(try StoreReader(path).backlogs()["out"]?.rows == 1)
    #expect(store.close(within: .seconds(30)))
    #expect(access(path + "-wal", F_OK) != 0 && access(path + "-shm", F_OK) != 0)
    #expect(try StoreReader(path).contents().rows.map(\.number) == [1500])
    #expect(lines.all.isEmpty, "\(lines.all)")
  }

  /// A reader sees a consistent snapshot of a store that is written to, whatever happens to the log.
  @Test func readersSeeOneMoment() throws {
    let path = folder("a.db")
    let store = try open(path)
    commit(store) { $0.rows = [row(1, 60)] }
    let reader = try StoreReader(path)
    for number in Int64(2)...400 { commit(store) { $0.rows = [row(number, 3000)] } }
    #expect(try reader.backlogs()["out"]?.rows == 1)
    #expect(try reader.contents().rows.map(\.number) == [1])
    #expect(try StoreReader(path).backlogs()["out"]?.rows == 400)
    #expect(store.close(within: .seconds(30)))
  }

  /// A warning is logged when a reader keeps the log from shrinking.
  @Test func aLongReaderIsReported() throws {
    let path = folder("a.db")
    let store = try open(path)
    commit(store) { $0.rows = [row(1, 60)] }
    var reader: StoreReader? = try StoreReader(path)
    for number in Int64(2)...1000 {
      commit(store) {
        $0.state = .replace(SavedState([UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 30_000)))
      }
      if !lines.all.isEmpty { break }
    }
    #expect(lines.all.count == 1 && lines.all.first?.contains("MiB and grows") == true, "\(lines.all)")
    #expect(try reader?.backlogs()["out"]?.rows == 1)
    reader = nil
    commit(store) { $0.rows = [row(2, 60)] }
    commit(store) { $0.rows = [row(3, 60)] }
    #expect(lines.all.last?.contains("was moved into the file") == true, "\(lines.all)")
    #expect(store.close(within: .seconds(30)))
  }

  /// The locks of a process on the file, identified by device and inode as in /proc/locks.
  private func locks(_ path: String) -> Int {
    let text = (try? String(contentsOfFile: "/proc/locks", encoding: .utf8)) ?? ""
    let inode = FileDescriptor.Status(path: path)?.inode ?? 0
    return text.split(separator: "\n").count {
      $0.contains("POSIX") && $0.contains(" \(getpid()) ") && $0.contains(":\(inode) ")
    }
  }

  /// Closing any descriptor of a file releases the process's locks on it: those of readers are closed only after the
  /// writer.
  @Test func readersInTheProcessLeaveTheLocksOfTheWriter() throws {
    let path = folder("a.db")
    var store: DiskStore? = try open(path)
    if let store { commit(store) { $0.rows = [row(1, 60)] } }
    let held = locks(path)
    try #require(held > 0)
    for _ in 0..<3 { #expect(try StoreReader(path).backlogs()["out"]?.rows == 1) }
    #expect(locks(path) == held)
    var before: StoreReader? = try StoreReader(path)
    #expect(store?.close(within: .seconds(30)) == true)
    store = nil
    // A reader that started before the writer.
    let again = try open(path)
    commit(again) { $0.rows = [row(2, 60)] }
    let now = locks(path)
    #expect(now > 0)
    #expect(before?.path == path)
    before = nil
    #expect(locks(path) == now)
    #expect(again.close(within: .seconds(30)))
  }

  /// The page caches of all stores share one limit.
  @Test func pagesAreSharedByAllStores() {
    let caches = StoreCaches(1 << 20)
    #expect(caches.pages == 128)
    for _ in 0..<2 { caches.join() }
    #expect(caches.pages == 64)
    for _ in 0..<398 { caches.join() }
    #expect(caches.pages == 0)
    for _ in 0..<400 { caches.leave() }
    #expect(StoreCaches(1 << 30).pages == StoreCaches.mostPages)
  }

  /// A full file system: the store reports that there is no room, delivered rows can be removed, the store can be closed and reopened, and
  /// continues when there is room.
  @Test(.enabled(if: SmallSystem.canBeMade(isDisk: false), "needs to mount a tmpfs")) func fullMemoryFileSystem() throws
  {
    try full(isDisk: false)
  }

  /// With blocks smaller than memory pages, a page that was written to may still have a hole.
  @Test(.enabled(if: SmallSystem.canBeMade(isDisk: true), "needs mkfs.ext4 and to mount an image")) func fullDisk()
    throws
  {
    try full(isDisk: true)
  }

  private func full(isDisk: Bool) throws {
    let system = try #require(SmallSystem(folder, megabytes: isDisk ? 12 : 6, isDisk: isDisk))
    defer { system.unmount() }
    let path = system.path + "/a.db"
    var room: StoreRoom? = try StoreRoom(system.path + "/room")
    #expect(room?.isKept == true)
    var store: DiskStore? = try open(path, room)
    let reported = Guarded<[RoomOfStore]>([])
    let report: @Sendable (RoomOfStore) -> Void = { room in
      reported.withLock { $0.append(room) }
      reported.notify()
    }
    store?.whenRoomChanges(report)
    let limit = monotonicNow() + 60_000_000_000
    var last: Int64 = 0
    // The pipeline accepts no further events after the report.
    while last < 2000, reported.withLock(\.isEmpty), monotonicNow() < limit, let store {
      last += 1
      #expect(commit(store) { $0.rows = [row(last, 10_000)] })
    }
    #expect(reported.withLock(\.first) == .reserve && last < 2000)
    // Another program uses up the rest.
    let rest = system.fill()
    // Delivered rows are removed, and a state is saved.
    let half = last / 2
    if let store {
      #expect(
        commit(store) {
          $0.removed = (1...half).map { removed($0, 10_000) }
          $0.state = .replace(SavedState([1, 2, 3]))
        })
      #expect(store.close(within: .seconds(5)))
    }
    store = nil
    room = nil
    // The next start, while the file system is full.
    room = try StoreRoom(system.path + "/room")
    let again = try open(path, room)
    again.whenRoomChanges(report)
    #expect(again.savedState == [1, 2, 3])
    #expect(again.backlogs["out"]?.rows == Int(last - half))
    #expect(commit(again) { $0.removed = (half + 1...last).map { removed($0, 10_000) } })
    unlink(rest)
    #expect(
      reported.wait(until: monotonicNow() + 30_000_000_000) { $0.last == .enough || again.hasRoom ? true : nil } != nil)
    #expect(commit(again) { $0.rows = [row(last + 1, 10_000)] })
    #expect(again.close(within: .seconds(30)))
    #expect(try StoreReader(path).contents().rows.map(\.number) == [last + 1])
  }

  /// A store whose file is gone or empty is restored from its log if the log is complete; if it is not, that is reported.
  @Test(arguments: [false, true], [false, true]) func aLogWithoutItsFile(_ hasMoved: Bool, _ isEmpty: Bool) throws {
    let path = folder("a.db")
    do {
      let file = try StoreFile(path)
      for number in Int64(1)...(hasMoved ? 400 : 20) {
        var transaction = StoreTransaction()
        transaction.rows = [row(number, 500)]
        transaction.state = .replace(SavedState([UInt8](repeating: 3, count: 2000)))
        try file.write([transaction])
        if hasMoved { try file.boundLog() }
      }
    }
    #expect(size(path + "-wal") > 0)
    if isEmpty { #expect(truncate(path, 0) == 0) } else { unlink(path) }
    let what = isEmpty ? "empty" : "missing"
    do {
      let store = try open(path)
      if !hasMoved {
        #expect(store.backlogs["out"]?.rows == 20 && store.savedState?.count == 2000)
      }
      #expect(store.close(within: .seconds(30)))
    } catch {
      #expect(
        hasMoved
          && "\((error as? StoreRefusal)?.message ?? "")".contains("\(what), and cannot be rebuilt from its log"),
        "\(error)")
      #expect(size(path + "-wal") > 0)
      return
    }
    #expect(lines.all.contains { $0.contains("was \(what), and has been rebuilt from its log") }, "\(lines.all)")
  }

  /// A directory that is moved while its stores are open: the process continues to write to them, and nothing to another directory that now
  /// has the name. No second process opens the moved one.
  @Test func aDirectoryThatIsMoved() throws {
    mkdir(folder("st"), 0o700)
    let store = try open(folder("st/a.db"))
    commit(store) { $0.rows = [row(1, 100)] }
    #expect(rename(folder("st"), folder("moved")) == 0)
    mkdir(folder("st"), 0o700)
    for number in Int64(2)...300 { #expect(commit(store) { $0.rows = [row(number, 3000)] }) }
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder("st")).isEmpty)
    #expect(
      lines.all.count == 1 && lines.all.first?.contains("was moved or removed while it was in use") == true,
      "\(lines.all)")
    // Another store of that name is created, and both continue.
    let other = try open(folder("st/a.db"))
    commit(other) { $0.rows = [row(1, 10)] }
    for number in Int64(301)...600 { #expect(commit(store) { $0.rows = [row(number, 3000)] }) }
    commit(other) { $0.rows = [row(2, 10)] }
    #expect(store.close(within: .seconds(30)))
    #expect(other.close(within: .seconds(30)))
    #expect(try StoreReader(folder("moved/a.db")).backlogs()["out"]?.rows == 600)
    #expect(try StoreReader(folder("st/a.db")).backlogs()["out"]?.rows == 2)
  }
}
