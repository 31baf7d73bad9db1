import CPlugin
import Glibc
import PipelineCore
import Transport

/// A source of a native plugin, on its own thread.
final class NativeSource: PluginSourceInstance, @unchecked Sendable {
  private let services: PluginServices
  private let make: @Sendable (PluginOpening) throws(PluginFault) -> NativeHandle
  private let queue: any SourceDelivery
  private weak var receiver: (any PluginSourceReceiver)?

  private struct Shared {
    var acks: [rxd_ack] = []
    var isStopping = false
    var isClosed = false
    /// Whether a wait was ended by the stop.
    var isStopKnown = false
    /// The number of submitted events that are not acknowledged yet.
    var unacknowledged = 0
    /// When it was closed, on the monotonic clock.
    var closedAt: Int64 = 0
  }
  private let shared = Guarded(Shared())
  private let awake: WakeEvent?

  // Used by the source's thread only.
  private var raw: UnsafeMutablePointer<rxd_source>
  private var rawScope: UnsafeMutablePointer<rxd_scope>
  private var arena = Arena()
  private var batch = PluginSourceBatch()
  private static let largestBatch = 1024

  init(
    _ services: PluginServices, _ queue: any SourceDelivery,
    _ make: @escaping @Sendable (PluginOpening) throws(PluginFault) -> NativeHandle
  ) {
    self.services = services
    self.make = make
    self.queue = queue
    awake = try? WakeEvent()
    raw = .allocate(capacity: 1)
    rawScope = .allocate(capacity: 1)
    rawScope.initialize(to: rxd_scope())
  }

  deinit {
    if let failure = rawScope.pointee.failure { Unmanaged<NativeScope.Message>.fromOpaque(failure).release() }
    raw.deallocate()
    rawScope.deallocate()
  }

  static func of(_ source: UnsafeMutablePointer<rxd_source>) -> NativeSource {
    Unmanaged<NativeSource>.fromOpaque(source.pointee.target).takeUnretainedValue()
  }

  func start(_ opening: PluginOpening, _ receiver: any PluginSourceReceiver) {
    self.receiver = receiver
    do throws(PosixError) {
      _ = try OwnThread("rxd plugin", stackBytes: 8 << 20) { [self] in run(opening) }
    } catch {
      end(.died("the plugin cannot get a thread: \(error.message)"))
    }
  }

  func acknowledge(_ tokens: [UInt64], problem: String?) {
    shared.withLock { shared in
      shared.unacknowledged -= tokens.count
      for token in tokens { shared.acks.append(rxd_ack(token: token, is_failed: problem == nil ? 0 : 1, reserved: 0)) }
    }
    shared.notify()
    awake?.wake()
  }

  func stop() {
    shared.withLock { $0.isStopping = true }
    shared.notify()
    awake?.wake()
  }

  /// The source's thread has ended, and the instance with it.
  func release() { queue.stop() }

  func close() {
    shared.withLock {
      $0.isStopping = true
      $0.isClosed = true
      $0.closedAt = monotonicNow()
    }
    queue.stop()
    shared.notify()
    awake?.wake()
  }

  private func end(_ end: PluginSourceEnd) {
    // Follows the events that were queued before it.
    _ = queue.handOver(bytes: 0) { [self] in receiver?.ended(end, of: self) }
  }

  // MARK: On the thread

  private func run(_ opening: PluginOpening) {
    let handle: NativeHandle
    do throws(PluginFault) {
      handle = try make(opening)
    } catch {
      return end(.refused("the plugin refuses: \(error.message)", path: error.path))
    }
    raw.initialize(to: rxd_source(target: Unmanaged.passUnretained(self).toOpaque()))
    rawScope.use(arena)
    let status = handle.component.run?(handle.pointer, rawScope, raw) ?? Int32(RXD_FAILED.rawValue)
    if status == 0 || status == Int32(RXD_STOP.rawValue) {
      // Events that it has added but not submitted.
      _ = flush()
      end(.complete)
    } else {
      var said = PluginFault("it failed without saying why")
      if let failure = rawScope.pointee.failure {
        rawScope.pointee.failure = nil
        let text = Unmanaged<NativeScope.Message>.fromOpaque(failure).takeRetainedValue()
        said = PluginFault(text.message, at: text.path)
      }
      end(.failed("the plugin failed: \(said.message)", path: said.path))
    }
  }

  var scope: UnsafeMutablePointer<rxd_scope> { rawScope }
  var isStopping: Bool { shared.withLock { $0.isStopping } }
  /// 0: the source continues; 1: it must stop; 2: it must stop, and no acknowledgement follows.
  var stopping: Int32 { shared.withLock { Self.isOver($0) ? 2 : $0.isStopping ? 1 : 0 } }

  /// Whether no further acknowledgement follows.
  private static func isOver(_ shared: Shared) -> Bool {
    shared.isClosed && (shared.unacknowledged == 0 || monotonicNow() > shared.closedAt + ackLimit)
  }
  private static let ackLimit: Int64 = 5_000_000_000
  var wakeDescriptor: Int32 { awake?.descriptor ?? -1 }

  func add(_ value: Value, _ token: UInt64) -> Int32 {
    var value = value
    if batch.events.count >= Self.largestBatch {
      // The value points into memory that is released with the full batch.
      let owned = OwnedValue(value)
      if flush() != 0 { return Int32(RXD_STOP.rawValue) }
      value = arena.copy(owned.value)
    }
    batch.events.append(value)
    if token != 0 { batch.tokens.append(token) }
    return isStopping ? Int32(RXD_STOP.rawValue) : 0
  }

  func add(json: rxd_text, _ token: UInt64) -> Int32 {
    if batch.events.count >= Self.largestBatch, flush() != 0 { return Int32(RXD_STOP.rawValue) }
    let value = HostTable.json(json, arena)
    return value.isError ? Int32(RXD_FAILED.rawValue) : add(value, token)
  }

  func reject(_ input: rxd_text, _ message: rxd_text, _ token: UInt64) {
    batch.rejections.append((batch.events.count, Array(input.buffer), Printable.cut(message.string, limit: 500)))
    if token != 0 { batch.tokens.append(token) }
  }

  /// All that there was at the start has been added.
  func loaded() -> Int32 {
    batch.isLoaded = true
    return flush()
  }

  func set(position: [UInt8]) { batch.position = position }

  /// Names the event that was added last.
  func set(name: rxd_text) {
    guard services.usesNames, !batch.events.isEmpty else { return }
    batch.name(name.string)
  }

  func flush() -> Int32 {
    guard !batch.isEmpty else { return isStopping ? Int32(RXD_STOP.rawValue) : 0 }
    batch.owner = arena
    let sent = SentBatch(batch, of: self)
    let tokens = batch.tokens.count
    let bytes = arena.allocated
    batch = PluginSourceBatch()
    arena = Arena()
    rawScope.use(arena)
    shared.withLock { $0.unacknowledged += tokens }
    let isTaken = queue.handOver(bytes: bytes) { [self] in receiver?.take(sent, of: self) }
    return isTaken && !isStopping ? 0 : Int32(RXD_STOP.rawValue)
  }

  func take(_ acks: UnsafeMutableBufferPointer<rxd_ack>, _ wait: Int64) -> Int {
    let deadline = wait < 0 ? nil : monotonicNow() &+ wait
    let found =
      shared.wait(until: deadline) { shared -> [rxd_ack]? in
        let isNews = Self.isOver(shared) || shared.isStopping && !shared.isStopKnown
        guard !shared.acks.isEmpty || isNews || wait == 0 else { return nil }
        if shared.isStopping { shared.isStopKnown = true }
        let count = min(shared.acks.count, acks.count)
        defer { shared.acks.removeFirst(count) }
        return Array(shared.acks.prefix(count))
      } ?? []
    awake?.clear()
    for (index, ack) in found.enumerated() { acks[index] = ack }
    if shared.withLock({ !$0.acks.isEmpty || Self.isOver($0) }) { awake?.wake() }
    return found.count
  }
}
