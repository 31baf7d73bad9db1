import Glibc
import PipelineCore
import Synchronization

/// Lines of a file that is followed.
public struct FileBlock: Sendable {
  public var lines: LineBlock
  /// Where reading would go on after this block.
  public var position: FilePosition
  /// The file has been read to its end: the follower's thread has time.
  public var isNewest = false
  public var path: String { position.path }
}

/// Follows files that grow: delivers whole lines as they are written, through renamings, truncations
/// and replacements, on a thread of its own that sleeps while nothing happens.
///
/// - A file is known by device and inode. Renamed, it is read to its end, and until nothing has been
///   added for `rotateWait`; then its last line is delivered even without a newline.
/// - A file that has become shorter, or begins with other bytes, is read from its start, and reported:
///   what was written between the last look and the truncation is lost (`copytruncate`).
/// - Files that appear after the start are read from their beginning.
/// - One file under two names is read once.
/// - A directory that cannot be listed for a while takes no file's name away: only a look that succeeds tells that a
///   file has lost it.
/// - Lines are delivered as they come. While they come faster than about 5,000 a second, the files are looked at every
///   `pace`, so that several lines cost one wake-up.
public final class FileFollower: Sendable {
  public struct Options: Sendable {
    public enum Start: String, Sendable { case beginning, end }
    /// Paths, possibly with `*`, `?`, `[...]`.
    public var paths: [String]
    /// Where to begin in files that exist at the start and are not in `resume`. At the end of a file
    /// whose last line is not complete, with the next line.
    public var start = Start.end
    /// Where earlier reading ended.
    public var resume: [FilePosition] = []
    /// Bytes of a line without its newline.
    public var maxLine = 1 << 20
    public var whenTooLong = LongLine.Policy.cut
    /// The most that one read asks for, in bytes.
    public var blockBytes = 256 << 10
    /// How long a line may wait for others to be read with it, while they come fast: sixteen times within four times as long.
    public var pace = TimeSpan(nanoseconds: 750_000)
    /// How long a file without a matching name is kept open after it last grew.
    public var rotateWait: TimeSpan = .seconds(5)
    /// How directories are listed, for tests.
    var list: Glob.Lister = Glob.system
    public init(paths: [String]) { self.paths = paths }
  }

  public enum Notice: Sendable, Equatable {
    /// A file is followed from that place on.
    case opened(FilePosition)
    /// The file has shrunk or been written anew; it had been read up to `offset`.
    case truncated(path: String, offset: Int64)
    /// A file without a matching name has been read to its end; by now another one may have its path.
    case finished(path: String, at: FilePosition)
    /// What a path leads to cannot be followed; it is tried again when it changes.
    case failed(PosixError)
    /// A directory or file cannot be looked at just now. What was known of it stays, and it is tried again: soon at first,
    /// later once a minute. Told once, until it has `recovered`.
    case retrying(PosixError)
    /// It can be looked at again.
    case recovered(path: String)
    /// A position to resume at whose file is gone or is shorter now.
    case lost(FilePosition)
    /// The kernel dropped news; everything has been looked at again.
    case overflow
    /// There are no more watches: files are looked at once a second instead.
    case polling(PosixError)
  }

  private let options: Options
  private let stopEvent: WakeEvent
  private let thread = Mutex<OwnThread?>(nil)

  public init(_ options: Options) throws(PosixError) {
    self.options = options
    stopEvent = try WakeEvent()
  }

  /// Opens the files that exist and starts the thread; called once. The callbacks are called on it only, one at a time,
  /// and may block. `end` is called once, after `stop`, with where each file has been read to.
  ///
  /// - Returns: Where reading begins in the files that exist.
  @discardableResult
  public func start(
    deliver: @escaping @Sendable (FileBlock) -> Void,
    notice: @escaping @Sendable (Notice) -> Void = { _ in },
    end: @escaping @Sendable ([FilePosition]) -> Void = { _ in }
  ) throws(PosixError) -> [FilePosition] {
    let work = FollowerWork(options, stopEvent, deliver, notice)
    work.prepare()
    let positions = work.positions
    // It runs turns of the pipeline, too, and needs as much stack as the thread that usually does.
    let started = try OwnThread("rxd follow", stackBytes: 8 << 20) {
      work.run()
      end(work.positions)
    }
    thread.withLock { $0 = started }
    return positions
  }

  /// Ends following soon. What is not a whole line is not delivered.
  public func stop() { stopEvent.wake() }

  /// Waits until the thread has ended, after `stop`. Not on the thread.
  public func join() { thread.withLock { $0.take() }?.join() }
}
