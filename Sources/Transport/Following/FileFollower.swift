import Glibc
import PipelineCore
import Synchronization

/// Lines of a followed file.
package struct FileBlock: Sendable {
  package var lines: LineBlock
  /// The position from which reading would continue after this block.
  package var position: FilePosition
  /// Whether the file has been read to its end, so that the follower's thread is idle.
  package var isNewest = false
  /// The last bytes of the file before the block.
  var before: FileTail?
  /// Whether the last line is complete although it has no newline: it is an event.
  package var endsLine = false
  package var path: String { position.path }
}

extension FileBlock {
  /// A block without lines at a position.
  package init(endAt position: FilePosition) {
    lines = LineBlock(slab: Slab(capacity: 0), offset: position.offset, endOffset: position.offset, longLine: nil)
    self.position = position
  }

  /// A position in the block or before it.
  ///
  /// - Parameter earlier: The bytes before an earlier known position.
  package func position(at offset: Int64, behind earlier: FileTail?) -> FilePosition {
    var position = position
    position.offset = offset
    guard let tail = position.tail, !tail.isOfCompressed, tail.end > offset else { return position }
    let known = Int(clamping: offset &- lines.offset)
    let isWithin = known > 0 && known <= lines.slab.count
    let before = [before, earlier].compactMap { $0 }.first { $0.end <= offset }
    if isWithin, known >= FileTail.most || before == nil {
      let count = min(known, FileTail.most)
      position.tail = FileTail(
        UnsafeRawBufferPointer(start: lines.slab.start + (known - count), count: count), end: offset)
    } else {
      position.tail = before
    }
    return position
  }
}

/// Follows growing files: delivers whole lines as they are written, through renames, truncations and replacements, on a
/// thread of its own that sleeps while nothing happens.
///
/// - A file is identified by device and inode. A renamed file is read to its end, until nothing has been added for
///   `rotateWait`; then its last line is delivered even without a newline.
/// - A file that has become shorter and does not get its old content back, or starts with other bytes, is reported and
///   read from its start: data written between the last read and the truncation is lost (`copytruncate`), unless nobody
///   followed the file at that time and a copy exists.
/// - If a file was renamed and compressed (gzip, zstd) before it was read to its end, reading continues in the
///   compressed file.
/// - If the path of a saved position, or of a followed file, leads to another file with the same content up to the
///   position, the file was restored: reading continues at the position. The same holds for a file that was rewritten
///   with that content.
/// - Files that appear later are read from their start.
/// - A file with two names is read once.
/// - If symbolic links lead to a file, the directories of the links and their targets are watched, too: a file that is
///   renamed in the directory of a link's target is read to its end, and the link's new target is read.
/// - Files of which the kernel reports nothing, because it has no watches left or because other machines change the
///   file system, are polled once a second.
/// - While a directory cannot be listed, its files keep their names: only a successful listing shows that a file has
///   lost its name.
/// - Lines are delivered as they come. Above about 5,000 lines a second the files are polled every `pace`, so that
///   several lines cost one wake-up.
package final class FileFollower: Sendable {
  package struct Options: Sendable {
    package enum Start: String, Sendable { case beginning, end }
    /// Paths, possibly with `*`, `?`, `[...]`.
    package var paths: [String]
    /// Where to start in files that exist at the start and are not in `resume`. After an incomplete last line, reading
    /// starts with the next line.
    package var start = Start.end
    /// The positions at which earlier reading ended.
    package var resume: [FilePosition] = []
    /// When these positions were noted, in nanoseconds since 1970. If a file was truncated since then, its rest is read
    /// from a copy that is younger; 0: copies are not looked for.
    package var savedAt: Int64 = 0
    /// The longest line in bytes, without its newline.
    package var maxLine = 1 << 20
    package var whenTooLong = LongLine.Policy.cut
    /// Whether blocks end where reads do, not at the end of a line.
    package var endsAnywhere = false
    /// The largest read in bytes.
    package var blockBytes = 256 << 10
    /// The limit on the sum of the block sizes of all readers of this process, as in ``BlockReader/Options/allBlocks``.
    package var allBlocks = 4 << 20
    /// How long a line may wait for others while a file grows fast, which means sixteen reads with data within four
    /// times this time.
    package var pace = TimeSpan(nanoseconds: 750_000)
    /// How long a file without a matching name is kept open after it last grew.
    package var rotateWait: TimeSpan = .seconds(5)
    /// How long an incomplete compressed file is waited for after it last grew.
    var unfinishedWait: TimeSpan = .seconds(60)
    /// Which links are followed among those that a wildcard matches, or below such a match.
    package var links = LinkPolicy.trusted
    package var watch = WatchMethod.auto
    /// When a last line without a newline is delivered.
    package var lastLine = LastLine.whenClosed
    /// Lists directories; replaced in tests.
    var list: Glob.Lister = Glob.system
    /// The name of a path's file system if the kernel does not report all its changes; replaced in tests.
    var networkFileSystem: @Sendable (String) -> String? = { NetworkFileSystem.name(of: $0) }
    /// The pause between two polls while there are no events.
    var pollInterval: TimeSpan = .seconds(1)
    /// The pause before asking again for watches that the system has refused.
    var rewatchInterval: TimeSpan = .seconds(60)
    /// How long to wait, after it last grew, for a file that is shorter than before and has the same bytes as far as it
    /// goes.
    var rewriteWait: TimeSpan = .milliseconds(500)
    /// For how long a closed file must not have grown before its last line is delivered; the same for a file whose
    /// writers are unknown; and after how long such a wait is reported.
    var closedWait: TimeSpan = .seconds(2)
    var unknownWait: TimeSpan = .seconds(600)
    var unendedNotice: TimeSpan = .seconds(10)
    package init(paths: [String]) { self.paths = paths }
  }

  package enum LastLine: Sendable, Equatable {
    /// When no program has the file open for writing any more; if that cannot be known, when the file has not grown for
    /// ten minutes.
    case whenClosed
    /// When the file has not grown for this long.
    case after(TimeSpan)
  }

  package enum Notice: Sendable, Equatable {
    /// The file is followed from this position on.
    case opened(FilePosition)
    /// The file was truncated or rewritten; it had been read up to `offset`.
    case truncated(path: String, offset: Int64)
    /// A file without a matching name has been read to its end; its path may belong to another file now.
    case finished(path: String, at: FilePosition)
    /// The file at the path cannot be followed; following is tried again when the file changes.
    case failed(PosixError)
    /// A directory or file cannot be read at the moment. Known files stay, and reading is tried again: soon at first,
    /// later once a minute. Reported once, until `recovered`.
    case retrying(PosixError)
    /// The path can be read again.
    case recovered(path: String)
    /// Reading cannot continue in the file of a position in `resume`.
    case gone(FilePosition, Absence)
    /// The path of a position in `resume`, or of a followed file, has another file now, with the same content up to the
    /// position, or the same file was rewritten with that content: reading continues there.
    case restored(FilePosition, FilePosition)
    /// The file of a position in `resume` was truncated, and a copy has the unread content (`copytruncate`): the copy
    /// is read to its end first, from the second position on.
    case copied(FilePosition, FilePosition)
    /// The file of a position in `resume` was compressed: reading continues in the compressed file, from the second
    /// position on.
    case compressed(FilePosition, FilePosition)
    /// A compressed file is incomplete; reading continues if it grows within this time.
    case waiting(path: String, TimeSpan)
    /// The content of a compressed file cannot be read from this position on.
    case damaged(FilePosition, Damage)
    /// The kernel dropped events; all files have been checked.
    case overflow
    /// No watches are left: files are polled once a second instead.
    case polling(PosixError)
    /// All files are watched again.
    case watching
    /// The path is on a file system on which other machines change files without events; it is polled once a second.
    case remote(path: String, fileSystem: String)
    /// The last line has no newline, and waits for one, or for the end of its writer.
    case unended(path: String, bytes: Int, isWritten: Bool?)
  }

  /// The reason why reading cannot continue in the file of a position.
  package enum Absence: Sendable, Equatable {
    /// The file is neither at its path nor under another name in the same directory.
    case removed
    /// Another file has its path, and the file has no other name in the same directory.
    case replaced
    /// The file is shorter than the part that was read.
    case truncated(size: Int64)
    /// The bytes before the position have changed.
    case rewritten
  }

  /// The reason why a compressed file cannot be read to its end.
  package enum Damage: Sendable, Equatable {
    /// The content is not in the format, or needs too much memory.
    case damaged
    /// The file is incomplete, and does not grow.
    case unfinished
    /// The content ends before the position.
    case tooShort
  }

  private let options: Options
  private let stopEvent: WakeEvent
  private let thread = Mutex<OwnThread?>(nil)

  package init(_ options: Options) throws(PosixError) {
    self.options = options
    stopEvent = try WakeEvent()
  }

  /// Opens the existing files and starts the thread; called once. The callbacks are called on that thread only, one at
  /// a time, and may block. `end` is called once, after `stop`, with the position of each file.
  ///
  /// - Parameter early: Receives the notices of the start, instead of `notice`, before the call returns.
  /// - Returns: The positions where reading starts in the existing files.
  @discardableResult
  package func start(
    deliver: @escaping @Sendable (FileBlock) -> Void,
    notice: @escaping @Sendable (Notice) -> Void = { _ in },
    end: @escaping @Sendable ([FilePosition]) -> Void = { _ in }, early: ((Notice) -> Void)? = nil
  ) throws(PosixError) -> [FilePosition] {
    let work = FollowerWork(options, stopEvent, deliver, notice)
    work.prepare()
    let positions = work.positions
    if let early { work.handOut(early) }
    // The thread also runs turns of the pipeline, and needs as much stack as a pipeline thread.
    let started = try OwnThread("rxd follow", stackBytes: 8 << 20) {
      work.run()
      end(work.positions)
    }
    thread.withLock { $0 = started }
    return positions
  }

  /// Ends following soon. An incomplete line is not delivered.
  package func stop() { stopEvent.wake() }

  /// Waits until the thread has ended, after `stop`. Not on the thread.
  package func join() { thread.withLock { $0.take() }?.join() }
}
