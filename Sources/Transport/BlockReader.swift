import Glibc
import PipelineCore
import Synchronization

/// Reads a descriptor on a thread of its own and hands over blocks of whole lines as they come: what
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
    /// The most that one read asks for, in bytes.
    public var blockBytes = 256 << 10
    /// Where reading starts; other than 0 only in a regular file.
    public var offset: Int64 = 0
    public init() {}
  }

  public enum End: Sendable, Equatable {
    /// The end of the stream, at that place.
    case finished(offset: Int64)
    /// `stop` came first; everything before the place was delivered.
    case stopped(offset: Int64)
    case failed(PosixError)
  }

  private let file: FileDescriptor
  private let options: Options
  private let stopEvent: WakeEvent
  private let stopped = Atomic<Bool>(false)
  private let thread = Mutex<OwnThread?>(nil)

  public init(_ file: FileDescriptor, options: Options = Options()) throws(PosixError) {
    self.file = file
    self.options = options
    stopEvent = try WakeEvent()
  }

  /// Starts the thread. Called once. `deliver` and, after its last call, `end` are called on it;
  /// `end` exactly once.
  public func start(
    deliver: @escaping @Sendable (LineBlock) -> Void, end: @escaping @Sendable (End) -> Void
  ) throws(PosixError) {
    let started = try OwnThread("rxd read") { [self] in
      var result: End
      do throws(PosixError) {
        result = try run(deliver)
      } catch { result = .failed(error) }
      end(result)
    }
    thread.withLock { $0 = started }
  }

  /// Ends reading soon, also while it waits for data. What was read but is not a whole line is not
  /// delivered. A `deliver` that blocks must be released by whoever blocks it.
  public func stop() {
    stopped.store(true, ordering: .releasing)
    stopEvent.wake()
  }

  /// Waits until the thread has ended; after `stop` or at the end of the stream. Not on the thread.
  public func join() {
    thread.withLock { $0.take() }?.join()
  }

  private var isStopped: Bool { stopped.load(ordering: .acquiring) }

  private func run(_ deliver: (LineBlock) -> Void) throws(PosixError) -> End {
    let status = try file.status()
    if status.kind == .directory {
      throw PosixError("read", file.name, code: EISDIR)
    }
    // A regular file never makes a reader wait, so there is nothing to poll for.
    let stop = status.kind == .regular ? nil : stopEvent
    if options.offset > 0, lseek(file.number, off_t(options.offset), SEEK_SET) < 0 {
      throw PosixError("seek in", file.name)
    }
    if status.kind == .regular { posix_fadvise(file.number, 0, 0, POSIX_FADV_SEQUENTIAL) }
    return switch options.mode {
    case .lines: try readLines(stop, deliver)
    case .bytes: try readBytes(stop, deliver)
    case .whole(let limit): try readWhole(limit, stop, deliver)
    }
  }

  private func readLines(_ stop: WakeEvent?, _ deliver: (LineBlock) -> Void)
    throws(PosixError) -> End
  {
    var lines = LineAssembler(
      maxLine: options.maxLine, policy: options.whenTooLong, offset: options.offset)
    while !isStopped {
      let room = lines.space(options.blockBytes)
      guard let count = try file.read(into: room, stop: stop) else { break }
      if count == 0 {
        lines.finish(deliver: deliver)
        return .finished(offset: lines.offset)
      }
      lines.filled(count, deliver: deliver)
    }
    return .stopped(offset: lines.offset)
  }

  private func readBytes(_ stop: WakeEvent?, _ deliver: (LineBlock) -> Void)
    throws(PosixError) -> End
  {
    var offset = options.offset
    let buffer = Slab(capacity: options.blockBytes)
    while !isStopped {
      let room = UnsafeMutableRawBufferPointer(start: buffer.start, count: buffer.capacity)
      guard let count = try file.read(into: room, stop: stop) else { break }
      if count == 0 { return .finished(offset: offset) }
      let start = offset
      offset &+= Int64(count)
      let slab = Slab(UnsafeRawBufferPointer(start: buffer.start, count: count))
      deliver(LineBlock(slab: slab, offset: start, endOffset: offset, longLine: nil))
    }
    return .stopped(offset: offset)
  }

  private func readWhole(_ limit: Int, _ stop: WakeEvent?, _ deliver: (LineBlock) -> Void)
    throws(PosixError) -> End
  {
    var slab = Slab(capacity: min(limit, 64 << 10) + 1)
    while !isStopped {
      if slab.count == slab.capacity {
        // One byte more than the limit, to tell "full" from "too much".
        let larger = Slab(capacity: min(slab.capacity * 2, limit + 1))
        larger.start.copyMemory(from: slab.start, byteCount: slab.count)
        larger.count = slab.count
        slab = larger
      }
      let room = UnsafeMutableRawBufferPointer(
        start: slab.start + slab.count, count: slab.capacity - slab.count)
      guard let count = try file.read(into: room, stop: stop) else { break }
      slab.count += count
      if slab.count > limit {
        throw PosixError(
          "read", file.name, code: EFBIG, detail: "it is longer than \(limit) bytes")
      }
      if count == 0 {
        let end = options.offset &+ Int64(slab.count)
        deliver(LineBlock(slab: slab, offset: options.offset, endOffset: end, longLine: nil))
        return .finished(offset: end)
      }
    }
    return .stopped(offset: options.offset)
  }
}
