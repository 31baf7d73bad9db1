import CLinux
import Glibc
import PipelineCore

/// Reads files to their ends, and closes them.
extension FollowerWork {
  func readFiles() {
    let time = monotonicNow()
    // Counts as reading while blocks wait to be delivered, too.
    let reader = ActiveReader()
    defer { withExtendedLifetime(reader) {} }
    var found = false
    defer {
      if found, inotify != nil { pace.found(at: time) } else { pace.foundNothing() }
    }
    for file in files where file.isDirty {
      // A file without a name is read to its end before its successor.
      var left = file.isNamed ? Self.turn : Int.max
      file.isDirty = false
      do throws(PosixError) {
        reading: while left > 0 {
          if stop.isAwake { return }
          let progress = try file.read(blockBytes, small: small) {
            deliver($0, of: file, isNewest: $1)
          }
          if file.isUnreadable {
            file.isUnreadable = false
            reported.remove(file.path)
          }
          switch progress {
          case .end:
            switch file.compressed {
            case .whole, .damaged: close(file)  // Must come before its successor is read.
            case .unfinished:
              if awaited.insert(file.path).inserted {
                notice(.waiting(path: file.path, options.unfinishedWait))
              }
            case .more, nil: break
            }
            break reading
          case .waits: break reading
          case .same(let earlier, let former): restored(file, from: earlier, of: former)
          case .other: notice(.opened(file.position))
          // Later data causes an event; if there are no events, this file must be polled.
          case .caughtUp where file.watch >= 0:
            found = true
            break reading
          case .read, .caughtUp: found = true
          case .truncated(let offset):
            found = true
            notice(.truncated(path: file.path, offset: offset))
          }
          left -= 1
        }
        if left == 0 { file.isDirty = true }
      } catch {
        report(error)
        if error.detail == nil {
          file.isUnreadable = true
          lookAgain()
        }
      }
    }
  }

  /// The present limit on a read.
  private var blockBytes: Int {
    min(options.blockBytes, max(ActiveReader.leastBlock, ActiveReader.share(of: options.allBlocks)))
  }

  func deliver(_ lines: LineBlock, of file: FollowedFile, isNewest: Bool = false) {
    let before = file.tail
    deliver(FileBlock(lines: lines, position: file.position(behind: lines), isNewest: isNewest, before: before))
  }

  /// When a file without a name is closed if it does not grow until then, on the monotonic clock.
  func retirement(of file: FollowedFile) -> Int64 {
    file.lastChange &+ (file.isCompressed ? options.unfinishedWait : options.rotateWait).nanoseconds
  }

  /// Closes files without a name that have not grown for a while.
  func retire() {
    guard files.contains(where: { !$0.isNamed }) else { return }
    let now = monotonicNow()
    for file in files where !file.isNamed && !file.isDirty && retirement(of: file) <= now && !isAwaited(file) {
      close(file)
    }
  }

  // MARK: Rewritten files

  /// The content read from the file that has just lost this path; nil: there is no such file, or nothing was read of
  /// it.
  func earlierContent(at path: String, _ named: Set<Key>) -> EarlierContent? {
    guard let file = files.last(where: { $0.path == path && !named.contains($0.key) }) else { return nil }
    return file.content(of: file)
  }

  /// Whether another file waits for the content of this one.
  func isAwaited(_ file: FollowedFile) -> Bool { files.contains { $0.earlier?.file === file } }

  /// Reports that reading continues in the file where its earlier content ended.
  func restored(_ file: FollowedFile, from earlier: FilePosition, of former: FollowedFile?) {
    notice(.restored(earlier, file.position))
    // The former file's incomplete line is in this file, too, and its writer may still add to it.
    former?.skipHeldLine()
  }

  // MARK: Last lines

  /// When to check whether the incomplete line at the end of the file is its last one, on the monotonic clock.
  func nextEndOfLine(_ file: FollowedFile) -> Int64? {
    guard file.isNamed else { return nil }
    let reported = file.reportedLine == file.lines.offset
    let notice = reported ? nil : file.lastChange &+ options.unendedNotice.nanoseconds
    let end: Int64?
    switch options.lastLine {
    case .after(let wait):
      let (time, isNever) = file.lastChange.addingReportingOverflow(wait.nanoseconds)
      end = isNever ? nil : time
    case .whenClosed:
      // If there are no events, the system must be asked again whether a program has the file open.
      switch file.writers {
      case .closed: end = file.lastChange &+ options.closedWait.nanoseconds
      case .unknown: end = max(file.lastChange &+ options.closedWait.nanoseconds, file.askAgainAt)
      case .open: end = file.watch >= 0 ? nil : max(file.lastChange &+ options.closedWait.nanoseconds, file.askAgainAt)
      }
    }
    return [notice, end].compactMap { $0 }.min()
  }

  /// Delivers last lines without a newline that will not get one.
  func endLines() {
    for file in files where file.isWithinLine && file.isNamed && !file.isDirty {
      let now = monotonicNow()
      guard let due = nextEndOfLine(file), due <= now else { continue }
      if hasLastLine(file, now) {
        file.endLine { lines in
          let before = file.tail
          deliver(FileBlock(lines: lines, position: file.position(behind: lines), before: before, endsLine: true))
        }
      } else if now >= file.lastChange &+ options.unendedNotice.nanoseconds, file.reportedLine != file.lines.offset {
        file.reportedLine = file.lines.offset
        let isWritten: Bool? = file.writers == .unknown ? nil : file.writers == .open
        notice(.unended(path: file.path, bytes: file.lines.held, isWritten: isWritten))
      }
    }
  }

  private func hasLastLine(_ file: FollowedFile, _ now: Int64) -> Bool {
    if (try? file.file.status().size) != file.lines.readOffset {
      file.isDirty = true
      return false
    }
    if case .after(let wait) = options.lastLine { return now &- file.lastChange >= wait.nanoseconds }
    guard now &- file.lastChange >= options.closedWait.nanoseconds else { return false }
    switch rx_has_writer(file.file.number) {
    case 0:
      // Without a writer the size is final: anything that was written before is included.
      if (try? file.file.status().size) == file.lines.readOffset { return true }
      file.isDirty = true
      return false
    case 1: file.writers = .open
    default:
      if file.writers == .closed { return true }
      file.writers = file.watch >= 0 ? file.writers : .unknown
    }
    // If the writers are unknown, only time decides.
    file.askAgainAt = now &+ max(options.closedWait.nanoseconds, 1_000_000_000)
    guard file.writers == .unknown else { return false }
    let rest = file.modified &+ options.unknownWait.nanoseconds &- wallNow()
    if rest <= 0 { return true }
    file.askAgainAt = max(file.askAgainAt, now &+ rest)
    return false
  }

  private func wallNow() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
  }

  /// Ends a file, after its last line.
  func close(_ file: FollowedFile) {
    if let damage = damage(of: file) {
      // The incomplete line of a damaged file is not an event.
      notice(.damaged(file.position, damage))
    } else {
      file.finish { deliver($0, of: file) }
    }
    forget(file)
    remember(file)
    notice(.finished(path: file.path, at: file.position))
  }

  /// The reason why the rest of a compressed file cannot be read.
  func damage(of file: FollowedFile) -> FileFollower.Damage? {
    switch file.compressed {
    case nil: nil
    case .damaged: .damaged
    case .more, .unfinished: .unfinished
    case .whole: file.isTooShort ? .tooShort : nil
    }
  }

  /// Stops following the file.
  func forget(_ file: FollowedFile) {
    if file.watch >= 0 {
      fileWatches[file.watch] = nil
      inotify?.unwatch(file.watch)
    }
    byKey[file.key] = nil
    files.removeAll { $0 === file }
  }

  func remember(_ file: FollowedFile) {
    finished.add((file.born, file.position, file.isCompressed), file.key)
  }
}
