import Glibc
import PipelineCore
import Synchronization

/// Reads a descriptor on one or several threads of its own, and delivers blocks of whole lines. Each block is the
/// result of one read, so a quiet pipe gives small blocks at once and a busy file large ones.
///
/// While `deliver` blocks, nothing is read.
package final class BlockReader: Sendable {
  package struct Options: Sendable {
    package enum Mode: Sendable, Equatable {
      /// Blocks of whole lines.
      case lines
      /// The result of each read, wherever lines end.
      case bytes
      /// One block with the whole input; a stream longer than `limit` bytes is a failure.
      case whole(limit: Int)
    }
    package var mode = Mode.lines
    /// The longest line in bytes, without its newline.
    package var maxLine = 1 << 20
    package var whenTooLong = LongLine.Policy.cut
    /// The largest read in bytes. For short lines reads are smaller: 128 KiB for lines of 8 bytes.
    package var blockBytes = 512 << 10
    /// The limit on the sum of the block sizes of all readers of this process, above their minimum sizes. Each reader
    /// has several blocks under way, and their rows need as much memory again.
    package var allBlocks = 4 << 20
    /// The offset at which reading starts; other than 0 only in a regular file.
    package var offset: Int64 = 0
    /// Whether a stream that starts like a compressed one is a failure.
    package var refusesCompressed = false
    /// Opens a file when its turn comes.
    package var open: @Sendable (String) throws(PosixError) -> FileDescriptor = { path throws(PosixError) in
      try FileDescriptor.openForReading(path)
    }
    /// Which regular files are decompressed. Offsets are then those of the content.
    package var decompresses = Decompression.none
    /// The undelivered bytes that another reader of the same stream has left.
    package var beginning: Rest?
    package init() {}
  }

  package enum Decompression: Sendable, Equatable {
    case none
    /// Files whose first bytes show a compressed format that can be decompressed.
    case detected
    /// All files; one in another format is a failure.
    case all(Decompressor.Format)

    /// The format to decompress an open file from; nil: the file is read as it is.
    package func format(of file: FileDescriptor) -> Decompressor.Format? {
      switch self {
      case .none: return nil
      case .all(let format): return format
      case .detected:
        var start = [UInt8](repeating: 0, count: 16)
        let count = uninterrupted { pread(file.number, &start, start.count, 0) }
        guard count > 0 else { return nil }
        return start.withUnsafeBytes { Compression(startOf: UnsafeRawBufferPointer(rebasing: $0[..<count])) }?.format
      }
    }
  }

  /// Bytes that a stopped reader has read and not delivered, for the next reader of the stream.
  package struct Rest: Sendable {
    /// The offset of its bytes in the stream.
    package private(set) var offset: Int64
    /// Bytes that were delivered before and are to be delivered again.
    private(set) var again: [UInt8] = []
    /// The start of a line, in mode `lines`.
    let lines: LineAssembler?
    /// The start of the input, in mode `whole`.
    private let whole: [UInt8]

    init(offset: Int64, lines: LineAssembler? = nil, whole: [UInt8] = []) {
      self.offset = offset
      self.lines = lines
      self.whole = whole
    }

    /// The remaining bytes as the last blocks of a stream that has ended, and the end offset: an incomplete line is the
    /// last line.
    package var blocks: (all: [LineBlock], end: Int64) {
      var found: [LineBlock] = []
      if var lines {
        lines.finish { found.append($0) }
        return (found, lines.offset)
      }
      let end = offset &+ Int64(whole.count)
      if !whole.isEmpty {
        found.append(LineBlock(slab: whole.withUnsafeBytes { Slab($0) }, offset: offset, endOffset: end, longLine: nil))
      }
      return (found, end)
    }

    /// All bytes, except those of a line that has lost some of its bytes.
    var bytes: [UInt8] { again + (lines?.rest ?? whole) }

    /// Takes back the bytes that were delivered last: they are delivered again, before the others.
    package mutating func takeBack(_ bytes: [UInt8]) {
      again = bytes + again
      offset &-= Int64(bytes.count)
    }
  }

  package enum End: Sendable, Equatable {
    /// The stream ended at this offset.
    case finished(offset: Int64)
    /// `stop` was called first; everything before the offset was delivered.
    case stopped(offset: Int64)
    case failed(PosixError)
  }

  /// The result of a read.
  package enum Piece: Sendable {
    /// The following pieces belong to the file that starts there; only if paths are read.
    case opened(FilePosition, FileDescriptor)
    case block(LineBlock)
    /// The file has been read to its end; only if paths are read.
    case closed(offset: Int64)
    /// The last piece, exactly once.
    case end(End)
  }

  private let options: Options
  private let stopEvent: WakeEvent
  private let reading: Mutex<BlockReading>
  /// The number of the read whose pieces are being delivered, or are next.
  private let turn = Guarded(0)
  private let threads = Mutex<[OwnThread]>([])

  package convenience init(_ file: FileDescriptor, options: Options = Options()) throws(PosixError) {
    try self.init(file, nil, options)
  }

  /// Reads regular files one after the other; each is opened when its turn comes. A file that cannot be opened or read
  /// ends reading.
  ///
  /// - Parameter first: Read before the others, from `options.offset` on.
  package convenience init(
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
  package func start(
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

  /// Starts the first thread. Called once. Each thread reads, processes what it has read while other threads read and
  /// process the next parts, and then delivers the result: `deliver` is called for one piece, or a few together, in the
  /// order of the stream. At most one read for each thread is under way, so a blocking `deliver` stops all of them.
  ///
  /// - Parameters:
  ///   - limit: How many threads there may be.
  ///   - demand: Decides when to add a thread; nil: all threads are started at once.
  ///   - making: Called for each thread; the result is called on that thread only. Nil: no further thread.
  package func start<Made>(
    upTo limit: Int = 1, when demand: ReadingDemand? = nil,
    making: @escaping @Sendable () -> (@Sendable (Piece) -> Made)?, deliver: @escaping @Sendable ([Made]) -> Void
  ) throws(PosixError) {
    guard let make = making() else { return }
    let pool = Pool(limit, limit > 1 ? demand : nil, making, deliver)
    try add(make, pool)
    while demand == nil, addOne(pool) {}
  }

  /// After the end `stopped`: the undelivered bytes.
  package var rest: Rest { reading.withLock { $0.rest } }

  /// The number of reading threads.
  package var threadCount: Int { threads.withLock { $0.count } }

  /// Ends reading soon, even while it waits for data. An incomplete line is not delivered, and is in ``rest``. A
  /// `deliver` that blocks must be unblocked by the code that blocks it.
  package func stop() { stopEvent.wake() }

  /// Waits until the threads have ended; after `stop` or at the end of the stream. Must not be called on these threads.
  package func join() {
    while let thread = threads.withLock({ $0.popLast() }) { thread.join() }
  }

  /// The common state of the threads.
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
    // The thread may also run turns of the pipeline, and needs as much stack as a pipeline thread.
    let thread = try OwnThread("rxd read", stackBytes: 8 << 20) { [self] in run(make, pool) }
    threads.withLock { $0.append(thread) }
  }

  /// Adds a thread, unless there are enough or none can be started; returns whether it did.
  private func addOne<Made>(_ pool: Pool<Made>) -> Bool {
    guard threads.withLock({ $0.count < pool.limit }), let make = pool.making() else { return false }
    return (try? add(make, pool)) != nil
  }

  /// The maximum number of pieces that are delivered together.
  private static let mostTogether = 48

  private func run<Made>(_ make: (Piece) -> Made, _ pool: Pool<Made>) {
    var pieces: [Piece] = []
    while let number = reading.withLock({ $0.next(&pieces) }) {
      let started = pool.demand.map { _ in monotonicNow() }
      // The first pieces are processed while other threads read. Further pieces are small and many, because lines were
      // too long: processed a few at a time, they need no more memory than the first.
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
