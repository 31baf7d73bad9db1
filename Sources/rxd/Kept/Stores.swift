import Glibc
import PipelineCore
import Storage
import Synchronization
import Transport

/// The stores of the pipelines in the state directory: `pipelines/NAME.db`.
final class Stores: Sendable {
  static let folder = StateDirectory.stores

  /// Holds the directory's lock as long as stores are open.
  private let state: StateDirectory
  private let directory: FileDescriptor
  /// The path of the state directory, as it was given.
  var path: String { state.path }
  private let log: LogWriter
  private let room: StoreRoom
  private let caches: StoreCaches
  /// Stores that were opened in advance, by the names of their pipelines.
  private let ahead = Mutex<[String: Result<DiskStore, StoreRefusal>]>([:])
  private let letters: DeadLetterCounts
  /// The replication of the stores; nil: they are not replicated.
  let replication: Replication?

  /// - Parameter memory: The memory of all queues in bytes; the page caches of all stores get a sixteenth of it.
  init(
    _ state: StateDirectory, log: LogWriter, counting letters: DeadLetterCounts, memory: Int,
    _ replication: Replication?
  ) throws(StateDirectory.Refusal) {
    caches = StoreCaches(memory / 16)
    self.state = state
    self.log = log
    self.letters = letters
    self.replication = replication
    directory = try state.folder(Self.folder)
    do throws(PosixError) { room = try StoreRoom("\(state.path)/room") } catch { throw .unusable(error.message) }
  }

  /// Opens the stores of pipelines that are about to start, several at a time, because most of the time is spent
  /// waiting for the disk.
  func openAhead(_ pipelines: [String]) {
    guard pipelines.count > 1 else { return }
    let next = Atomic(0)
    let work: @Sendable () -> Void = { [self] in
      while true {
        let index = next.wrappingAdd(1, ordering: .relaxed).oldValue
        guard index < pipelines.count else { return }
        let name = pipelines[index]
        let result: Result<DiskStore, StoreRefusal>
        do throws(StoreRefusal) { result = .success(try make(name)) } catch { result = .failure(error) }
        ahead.withLock { $0[name] = result }
      }
    }
    var threads: [OwnThread] = []
    for _ in 1..<min(16, pipelines.count) {
      // If a thread cannot be started, the others do the work.
      guard let thread = try? OwnThread("rxd open", work) else { break }
      threads.append(thread)
    }
    work()
    for thread in threads { thread.join() }
  }

  /// Closes the stores that were opened ahead and not used.
  func closeAhead() {
    let left = ahead.withLock { ahead in
      defer { ahead = [:] }
      return ahead
    }
    for case .success(let store) in left.values { store.close(within: .seconds(5)) }
  }

  /// The path of a pipeline's store. It is resolved, because the state directory may be a symbolic link, which SQLite
  /// refuses.
  static func path(_ pipeline: String, in state: String) -> String {
    let real = realpath(state, nil)
    defer { free(real) }
    return "\(real.map { String(cString: $0) } ?? state)/\(folder)/\(pipeline).db"
  }

  /// The file with the names of this process's pipelines, one per line; after each name, a tab and each of the sinks
  /// that deliver from the store.
  static let names = "names"

  /// Records the pipelines that have files, for `rxd state ls`.
  func note(_ pipelines: LeftBehind.Takers) {
    let lines = pipelines.sorted { $0.key < $1.key }.map { name, sinks in
      name + "\t" + sinks.sorted().joined(separator: "\t") + "\n"
    }
    let text = Array(lines.joined().utf8)
    let path = "\(state.path)/\(Self.folder)/\(Self.names)"
    let failure = text.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes, permissions: 0o600)
        return nil
      } catch {
        return error
      }
    }
    if let failure { log.write(.debug, "", failure.message) }
  }

  /// Logs which stored events no pipeline delivers, for the stores that no pipeline has open.
  func reportLeftBehind(_ takers: LeftBehind.Takers, except open: Set<String>) {
    let (folder, log) = (StateFolder(path: state.path), log)
    let look: @Sendable () -> Void = {
      for left in LeftBehind.find(in: folder, takers, except: open) { log.write(.warning, left.pipeline, left.line) }
    }
    // Runs on another thread, so that the start need not wait.
    if (try? OwnThread("rxd look", stackBytes: 512 << 10, look)) == nil { look() }
  }

  /// The stored events that nothing delivers, for a pipeline that does not open its store.
  func leftBehind(_ pipeline: String, _ takers: Set<String>) -> [LeftBehind] {
    let path = Self.path(pipeline, in: state.path)
    guard access(path, F_OK) == 0, let backlogs = try? StoreReader(path).backlogs() else { return [] }
    return LeftBehind.find(pipeline, backlogs, takers)
  }

  /// The record of the event that the pipeline is processing, in a file next to its store; nil: it cannot be kept.
  func inHand(_ pipeline: String) -> InHand? {
    guard let found = InHand.beside(Self.path(pipeline, in: state.path)) else {
      log.write(
        .warning, pipeline,
        "an event that crashes the process repeatedly will not be found: the record next to the store cannot be created"
      )
      return nil
    }
    if found.isNewlyRefused {
      log.write(
        .error, pipeline,
        "the process has ended three times while it handled the same event: the event is skipped and rejected (RX550)")
    } else if found.ends > 0 {
      log.write(
        .warning, pipeline,
        "the last process was killed or has crashed\(found.ends > 1 ? ", \(found.ends) times in a row" : ""): for "
          + "\(InHand.trial) each event is recorded before it is processed, to find one that ends the process")
    }
    return found
  }

  /// Opens the store of a pipeline; creates it if there is none.
  func open(_ pipeline: String) throws(StoreRefusal) -> DiskStore {
    switch ahead.withLock({ $0.removeValue(forKey: pipeline) }) {
    case .success(let store): return store
    case .failure(let refusal): throw refusal
    case nil: return try make(pipeline)
    }
  }

  private func make(_ pipeline: String) throws(StoreRefusal) -> DiskStore {
    let log = log
    let state = state.path
    let path = Self.path(pipeline, in: state)
    let copier = replication?.copier(of: pipeline, at: path, log: log)
    let store = try DiskStore(path, room: room, caches: caches) { level, message in
      log.write(level.logLevel, pipeline, message)
    }
    if let lease = self.state.lease { store.mayReport = { lease.isHeld } }
    if let copier {
      do throws(PosixError) { try store.copy(through: copier) } catch { throw StoreRefusal(error.message) }
    }
    let letters = letters
    store.reportDroppedLetters = { letters.add($0, .dropped, of: pipeline) }
    store.reportDeadLetters = { count in
      letters.add(count, .kept, of: pipeline)
      let what = count == 1 ? "1 rejected event is kept" : "\(count) rejected events are kept"
      log.write(
        .warning, pipeline, "\(what): 'rxd deadletters show \(pipeline) --state-dir \(state)' shows what and why")
    }
    return store
  }
}
