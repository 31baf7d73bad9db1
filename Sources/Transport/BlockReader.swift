import Glibc
import PipelineCore
import Synchronization

/// Reads a descriptor on a thread of its own, or on several, and hands over blocks of whole lines as they come: what
/// one read returns, so a quiet pipe gives a small block at once and a busy file large ones.
///
/// `deliver` may block: then nothing is read meanwhile.
public final class BlockReader: Sendable {
  public struct Options: Sendable {
    public enum Mode: Sendable, Equatable {
      /// Blocks of whole lines.
      case lines
      /// What each read returns, wherever lines end.
      case bytes
      /// One block with everything up to the end; a stream longer than `limit` bytes is a failure.
      case whole(limit: Int)
    }
    public var mode = Mode.lines
    /// Bytes of a line without its newline.
    public var maxLine = 1 << 20
    public var whenTooLong = LongLine.Policy.cut
    /// The most that one read asks for, in bytes. Where lines are short it asks for less: 128 KiB of lines of 8 bytes.
    public var blockBytes = 512 << 10
    /// Where reading starts; other than 0 only in a regular file.
    public var offset: Int64 = 0
    /// A stream that begins as compressed ones do is a failure.
    public var refusesCompressed = false
    /// Bytes that come before those that are read, in mode `lines`.
    public var beginning: [UInt8] = []
    public init() {}
  }

  public enum End: Sendable, Equatable {
    /// The end of the stream, at that place.
    case finished(offset: Int64)
    /// `stop` came first; everything before the place was delivered.
    case stopped(offset: Int64)
    case failed(PosixError)
  }

  /// What a read gives.
  public enum Piece: Sendable {
    /// What follows is of the file of this path; where paths are read.
    case opened(FileDescriptor.Status, String)
    case block(LineBlock)
    /// The file has been read to its end; where paths are read.
    case closed(offset: Int64)
    /// The last piece, exactly once.
    case end(End)
  }

  private let options: Options
  private let stopEvent: WakeEvent
  private let reading: Mutex<BlockReading>
  /// The number of the read whose pieces are handed over now, or next.
  private let turn = Guarded(0)
  private let threads = Mutex<[OwnThread]>([])

  public convenience init(_ file: FileDescriptor, options: Options = Options()) throws(PosixError) {
    try self.init(file, nil, options)
  }

  /// Reads regular files one behind the other, each opened when its turn comes. One that cannot be opened or read ends it.
  ///
  /// - Parameter first: Comes before them, from `options.offset` on; of the others everything is read.
  public convenience init(
    first: FileDescriptor? = nil, paths: [String], options: Options = Options()
  ) throws(PosixError) {
    try self.init(first, paths, options)
  }

  private init(_ file: FileDescriptor?, _ paths: [String]?, _ options: Options) throws(PosixError) {
    self.options = options
    stopEvent = try WakeEvent()
    reading = Mutex(BlockReading(file, paths, options, stopEvent))
  }

  /// Starts the thread. Called once. `deliver` and, after its last call, `end` are called on it;
  /// `end` exactly once.
  public func start(
    deliver: @escaping @Sendable (LineBlock) -> Void, end: @escaping @Sendable (End) -> Void
  ) throws(PosixError) {
    try start(
      making: { { $0 } },
      deliver: { pieces in
        for piece in pieces {
          switch piece {
          case .block(let block): deliver(block)
          case .opened, .closed: break
          case .end(let result): end(result)
          }
        }
      })
  }

  /// Starts the first thread. Called once. Each thread reads, makes something of what it has read while others read
  /// and make the next, and then hands that over: `deliver` is called for one piece after the other, or for a few
  /// together, in the order of the stream. No more than one read for each thread is under way, so a `deliver` that blocks holds up all of them.
  ///
  /// - Parameters:
  ///   - limit: How many threads there may be.
  ///   - demand: When there shall be one more; nil: at once.
  ///   - making: Called for each thread; what it gives is called on that thread only. Nil: no such thread.
  public func start<Made>(
    upTo limit: Int = 1, when demand: ReadingDemand? = nil,
    making: @escaping @Sendable () -> (@Sendable (Piece) -> Made)?, deliver: @escaping @Sendable ([Made]) -> Void
  ) throws(PosixError) {
    guard let make = making() else { return }
    let pool = Pool(limit, limit > 1 ? demand : nil, making, deliver)
    try add(make, pool)
    while demand == nil, addOne(pool) {}
  }

  /// After the end `stopped`: the beginning of a line that was read and not delivered.
  public var rest: [UInt8] { reading.withLock { $0.rest } }

  /// How many threads read.
  public var threadCount: Int { threads.withLock { $0.count } }

  /// Ends reading soon, also while it waits for data. What was read but is not a whole line is not
  /// delivered. A `deliver` that blocks must be released by the code that blocks it.
  public func stop() { stopEvent.wake() }

  /// Waits until the threads have ended; after `stop` or at the end of the stream. Not on one of them.
  public func join() {
    while let thread = threads.withLock({ $0.popLast() }) { thread.join() }
  }

  /// What the threads have in common.
  private final class Pool<Made>: Sendable {
    let limit: Int
    let demand: ReadingDemand?
    let making: @Sendable () -> (@Sendable (Piece) -> Made)?
    let deliver: @Sendable ([Made]) -> Void

    init(
      _ limit: Int, _ demand: ReadingDemand?, _ making: @escaping @Sendable () -> (@Sendable (Piece) -> Made)?,
      _ deliver: @escaping @Sendable ([Made]) -> Void
    ) {
      self.limit = limit
      self.demand = demand
      self.making = making
      self.deliver = deliver
    }
  }

  private func add<Made>(_ make: @escaping @Sendable (Piece) -> Made, _ pool: Pool<Made>) throws(PosixError) {
    // It may run turns of the pipeline, too, and needs as much stack as the thread that usually does.
    let thread = try OwnThread("rxd read", stackBytes: 8 << 20) { [self] in run(make, pool) }
    threads.withLock { $0.append(thread) }
  }

  /// One thread more, unless there are enough or none can be had; whether there is.
  private func addOne<Made>(_ pool: Pool<Made>) -> Bool {
    guard threads.withLock({ $0.count < pool.limit }), let make = pool.making() else { return false }
    return (try? add(make, pool)) != nil
  }

  /// So many pieces are made before they are handed over together.
  private static let mostTogether = 48

  private func run<Made>(_ make: (Piece) -> Made, _ pool: Pool<Made>) {
    var pieces: [Piece] = []
    while let number = reading.withLock({ $0.next(&pieces) }) {
      let started = pool.demand.map { _ in monotonicNow() }
      // The first are made beside those of other reads. Further ones are small and many, because lines were too long:
      // made little by little, they need no more memory than those.
      let first = pieces.prefix(Self.mostTogether).map(make)
      let made = started.map { _ in monotonicNow() }
      _ = turn.wait(until: nil) { $0 == number ? true : nil }
      let begun = started.map { _ in monotonicNow() }
      pool.deliver(first)
      var rest = pieces.dropFirst(Self.mostTogether)
      while !rest.isEmpty {
        pool.deliver(rest.prefix(Self.mostTogether).map(make))
        rest = rest.dropFirst(Self.mostTogether)
      }
      pieces.removeAll(keepingCapacity: true)
      if let demand = pool.demand, let started, let made, let begun {
        if demand.isForMore(making: made - started, begun: begun, now: monotonicNow()) { demand.took(addOne(pool)) }
      }
      turn.withLock { $0 = number + 1 }
      turn.notify()
    }
  }
}
