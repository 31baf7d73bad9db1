import Glibc
import PipelineCore
import Transport

/// The log (WAL) of a store: its checkpoints into the file, and its replication to a copy on another machine.
extension DiskStore {
  /// Replicates the store's writes to another machine. Called before the pipeline starts.
  /// - Parameter copier: Must have been created before the store was opened.
  package func copy(through copier: StoreCopier) throws(PosixError) {
    copier.readLog(of: identity)
    state.withLock { $0.copier = copier }
    let turns = turns
    try copier.begin { turns.wake() }
  }

  /// Whether commits may be reported now; false: the process must not act any more. Called on the thread of the store.
  package var mayReport: @Sendable () -> Bool {
    get { state.withLock(\.mayReport) }
    set { state.withLock { $0.mayReport = newValue } }
  }

  /// How far the copy on another machine is behind; nil: there is none. On any thread.
  package var standing: StoreCopier.Standing? { state.withLock(\.copier)?.standing }
}

extension DiskStore.Writer {
  /// Reports that the requests are on the disk or, if that is awaited, waits until the copy has them too.
  func report(_ requests: [DiskStore.Request]) {
    guard let copier = state.withLock(\.copier) else { return reportNow(requests) }
    let frames = noteLog(copier)
    guard copier.isAwaited else { return reportNow(requests) }
    uncopied.append((frames, requests))
    reportCopied(copier)
  }

  private func reportNow(_ requests: [DiskStore.Request]) {
    guard state.withLock(\.mayReport)() else {
      // Another process may have taken over the pipeline: this one ends, and its commits must not be reported.
      withheld += requests
      return
    }
    for request in requests { request.done() }
  }

  /// Reports the commits that the copy has.
  func reportCopied(_ copier: StoreCopier) {
    guard !uncopied.isEmpty, let copied = copier.copiedFrames else { return }
    while let first = uncopied.first, first.frames <= copied {
      uncopied.removeFirst()
      reportNow(first.requests)
    }
  }

  /// Moves the contents of the log into the file if the log is large for this store; with `isSmall`, also if it is
  /// small.
  func moveLog(isSmall: Bool = false) {
    let copier = state.withLock(\.copier)
    if let copier, noteLog(copier) > 0 {
      if copier.holdsLog(isUrgent: isSmall) { return }
      // Must be reported first: frame numbers refer to the current log.
      reportCopied(copier)
      defer { if file?.logFrames == 0 { copier.logWasMoved() } }
      return moveWholeLog(isSmall)
    }
    moveWholeLog(isSmall)
  }

  /// Reports the log's length, which maintenance increases too, to the copier. Returns the number of frames.
  @discardableResult
  func noteLog(_ copier: StoreCopier) -> Int {
    let frames = file?.logFrames ?? 0
    // After the file was reopened, the number becomes known with the next commit.
    if frames > 0 { copier.wrote(frames) }
    return frames
  }

  func moveWholeLog(_ isSmall: Bool) {
    do throws(DatabaseError) {
      do throws(DatabaseError) {
        note(isLogHeld: try file?.boundLog(isSmall: isSmall) ?? false)
      } catch  where error.isFull && room?.giveUp() == true {
        set(.reserve)
        note(isLogHeld: try file?.boundLog(isSmall: isSmall) ?? false)
      }
    } catch {
      // All data is in the log, and the next commit retries. The reserve must count as used up, because otherwise free
      // space would not be checked.
      if error.isFull, room != nil { set(.reserve) }
      guard !isFailing, !error.isFull else { return }
      log(.warning, "the log of the store \(path) cannot be moved into it: \(error.message)")
    }
  }

  /// Reports that another process has been reading the store for so long that the log grows.
  func note(isLogHeld: Bool) {
    guard isLogHeld != self.isLogHeld else { return }
    self.isLogHeld = isLogHeld
    guard let bytes = file?.logBytes else { return }
    if isLogHeld {
      log(
        .warning,
        "the log of the store \(path) has \(bytes >> 20) MiB and grows: a program ('rxd state', 'rxd deadletters') has been reading the store "
          + "meanwhile; the log is moved into the file when that has ended")
    } else {
      log(.info, "the log of the store \(path) was moved into the file")
    }
  }
}
