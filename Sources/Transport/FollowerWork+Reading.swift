import Glibc
import PipelineCore

/// Reads files to their ends, and closes them.
extension FollowerWork {
  func readFiles() {
    let time = monotonicNow()
    var found = false
    defer {
      if found, !isPolling { pace.found(at: time) } else { pace.foundNothing() }
    }
    for file in files where file.isDirty {
      // A file without a name is read to its end before its successor.
      var left = file.isNamed ? Self.turn : Int.max
      file.isDirty = false
      do throws(PosixError) {
        while left > 0 {
          if stop.isAwake { return }
          let progress = try file.read(options.blockBytes, small: small) {
            deliver($0, of: file, isNewest: $1)
          }
          if file.isUnreadable {
            file.isUnreadable = false
            reported.remove(file.path)
          }
          if progress == .end {
            switch file.compressed {
            case .whole, .damaged: close(file)  // Before its successor is read.
            case .unfinished:
              if awaited.insert(file.path).inserted {
                notice(.waiting(path: file.path, options.unfinishedWait))
              }
            case .more, nil: break
            }
            break
          }
          found = true
          // Later data causes an event; without events it must be polled for.
          if progress == .caughtUp, file.watch >= 0, !isPolling { break }
          if case .truncated(let offset) = progress {
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

  func deliver(_ lines: LineBlock, of file: FollowedFile, isNewest: Bool = false) {
    deliver(FileBlock(lines: lines, position: file.position(at: lines.endOffset), isNewest: isNewest))
  }

  /// When a file without a name is closed if it does not grow until then, on the monotonic clock.
  func retirement(of file: FollowedFile) -> Int64 {
    file.lastChange &+ (file.isCompressed ? options.unfinishedWait : options.rotateWait).nanoseconds
  }

  /// Closes files without a name that have not grown for a while.
  func retire() {
    guard files.contains(where: { !$0.isNamed }) else { return }
    let now = monotonicNow()
    for file in files where !file.isNamed && !file.isDirty && retirement(of: file) <= now { close(file) }
  }

  /// Ends a file, after its last line.
  func close(_ file: FollowedFile) {
    if let damage = damage(of: file) {
      // The start of a line is no line.
      notice(.damaged(file.position, damage))
    } else {
      file.finish { deliver($0, of: file) }
    }
    forget(file)
    remember(file)
    notice(.finished(path: file.path, at: file.position))
  }

  /// Why the rest of a compressed file cannot be read.
  func damage(of file: FollowedFile) -> FileFollower.Damage? {
    switch file.compressed {
    case nil: nil
    case .damaged: .damaged
    case .more, .unfinished: .unfinished
    case .whole: file.isTooShort ? .tooShort : nil
    }
  }

  /// Does not follow the file any more.
  func forget(_ file: FollowedFile) {
    if file.watch >= 0 {
      fileWatches[file.watch] = nil
      inotify?.unwatch(file.watch)
    }
    byKey[file.key] = nil
    files.removeAll { $0 === file }
  }

  func remember(_ file: FollowedFile) {
    if finished.updateValue((file.born, file.position, file.isCompressed), forKey: file.key) == nil {
      finishedOrder.append(file.key)
    }
    if finishedOrder.count > Self.maxFinished {
      for key in finishedOrder.prefix(Self.maxFinished / 2) { finished[key] = nil }
      finishedOrder.removeFirst(Self.maxFinished / 2)
    }
  }
}
