import Synchronization

/// What the threads that decode blocks can do beyond that: run the row-wise steps behind the source, and encode for
/// the sink behind those. The turn then only hands over bytes.
///
/// It is collected from the source down (`join`), where every event takes one way: from the source through pure steps
/// (``PureStep``) to one sink whose encoder keeps nothing. Then it is not changed any more, and each
/// thread makes a ``BlockWorker`` of its own.
///
/// A block in which anything happens that only a turn can deal with (a line that is no event, an expression that fails,
/// an event that cannot be encoded) is left to its turn, which then sees it as if nobody had tried.
public final class BlockWork: @unchecked Sendable {
  private(set) var parts: [RunPlan.Part] = []
  private var makeEncoder: (@Sendable () -> any EventEncoder)?
  private let spare = Mutex<[OutputBuffer]>([])
  private static let spareLimit = 8

  init() {}

  /// Adds steps, in their order; false: they need turns.
  func add(_ plan: RunPlan) -> Bool {
    for part in plan.parts where part.segment.usesMeta || part.segment.usesNow { return false }
    for part in plan.parts {
      guard part.steps.allSatisfy({ type(of: $0.component).isPure }) else { return false }
    }
    parts += plan.parts
    return true
  }

  /// The sink is the last.
  public func end(with makeEncoder: @escaping @Sendable () -> any EventEncoder) { self.makeEncoder = makeEncoder }

  /// For one thread; nil where the sink did not join.
  public func makeWorker() -> BlockWorker? { makeEncoder.map { BlockWorker(self, $0()) } }

  fileprivate func takeBuffer() -> OutputBuffer {
    spare.withLock { $0.popLast() } ?? OutputBuffer(capacity: 64 << 10)
  }

  fileprivate func giveBack(_ buffer: OutputBuffer) {
    buffer.clear()
    spare.withLock { if $0.count < Self.spareLimit { $0.append(buffer) } }
  }
}

/// A block as the sink writes it. Its bytes are valid as long as it lives.
public final class EncodedBlock: @unchecked Sendable {
  /// What it was made by: it is of use only where that joined.
  public let work: BlockWork
  public let buffer: OutputBuffer
  /// Events that came from the source.
  let received: Int
  /// Events that are in the buffer.
  public let sent: Int

  fileprivate init(_ work: BlockWork, _ buffer: OutputBuffer, received: Int, sent: Int) {
    self.work = work
    self.buffer = buffer
    self.received = received
    self.sent = sent
  }

  deinit { work.giveBack(buffer) }
}

/// What became of a block in its turn.
public enum BlockFate: UInt8, Sendable {
  /// Its rows were emitted.
  case rows
  /// It was handed over as it stands.
  case verbatim
  /// It was handed over as it was encoded beside the turns.
  case encoded
}

/// Where the decoding threads of a source find the work, once a turn has collected it because it is worth it.
public final class BlockWorkPlace: Sendable {
  private struct State {
    var work: BlockWork?
    /// Of the present span.
    var blocks = 0
    var making: Int64 = 0
    var using: Int64 = 0
    /// Spans in a row in which it would have been worth it.
    var agreed = 0
    /// Who else weighs how long blocks are used.
    var alsoUsed: (@Sendable (Int64) -> Void)?
  }
  private let state = Mutex(State())
  private let lastFate = Atomic(BlockFate.rows.rawValue)
  private let threads: Int
  /// It is worth it whatever blocks take.
  private let always: Bool

  /// A span is at least that long, in nanoseconds of work and in blocks.
  private static let span: Int64 = 4_000_000
  private static let leastBlocks = 8

  /// - Parameter threads: how many may decode.
  public init(threads: Int, always: Bool = false) {
    self.threads = threads
    self.always = always
  }

  /// What became of the last block, and so probably of the next ones.
  public var fate: BlockFate {
    get { BlockFate(rawValue: lastFate.load(ordering: .relaxed)) ?? .rows }
    set { lastFate.store(newValue.rawValue, ordering: .relaxed) }
  }

  func put(_ work: BlockWork) { state.withLock { $0.work = work } }
  public func get() -> BlockWork? { state.withLock { $0.work } }

  /// A block took so many nanoseconds to decode.
  public func made(in nanoseconds: Int64) { state.withLock { $0.making &+= nanoseconds } }

  /// A turn took so many nanoseconds for a block.
  public func used(in nanoseconds: Int64) {
    state.withLock {
      $0.using &+= nanoseconds
      $0.blocks += 1
    }
  }

  /// Further turns took so many nanoseconds for the rest of the last block.
  public func usedMore(in nanoseconds: Int64) {
    let also = state.withLock { state in
      state.using &+= nanoseconds
      return state.alsoUsed
    }
    also?(nanoseconds)
  }

  /// Tells `body` of what `usedMore` is told.
  public func whenUsedMore(_ body: @escaping @Sendable (Int64) -> Void) { state.withLock { $0.alsoUsed = body } }

  /// Whether threads that do all of it beside each other would take less than decoding beside the turns takes: then what
  /// is slower, the turns or decoding, is what everything waits for. A fourth more, because they get in each other's way;
  /// and twice in a row, because the first blocks find everything cold.
  func isWorthIt() -> Bool {
    if always { return true }
    return state.withLock { state in
      guard state.work == nil, state.blocks >= Self.leastBlocks, state.making &+ state.using >= Self.span else {
        return false
      }
      defer { (state.blocks, state.making, state.using) = (0, 0, 0) }
      let beside = (state.making &+ state.using) / Int64(max(1, threads))
      state.agreed = max(state.making, state.using) > beside &+ beside / 4 ? state.agreed + 1 : 0
      return state.agreed == 2
    }
  }
}

/// Does a ``BlockWork`` on one thread.
public final class BlockWorker {
  private let work: BlockWork
  private let encoder: any EventEncoder
  private let arena = Arena()
  private let json = JSONParser()
  private let steps: FusedSteps
  private let banks: UnsafeMutableBufferPointer<Unmanaged<SlotBank>>
  /// Blocks in a row that had to be left to their turns, and how many more are left without trying.
  private var failures = 0
  private var rest = 0

  fileprivate init(_ work: BlockWork, _ encoder: any EventEncoder) {
    self.work = work
    self.encoder = encoder
    var banks: [ObjectIdentifier: SlotBank] = [:]
    let (arena, json) = (arena, json)
    steps = FusedSteps(work.parts) { segment in
      let projection = segment.projection
      if projection.isShared, banks[ObjectIdentifier(projection)] == nil {
        banks[ObjectIdentifier(projection)] = SlotBank(projection.slotCount)
      }
      return EventFrame(segment, arena: arena, json: json, bank: banks[ObjectIdentifier(projection)])
    }
    self.banks = .allocate(capacity: banks.count)
    _ = self.banks.initialize(from: banks.values.map { .passRetained($0) })
  }

  deinit {
    for bank in banks { bank.release() }
    steps.deallocate()
    banks.deallocate()
  }

  /// What becomes of the block; nil: its turn must see to it.
  public func encode(_ block: DecodedBlock) -> EncodedBlock? {
    let rows = block.batch
    guard rows.rejected.isEmpty else { return nil }
    // As it stands it costs nothing at all.
    if steps.isEmpty, let lines = rows.verbatim, encoder.passes(lines.kind) { return nil }
    if rest > 0 {
      rest -= 1
      return nil
    }
    let buffer = work.takeBuffer()
    guard let count = encode(rows, into: buffer) else {
      work.giveBack(buffer)
      failures = min(failures + 1, 7)
      rest = 1 << failures
      return nil
    }
    failures = 0
    return EncodedBlock(work, buffer, received: count.received, sent: count.sent)
  }

  private func encode(_ rows: RowBatch, into buffer: OutputBuffer) -> (received: Int, sent: Int)? {
    var received = 0
    var sent = 0
    let isDone = rows.forEachValue(telling: json.indexed) { value in
      received &+= 1
      // What one event needed, the next one does not: small memory stays in the cache.
      defer {
        arena.reset()
        for bank in banks { bank._withUnsafeGuaranteedRef { $0.forget() } }
      }
      switch apply(value, buffer) {
      case .drop: return true
      case .pass:
        sent &+= 1
        return true
      case nil: return false
      }
    }
    return isDone ? (received, sent) : nil
  }

  private enum Fate { case pass, drop }

  @inline(__always)
  private func apply(_ value: Value, _ buffer: OutputBuffer) -> Fate? {
    var event = Event(value)
    var index = 0
    switch withUnsafeMutablePointer(to: &event, { steps.passPure($0, from: &index) }) {
    case .passed: return encoder.append(event.value, to: buffer) == nil ? .pass : nil
    case .dropped: return .drop
    case .failed, .unreadable, .notPure: return nil
    }
  }
}
