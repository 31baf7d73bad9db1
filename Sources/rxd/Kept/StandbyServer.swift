import Glibc
import PipelineCore
import PipelineRuntime
import Storage
import Synchronization
import Transport

/// Keeps the copies of another process's stores (``StandbyProtocol``).
final class StandbyServer: Sendable {
  private struct State {
    var stores: [String: Copy] = [:]
    var isPromoted = false
  }
  private let state = Mutex(State())
  /// The path of the state directory.
  private let path: String
  private let log: LogWriter
  /// Held until the promotion.
  private let directory: Mutex<StateDirectory?>
  private static let threads = SharedThreads("rxd standby", usual: 2, most: 8)

  /// - Throws: The directory cannot be used.
  init(_ directory: StateDirectory, _ log: LogWriter) throws(StateDirectory.Refusal) {
    path = directory.path
    self.log = log
    _ = try directory.folder(Stores.folder)
    self.directory = Mutex(directory)
  }

  /// Starts listening; returns the port.
  func start(_ address: TCPAddress, token: Secret, tls: TLSServing?) throws(HTTPServerFailure) -> Int {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.rules.maxConnections = 64
    options.rules.maxBodyBytes = StandbyProtocol.bodyBytes
    options.rules.maxBufferedBytes = 64 << 20
    options.rules.replyTimeout = .seconds(60)
    options.rules.auth = .bearer(token)
    options.rules.access.hosts = ["*"]
    options.tls = tls
    let log = log
    options.tlsFailed = { log.write(.warning, "", $0) }
    return try HTTPServer(options: options).start { notice in
      if case .fault(let reason) = notice { log.write(.warning, "", reason) }
    } handler: { [self] in
      take($0)
    }
  }

  // MARK: Requests

  private static func answer(_ request: ServerRequest, _ status: Int, _ text: String = "") {
    request.reply.reply(
      status: status, headers: text.isEmpty ? [] : [(name: "Content-Type", value: "text/plain; charset=utf-8")],
      body: text.isEmpty ? [] : Array((text + "\n").utf8))
  }

  private func take(_ request: ServerRequest) {
    guard request.header("rxd-standby") == StandbyProtocol.version else {
      return Self.answer(request, 400, "this rxd has version \(StandbyProtocol.version) of the standby's protocol")
    }
    if state.withLock(\.isPromoted) { return Self.answer(request, 410, "promoted") }
    let parts = request.path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    if parts == [""] { return Self.answer(request, 200, "standby") }
    guard parts.first == "stores", parts.count >= 2, let name = StandbyProtocol.name(parts[parts.startIndex + 1]) else {
      return Self.answer(request, 404)
    }
    do throws(PosixError) {
      let copy = try state.withLock { state throws(PosixError) in
        if let known = state.stores[name] { return known }
        let made = try Copy("\(path)/\(Stores.folder)/\(name).db", Self.threads) { [log] in
          log.write($0.logLevel, name, $1)
        }
        state.stores[name] = made
        return made
      }
      copy.take(request, parts.count == 3 ? String(parts[parts.startIndex + 2]) : "")
    } catch {
      Self.answer(request, 503, error.message)
    }
  }

  // MARK: Promotion

  /// If the directory has been promoted, stops accepting data and releases the directory.
  func promoteIfAsked() {
    guard access(StateDirectory.promotedMarker(in: path), F_OK) == 0 else { return }
    let stores = state.withLock { state in
      defer { (state.stores, state.isPromoted) = ([:], true) }
      return state.isPromoted ? [] : Array(state.stores.values)
    }
    for store in stores { store.finish() }
    directory.withLock { $0 = nil }
    log.write(.info, "", "promoted: \(path) accepts no more data, and senders are notified")
  }

  /// One store's copy, with the requests for it.
  private final class Copy: Sendable {
    private let waiting = Guarded<(requests: [(ServerRequest, String)], isOver: Bool, isIdle: Bool)>(([], false, true))
    private let work: SerialWork

    init(
      _ path: String, _ threads: SharedThreads, _ log: @escaping @Sendable (Services.Level, String) -> Void
    ) throws(PosixError) {
      let waiting = waiting
      let keeper = Keeper(path, log)
      work = try SerialWork(on: threads) {
        let requests = waiting.withLock { waiting in
          defer { (waiting.requests, waiting.isIdle) = ([], waiting.requests.isEmpty) }
          return waiting.requests
        }
        for (request, part) in requests { keeper.answer(request, part) }
        let isOver = waiting.withLock { waiting in
          waiting.isIdle = waiting.requests.isEmpty
          return waiting.isOver && waiting.isIdle
        }
        waiting.notify()
        return isOver ? .over : .whenWoken
      }
    }

    func take(_ request: ServerRequest, _ part: String) {
      let isTaken = waiting.withLock { waiting in
        guard !waiting.isOver else { return false }
        waiting.requests.append((request, part))
        waiting.isIdle = false
        return true
      }
      if isTaken { work.wake() } else { StandbyServer.answer(request, 410, "promoted") }
    }

    /// Waits until the accepted requests are answered.
    func finish() {
      waiting.withLock { $0.isOver = true }
      work.wake()
      _ = waiting.wait(until: nil) { $0.isIdle ? true : nil }
    }
  }

  /// The copy on the disk. Used by one thread at a time.
  private final class Keeper: @unchecked Sendable {
    private let path: String
    private let log: (Services.Level, String) -> Void
    private var store: StandbyStore?
    /// The store that sent the last piece, and the time of that piece.
    private var owner: (store: String, last: Int64)?
    /// The time for which a store must be silent before another one of the same name replaces it, in nanoseconds.
    private static let patience: Int64 = 60_000_000_000

    init(_ path: String, _ log: @escaping @Sendable (Services.Level, String) -> Void) {
      self.path = path
      self.log = log
    }

    func answer(_ request: ServerRequest, _ part: String) {
      do throws(StandbyStore.Refusal) {
        let store = try open()
        let bytes = request.body.bytes
        let query = Dictionary(request.query) { $1 }
        if request.method == "PUT", !isFrom(query["store"] ?? "") {
          return StandbyServer.answer(
            request, 423,
            "another machine has sent a store of this name in the last minute: two machines that run pipelines of equal names need a standby each"
          )
        }
        func number(_ name: String) -> Int { query[name].flatMap { Int($0) } ?? -1 }
        switch (request.method, part) {
        case ("GET", ""): return StandbyServer.answer(request, 200, StandbyProtocol.text(store.position))
        case ("PUT", "log"):
          guard let salt = query["salt"].flatMap({ UInt64($0, radix: 16) }), number("from") >= 0 else {
            return StandbyServer.answer(request, 400, "'salt' and 'from' are missing")
          }
          let after = query["after"].flatMap { StandbyProtocol.position($0) ?? nil }
          try store.append(
            UnsafeRawBufferPointer(bytes), salt: salt, from: number("from"), after: after,
            isWhole: query["whole"] == "true")
        case ("PUT", "file"):
          try store.take(
            UnsafeRawBufferPointer(bytes), at: number("offset"), of: number("total"),
            sending: query["sending"].flatMap { UInt64($0, radix: 16) } ?? 0, isWhole: query["whole"] == "true")
        default: return StandbyServer.answer(request, 404)
        }
        StandbyServer.answer(request, 204)
      } catch {
        switch error {
        case .elsewhere(let position): StandbyServer.answer(request, 409, StandbyProtocol.text(position))
        case .damaged(let reason): StandbyServer.answer(request, 400, reason)
        case .failed(let reason):
          log(.error, reason)
          // The store is reopened, so that the disk's actual contents count.
          store = nil
          StandbyServer.answer(request, 500, reason)
        }
      }
    }

    /// Whether the store may send now; if so, it becomes the owner of the copy.
    private func isFrom(_ store: String) -> Bool {
      let now = monotonicNow()
      if let owner, owner.store != store {
        guard now - owner.last > Self.patience else { return false }
        log(.warning, "another store of this name replaces the copy: two machines may run a pipeline of this name")
      }
      owner = (store, now)
      return true
    }

    private func open() throws(StandbyStore.Refusal) -> StandbyStore {
      if let store { return store }
      let opened = try StandbyStore(path)
      store = opened
      return opened
    }
  }
}
